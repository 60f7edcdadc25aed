"""What a log holds: entries, each with many events of one kind, as they came."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

# An entry of this kind has no events in it, but says in which file they are: see `files`. (The other kinds are those of
# packs: `protocol.kinds`.)
FILE: Final = 64


class NewEntry(NamedTuple):
    """What is to be appended: `count` events of one kind and, of a typed channel, of one format."""

    count: int  # type: ignore[assignment]  # a tuple has a method of this name
    kind: int  # as packs have it: `protocol.kinds`
    token: int  # of the format; 0: they are not typed
    data: bytes  # a block as it travels; of other kinds the msgpack array of the events' payloads
    producer: str = ""  # its name, as messages have it
    sequence: int = 0  # of the first event, as its producer counts
    published_at: float = 0.0


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What was appended: events `first` to `first + count - 1` of the log."""

    first: int
    count: int
    kind: int
    token: int
    data: bytes
    producer: str
    sequence: int
    published_at: float

    @property
    def next(self) -> int:
        """The offset behind its last event."""
        return self.first + self.count


@dataclass(frozen=True)
class LogBounds:
    """How much a log keeps: what is beyond either is forgotten, oldest first. None is no bound."""

    max_bytes: int | None = None
    max_age_seconds: float | None = None


class WriteAttempt(NamedTuple):
    """Where rows of a transaction are staged: one attempt at one partition of one write."""

    write: str
    partition: int
    attempt: int


class Chosen(NamedTuple):
    """An attempt that won: how many entries it has staged."""

    partition: int
    attempt: int
    entries: int


@dataclass(frozen=True)
class Committed:
    """A write became events `first` to `next - 1` of the log; `repeated` where that was so before."""

    first: int
    next: int
    repeated: bool = False
    size_bytes: int = field(default=0, compare=False)  # that it has added


class Missing(Exception):
    """Events `first` to `next - 1` of this log were asked for, and are not there any more. `next` is where the log
    begins now; None where all of the log is gone.
    """

    def __init__(self, log: str, first: int, next: int | None) -> None:  # noqa: A002
        super().__init__(f"events {first} to {'?' if next is None else next - 1} of log {log} are gone")
        self.log = log
        self.first = first
        self.next = next


class NotStaged(Exception):
    """A write can't be committed: what was said to be staged is not there (its lease has ended, or it was aborted)."""
