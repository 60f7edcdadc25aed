"""One log at its host: what producers add, what readers get, and who has handled what was delivered.

One thread does all of it, in the order in which it was asked: so what a producer said first is logged first.
Whatever is asked is answered, be it that this log is not here any more: else the call would be repeated for good.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from echannel_ray.core.allotments import Allotments
from echannel_ray.core.deliveries import RELEASED
from echannel_ray.core.shares import Share
from echannel_ray.endpoint.calls import Answer, Caller
from echannel_ray.logs.entries import Entry, Missing
from echannel_ray.logs.store import Store
from echannel_ray.retained import log_calls
from echannel_ray.retained.early_entries import EarlyEntries
from echannel_ray.retained.entry_events import cut
from echannel_ray.retained.outcomes import DERIVED, Member, Outcomes, consumer

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0  # how often age, leases and marks are looked after
_MARKS_SECONDS: Final = 7 * 86400.0
_MOST_MARKS: Final = 10_000  # that are remembered here; all of them are in the store
_RETURN_SECONDS: Final = 5.0  # for which a group waits for those who were its members before a restart
_DIED: Final = b"its process died, or its node did"
_LOST: Final = b"the retention's bounds were past it before it came to this consumer"
_MOST_LARGE_BYTES: Final = 128 << 20
_READ_SECONDS: Final = 0.05  # how often a node that is drained looks whether its logs have been read
_NOT_HERE: Final = log_calls.OtherLog("")

# What the thread is to do: answer a call, or something else. None: end.
_Job: TypeAlias = tuple[Any, Caller, Answer] | Callable[[], None] | None


@dataclass
class _JoinedReader:
    group: str | None
    fetch: tuple[log_calls.Fetch, Answer] | None = None  # that waits for more
    share: Share = field(default_factory=Share)  # of a group


class LogServer:
    """The log server of one log that is kept here. Large: it has a method for each question that is asked of one."""

    def __init__(self, channel: str, store: Store) -> None:
        self.channel = channel
        self.store = store
        self.opened_at = store.next  # what is before that was there before
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._marks: dict[str, int] = {}
        self._early = EarlyEntries()
        self._members: Mapping[Member, str | None] = {}  # who consumes the channel itself, and in which group
        self._readers: dict[Member, _JoinedReader] = {}
        self._groups: dict[str, Allotments] = {}
        self._outcomes = Outcomes()
        # Whether modulators will be given the event that is about to be logged: who says so calls `derived_handled`.
        self.derives: Callable[[str, int], bool] = lambda producer, last: False
        self._large: dict[int, Entry] = {}  # that are being read in slices, by different readers; the last used last
        self._large_used_at = 0.0
        self._returned_by = time.monotonic() + _RETURN_SECONDS
        self._closed = False
        self._deadline = 0.0
        self._actions: dict[type, Callable[[Any, Caller, Answer], None]] = {
            log_calls.Append: self._append,
            log_calls.Slice: self._slice,
            log_calls.Await: self._await,
            log_calls.Join: self._join,
            log_calls.Fetch: self._fetch,
            log_calls.FetchSlice: self._fetch_slice,
            log_calls.Look: self._look,
            log_calls.ReadRange: self._read_range,
            log_calls.Hold: self._hold,
            log_calls.Handled: self._handled,
            log_calls.Leave: self._leave,
        }
        store.on_append.append(self._grown)
        self._thread = threading.Thread(target=self._run, name=f"echannel-log-{channel}", daemon=True)
        self._thread.start()

    # ---- from other threads ----

    def ask(self, message: Any, caller: Caller, answer: Answer) -> None:
        """A call has come; it is answered later."""
        self._jobs.put((message, caller, answer))
        if self._closed:
            self._turn_away_rest()

    def wait_until_read(self, deadline: float) -> bool:
        """Wait until all consumers have all that is logged, and groups have handled it; whether they have."""
        read = threading.Event()

        def look() -> None:
            if self._is_read():
                read.set()

        while not read.is_set():
            left = deadline - time.monotonic()
            if left <= 0 or self._closed:
                return False
            self._jobs.put(look)
            read.wait(min(left, _READ_SECONDS))
        return True

    def members_are(self, members: Mapping[Member, str | None]) -> None:
        """Who consumes the channel now, and in which group: a reader that is none of these has died."""
        self._jobs.put(partial(self._members_are, members))

    def derived_handled(self, producer: str, last: int, handled: int, failures: list[tuple[str, str]]) -> None:
        """What modulators have made of a delivered event was handled."""
        self._jobs.put(partial(self._outcomes.resolve_derived, producer, last, handled, failures))

    def _grown(self) -> None:
        if threading.current_thread() is not self._thread:
            self._jobs.put(self._serve_waiting)

    def close(self) -> None:
        """End; what was asked and not answered will be asked of a successor."""
        self._jobs.put(None)
        self._thread.join()
        self._closed = True
        self._turn_away_rest()
        waiting = [reader.fetch[1] for reader in self._readers.values() if reader.fetch is not None]
        for answer in [*waiting, *self._early.unanswered(), *self._outcomes.unanswered()]:
            answer(_NOT_HERE)
        self.store.close()

    def _turn_away_rest(self) -> None:
        """After the thread has ended."""
        with contextlib.suppress(queue.Empty):
            while True:
                job = self._jobs.get_nowait()
                if isinstance(job, tuple):
                    job[2](_NOT_HERE)

    # ---- the thread ----

    def _run(self) -> None:
        while (job := self._next_job()) is not None:
            try:
                if isinstance(job, tuple):
                    self._perform(*job)
                else:
                    job()
            except Exception:
                logger.exception("the log of channel %r goes on after an error", self.channel)

    def _next_job(self) -> _Job:
        """What was asked for first; or to look after things, when it is time, however much there is to do."""
        left = self._deadline - time.monotonic()
        if left > 0:
            with contextlib.suppress(queue.Empty):
                return self._jobs.get(timeout=left)
        self._deadline = time.monotonic() + _LOOK_SECONDS
        return self._look_after

    def _perform(self, message: Any, caller: Caller, answer: Answer) -> None:
        if message.log != self.store.log:
            answer(log_calls.OtherLog(self.store.log))
            return
        try:
            self._actions[type(message)](message, caller, answer)
        except Missing as missing:
            answer(log_calls.Gone(missing.next or 0))
        except Exception as error:  # the disk is full, say: who asked decides
            answer(self._unlogged(error))

    def _unlogged(self, error: Exception) -> log_calls.Unlogged:
        logger.error("the log of channel %r can't be used: %r", self.channel, error, exc_info=error)
        return log_calls.Unlogged(f"{type(error).__name__}: {error}")

    def _look_after(self) -> None:
        now = time.time()
        if time.monotonic() - self._large_used_at > _LOOK_SECONDS:
            self._large.clear()
        self._early.forget(now)
        self._serve_waiting()  # nobody is waited for for good
        self._outcomes.forget(now)
        if len(self._marks) > _MOST_MARKS:
            self._marks.clear()
        self.store.end_leases(now)
        self.store.trim(now)
        self.store.forget_marks(_MARKS_SECONDS, now)

    # ---- producers ----

    def _mark(self, producer: str) -> int:
        if producer not in self._marks:
            self._marks[producer] = self.store.mark_of(producer)
        return self._marks[producer]

    def _append(self, message: log_calls.Append, caller: Caller, answer: Answer) -> None:
        mark = self._mark(message.producer)
        if message.last <= mark:  # asked again, or by a producer that found its log anew
            answer(log_calls.Appended(mark))
            return
        if message.after > mark:
            self._early.came_early(message, answer, time.time())
            return
        entries = self._early.whole(message)
        if entries is None:
            answer(log_calls.Unlogged("a part of a large event is missing"))
            return
        is_derived = message.is_delivered and self.derives(message.producer, message.last)
        first = self.store.append(entries, (message.producer, message.last))
        self._marks[message.producer] = message.last
        if message.is_delivered:
            self._expect(message, first + sum(entry.count for entry in entries) - 1, is_derived)
        answer(log_calls.Appended(message.last))
        self._serve_waiting()
        for following in self._early.following(message.producer, message.last):
            self._perform(following.message, caller, following.answer)

    def _slice(self, message: log_calls.Slice, caller: Caller, answer: Answer) -> None:
        self._early.slice_came(message, time.time())
        answer(log_calls.Done())

    # ---- deliveries ----

    def _expect(self, message: log_calls.Append, offset: int, is_derived: bool) -> None:
        # Also those who have not come yet to a log host that was just started.
        groups = {**{member: reader.group for member, reader in self._readers.items()}, **self._members}
        consumers = [consumer(member, group) for member, group in groups.items()]
        consumers += [DERIVED] if is_derived else []
        self._outcomes.expect(message.producer, message.last, offset, consumers)

    def _await(self, message: log_calls.Await, caller: Caller, answer: Answer) -> None:
        self._outcomes.asked(message.producer, message.last, answer)

    def _handled(self, message: log_calls.Handled, caller: Caller, answer: Answer) -> None:
        member = (caller.endpoint, message.subscription)
        reader = self._readers.get(member)
        group = reader.group if reader is not None else self._members.get(member)
        # A member of a group that lets go of one does so for itself: another will have it.
        if group is None or message.outcome != RELEASED:
            self._outcomes.resolve(member, group, message.outcome, message.offset, message.offset + 1)
        answer(log_calls.Done())

    # ---- readers ----

    def _is_read(self) -> bool:
        """Whether nobody who consumes this has something to fetch, or has fetched something and not acknowledged it."""
        end = self.store.next
        for member, group in self._members.items():
            if group is None:
                fetch = self._readers[member].fetch if member in self._readers else None
                if fetch is None or fetch[0].start < end:
                    return False
            elif group not in self._groups or self._groups[group].acknowledged < end:
                return False
        return True

    def _join(self, message: log_calls.Join, caller: Caller, answer: Answer) -> None:
        member = (caller.endpoint, message.subscription)
        is_new = member not in self._readers
        self._readers.setdefault(member, _JoinedReader(message.group))
        start = message.start
        if start == "new":
            start = self.store.next
        elif start == "earliest":
            start = self.store.first
        assert isinstance(start, int)
        if message.group is not None:
            group = self._group(message.group, start)
            group.joined(member)
            for held in (*message.done, *message.held):
                group.claim(member, *held)
            self._acknowledge(message.group, member, message.done)
            start = group.acknowledged
        if is_new:  # it will not get what is before
            self._outcomes.resolve(member, message.group, RELEASED, 0, start)
        answer(log_calls.Joined(start))
        self._serve_waiting()  # others may have waited for it to be back

    def _group(self, name: str, start: int) -> Allotments:
        if name not in self._groups:
            known = self.store.group(name)
            if known is None:
                self.store.set_group(name, start)
            self._groups[name] = Allotments(start if known is None else known)
        return self._groups[name]

    def _members_are(self, members: Mapping[Member, str | None]) -> None:
        before, self._members = self._members, members
        for member in {**before, **dict.fromkeys(self._readers)}:
            if member not in members:
                # One that had left in order may have been named once more.
                self._part_with(member, before.get(member), _DIED if member in self._readers else RELEASED)
        self._serve_waiting()

    def _leave(self, message: log_calls.Leave, caller: Caller, answer: Answer) -> None:
        member = (caller.endpoint, message.subscription)
        if message.group in self._groups:
            self._acknowledge(message.group, member, message.done)
        self._members = {each: group for each, group in self._members.items() if each != member}
        self._part_with(member, message.group, RELEASED)
        answer(log_calls.Done())

    def _part_with(self, member: Member, group: str | None, reason: bytes) -> None:
        reader = self._readers.pop(member, None)
        if reader is not None:
            group = reader.group
            if reader.fetch is not None:
                reader.fetch[1](log_calls.OtherLog(self.store.log))  # where it is there all the same, it joins again
        if group in self._groups:
            self._groups[group].left(member)
        if group is None:
            self._outcomes.resolve(member, None, reason, 0, self.store.next)
        elif not self._is_consumed_by(group):
            self._outcomes.resolve(member, group, reason, 0, self.store.next)
            self._groups.pop(group, None)  # its position is in the store
        self._serve_waiting()

    def _is_consumed_by(self, group: str) -> bool:
        return group in self._members.values() or any(reader.group == group for reader in self._readers.values())

    def _acknowledge(self, name: str, member: Member, done: list[tuple[int, int]]) -> None:
        group = self._groups[name]
        if done and group.done(member, done):
            self.store.set_group(name, group.acknowledged)

    def _fetch(self, message: log_calls.Fetch, caller: Caller, answer: Answer) -> None:
        member = (caller.endpoint, message.subscription)
        reader = self._readers.get(member)
        if reader is None:  # a predecessor had it: it joins again
            answer(log_calls.OtherLog(self.store.log))
            return
        if message.group is not None:
            self._acknowledge(message.group, member, message.done)
            reader.share.is_back(time.monotonic())
        if reader.fetch is not None:  # it has joined again since
            reader.fetch[1](log_calls.Done())
        reader.fetch = message, answer
        self._serve(member, reader)

    def _serve_waiting(self) -> None:
        for member, reader in [*self._readers.items()]:
            if reader.fetch is not None:
                self._serve(member, reader)

    def _serve(self, member: Member, reader: _JoinedReader) -> None:
        assert reader.fetch is not None
        message, answer = reader.fetch
        try:
            fetched: Any = self._share(member, message) if message.group is not None else self._read(message)
        except Missing as missing:
            first = missing.next or 0
            fetched = log_calls.Gone(first, [(message.start, first)] if message.group is None else [])
        except Exception as error:
            fetched = self._unlogged(error)
        if fetched is None:
            return
        reader.fetch = None
        if isinstance(fetched, log_calls.Gone):
            for start, stop in fetched.lost:
                self._outcomes.resolve(member, reader.group, _LOST, start, stop)
        answer(fetched)

    def _read(self, message: log_calls.Fetch) -> log_calls.Fetched | None:
        entries = _fitting(self.store.read(message.start, message.max_bytes))
        if not entries:
            return None
        return self._fetched(entries, message.start, entries[-1].next)

    def _share(self, member: Member, message: log_calls.Fetch) -> log_calls.Fetched | log_calls.Gone | None:
        assert message.group is not None
        group = self._groups[message.group]
        if not self._has_returned(message.group):
            return None
        group.asks(member, message.number)
        lost = group.skip_to(self.store.first)
        if lost:
            self.store.set_group(message.group, group.acknowledged)
            return log_calls.Gone(self.store.first, [(each.start, each.stop) for each in lost])
        waiting = self.store.next - group.acknowledged
        share = self._readers[member].share
        most = max(1, min(share.most, waiting // (2 * group.members)))
        given = group.take(member, message.number, self.store.next, most)
        if given is None:
            return None
        entries = _fitting(self.store.read(given.start, message.max_bytes, given.stop))
        if entries[-1].next < given.stop:
            given = group.shorten(member, entries[-1].next)
        share.given(given.stop - given.start, time.monotonic())
        if len(entries[0].data) <= log_calls.MAX_ENTRY_BYTES:  # else it goes in slices, whole
            entries = [cut(entry, given.start, given.stop) for entry in entries]
        return self._fetched(entries, *given, group.acknowledged)

    def _has_returned(self, name: str) -> bool:
        """Whether all who may have something of a group's have said what, or had the time to."""
        if time.monotonic() > self._returned_by:
            return True
        return all(member in self._readers for member, group in self._members.items() if group == name)

    def _fetched(
        self, entries: list[Entry], start: int, stop: int, is_redelivered: bool = False, acknowledged: int = 0
    ) -> log_calls.Fetched:
        delivered = self._outcomes.awaited(start, stop)
        slices = 0
        if len(entries[0].data) > log_calls.MAX_ENTRY_BYTES:
            slices = -(-len(entries[0].data) // log_calls.MAX_CALL_BYTES)
            entries = [msgspec.structs.replace(entries[0], data=b"")]
        return log_calls.Fetched(entries, start, stop, slices, is_redelivered, delivered, acknowledged)

    def _look(self, message: log_calls.Look, caller: Caller, answer: Answer) -> None:
        group = message.group
        is_known = group is not None and (group in self._groups or self.store.group(group) is not None)
        answer(log_calls.Extent(self.store.first, self.store.next, is_known))

    def _read_range(self, message: log_calls.ReadRange, caller: Caller, answer: Answer) -> None:
        entries = _fitting(self.store.read(message.start, message.max_bytes, message.stop))
        if not entries:
            answer(log_calls.Fetched([], message.start, message.start))
            return
        answer(self._fetched(entries, message.start, min(message.stop, entries[-1].next)))

    def _hold(self, message: log_calls.Hold, caller: Caller, answer: Answer) -> None:
        known, start = self.store.group(message.group), message.start
        if isinstance(start, str):
            first = self.store.first if start == "earliest" else self.store.next
            start = first if known is None else known
        self.store.set_group(message.group, start, hold_until=time.time() + message.lease_seconds)
        answer(log_calls.Joined(start))

    def _fetch_slice(self, message: log_calls.FetchSlice, caller: Caller, answer: Answer) -> None:
        entry = self._large.pop(message.first, None) or self.store.read(message.first, 1)[0]
        self._large[message.first] = entry
        while len(self._large) > 1 and sum(len(each.data) for each in self._large.values()) > _MOST_LARGE_BYTES:
            del self._large[next(iter(self._large))]
        self._large_used_at = time.monotonic()
        answer(log_calls.Sliced(entry.data[message.at : message.at + log_calls.MAX_CALL_BYTES]))


def _fitting(entries: list[Entry]) -> list[Entry]:
    """What goes into one answer: an entry that is too long for one goes by itself."""
    for i, entry in enumerate(entries):
        if len(entry.data) > log_calls.MAX_ENTRY_BYTES:
            return entries[: max(1, i)]
    return entries
