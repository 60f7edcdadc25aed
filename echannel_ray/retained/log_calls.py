"""What producers and readers of a retained channel ask the log host, and what it answers.

Calls travel from endpoint to endpoint (`endpoint.calls`), are repeated until they are answered, and so may come twice:
each is such that this does no harm.
"""

from __future__ import annotations

from typing import Final

import msgspec

from echannel_ray.logs.entries import Entry, NewEntry

# What goes into one call: a frame has to hold it. Longer entries travel in slices of this size.
MAX_CALL_BYTES: Final = 1 << 20
MAX_ENTRY_BYTES: Final = 4 << 20


class _ToLog(msgspec.Struct, frozen=True, array_like=True):
    """A question for a log: its channel, and which log of it is meant."""

    channel: str
    log: str


class Append(_ToLog, frozen=True, tag=20):
    """Log these; `last` is the number of their last event, as `producer` counts. Answered by `Appended`."""

    producer: str
    after: int  # what this producer has said is logged up to there, or has to be; -1: whatever is
    last: int
    entries: list[NewEntry]
    is_delivered: bool = False  # somebody waits until its readers have handled the last event: see `Await`
    slices: int = 0  # the data of the only entry came before, in so many


class Slice(_ToLog, frozen=True, tag=21):
    """A part of an entry that is too long for a call, ahead of its `Append`. Answered by `Done`."""

    producer: str
    last: int
    number: int
    data: bytes


class Await(_ToLog, frozen=True, tag=22):
    """How its readers have handled the event delivered with this `last`. Answered, late, by `DeliveryOutcomes`."""

    producer: str
    last: int


class Join(_ToLog, frozen=True, tag=23):
    """A subscription begins to read: at an offset, or at the "earliest" or "new" events; a group where it was.
    Answered by `Joined`.
    """

    subscription: int
    group: str | None
    start: int | str
    done: list[tuple[int, int]] = []  # of a group: what this member has handled, of what is not acknowledged yet
    held: list[tuple[int, int]] = []  # and what it was given by a log host that died, and handles now


class Fetch(_ToLog, frozen=True, tag=24):
    """What follows from this offset on; of a group's, what is its turn. Answered by `Fetched`: as soon as there is
    something.
    """

    subscription: int
    start: int
    max_bytes: int
    group: str | None = None
    done: list[tuple[int, int]] = []  # of a group: what this member has handled since it last asked
    number: int = 0  # rises with each fetch of a member, so that one that is repeated is given the same again


class Look(_ToLog, frozen=True, tag=28):
    """How far the log goes, and whether it knows a group. Answered by `Extent`."""

    group: str | None = None


class ReadRange(_ToLog, frozen=True, tag=29):
    """What is there between two offsets, for one who is no reader. Answered by `Fetched`."""

    start: int
    stop: int
    max_bytes: int


class Hold(_ToLog, frozen=True, tag=30):
    """A group outside the cluster is at `start`: an offset up to which it has done with all, or, where it is new, the
    "earliest" or the "latest". Nothing is forgotten beyond it for so long. Answered by `Joined`.
    """

    group: str
    start: int | str
    lease_seconds: float


class FetchSlice(_ToLog, frozen=True, tag=25):
    """A part of the data of the entry that begins at `first`. Answered by `Sliced`."""

    first: int
    at: int


class Handled(_ToLog, frozen=True, tag=26):
    """A delivered event was handled; `outcome` is what went wrong, or nothing; a zero: it was let go. Answered by
    `Done`.
    """

    subscription: int
    offset: int
    outcome: bytes


class Leave(_ToLog, frozen=True, tag=27):
    """A subscription reads no more; of a group's member, what it has handled. Answered by `Done`."""

    subscription: int
    group: str | None
    done: list[tuple[int, int]]


class Appended(msgspec.Struct, frozen=True, array_like=True, tag=40):
    """All up to `last` is in the log."""

    last: int


class Joined(msgspec.Struct, frozen=True, array_like=True, tag=41):
    """Where it begins."""

    start: int


class Fetched(msgspec.Struct, frozen=True, array_like=True, tag=42):
    """Entries, of which the first may begin before what was asked for and the last end behind it."""

    entries: list[Entry]
    start: int  # the first event that is meant
    stop: int  # behind the last one
    slices: int = 0  # the only entry's data is to be fetched, in so many
    is_redelivered: bool = False
    delivered: list[int] = []  # for which of them somebody waits
    acknowledged: int = 0  # of a group: all before it is done with


class Gone(msgspec.Struct, frozen=True, array_like=True, tag=43):
    """The log begins at `first` now, and these ranges of what was to be fetched are not there any more."""

    first: int
    lost: list[tuple[int, int]] = []


class OtherLog(msgspec.Struct, frozen=True, array_like=True, tag=44):
    """That log is not here; where this is the node's log of the channel, it is another one."""

    log: str


class Extent(msgspec.Struct, frozen=True, array_like=True, tag=49):
    """The offsets of the first event and behind the last one."""

    first: int
    next: int
    knows_group: bool = False


class Sliced(msgspec.Struct, frozen=True, array_like=True, tag=45):
    """A part of an entry's data."""

    data: bytes


class DeliveryOutcomes(msgspec.Struct, frozen=True, array_like=True, tag=46):
    """So many readers have handled it; those that did not, and why."""

    handled: int
    failures: list[tuple[str, str]]


class Done(msgspec.Struct, frozen=True, array_like=True, tag=47):
    """It is so."""


class Unlogged(msgspec.Struct, frozen=True, array_like=True, tag=48):
    """The log can't be written or read: what the error says."""

    reason: str


ANSWERS: Final = (Appended, Joined, Fetched, Gone, OtherLog, Extent, Sliced, DeliveryOutcomes, Done, Unlogged)
