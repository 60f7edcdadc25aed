"""One log at its keeper: what producers add, what readers get, and who has handled what was delivered.

One thread does all of it, in the order in which it was asked: so what a producer said first is logged first.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from echannel_ray.logs.entries import Entry, Missing, NewEntry
from echannel_ray.logs.store import Store
from echannel_ray.protocol.sharing_out import SharedOut
from echannel_ray.retained import calls
from echannel_ray.runtime.calls import Answer, Caller

logger = logging.getLogger(__name__)

Member: TypeAlias = tuple[int, int]  # (endpoint, subscription)
_LOOK_SECONDS: Final = 1.0  # how often age, leases and marks are looked after
_MARKS_SECONDS: Final = 7 * 86400.0
_OUTCOMES_SECONDS: Final = 600.0  # for which the outcome of a delivery is kept for who asks again
_LET_GO: Final = b"\0"
_MOST_TO_A_MEMBER: Final = 1024
_STOP: Final = object()
_GROWN: Final = object()


@dataclass
class _Reader:
    group: str | None
    fetch: tuple[calls.Fetch, Answer] | None = None  # that waits for more


@dataclass
class _Delivered:
    """An event whose producer waits for its readers."""

    offset: int
    waiting: set[Member | str]
    handled: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    asked: Answer | None = None
    ended_at: float = 0.0


class Shelf:
    """One per log that is kept here."""

    def __init__(self, channel: str, incarnation: int, store: Store) -> None:
        self.channel = channel
        self.incarnation = incarnation
        self.store = store
        self.appended_entries = 0
        self.read_entries = 0
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._marks: dict[str, int] = {}
        self._early: dict[tuple[str, int], tuple[calls.Append, Answer]] = {}  # (producer, what has to come before)
        self._slices: dict[tuple[str, int], dict[int, bytes]] = {}
        self._readers: dict[Member, _Reader] = {}
        self._groups: dict[str, SharedOut] = {}
        self._delivered: dict[tuple[str, int], _Delivered] = {}
        self._deadline = 0.0
        self._actions: dict[type, Callable[[Any, Caller, Answer], None]] = {
            calls.Append: self._append,
            calls.Slice: self._slice,
            calls.Await: self._await,
            calls.Join: self._join,
            calls.Fetch: self._fetch,
            calls.FetchSlice: self._fetch_slice,
            calls.Look: self._look,
            calls.Read: self._read_range,
            calls.Hold: self._hold,
            calls.Handled: self._handled,
            calls.Leave: self._leave,
        }
        store.on_append.append(self._grown)
        self._thread = threading.Thread(target=self._run, name=f"echannel-log-{channel}", daemon=True)
        self._thread.start()

    # ---- from other threads ----

    def ask(self, message: Any, caller: Caller, answer: Answer) -> None:
        """A call has come; it is answered later."""
        self._jobs.put((message, caller, answer))

    def members_are(self, members: frozenset[Member]) -> None:
        """Who consumes the channel now: a reader that is none of these has died."""
        self._jobs.put(members)

    def _grown(self) -> None:
        if threading.current_thread() is not self._thread:
            self._jobs.put(_GROWN)

    def close(self) -> None:
        """End; what was asked and not answered will be asked of a successor."""
        self._jobs.put(_STOP)
        self._thread.join()
        self.store.close()

    # ---- the thread ----

    def _run(self) -> None:
        while True:
            job = self._next_job()
            if job is _STOP:
                return
            try:
                if job is None:
                    self._look_after(time.time())
                elif job is _GROWN:
                    self._serve_waiting()
                elif isinstance(job, frozenset):
                    self._members_are(job)
                else:
                    message, caller, answer = job
                    self._perform(message, caller, answer)
            except Exception:
                logger.exception("the log of channel %r goes on after an error", self.channel)

    def _next_job(self) -> Any:
        try:
            return self._jobs.get(timeout=max(0.0, self._deadline - time.monotonic()))
        except queue.Empty:
            self._deadline = time.monotonic() + _LOOK_SECONDS
            return None

    def _perform(self, message: Any, caller: Caller, answer: Answer) -> None:
        if message.log != self.store.log:
            answer(calls.OtherLog(self.store.log))
            return
        try:
            self._actions[type(message)](message, caller, answer)
        except Missing as missing:
            answer(calls.Gone(missing.next or 0))
        except Exception as error:  # the disk is full, say: who asked decides
            logger.exception("the log of channel %r", self.channel)
            answer(calls.Unlogged(f"{type(error).__name__}: {error}"))

    def _look_after(self, now: float) -> None:
        self.store.end_leases(now)
        self.store.trim(now)
        self.store.forget_marks(_MARKS_SECONDS, now)
        for key in [key for key, each in self._delivered.items() if 0 < each.ended_at < now - _OUTCOMES_SECONDS]:
            del self._delivered[key]

    # ---- producers ----

    def _mark(self, producer: str) -> int:
        if producer not in self._marks:
            self._marks[producer] = self.store.mark_of(producer)
        return self._marks[producer]

    def _append(self, message: calls.Append, caller: Caller, answer: Answer) -> None:
        mark = self._mark(message.producer)
        if message.last <= mark:  # asked again, or by a producer that found its log anew
            answer(calls.Appended(mark))
            return
        if message.after > mark:
            self._early[message.producer, message.after] = message, answer
            return
        entries = self._whole(message)
        if entries is None:
            answer(calls.Unlogged("a part of a large event is missing"))
            return
        first = self.store.append(entries, (message.producer, message.last))
        self._marks[message.producer] = message.last
        self.appended_entries += len(entries)
        if message.is_delivered:
            self._expect(message, first + sum(entry.count for entry in entries) - 1)
        answer(calls.Appended(message.last))
        self._serve_waiting()
        following = self._early.pop((message.producer, message.last), None)
        if following is not None:
            self._perform(following[0], caller, following[1])

    def _slice(self, message: calls.Slice, caller: Caller, answer: Answer) -> None:
        self._slices.setdefault((message.producer, message.last), {})[message.number] = message.data
        answer(calls.Done())

    def _whole(self, message: calls.Append) -> list[NewEntry] | None:
        if not message.slices:
            return message.entries
        parts = self._slices.pop((message.producer, message.last), {})
        if len(parts) < message.slices:
            return None
        data = b"".join(parts[number] for number in range(message.slices))
        return [message.entries[0]._replace(data=data)]

    # ---- deliveries ----

    def _expect(self, message: calls.Append, offset: int) -> None:
        waiting: set[Member | str] = {each for each, reader in self._readers.items() if reader.group is None}
        waiting |= {name for name, group in self._groups.items() if group.members}
        delivered = _Delivered(offset, waiting)
        self._delivered[message.producer, message.last] = delivered

    def _await(self, message: calls.Await, caller: Caller, answer: Answer) -> None:
        delivered = self._delivered.get((message.producer, message.last))
        if delivered is None:  # a predecessor logged it, and knew who would have to answer
            answer(calls.Outcomes(0, [("the log", "its keeper was restarted, and does not know who has handled it")]))
            return
        delivered.asked = answer
        self._tell_outcome(delivered)

    def _tell_outcome(self, delivered: _Delivered) -> None:
        if delivered.waiting:
            return
        delivered.ended_at = delivered.ended_at or time.time()
        if delivered.asked is not None:
            delivered.asked(calls.Outcomes(delivered.handled, delivered.failures))
            delivered.asked = None

    def _handled(self, message: calls.Handled, caller: Caller, answer: Answer) -> None:
        member = (caller.endpoint, message.subscription)
        reader = self._readers.get(member)
        who: Member | str = member if reader is None or reader.group is None else reader.group
        for delivered in self._delivered.values():
            if delivered.offset == message.offset:
                self._settle(delivered, who, member, message.outcome)
        answer(calls.Done())

    def _settle(self, delivered: _Delivered, who: Member | str, member: Member, outcome: bytes) -> None:
        if who not in delivered.waiting:
            return
        delivered.waiting.discard(who)
        if not outcome:
            delivered.handled += 1
        elif outcome != _LET_GO:
            name = f"{member[0]:016x}.{member[1]}"
            delivered.failures.append((name, outcome.decode("utf-8", "replace")))
        self._tell_outcome(delivered)

    # ---- readers ----

    def _join(self, message: calls.Join, caller: Caller, answer: Answer) -> None:
        member = (caller.endpoint, message.subscription)
        self._readers.setdefault(member, _Reader(message.group))
        start = message.start
        if start == "new":
            start = self.store.next
        elif start == "earliest":
            start = self.store.first
        assert isinstance(start, int)
        if message.group is not None:
            group = self._group(message.group, start)
            group.joined(member)
            start = group.acknowledged
        answer(calls.Joined(start))

    def _group(self, name: str, start: int) -> SharedOut:
        if name not in self._groups:
            known = self.store.group(name)
            if known is None:
                self.store.set_group(name, start)
            self._groups[name] = SharedOut(start if known is None else known)
        return self._groups[name]

    def _members_are(self, members: frozenset[Member]) -> None:
        for member in [each for each in self._readers if each not in members]:
            self._part_with(member, b"its process died, or its node did")

    def _leave(self, message: calls.Leave, caller: Caller, answer: Answer) -> None:
        member = (caller.endpoint, message.subscription)
        if message.group in self._groups:
            self._acknowledge(message.group, member, message.done)
        self._part_with(member, _LET_GO)
        answer(calls.Done())

    def _part_with(self, member: Member, reason: bytes) -> None:
        reader = self._readers.pop(member, None)
        if reader is None:
            return
        if reader.fetch is not None:
            reader.fetch[1](calls.Done())
        for delivered in [*self._delivered.values()]:
            if reader.group is None:
                self._settle(delivered, member, member, reason)
        if reader.group in self._groups:
            group = self._groups[reader.group]
            group.left(member)
            if not group.members:
                for delivered in [*self._delivered.values()]:
                    self._settle(delivered, reader.group, member, reason)
                del self._groups[reader.group]  # its position is in the store
            self._serve_waiting()

    def _acknowledge(self, name: str, member: Member, done: list[tuple[int, int]]) -> None:
        group = self._groups[name]
        if done and group.done(member, done):
            self.store.set_group(name, group.acknowledged)

    def _fetch(self, message: calls.Fetch, caller: Caller, answer: Answer) -> None:
        member = (caller.endpoint, message.subscription)
        reader = self._readers.get(member)
        if reader is None:  # a predecessor had it: it joins again
            answer(calls.OtherLog(self.store.log))
            return
        if message.group is not None:
            self._acknowledge(message.group, member, message.done)
        reader.fetch = message, answer
        self._serve(member, reader)

    def _serve_waiting(self) -> None:
        for member, reader in [*self._readers.items()]:
            if reader.fetch is not None:
                self._serve(member, reader)

    def _serve(self, member: Member, reader: _Reader) -> None:
        assert reader.fetch is not None
        message, answer = reader.fetch
        try:
            fetched = self._share(member, message) if message.group is not None else self._read(message)
        except Missing as missing:
            reader.fetch = None
            answer(calls.Gone(missing.next or 0))
            return
        if fetched is not None:
            reader.fetch = None
            self.read_entries += len(fetched.entries)
            answer(fetched)

    def _read(self, message: calls.Fetch) -> calls.Fetched | None:
        entries = _fitting(self.store.read(message.start, message.max_bytes))
        if not entries:
            return None
        return self._fetched(entries, message.start, entries[-1].next)

    def _share(self, member: Member, message: calls.Fetch) -> calls.Fetched | None:
        assert message.group is not None
        group = self._groups[message.group]
        if group.acknowledged < self.store.first:
            missing = Missing(self.store.log, group.acknowledged, self.store.first)
            group.skip_to(self.store.first)
            self.store.set_group(message.group, group.acknowledged)
            raise missing
        waiting = self.store.next - group.acknowledged
        most = max(1, min(_MOST_TO_A_MEMBER, waiting // (2 * group.members)))
        given = group.take(member, message.number, self.store.next, most)
        if given is None:
            return None
        entries = _fitting(self.store.read(given.start, message.max_bytes, given.stop))
        if entries[-1].next < given.stop:
            given = group.shorten(member, entries[-1].next)
        return self._fetched(entries, given.start, given.stop, given.is_redelivered)

    def _fetched(self, entries: list[Entry], start: int, stop: int, is_redelivered: bool = False) -> calls.Fetched:
        delivered = [each.offset for each in self._delivered.values() if each.waiting and start <= each.offset < stop]
        slices = 0
        if len(entries[0].data) > calls.MAX_ENTRY_BYTES:
            slices = -(-len(entries[0].data) // calls.MAX_CALL_BYTES)
            entries = [calls.without_data(entries[0])]
        return calls.Fetched(entries, start, stop, slices, is_redelivered, delivered)

    def _look(self, message: calls.Look, caller: Caller, answer: Answer) -> None:
        answer(calls.Extent(self.store.first, self.store.next))

    def _read_range(self, message: calls.Read, caller: Caller, answer: Answer) -> None:
        entries = _fitting(self.store.read(message.start, message.max_bytes, message.stop))
        if not entries:
            answer(calls.Fetched([], message.start, message.start))
            return
        answer(self._fetched(entries, message.start, min(message.stop, entries[-1].next)))

    def _hold(self, message: calls.Hold, caller: Caller, answer: Answer) -> None:
        known, start = self.store.group(message.group), message.start
        if isinstance(start, str):
            first = self.store.first if start == "earliest" else self.store.next
            start = first if known is None else known
        self.store.set_group(message.group, start, hold_until=time.time() + message.lease_seconds)
        answer(calls.Joined(start))

    def _fetch_slice(self, message: calls.FetchSlice, caller: Caller, answer: Answer) -> None:
        entry = self.store.read(message.first, 1)[0]
        answer(calls.Sliced(entry.data[message.at : message.at + calls.MAX_CALL_BYTES]))


def _fitting(entries: list[Entry]) -> list[Entry]:
    """What goes into one answer: an entry that is too long for one goes by itself."""
    for i, entry in enumerate(entries):
        if len(entry.data) > calls.MAX_ENTRY_BYTES:
            return entries[: max(1, i)]
    return entries
