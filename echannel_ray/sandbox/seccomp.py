"""The list of system calls that a sandbox may make; the kernel refuses all others (EPERM, an exception in Python).

Written here, on ctypes, rather than with pyseccomp from PyPI: its last release is of 2021 and knows no Python above
3.8; it is a layer over libseccomp.so.2, a package of the host that may be missing where the kernel can do all that is
needed, and to find it runs `ldconfig` and `gcc`. What it would add are names for numbers; the list is short.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from typing import Final

_SET_MODE_FILTER: Final = 1
_LOAD_WORD, _IF_EQUAL, _IF_AT_LEAST, _IF_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050001  # with EPERM
_KILL: Final = 0x80000000
_NUMBER, _ARCHITECTURE, _THIRD_ARGUMENT = 0, 4, 32  # where they are in struct seccomp_data, of little-endian machines
_PROT_EXEC: Final = 4
_X32: Final = 0x40000000  # the numbers of x86-64's other ABI begin there

# Computing, memory, waiting, and the socket that it has. `recvmsg` brings the memory of large batches. None opens,
# connects, starts, signals or changes anything outside the process. `select` and `pselect6` are what `time.sleep` of
# Python 3.10 calls: they wait, as `poll` does.
_NUMBERS: Final = {
    "x86_64": {
        "read": 0, "write": 1, "close": 3, "fstat": 5, "poll": 7, "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12,
        "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "select": 23, "sched_yield": 24, "mremap": 25,
        "madvise": 28, "nanosleep": 35, "getpid": 39, "recvmsg": 47, "exit": 60, "gettimeofday": 96, "sigaltstack": 131,
        "gettid": 186, "time": 201, "futex": 202, "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229,
        "clock_nanosleep": 230, "exit_group": 231, "pselect6": 270, "ppoll": 271, "getrandom": 318,
    },
    "aarch64": {
        "close": 57, "read": 63, "write": 64, "pselect6": 72, "ppoll": 73, "fstat": 80, "exit": 93, "exit_group": 94,
        "futex": 98, "nanosleep": 101, "clock_gettime": 113, "clock_getres": 114, "clock_nanosleep": 115,
        "sched_yield": 124, "restart_syscall": 128, "sigaltstack": 132, "rt_sigaction": 134, "rt_sigprocmask": 135,
        "rt_sigreturn": 139, "gettimeofday": 169, "getpid": 172, "gettid": 178, "recvmsg": 212, "brk": 214,
        "munmap": 215, "mremap": 216, "mmap": 222, "mprotect": 226, "madvise": 233, "getrandom": 278,
    },
}  # fmt: skip
_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}
# Nothing that can be executed is made after the lockdown.
_NOT_EXECUTABLE: Final = ("mmap", "mprotect")


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def program(machine: str) -> bytes:
    """The filter for this kind of machine."""
    code = [
        (_LOAD_WORD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),  # the calls of another architecture, which have other numbers
        (_LOAD_WORD, 0, 0, _NUMBER),
        (_IF_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _REFUSE),
    ]
    for name, number in _NUMBERS[machine].items():
        if name in _NOT_EXECUTABLE:
            code += [
                (_IF_EQUAL, 0, 4, number),
                (_LOAD_WORD, 0, 0, _THIRD_ARGUMENT),
                (_IF_BITS, 0, 1, _PROT_EXEC),
                (_RETURN, 0, 0, _REFUSE),
                (_RETURN, 0, 0, _ALLOW),
            ]
        else:
            code += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    code.append((_RETURN, 0, 0, _REFUSE))
    return b"".join(struct.pack("<HBBI", *each) for each in code)


def install(libc: ctypes.CDLL) -> None:
    """Put the filter on this process, for good; `OSError` where the kernel refuses it, and on unknown machines."""
    machine = platform.machine()
    if machine not in _NUMBERS:
        raise OSError(f"there is no list of system calls for {machine}")
    filter_ = program(machine)
    packed = _Program(len(filter_) // 8, filter_)
    if libc.syscall(_SECCOMP[machine], _SET_MODE_FILTER, 0, ctypes.byref(packed)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the kernel refuses seccomp filters: {os.strerror(number)}")
