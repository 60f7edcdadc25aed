"""Memory that processes share by a descriptor: reserved before it is written, of a size that nobody can change."""

from __future__ import annotations

import fcntl
import mmap
import os

# Not in `fcntl` before Python 3.13: nobody can map it writable any more; mappings that are there stay as they are.
_F_SEAL_FUTURE_WRITE = 0x10
_SIZE_IS_FIXED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class MemoryFile:
    """Memory with a descriptor that can be handed over. Whoever maps it has it for as long as it is mapped."""

    def __init__(self, name: str, size_bytes: int, is_ours: bool) -> None:
        """Reserve it; `OSError` where the system refuses. `is_ours`: this process alone may write it, else any may."""
        self.descriptor = -1
        self.descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            # Now: where memory is short later, a write to it would kill the process.
            os.posix_fallocate(self.descriptor, 0, size_bytes)
            access = mmap.PROT_READ | mmap.PROT_WRITE if is_ours else mmap.PROT_READ
            self.memory = mmap.mmap(self.descriptor, size_bytes, mmap.MAP_SHARED | mmap.MAP_POPULATE, access)
            seals = _SIZE_IS_FIXED | (_F_SEAL_FUTURE_WRITE if is_ours else 0) | fcntl.F_SEAL_SEAL
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)
        except OSError:
            self.close()
            raise

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Give the descriptor back; the memory stays mapped for as long as somebody looks at it."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def mapped(descriptor: int, may_write: bool) -> mmap.mmap:
    """What another process hands over, mapped; `OSError` where that can't be.

    `ValueError` where its size could change, since to look at what is cut off would kill this process.
    """
    if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SIZE_IS_FIXED != _SIZE_IS_FIXED:
        raise ValueError("memory was handed over whose size may change")
    access = mmap.PROT_READ | mmap.PROT_WRITE if may_write else mmap.PROT_READ
    return mmap.mmap(descriptor, os.fstat(descriptor).st_size, mmap.MAP_SHARED | mmap.MAP_POPULATE, access)
