"""Memory that a producer shares with a sandbox: events go in one way, and a page of progress comes back."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from typing import Final

AREA_BYTES: Final = 1 << 20
_PAGE_BYTES: Final = mmap.PAGESIZE
_COUNTS: Final = struct.Struct("<II")
_SEAL, _SHRINK, _GROW, _WRITE, _FUTURE_WRITE = 1, 2, 4, 8, 16


class Area:
    """Where a producer puts a batch. The sandbox can only read it: the seal holds for every mapping made later."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("batch", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, AREA_BYTES)
        self._map = mmap.mmap(self.descriptor, AREA_BYTES)
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SEAL | _SHRINK | _GROW | _FUTURE_WRITE)

    def write(self, data: bytes) -> None:
        """Put these bytes at the beginning of the area."""
        try:
            self._map[: len(data)] = data
        except ValueError:  # closed by another thread: nobody will read them
            pass

    def close(self) -> None:
        """Give the memory back."""
        self._map.close()


class ProgressPage:
    """A page that the sandbox writes: which item it has begun, and how much it has done otherwise. It may lie."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("progress", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, _PAGE_BYTES)
        self._map = mmap.mmap(self.descriptor, _PAGE_BYTES)
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SEAL | _SHRINK | _GROW)

    def read(self) -> tuple[int, int]:
        """(The item that it has begun with, counted from 0, and what it has done besides.)"""
        try:
            begun, done = _COUNTS.unpack_from(self._map)
        except ValueError:  # closed by another thread
            return 0, 0
        return begun, done

    def close(self) -> None:
        """Give the memory back."""
        self._map.close()


def sealed_copy(data: bytes) -> int:
    """The descriptor of memory with these bytes, for a batch that is larger than the area."""
    descriptor = os.memfd_create("batch", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEAL | _SHRINK | _GROW | _WRITE)
    return descriptor


def map_area(descriptor: int) -> memoryview:
    """Map the memory of batches, to be read; in the sandbox, before the lockdown."""
    mapped = mmap.mmap(descriptor, AREA_BYTES, access=mmap.ACCESS_READ)
    os.close(descriptor)
    return memoryview(mapped)


def read_apart(descriptor: int, size: int) -> bytes:
    """In the sandbox: a batch that came apart. Read, not mapped: `mmap` duplicates descriptors, which is refused."""
    parts = []
    while size > 0:
        part = os.read(descriptor, size)
        if not part:
            raise EOFError("a batch that is shorter than it should be")
        parts.append(part)
        size -= len(part)
    os.close(descriptor)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def map_progress(descriptor: int) -> memoryview:
    """Map the two counts of the page of progress; in the sandbox."""
    mapped = mmap.mmap(descriptor, _PAGE_BYTES)
    os.close(descriptor)
    return memoryview(mapped).cast("I")
