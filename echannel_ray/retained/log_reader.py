"""A subscription of a retained channel: it fetches what the logs hold, one after another what each of them has.

Rules, beside those of cursors:

* A log keeps its name when its log host is restarted, and is read on where this reader is. Another log in the cursor of
  one means that that one is lost; what was asked for and is gone is told to the subscription in its cursor.
* A producer that found its log anew may have had events logged twice: what has come of a producer does not come again.
* Nothing waits for a message that may never come: now and then each log is looked at that is neither joined nor asked.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from typing_extensions import override

from echannel_ray.consumers.inbox import Inbox, Supply
from echannel_ray.core.arrivals import Arrival, Reports, Source
from echannel_ray.core.cursors import LogCursor, LogRun, Seen
from echannel_ray.core.deliveries import RELEASED
from echannel_ray.core.messages import LogAddress, Membership
from echannel_ray.endpoint.calls import Call, Nobody
from echannel_ray.endpoint.crew import Job
from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
from echannel_ray.errors import EChannelError, EventsMissing
from echannel_ray.logs.entries import Entry
from echannel_ray.logs.positions import Position
from echannel_ray.retained import log_calls
from echannel_ray.retained.entry_events import EntryPart, decoded, size_of, unfolded

logger = logging.getLogger(__name__)

# A log whose node has gone for this long is taken for lost.
_PATIENCE_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 5.0
# A fetch may wait for long, and what loses it mostly tells: to repeat it often would keep idle readers busy.
_MAX_FETCH_INTERVAL_SECONDS: Final = 5.0
_LEAVE_SECONDS: Final = 5.0


_Taken = tuple[log_calls.Fetched, Sequence[Entry]] | None  # an answer, and the entries of it that are whole


class LogSource(NamedTuple):
    """What a producer has in one log, for one reader. The mark of a run is the offset of its first event."""

    reader: LogReader
    cursor: LogCursor
    producer: str

    def position(self, run: Arrival[Source], count: int) -> Position:
        """Where all of the reader's cursors are, behind these events."""
        return self.reader.position(self.cursor, run.mark + count)

    def close_run(self, run: Arrival[Source], outcome: bytes, reports: Reports) -> None:
        """Have the log host know when it is next asked, and at once where somebody waits for the outcome."""
        self.reader.run_closed(self.cursor, run, len(run.events), outcome)

    def release(self, run: Arrival[Source], handled: int, reports: Reports) -> None:
        """Have the log host know how much was handled: what a member of a group leaves, others get."""
        self.reader.run_closed(self.cursor, run, handled, RELEASED)


