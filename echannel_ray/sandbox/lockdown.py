"""What shuts a process in: the layers, in the order in which they are put on.

Seccomp and resource limits are mandatory: without them there is no sandbox. Of the others each is put on where this
host has it: namespaces (shared by all sandboxes of a zygote, made once: a network namespace takes milliseconds),
an empty root directory, another user, no capabilities, Landlock. Landlock's package on PyPI is an alpha; all that is
needed of it here is an empty set of rules, which is three system calls.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct
from typing import Final

from echannel_ray.sandbox import seccomp

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_NAMESPACES: Final = {
    "pid namespace": _CLONE_NEWPID,
    "network namespace": _CLONE_NEWNET,
    "ipc namespace": _CLONE_NEWIPC,
    "uts namespace": _CLONE_NEWUTS,
    "mount namespace": _CLONE_NEWNS,
}
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 1, 2, 4, 8, 0x4000, 0x40000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
# The same numbers on all architectures.
_LANDLOCK_CREATE_RULESET, _LANDLOCK_RESTRICT_SELF = 444, 446
_LANDLOCK_FILES: Final = (13, 14, 15, 15, 16)  # how many rights over files the versions 1 to 5 know
_CAPSET: Final = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION: Final = 0x20080522
_NOBODY: Final = 65534
_EMPTY_ROOT: Final = "/tmp"  # hidden under an empty file system, in a mount namespace of the zygote's own
_MAX_DESCRIPTORS: Final = 16

libc: Final = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Be killed when the thread that started this process ends. A change of user undoes it."""
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def enter_namespaces() -> list[str]:
    """Namespaces without network and without other processes (which begins with the next fork): those that worked."""
    everything = sum(_NAMESPACES.values())
    if libc.unshare(everything) == 0:
        return [*_NAMESPACES]
    if libc.unshare(everything | _CLONE_NEWUSER) == 0:
        return ["user namespace", *_NAMESPACES]
    return [name for name, flag in _NAMESPACES.items() if libc.unshare(flag) == 0]


def hide_files() -> bool:
    """Prepare an empty directory to be the root of sandboxes, in a mount namespace."""
    if libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None) != 0:
        return False
    flags = _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    return bool(libc.mount(b"none", _EMPTY_ROOT.encode(), b"tmpfs", flags, b"size=4096,nr_inodes=2") == 0)


def enclose(has_empty_root: bool) -> list[str]:
    """Lock down what can be before the limits are known; the layers that worked."""
    layers = []
    if has_empty_root and _tries(os.chroot, _EMPTY_ROOT) and _tries(os.chdir, "/"):
        layers.append("empty root")
    if os.geteuid() == 0 and _become_nobody():
        layers.append("another user")
    if _drop_capabilities():
        layers.append("no capabilities")
    die_with_parent()
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _check(libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "a process that can't be traced")
    if _landlock():
        layers.append("landlock")
    return layers


def lock(max_memory_bytes: int) -> list[str]:
    """The mandatory layers, `OSError` where they are refused. From here on nothing can be opened, sent or started."""
    for which, limit in (
        (resource.RLIMIT_AS, max_memory_bytes),
        (resource.RLIMIT_NOFILE, _MAX_DESCRIPTORS),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        try:
            _, most = resource.getrlimit(which)
            if most != resource.RLIM_INFINITY:
                limit = min(limit, most)
            resource.setrlimit(which, (limit, limit))
        except (OSError, ValueError) as error:
            raise OSError(f"the kernel refuses resource limits: {error}") from None
    seccomp.install(libc)
    return ["resource limits", "seccomp"]


def memory_in_use() -> int:
    """The address space of this process, in bytes; to be asked while /proc can be read."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _tries(call: object, *arguments: object) -> bool:
    try:
        call(*arguments)  # type: ignore[operator]
    except OSError:
        return False
    return True


def _check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(f"the kernel refuses {what}: {os.strerror(ctypes.get_errno())}")


def _become_nobody() -> bool:
    ids = (_NOBODY, _NOBODY, _NOBODY)
    return _tries(os.setgroups, []) and _tries(os.setresgid, *ids) and _tries(os.setresuid, *ids)


def _drop_capabilities() -> bool:
    number = _CAPSET.get(platform.machine())
    if number is None:
        return False
    header = struct.pack("<Ii", _CAPABILITY_VERSION, 0)
    return bool(libc.syscall(number, header, bytes(24)) == 0)


def _landlock() -> bool:
    version = libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, 1)
    if version < 1:
        return False
    files = (1 << _LANDLOCK_FILES[min(version, len(_LANDLOCK_FILES)) - 1]) - 1
    if version < 4:
        rules = struct.pack("<Q", files)
    elif version < 6:
        rules = struct.pack("<QQ", files, 3)  # binding and connecting TCP
    else:
        rules = struct.pack("<QQQ", files, 3, 3)  # abstract Unix sockets and signals
    descriptor = libc.syscall(_LANDLOCK_CREATE_RULESET, rules, len(rules), 0)
    if descriptor < 0:
        return False
    done = libc.syscall(_LANDLOCK_RESTRICT_SELF, descriptor, 0) == 0
    os.close(descriptor)
    return bool(done)
