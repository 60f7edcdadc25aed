"""Memory that is handed over: of fixed size, written by whom it belongs to, and counted against what is left."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import socket
from pathlib import Path

import pytest

from echannel_ray.transport.connection import Peer, PlainConnection
from echannel_ray.transport.memory_files import MemoryFile, mapped
from echannel_ray.transport.memory_left import left_bytes

GIB = 1 << 30


@pytest.fixture
def link() -> tuple[PlainConnection, PlainConnection]:
    left, right = (PlainConnection(each, Peer("unix")) for each in socket.socketpair())
    left.setblocking(False)
    right.setblocking(False)
    return left, right


# ---- files ----


def test_what_is_written_is_seen_and_can_not_be_written_elsewhere():
    file = MemoryFile("test", 1 << 16, is_ours=True)
    seen = mapped(file.descriptor, may_write=False)
    file.memory[5] = 7
    assert seen[5] == 7
    with pytest.raises(TypeError):
        seen[5] = 8
    with pytest.raises(PermissionError):
        mapped(file.descriptor, may_write=True)
    file.close()
    file.close()
    assert seen[5] == 7


def test_a_ledger_is_written_by_whom_it_is_handed_to():
    file = MemoryFile("test", 100, is_ours=False)
    theirs = mapped(file.descriptor, may_write=True)
    theirs[99] = 1
    assert file.memory[99] == 1
    with pytest.raises(TypeError):
        file.memory[99] = 0
    file.close()


def test_nobody_can_cut_it_off():
    file = MemoryFile("test", 1 << 16, is_ours=True)
    for size in (0, 1 << 17):
        with pytest.raises(PermissionError):
            os.ftruncate(file.descriptor, size)
    file.close()


def test_memory_that_could_be_cut_off_is_not_mapped():
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, mmap.PAGESIZE)
    with pytest.raises(ValueError, match="size may change"):
        mapped(descriptor, may_write=False)
    os.close(descriptor)


def test_where_the_kernel_refuses_nothing_stays_open(monkeypatch):
    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "no memory")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="no memory"):
        MemoryFile("test", 1 << 16, is_ours=True)
    assert len(os.listdir("/proc/self/fd")) == before


# ---- descriptors on a link ----


def test_descriptors_come_with_the_first_byte_of_their_frame(link):
    left, right = link
    files = [MemoryFile("test", 10, is_ours=False) for _ in range(2)]
    assert left.send([b"before"]) == 6
    assert left.send_with(b"frame", [file.descriptor for file in files]) == 5
    assert left.send([b"behind"]) == 6
    buffer = bytearray(100)
    received: list[tuple[int, list[int] | None]] = []
    while sum(count for count, _ in received) < 17:
        count, descriptors = right.recv_with(buffer)
        assert count
        received.append((count, descriptors))
    (at,) = [i for i, each in enumerate(received) if each[1] is not None]
    assert sum(count for count, _ in received[: at + 1]) == 11
    descriptors = received[at][1]
    assert descriptors is not None
    assert len(descriptors) == 2
    assert right.recv_with(buffer) == (None, None)
    for descriptor in descriptors:
        assert not os.get_inheritable(descriptor)
        mapped(descriptor, may_write=True)
        os.close(descriptor)
    left.close()
    assert right.recv_with(buffer) == (0, None)


def test_descriptors_for_which_there_is_no_room_are_missing_and_the_bytes_are_there(link):
    left, right = link
    file = MemoryFile("test", 10, is_ours=False)
    left.send_with(b"frame", [file.descriptor, file.descriptor])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = []
    buffer = bytearray(100)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard))
        while True:
            try:
                spare.append(os.dup(0))
            except OSError:
                break
        assert right.recv_with(buffer) == (5, [])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in spare:
            os.close(descriptor)


# ---- what is left ----


def written(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n" if content != "" else "")


def machine(tmp_path: Path, groups: str, available_kib: int = 8 << 20) -> tuple[Path, Path]:
    """A machine with 8 GiB left, and this process in these groups."""
    proc = tmp_path / "proc"
    written(proc, meminfo=f"MemTotal: 99999999 kB\nMemAvailable: {available_kib} kB")
    written(proc / "self", cgroup=groups)
    return proc, tmp_path / "groups"


def test_without_groups_it_is_what_the_machine_has(tmp_path):
    assert left_bytes(*machine(tmp_path, "")) == 8 * GIB
    assert left_bytes(*machine(tmp_path, "0::/nowhere\n4:cpu,memory:/nowhere")) == 8 * GIB


def test_the_tightest_of_the_groups_decides(tmp_path):
    proc, groups = machine(tmp_path, "0::/outer/inner")
    written(groups / "outer", memory__max=2 * GIB, memory__current=GIB, memory__stat="anon 5\ninactive_file 1000")
    written(groups / "outer" / "inner", memory__max="max", memory__current=0, memory__stat="")
    assert left_bytes(proc, groups) == GIB + 1000
    written(groups / "outer" / "inner", memory__max=GIB, memory__current=GIB // 2, memory__stat="inactive_file 0")
    assert left_bytes(proc, groups) == GIB // 2


def test_groups_of_the_first_version(tmp_path):
    proc, groups = machine(tmp_path, "9:cpu:/a\n4:memory:/a")
    written(
        groups / "memory" / "a",
        memory__limit_in_bytes=3 * GIB,
        memory__usage_in_bytes=GIB,
        memory__stat="total_inactive_file 500\ninactive_file 7",
    )
    assert left_bytes(proc, groups) == 2 * GIB + 500


def test_it_is_never_less_than_nothing(tmp_path):
    proc, groups = machine(tmp_path, "0::/a")
    written(groups / "a", memory__max=GIB, memory__current=2 * GIB, memory__stat="")
    assert left_bytes(proc, groups) == 0


def test_this_machine_has_some():
    assert left_bytes() > 0