class LogReader(Supply):
    """The reader of one subscription of a retained channel; large, since each step of reading may fail by itself."""

    def __init__(self, endpoint: ProcessEndpoint, inbox: Inbox, start: str | Position) -> None:
        self._endpoint = endpoint
        super().__init__(inbox)
        self.reads_logs = True
        self._start = start
        # Taken around the endpoint's, never within it.
        self._lock = threading.RLock()
        self._joined_all = threading.Condition(self._lock)
        self._cursors: dict[str, LogCursor] = {}
        self._seen = Seen()
        self._refusal: EChannelError | None = None
        self._has_begun = False
        self._closed = False
        self._timer = endpoint.timers.add(_LOOK_SECONDS, self._look_around)

    # ---- logs come and go ----

    def begin(self, membership: Membership, deadline: float | None) -> None:
        """Read the channel's logs from where was said; of one that is added later what is added to it."""
        start = self._start
        if start == "new" and any(self._knows_us(address) for address in membership.logs):
            start = "earliest"  # in logs that came while our group was away, all is new to it
        with self._lock:
            for address in membership.logs:
                self._join(self._cursor(address, start))
            for log in self._marks.keys() - self._cursors.keys():  # gone, or its log host is being restarted
                self._cursor(LogAddress(0, 0, log), self._marks[log]).went_away(time.monotonic())
            self._has_begun = True
        with self._endpoint.lock:
            newest = self._endpoint.memberships.get(membership.channel, membership)
        if newest.recency > membership.recency:
            self._take_logs(newest.logs)
        self._endpoint.crew.step_aside()
        with self._joined_all:
            # One whose host dies now comes back, or is taken out.
            while any(not cursor.is_joined and cursor.away_since is None for cursor in self._cursors.values()):
                if self._refusal is not None:
                    raise self._refusal
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"the logs of channel {self._inbox.channel!r} did not answer in time")
                self._joined_all.wait(_LOOK_SECONDS if left is None else min(_LOOK_SECONDS, left))
                self._endpoint.check_usable()

    def _knows_us(self, address: LogAddress) -> bool:
        """Whether our group has been at this log before."""
        inbox = self._inbox
        if inbox.group is None:
            return False
        question = log_calls.Look(inbox.channel, address.log, inbox.group)
        try:
            answer = self._endpoint.calls.call(address.node, address.endpoint, question, _LOOK_SECONDS)
        except (Nobody, TimeoutError):  # its log host is being restarted
            return False
        return isinstance(answer, log_calls.Extent) and answer.knows_group

    @property
    def _marks(self) -> dict[str, int]:
        return {} if isinstance(self._start, str) else dict(self._start.marks)

    def _cursor(self, address: LogAddress, start: int | str | Position) -> LogCursor:
        """A cursor in a log that has none: at its mark, if there are marks, and what has none came after them."""
        where = start if isinstance(start, int | str) else self._marks.get(address.log, 0)
        cursor = self._cursors[address.log] = LogCursor(address, where, self._inbox.group is not None)
        return cursor

    @override
    def logs_are(self, logs: Sequence[LogAddress]) -> None:
        self._endpoint.crew.submit(Job(self._take_logs, tuple(logs)))

    def _take_logs(self, logs: Sequence[LogAddress]) -> None:
        with self._lock:
            if self._closed or not self._has_begun:
                return
            here = {address.log: address for address in logs}
            for log, address in here.items():
                cursor = self._cursors.get(log)
                if cursor is None:
                    # An old log whose host was away: what is new began with its return.
                    cursor = self._cursor(address, address.since if self._start == "new" else self._start)
                else:
                    cursor.is_at(address)
                self._go_on(cursor)
            nodes = {address.node for address in logs}
            for cursor in [each for each in self._cursors.values() if each.log not in here]:
                cursor.went_away(time.monotonic())
                if cursor.address.node in nodes:  # that node has another one now
                    del self._cursors[cursor.log]
                    self._lose(cursor)
            self._joined_all.notify_all()

    def _look_around(self) -> None:
        now = time.monotonic()
        with self._lock:
            for cursor in self._cursors.values() if self._has_begun and not self._closed else ():
                if cursor.away_since is None:
                    self._go_on(cursor)
                elif now - cursor.away_since > _PATIENCE_SECONDS:
                    self._lose(cursor)

    def _lose(self, cursor: LogCursor) -> None:
        if cursor.lose():
            self._tell_missing(cursor, cursor.at, None)

    def _tell_missing(self, cursor: LogCursor, first: int, stop: int | None) -> None:
        with self._endpoint.lock:
            for missing in self._missing(cursor, first, stop, "the retention's bounds are past it"):
                self._inbox.tell(missing)

    def _missing(self, cursor: LogCursor, first: int, stop: int | None, why: str) -> Iterator[EventsMissing]:
        """Events of a log, up to an offset or all that came, are gone: what to tell of it."""
        channel = self._inbox.channel
        self._seen.missed(cursor)
        if stop is not None:
            self._inbox.counters.dropped += stop - first
            self._inbox.missing += stop - first
        if self._inbox.skips_missing:
            return
        what = f"events {first} to {stop - 1}" if stop is not None else f"what came from event {first} on"
        why = why if stop is not None else "it was lost with its node or process"
        yield EventsMissing(
            f"{what} of log {cursor.log} of channel {channel!r} are gone, since {why}: retain more, read faster, or "
            'subscribe with on_missing="skip"',
            channel=channel, log=cursor.log, first=first, last=None if stop is None else stop - 1,
        )  # fmt: skip

    def _tell(self, error: EChannelError) -> None:
        with self._endpoint.lock:
            self._inbox.tell(error)

    # ---- asking the log hosts ----

    def _ask(self, cursor: LogCursor, message: Any, then: Callable[[LogCursor, Any], _Taken], **how: float) -> None:
        attempt = cursor.attempt

        def answered(call: Call) -> None:
            # On the thread that reads the link, so not here: what follows takes locks and calls.
            self._endpoint.crew.submit(Job(self._answered, cursor, attempt, call, then))

        self._begin_call(cursor, message, answered, **how)

    def _begin_call(self, cursor: LogCursor, message: Any, then: Callable[[Call], None], **how: float) -> None:
        address = cursor.address
        try:
            self._endpoint.calls.begin(address.node, address.endpoint, message, then, **how)
        except EChannelError as error:
            logger.debug("reading channel %r: %s", self._inbox.channel, error)  # this process leaves

    def _answered(self, cursor: LogCursor, attempt: int, call: Call, then: Callable[[LogCursor, Any], _Taken]) -> None:
        with self._lock:
            if self._closed or cursor.attempt != attempt:
                return
            answer = self._answer(cursor, call)
            taken = then(cursor, answer) if answer is not None else None
        if taken is not None:
            self._take(cursor, attempt, *taken)

    def _answer(self, cursor: LogCursor, call: Call) -> Any:
        """What came; None where it was nothing to go on with."""
        try:
            answer = call.result()
        except Nobody:  # the manager says where the log is now
            cursor.restarted()
            return None
        except EChannelError as error:
            answer = log_calls.Unlogged(str(error))
        if isinstance(answer, log_calls.OtherLog):
            cursor.restarted()
            if answer.log == cursor.log:  # its log host was restarted, or took us for dead
                self._join(cursor)
            return None
        if isinstance(answer, log_calls.Unlogged):  # asked again when we look around
            cursor.restarted()
            refusal = EChannelError(
                f"channel {self._inbox.channel!r} can't be read now: {answer.reason}; see to the disk of node "
                f"{cursor.address.node:016x}, on which its log {cursor.log} is",
                channel=self._inbox.channel,
            )
            if isinstance(cursor.start, str):
                self._refusal = refusal
                self._joined_all.notify_all()
            self._tell(refusal)
            return None
        return answer

    def _go_on(self, cursor: LogCursor) -> None:
        if cursor.is_joined:
            self._fetch(cursor)
        elif not cursor.is_in_touch:
            self._join(cursor)

    def _join(self, cursor: LogCursor) -> None:
        cursor.join()
        inbox = self._inbox
        message = log_calls.Join(
            inbox.channel, cursor.log, inbox.number, inbox.group, cursor.start, cursor.all_done, cursor.held
        )
        self._ask(cursor, message, self._joined)

    def _joined(self, cursor: LogCursor, answer: log_calls.Joined) -> None:
        cursor.joined(answer.start)
        self._joined_all.notify_all()
        self._fetch(cursor)

    def _fetch(self, cursor: LogCursor) -> None:
        if self._closed or not cursor.may_fetch:
            return
        inbox = self._inbox
        done = cursor.fetch()
        message = log_calls.Fetch(
            inbox.channel, cursor.log, inbox.number, cursor.at, log_calls.MAX_CALL_BYTES, inbox.group, done,
            cursor.fetches,
        )  # fmt: skip
        self._ask(cursor, message, self._fetched, max_interval_seconds=_MAX_FETCH_INTERVAL_SECONDS)

    def _fetched(self, cursor: LogCursor, answer: log_calls.Fetched | log_calls.Gone) -> _Taken:
        if isinstance(answer, log_calls.Gone):
            for first, stop in answer.lost:
                self._tell_missing(cursor, first, stop)
            cursor.gone(answer.first)
            self._fetch(cursor)
            return None
        if answer.slices:
            cursor.announced()
            self._fetch_slice(cursor, answer)
            return None
        return answer, answer.entries

    def _fetch_slice(self, cursor: LogCursor, fetched: log_calls.Fetched) -> None:
        about = fetched.entries[0]

        def sliced(cursor: LogCursor, answer: log_calls.Sliced | log_calls.Gone) -> _Taken:
            if isinstance(answer, log_calls.Gone):
                cursor.gone()
                self._fetch(cursor)
                return None
            cursor.sliced(answer.data)
            if len(cursor.slices) < fetched.slices:
                self._fetch_slice(cursor, fetched)
                return None
            return fetched, [msgspec.structs.replace(about, data=b"".join(cursor.slices))]

        at = sum(map(len, cursor.slices))
        self._ask(cursor, log_calls.FetchSlice(self._inbox.channel, cursor.log, about.first, at), sliced)

    # ---- what has come ----

    def _take(self, cursor: LogCursor, attempt: int, fetched: log_calls.Fetched, entries: Sequence[Entry]) -> None:
        # Without the lock: code of the user's may run in it.
        parts = [part for entry in entries for part in self._parts(entry, fetched)]
        with self._lock:
            if self._closed or cursor.attempt != attempt:
                return
            items: list[Arrival[LogSource] | EventsMissing] = []
            for part in parts:
                items += (
                    self._items(cursor, part, fetched) if isinstance(part, EntryPart) else self._missing(cursor, *part)
                )
            if cursor.address.node != self._endpoint.node:
                size_bytes = sum(len(entry.data) for entry in entries)
                self._inbox.counters.fetched_between_nodes_bytes += size_bytes
            self._note_taken(cursor, fetched, items)
            # With the reader's lock held, so that they come in order.
            with self._endpoint.lock:
                for item in items:
                    if isinstance(item, Arrival):
                        self._inbox.offer(item)
                    else:
                        self._inbox.tell(item)
            self._fetch(cursor)

    def _parts(self, entry: Entry, fetched: log_calls.Fetched) -> list[EntryPart] | list[tuple[int, int, str]]:
        """The events of an entry that are meant, as an inbox takes them; or which of them are missing, and why."""
        parts = []
        try:
            for each in unfolded(entry):
                start, stop = max(each.first, fetched.start), min(each.next, fetched.stop)
                if start < stop:
                    parts.append(decoded(each, start, stop, self._endpoint))
        except Exception as error:  # it is gone, or another file is in its place
            start, stop = max(entry.first, fetched.start), min(entry.next, fetched.stop)
            return [(start, stop, f"the file that holds them can't be read ({error})")]
        return parts

    def _items(self, cursor: LogCursor, part: EntryPart, fetched: log_calls.Fetched) -> Iterator[Arrival[LogSource]]:
        entry, start, stop, kind, events = part
        source = LogSource(self, cursor, entry.producer)
        first = entry.sequence + start - entry.first
        repeated = 0
        if self._inbox.group is None and entry.producer:
            repeated, gap = self._seen.sort_out(cursor, entry.producer, first, stop - start)
            if gap is not None:
                yield Arrival(source, gap[0], (), start, 0, False, 0, gap[1])
        if repeated:
            events = events[repeated:]
        if start + repeated < stop:
            yield Arrival(
                source, first + repeated, events, start + repeated, max(1, size_of(entry)),
                fetched.is_redelivered, int(stop - 1 in fetched.delivered), 0, entry.published_at, 0, kind,
            )  # fmt: skip

    def _note_taken(
        self, cursor: LogCursor, fetched: log_calls.Fetched, items: Sequence[Arrival[LogSource] | EventsMissing]
    ) -> None:
        runs = [
            LogRun(item.mark, item.mark + len(item.events), item.size_bytes)
            for item in items
            if isinstance(item, Arrival) and not item.gap_last
        ]
        cursor.taken(fetched.start, fetched.stop, fetched.acknowledged, runs)
        ends = {run.stop - 1 for run in runs}
        for offset in fetched.delivered:
            if offset not in ends:
                self._report(cursor, offset, b"")  # it came before, by another log

    # ---- what became of it ----

    def run_closed(self, cursor: LogCursor, run: Arrival[Source], handled: int, outcome: bytes) -> None:
        """So many events of a run were handled, and nobody will handle the others."""
        if run.gap_last:
            return
        with self._lock:
            cursor.run_closed(run.mark, run.mark + handled, run.size_bytes)
            if run.delivery:
                self._report(cursor, run.mark + len(run.events) - 1, outcome)
            self._fetch(cursor)

    def _report(self, cursor: LogCursor, offset: int, outcome: bytes) -> None:
        inbox = self._inbox
        message = log_calls.Handled(inbox.channel, cursor.log, inbox.number, offset, outcome)
        self._begin_call(cursor, message, lambda call: None)

    @override
    def arrived(self) -> dict[str, int]:
        # Under the endpoint's lock, so without ours.
        return {f"{cursor.log}/": cursor.at for cursor in [*self._cursors.values()] if cursor.is_joined}

    def position(self, cursor: LogCursor, offset: int) -> Position:
        """Where to go on behind all before this offset of a log, and what was handled of the others."""
        with self._lock:
            cursor.passed(offset)
            return Position.of({each.log: each.handled_to for each in self._cursors.values()})

    # ---- the end ----

    @override
    def stop(self) -> None:
        with self._lock:
            self._closed = True
        self._endpoint.timers.remove(self._timer)

    @override
    def leave(self, timeout: float | None = None) -> None:
        inbox = self._inbox
        with self._lock:
            messages = [
                (cursor.address.node, cursor.address.endpoint,
                 log_calls.Leave(inbox.channel, cursor.log, inbox.number, inbox.group, cursor.done))
                for cursor in self._cursors.values() if cursor.is_in_touch
            ]  # fmt: skip
        pending = [self._endpoint.calls.begin(*message) for message in messages]
        deadline = time.monotonic() + (_LEAVE_SECONDS if timeout is None else min(timeout, _LEAVE_SECONDS))
        for call in pending:
            self._endpoint.calls.wait(call, deadline)
