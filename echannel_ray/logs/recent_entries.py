"""The last entries of a log, in memory: many consumers read the same ones, just after they were appended."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from echannel_ray.logs.entries import Entry

_first = attrgetter("first")


class RecentEntries:
    """An unbroken last part of a log, of about so many bytes. Whoever calls it holds a lock."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._forgotten = 0  # of `_entries`: those before it are only there because a list is slow to cut at its front
        self._entries: list[Entry] = []

    def add(self, entry: Entry) -> None:
        """Append an entry that was appended to the log."""
        self._entries.append(entry)
        self._bytes += len(entry.data)
        while self._bytes > self._max_bytes:
            self._bytes -= len(self._entries[self._forgotten].data)
            self._forgotten += 1
        if self._forgotten > len(self._entries) // 2:
            del self._entries[: self._forgotten]
            self._forgotten = 0

    def clear(self) -> None:
        """Forget all entries: what comes next doesn't follow upon the last one here."""
        self._entries.clear()
        self._bytes = self._forgotten = 0

    def read(self, start: int, max_bytes: int, stop: int) -> list[Entry] | None:
        """Entries from the one that contains `start` to `stop`, up to so many bytes but at least one; None where that
        one is not here.
        """
        if self._forgotten == len(self._entries) or start < self._entries[self._forgotten].first:
            return None
        found: list[Entry] = []
        size = 0
        index = bisect_right(self._entries, start, lo=self._forgotten, key=_first) - 1
        for index in range(index, len(self._entries)):  # noqa: B020
            entry = self._entries[index]
            size += len(entry.data)
            if entry.first >= stop or (found and size > max_bytes):
                break
            found.append(entry)
        return found
