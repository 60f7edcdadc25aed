"""Attacks on what is outside: files, the network, processes, the producer. Each is checked from outside."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import socket
import subprocess
import sys

import pytest

from tests.sandbox.arena import Passing, is_alive, syscall

X86 = platform.machine() == "x86_64"
only_x86 = pytest.mark.skipif(not X86, reason="the number of the system call is x86-64's")
SECRET = "the-secret-of-the-canary"


@pytest.fixture
def canary(tmp_path):
    path = tmp_path / "canary"
    path.write_text(SECRET)
    path.chmod(0o666)
    tmp_path.chmod(0o777)
    yield path
    assert path.read_text() == SECRET
    assert path.stat().st_mode & 0o777 == 0o666
    assert sorted(each.name for each in tmp_path.iterdir()) == ["canary"]


@pytest.fixture
def sentinel():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    assert process.poll() is None
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == os.getpriority(os.PRIO_PROCESS, 0)
    process.kill()
    process.wait()
    process.stdin.close()


def read(path):
    with open(path) as file:
        return file.read()


def read_by_descriptor(path):
    return os.read(os.open(path, os.O_RDONLY), 100)


def write(path):
    with open(path, "w") as file:
        file.write("overwritten")


def create_beside(path):
    with open(path + ".new", "w") as file:
        file.write("new")


def open_by_openat2(path):
    import struct

    return syscall(437, -100, path.encode(), struct.pack("<QQQ", 0, 0, 0), 24)


def make_temporary(path):
    return os.open(os.path.dirname(path), os.O_TMPFILE | os.O_RDWR)


def link(path):
    os.symlink(path, path + ".link")


def hard_link(path):
    os.link(path, path + ".link")


def unlink(path):
    os.unlink(path)


def rename(path):
    os.rename(path, path + ".moved")


def change_mode(path):
    os.chmod(path, 0)


def truncate(path):
    os.truncate(path, 0)


def make_directory(path):
    os.mkdir(path + ".directory")


def leave_root(path):
    os.chroot("..")
    os.chdir("/")


def mount(path):
    syscall(165, b"none", os.path.dirname(path).encode(), b"tmpfs", 0, None)


def list_root(path):
    return os.listdir("/")


def find_inherited_files(path):
    found = []
    for descriptor in range(256):
        try:
            found.append((descriptor, os.pread(descriptor, 100, 0)))
        except OSError:
            pass  # not open, or no file
    return [each for each in found if each[1]]


FILES = [
    read, read_by_descriptor, write, create_beside, open_by_openat2, make_temporary, link, hard_link, unlink, rename,
    change_mode, truncate, make_directory, leave_root, mount, list_root,
]  # fmt: skip


@pytest.mark.parametrize("attack", FILES, ids=lambda attack: attack.__name__)
def test_files(arena, canary, attack):
    said = arena.attack(attack, path=str(canary))
    assert said.startswith("refused: ")
    assert SECRET not in said


def test_no_file_is_inherited(arena, canary):
    with canary.open() as kept:
        os.set_inheritable(kept.fileno(), True)
        said = arena.attack(find_inherited_files, path=str(canary))
    assert SECRET not in said
    assert said == "DONE []"


@pytest.mark.parametrize(
    "name", ["self/mem", "self/environ", "self/maps", "{0}/mem", "{0}/environ", "{0}/cmdline", "{0}/fd/0", "1/environ"]
)
def test_processes_can_not_be_read(arena, name):
    assert arena.attack(read_by_descriptor, path="/proc/" + name.format(os.getpid())).startswith("refused: ")


# ---- network -------------------------------------------------------------------------------------------------------


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.fixture
def abstract():
    name = f"\0canary-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        yield name
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def connect(family, kind, address, protocol=0):
    import socket

    with socket.socket(family, kind, protocol) as each:
        each.connect(address)
        each.send(b"hello")


def test_tcp(arena, listener):
    said = arena.attack(connect, family=socket.AF_INET, kind=socket.SOCK_STREAM, address=listener.getsockname())
    assert "refused: PermissionError" in said


def test_abstract_unix_sockets(arena, abstract):
    assert "refused: " in arena.attack(connect, family=socket.AF_UNIX, kind=socket.SOCK_STREAM, address=abstract)


@pytest.mark.parametrize(
    ("family", "kind", "address", "protocol"),
    [
        (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 53), 0),
        (socket.AF_INET6, socket.SOCK_STREAM, ("::1", 53), 0),
        (socket.AF_UNIX, socket.SOCK_STREAM, "/run/systemd/private", 0),
        (socket.AF_NETLINK, socket.SOCK_RAW, (0, 0), 0),
        (socket.AF_INET, socket.SOCK_RAW, ("127.0.0.1", 0), 1),
        (40, socket.SOCK_STREAM, (2, 1024), 0),
    ],
    ids=["udp", "tcp6", "unix", "netlink", "raw", "vsock"],
)
def test_other_sockets(arena, family, kind, address, protocol):
    said = arena.attack(connect, family=family, kind=kind, address=address, protocol=protocol)
    assert said.startswith("refused: PermissionError")


def resolve():
    import socket

    return socket.getaddrinfo("localhost", 80)


def pair():
    import socket

    return socket.socketpair()


def listen():
    import socket

    socket.create_server(("127.0.0.1", 0))


@pytest.mark.parametrize("attack", [resolve, pair, listen], ids=lambda attack: attack.__name__)
def test_names_pairs_and_listening(arena, attack):
    assert arena.attack(attack).startswith("refused: ")


# ---- processes -----------------------------------------------------------------------------------------------------


def fork():
    return os.fork()


def start_thread():
    import threading

    threading.Thread(target=print).start()


def clone3():
    import struct

    return syscall(435, struct.pack("<11Q", *[0] * 4, 17, *[0] * 6), 88)


def run_program():
    import subprocess

    return subprocess.check_output(["/bin/id"])


def replace_itself():
    os.execv("/bin/true", ["true"])


def system():
    status = os.system("/bin/true")
    if status:
        raise OSError(f"status {status}")


def run_memory():
    descriptor = os.memfd_create("program")
    os.write(descriptor, b"#!/bin/true\n")
    os.execve(descriptor, ["x"], {})


@pytest.mark.parametrize(
    "attack",
    [fork, start_thread, clone3, run_program, replace_itself, system, run_memory],
    ids=lambda attack: attack.__name__,
)
def test_nothing_is_started(arena, attack):
    assert arena.attack(attack).startswith("refused: ")


def kill(pid):
    os.kill(pid, 9)


def kill_group(pid):
    os.killpg(0, 9)


def kill_everything(pid):
    os.kill(-1, 9)


def signal_thread(pid):
    syscall(234, pid, pid, 9)


def queue_signal(pid):
    syscall(129, pid, 9, bytes(128))


def open_process(pid):
    return os.pidfd_open(pid)


def trace(pid):
    syscall(101, 16, pid, 0, 0)


def write_memory(pid):
    syscall(311, pid, bytes(16), 1, bytes(16), 1, 0)


def read_memory(pid):
    syscall(310, pid, bytes(16), 1, bytes(16), 1, 0)


def change_priority(pid):
    os.setpriority(os.PRIO_PROCESS, pid, 19)


def limit_it(pid):
    import resource

    resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1))


def pin(pid):
    os.sched_setaffinity(pid, {0})


PROCESSES = [
    kill, kill_group, kill_everything, signal_thread, queue_signal, open_process, trace, write_memory, read_memory,
    change_priority, limit_it, pin,
]  # fmt: skip


@only_x86
@pytest.mark.parametrize("attack", PROCESSES, ids=lambda attack: attack.__name__)
def test_other_processes(arena, sentinel, attack):
    other = arena.guest(Passing())
    zygote = next(iter(arena.warden._nurseries.values()))._zygote.pid
    for pid in (sentinel.pid, os.getpid(), zygote, other.pid, 1, 2):
        assert arena.attack(attack, pid=pid).startswith("refused: ")
    assert is_alive(zygote)
    assert other.work([b"still here"]) == [b"still here"]


def become_root(_=None):
    os.setuid(0)


def raise_limit(_=None):
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def be_dumpable(_=None):
    syscall(157, 4, 1, 0, 0, 0)


def new_filter(_=None):
    syscall(317, 1, 0, bytes(16))


def new_namespace(_=None):
    syscall(272, 0x10000000)


def enter_namespace(_=None):
    syscall(308, 3, 0)


def use_keys(_=None):
    syscall(250, 0, -3, 1)


def add_key(_=None):
    syscall(248, b"user", b"name", b"data", 4, -3)


def use_bpf(_=None):
    syscall(321, 0, bytes(72), 72)


def open_counters(_=None):
    syscall(298, bytes(128), 0, -1, -1, 0)


def use_io_uring(_=None):
    syscall(425, 8, bytes(120))


def use_userfaultfd(_=None):
    syscall(323, 1)


def share_memory(_=None):
    syscall(29, 0x1234, 4096, 0o1666)


def queue_message(_=None):
    syscall(68, 0x1234, 0o1666)


def open_message_queue(_=None):
    syscall(240, b"canary", 0o102, 0o666, None)


def make_timer(_=None):
    syscall(222, 0, None, bytes(8))


def set_alarm(_=None):
    signal.setitimer(signal.ITIMER_REAL, 0.001)


def set_clock(_=None):
    import time

    time.clock_settime(time.CLOCK_REALTIME, 0)


def set_name(_=None):
    syscall(170, b"canary", 6)


def reboot(_=None):
    syscall(169, 0xFEE1DEAD, 672274793, 0)


def load_module(_=None):
    syscall(175, bytes(16), 16, b"")


def change_personality(_=None):
    syscall(135, 0x0400000)


def watch_files(_=None):
    syscall(294, 0)


def control_device(_=None):
    import fcntl

    fcntl.ioctl(0, 0x5413, bytes(8))


def use_other_abi(_=None):
    syscall(0x40000000 + 39)


def use_vmsplice(_=None):
    syscall(278, 3, bytes(16), 1, 0)


def attach_priority(_=None):
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


KERNEL = [
    become_root, raise_limit, be_dumpable, new_filter, new_namespace, enter_namespace, use_keys, add_key, use_bpf,
    open_counters, use_io_uring, use_userfaultfd, share_memory, queue_message, open_message_queue, make_timer,
    set_alarm, set_clock, set_name, reboot, load_module, change_personality, watch_files, control_device,
    use_other_abi, use_vmsplice, attach_priority,
]  # fmt: skip


@only_x86
@pytest.mark.parametrize("attack", KERNEL, ids=lambda attack: attack.__name__)
def test_the_kernel_refuses(arena, attack):
    said = arena.attack(attack)
    assert said.startswith("refused: ")
    assert "[Errno 1]" in said or "not allowed" in said


# ---- the producer's environment ------------------------------------------------------------------------------------


def look_around():
    return dict(os.environ), sys.argv, sys.orig_argv, os.getpid()


def test_the_environment_is_not_inherited(arena, monkeypatch):
    monkeypatch.setenv("CANARY", SECRET)
    said = arena.attack(look_around)
    assert said.startswith("DONE ")
    assert SECRET not in said


def read_standard_input():
    return os.read(0, 10)


def test_standard_input_is_empty(arena):
    assert arena.attack(read_standard_input) == "DONE b''"


def make_executable():
    import mmap

    return mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)


def protect_as_executable():
    import mmap

    memory = mmap.mmap(-1, 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return syscall(10 if X86 else 226, ctypes.c_void_p(address), ctypes.c_size_t(4096), 7)


@pytest.mark.parametrize("attack", [make_executable, protect_as_executable], ids=lambda attack: attack.__name__)
def test_no_memory_becomes_executable(arena, attack):
    assert arena.attack(attack).startswith("refused: ")
