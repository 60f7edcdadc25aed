"""What a producer has published and its log is not known to have: gathered, and then sent until it is answered."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Final

import msgspec

from echannel_ray.core.kinds import token_of, wire_kind
from echannel_ray.logs.entries import NewEntry
from echannel_ray.producers.pending_deliveries import PendingDelivery
from echannel_ray.retained import log_calls

FULL_BYTES: Final = 128 << 10
FULL_EVENTS: Final = 1024
_MOST_UNDER_WAY: Final = 8
_encode: Final = msgspec.msgpack.Encoder().encode


class Sent:
    """What goes to the log together."""

    __slots__ = ("after", "delivery", "entries", "events", "is_under_way", "last", "size_bytes", "slices", "was_sent")

    def __init__(self, after: int, last: int, entries: list[NewEntry], size_bytes: int) -> None:
        self.after = after  # the log has to have all up to there; -1: whatever it has
        self.last = last
        self.events = sum(entry.count for entry in entries)
        self.size_bytes = size_bytes
        self.slices: list[bytes] = []
        if len(entries) == 1 and len(entries[0].data) > log_calls.MAX_ENTRY_BYTES:
            data = entries[0].data
            self.slices = [
                data[at : at + log_calls.MAX_CALL_BYTES] for at in range(0, len(data), log_calls.MAX_CALL_BYTES)
            ]
            entries = [entries[0]._replace(data=b"")]
        self.entries = entries
        self.delivery: PendingDelivery | None = None
        self.is_under_way = False
        self.was_sent = False


class Backlog:
    """One per producer, under its lock."""

    def __init__(self, producer: str) -> None:
        self._producer = producer
        self.sequence = 0  # of the last event
        self._first = 1  # of those that are gathered
        # What is gathered: of one kind at a time.
        self._kind = -1
        self._gathered: list[Any] = []
        self._entries: list[NewEntry] = []  # those of other kinds before it
        self._entries_events = 0
        self._gathered_bytes = 0  # of both
        self.sent: deque[Sent] = deque()
        self._sent_bytes = 0
        self._under_way = 0
        self.last_sent = 0
        self.logged = 0
        self.packs = 0

    @property
    def size_bytes(self) -> int:
        """Of all that is not logged."""
        return self._sent_bytes + self._gathered_bytes

    # ---- gathering ----

    def add(self, kind: int, payload: Any, size: int) -> None:
        """One more event."""
        if size > FULL_BYTES:
            self.leave()  # it goes by itself, in slices if need be
        if kind != self._kind:
            self._close_entry()
            self._kind = kind
        self._gathered.append(payload)
        self._gathered_bytes += size
        self.sequence += 1

    def add_small(self, kind: int, payloads: list[Any], size: int) -> None:
        """Many small events of one kind: no more than fit into an entry."""
        if kind != self._kind:
            self._close_entry()
            self._kind = kind
        self._gathered += payloads
        self._gathered_bytes += size
        self.sequence += len(payloads)

    def add_block(self, kind: int, data: bytes, count: int, size: int) -> None:
        """So many records in a block."""
        self._close_entry()
        self.sequence += count
        self._gathered_bytes += size
        self._add_entry(count, kind, data)

    def skip(self, count: int) -> None:
        """So many events are dropped."""
        self._close_entry()
        self.sequence += count
        self._first = self.sequence + 1

    def _close_entry(self) -> None:
        """What was gathered becomes an entry."""
        if self._gathered:
            self._add_entry(len(self._gathered), self._kind, _encode(self._gathered))
            self._gathered = []

    def _add_entry(self, count: int, kind: int, data: bytes) -> None:
        entry = NewEntry(count, wire_kind(kind), token_of(kind), data, self._producer, self._first, time.time())
        self._entries.append(entry)
        self._entries_events += count
        self._first += count

    @property
    def gathered(self) -> int:
        """How many events are gathered."""
        return len(self._gathered) + self._entries_events

    @property
    def gathered_bytes(self) -> int:
        """How large they are."""
        return self._gathered_bytes

    @property
    def is_full(self) -> bool:
        """Whether what was gathered is as much as goes together."""
        return self._gathered_bytes >= FULL_BYTES or self.gathered >= FULL_EVENTS

    @property
    def is_due(self) -> bool:
        """Whether what was gathered should leave: nothing is under way whose answer would have it leave, or it is
        enough.
        """
        return not self.sent or self.is_full

    def leave(self) -> None:
        """Have all that was gathered sent next."""
        self._close_entry()
        if self._entries:
            last = self._entries[-1].sequence + self._entries[-1].count - 1
            sent = Sent(self.last_sent, last, self._entries, self._gathered_bytes)
            self.packs += 1
            self.last_sent = sent.last
            self.sent.append(sent)
            self._sent_bytes += sent.size_bytes
            self._entries, self._entries_events, self._gathered_bytes = [], 0, 0

    # ---- sending ----

    def next_to_send(self) -> Sent | None:
        """What goes to the log now, if anything."""
        if self._under_way >= _MOST_UNDER_WAY:
            return None
        for sent in self.sent:
            if not sent.is_under_way:
                sent.is_under_way = sent.was_sent = True
                self._under_way += 1
                return sent
        return None

    @property
    def has_to_send(self) -> bool:
        """Whether something has left that is not under way."""
        return any(not sent.is_under_way for sent in reversed(self.sent))

    def logged_up_to(self, last: int) -> list[Sent]:
        """These are in the log; those of them that somebody waits for."""
        done = []
        while self.sent and self.sent[0].last <= last:
            sent = self.sent.popleft()
            self._under_way -= sent.is_under_way
            self._sent_bytes -= sent.size_bytes
            self.logged = sent.last
            done.append(sent)
        return [sent for sent in done if sent.delivery is not None]

    def send_again(self) -> None:
        """There is another log host, which may have some of it; or another log, which has nothing of ours."""
        for sent in self.sent:
            sent.is_under_way = False
        self._under_way = 0
        if self.sent:
            self.sent[0].after = -1

    @property
    def droppable_bytes(self) -> int:
        """How much room `drop_oldest` can make."""
        return sum(sent.size_bytes for sent in self.sent if not sent.was_sent and sent.delivery is None)

    def drop_oldest(self, wanted_bytes: int) -> int:
        """Drop what was not sent yet, oldest first, until so much room is made; how many events."""
        dropped = 0
        kept: deque[Sent] = deque()
        for sent in self.sent:
            if wanted_bytes > 0 and not sent.was_sent and sent.delivery is None:
                wanted_bytes -= sent.size_bytes
                self._sent_bytes -= sent.size_bytes
                dropped += sent.events
            else:
                kept.append(sent)
        self.sent = kept
        # Each says what has to come before it.
        before = self.logged
        for sent in kept:
            sent.after = sent.after if sent.after < 0 else before
            before = sent.last
        self.last_sent = before
        return dropped
