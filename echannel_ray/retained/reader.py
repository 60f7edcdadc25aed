"""A subscription of a retained channel: it fetches what the logs hold, one after another what each of them has.

Rules:

* Of each log one fetch is under way, and the next begins when its answer has come; but not while more than a window
  waits for the handler. A member of a group asks again only when it has handled what it had: others may want the rest.
* A log keeps its name when its keeper is restarted, and is read on where this reader is. Another log in the place of
  one means that that one is lost; what was asked for and is gone is told to the subscription in its place.
* A producer that found its log anew may have had events logged twice: what has come of a producer does not come again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echannel_ray.errors import EChannelError, EventsMissing
from echannel_ray.logs.entries import Entry
from echannel_ray.logs.positions import Position
from echannel_ray.protocol.messages import LogAddress, Membership
from echannel_ray.protocol.receiving import Delivered
from echannel_ray.retained import calls
from echannel_ray.retained.reading import events_of, unfolded
from echannel_ray.runtime.calls import Call, Nobody
from echannel_ray.runtime.crew import Errand
from echannel_ray.runtime.mailbox import Gap, LocalGap, Mailbox, Told

if TYPE_CHECKING:
    from echannel_ray.runtime.endpoint import Endpoint

logger = logging.getLogger(__name__)

WINDOW_BYTES: Final = 8 << 20
# A log whose node has gone for this long is taken for lost.
_PATIENCE_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 5.0
_MOST_PRODUCERS: Final = 10_000  # whose last events are remembered


class Place:
    """Where this reader is in one log; stands where an event's stream would."""

    def __init__(self, address: LogAddress, start: int | str) -> None:
        self.address = address
        self.log = address.log
        self.start = start  # until it has joined
        self.is_here = False  # whether the keeper knows this reader
        self.joining = False
        self.at = 0  # what is to be fetched next
        self.handled = 0  # up to there all was handed out
        self.waiting_bytes = 0
        self.fetching = False
        self.fetches = 0
        self.done: list[tuple[int, int]] = []
        self.parts: list[bytes] = []  # of an entry that comes in slices
        self.has_missed = False  # something that was forgotten: what is between is told already
        self.lost_at = 0.0  # when its keeper went, and nobody took its place

    def was_asked_by(self, call: Call) -> bool:
        """Whether a call went to the keeper that the log has now."""
        return (call.node, call.endpoint) == (self.address.node, self.address.endpoint)


class Lot(NamedTuple):
    """Where an item of the mailbox comes from: its `reception`. The item's mark is the offset of its first event."""

    place: Place
    producer: str


class LogReader:
    """One per subscription of a retained channel."""

    def __init__(self, endpoint: Endpoint, mailbox: Mailbox, start: str | Position, skips_missing: bool) -> None:
        self._endpoint = endpoint
        self._mailbox = mailbox
        self._start = start
        self._skips_missing = skips_missing
        self._lock = threading.RLock()
        self._joined_all = threading.Condition(self._lock)
        self._places: dict[str, Place] = {}
        self._seen: dict[str, int] = {}  # producers: the last number that has come
        self._has_begun = False
        self._closed = False
        self._timer = endpoint.timers.add(_LOOK_SECONDS, self._look_around)

    # ---- logs come and go ----

    def begin(self, membership: Membership, deadline: float | None) -> None:
        """Read the channel's logs from where was said; what is added later is read from its beginning."""
        with self._lock:
            for address in membership.logs:
                self._places[address.log] = Place(address, self._start_in(address.log))
            for place in self._places.values():
                self._join(place)
            self._has_begun = True
        with self._endpoint.lock:
            newest = self._endpoint.memberships.get(membership.channel, membership)
        if (newest.epoch, newest.version) > (membership.epoch, membership.version):
            self._take_logs(newest.logs)
        self._endpoint.crew.step_aside()
        with self._joined_all:
            # One whose keeper dies now comes back, or is taken out.
            while any(not place.is_here for place in self._places.values()):
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"the logs of channel {self._mailbox.channel!r} did not answer in time")
                self._joined_all.wait(min(_LOOK_SECONDS, left or _LOOK_SECONDS))
                self._endpoint.check_usable()

    def _start_in(self, log: str) -> int | str:
        if isinstance(self._start, str):
            return self._start
        return dict(self._start.marks).get(log, 0)

    def logs_are(self, logs: Sequence[LogAddress]) -> None:
        """See `Source`."""
        self._endpoint.crew.submit(Errand(self._take_logs, tuple(logs)))

    def _take_logs(self, logs: Sequence[LogAddress]) -> None:
        with self._lock:
            if self._closed or not self._has_begun:
                return
            here = {address.log: address for address in logs}
            for log, address in here.items():
                place = self._places.get(log)
                if place is None:
                    later = "earliest" if isinstance(self._start, str) else self._start_in(log)
                    place = self._places[log] = Place(address, later)
                elif place.address != address:  # its keeper was restarted
                    place.address = address
                    place.is_here = place.fetching = place.joining = False
                    place.start = place.at
                place.lost_at = 0.0
                self._go_on(place)
            nodes = {address.node: address.log for address in logs}
            for place in [each for each in self._places.values() if each.log not in here]:
                place.lost_at = place.lost_at or time.monotonic()
                if place.address.node in nodes:
                    self._lose(place)

    def _look_around(self) -> None:
        now = time.monotonic()
        with self._lock:
            for place in [*self._places.values()]:
                if place.lost_at and now - place.lost_at > _PATIENCE_SECONDS:
                    self._lose(place)

    def _lose(self, place: Place) -> None:
        del self._places[place.log]
        self._joined_all.notify_all()
        self._tell_missing(place, None)

    def _tell_missing(self, place: Place, until: int | None) -> None:
        """What is between where this reader is and that offset is gone."""
        channel = self._mailbox.channel
        place.has_missed = True
        if until is not None:
            self._mailbox.counters.dropped += until - place.at
        if self._skips_missing:
            return
        what = f"events {place.at} to {until - 1}" if until is not None else f"what came from event {place.at} on"
        why = "the retention's bounds are past it" if until is not None else "it was lost with its node or process"
        error = EventsMissing(
            f"{what} of log {place.log} of channel {channel!r} are gone, since {why}: retain more, read faster, or "
            'subscribe with on_missing="skip"',
            channel=channel, log=place.log, first=place.at, last=None if until is None else until - 1,
        )  # fmt: skip
        with self._endpoint.lock:
            self._mailbox.offer(Told(error))

    # ---- joining and fetching ----

    def _join(self, place: Place) -> Call:
        place.joining = True
        mailbox = self._mailbox
        message = calls.Join(mailbox.channel, place.log, mailbox.number, mailbox.group, place.start)
        return self._endpoint.calls.begin(
            place.address.node, place.address.endpoint, message, lambda call: self._answered(self._joined, place, call)
        )

    def _answered(self, then: Any, place: Place, call: Call) -> None:
        """On the thread that reads the link, so not here: what follows takes locks and calls."""
        self._endpoint.crew.submit(Errand(self._guarded, then, place, call))

    def _guarded(self, then: Any, place: Place, call: Call) -> None:
        try:
            then(place, call)
        except EChannelError as error:
            logger.debug("reading channel %r: %s", self._mailbox.channel, error)  # this process leaves

    def _joined(self, place: Place, call: Call) -> None:
        with self._lock:
            if self._closed or place.is_here or not place.was_asked_by(call):
                return
            answer = self._answer(place, call)
            if isinstance(answer, calls.Joined):
                place.joining = False
                place.is_here = True
                if isinstance(place.start, str) or self._mailbox.group is not None:
                    place.at = place.handled = answer.start
                else:
                    place.at = place.handled = place.start
                place.start = place.at
                self._joined_all.notify_all()
                self._fetch(place)

    def _answer(self, place: Place, call: Call) -> Any:
        """What came; None where there is nobody to ask, until the manager says where the log is now."""
        try:
            answer = call.result()
        except Nobody:
            place.is_here = place.fetching = place.joining = False
            return None
        if isinstance(answer, calls.OtherLog):
            place.is_here = place.fetching = place.joining = False
            if answer.log == place.log:  # its keeper was restarted
                place.start = place.at
                self._join(place)
            return None
        if isinstance(answer, calls.Unlogged):
            error = EChannelError(f"channel {self._mailbox.channel!r} can't be read: {answer.reason}")
            with self._endpoint.lock:
                self._mailbox.offer(Told(error))
        return answer

    def _go_on(self, place: Place) -> None:
        if place.is_here:
            self._fetch(place)
        elif not place.joining:
            self._join(place)

    def _fetch(self, place: Place) -> None:
        mailbox = self._mailbox
        room = WINDOW_BYTES - place.waiting_bytes if mailbox.group is None else not place.waiting_bytes
        if self._closed or place.fetching or not place.is_here or room <= 0:
            return
        place.fetching = True
        place.fetches += 1
        done, place.done = place.done, []
        message = calls.Fetch(
            mailbox.channel, place.log, mailbox.number, place.at, calls.MAX_CALL_BYTES, mailbox.group, done,
            place.fetches,
        )  # fmt: skip
        self._endpoint.calls.begin(
            place.address.node, place.address.endpoint, message, lambda call: self._answered(self._fetched, place, call)
        )

    def _fetched(self, place: Place, call: Call) -> None:
        with self._lock:
            if self._closed or not place.was_asked_by(call):
                return
            answer = self._answer(place, call)
            if isinstance(answer, calls.Gone):
                place.fetching = False
                if self._mailbox.group is None and answer.first > place.at:
                    self._tell_missing(place, answer.first)
                    place.at = answer.first
                elif self._mailbox.group is not None:
                    self._tell_missing(place, max(place.at, answer.first))
                    place.at = answer.first
                self._fetch(place)
            elif isinstance(answer, calls.Fetched):
                if answer.slices:
                    place.parts = []
                    self._fetch_slice(place, answer)
                else:
                    self._take(place, answer, answer.entries)

    def _fetch_slice(self, place: Place, fetched: calls.Fetched) -> None:
        at = sum(map(len, place.parts))
        message = calls.FetchSlice(self._mailbox.channel, place.log, fetched.entries[0].first, at)

        def sliced(place: Place, call: Call) -> None:
            with self._lock:
                answer = self._answer(place, call)
                if isinstance(answer, calls.Sliced):
                    place.parts.append(answer.data)
                    if len(place.parts) < fetched.slices:
                        self._fetch_slice(place, fetched)
                        return
                    about = fetched.entries[0]
                    parts, place.parts = place.parts, []
                    entry = Entry(
                        about.first, about.count, about.kind, about.token, b"".join(parts), about.producer,
                        about.sequence, about.published_at,
                    )  # fmt: skip
                    self._take(place, fetched, [entry])
                elif isinstance(answer, calls.Gone):
                    place.fetching = False
                    self._fetch(place)

        self._endpoint.calls.begin(
            place.address.node, place.address.endpoint, message, lambda call: self._answered(sliced, place, call)
        )

    def _take(self, place: Place, fetched: calls.Fetched, entries: Sequence[Entry]) -> None:
        items = [item for entry in entries for part in unfolded(entry) for item in self._items(place, part, fetched)]
        place.at = fetched.stop
        place.fetching = False
        place.waiting_bytes += sum(item.size_bytes for item in items if isinstance(item, Delivered))
        if not items:
            if self._mailbox.group is not None:
                place.done.append((fetched.start, fetched.stop))
            place.handled = max(place.handled, fetched.stop) if not place.waiting_bytes else place.handled
        # With the reader's lock held, so that they come in order.
        with self._endpoint.lock:
            for item in items:
                self._mailbox.offer(item)
        self._fetch(place)

    def _items(self, place: Place, entry: Entry, fetched: calls.Fetched) -> Iterator[Delivered | LocalGap]:
        start, stop = max(entry.first, fetched.start), min(entry.next, fetched.stop)
        if self._mailbox.group is None and entry.producer:
            seen = self._seen.pop(entry.producer, None)
            sequence = entry.sequence + start - entry.first
            if seen is not None and seen >= sequence:  # it was logged again, in another log than before
                start = min(stop, start + seen - sequence + 1)
            elif seen is not None and seen + 1 < sequence and not place.has_missed:
                yield LocalGap(Gap(entry.producer, seen + 1, sequence - 1))
            self._seen[entry.producer] = max(seen or 0, entry.sequence + stop - entry.first - 1)
            if len(self._seen) > _MOST_PRODUCERS:
                del self._seen[next(iter(self._seen))]
        if start < stop:
            kind, events = events_of(entry, start, stop)
            place_of_it: Any = Lot(place, entry.producer)
            yield Delivered(
                place_of_it, entry.sequence + start - entry.first, events, start, max(1, len(entry.data)),
                fetched.is_redelivered, stop if stop - 1 in fetched.delivered else 0, 0, entry.published_at, 0, kind,
            )  # fmt: skip

    # ---- what the mailbox asks and tells: see `Source` ----

    def handled(self, item: Delivered, outcome: bytes, count: int | None = None) -> None:
        """See `Source`."""
        lot: Any = item.reception
        place: Place = lot.place
        events = len(item.events)
        with self._lock:
            place.waiting_bytes -= item.size_bytes
            stop = item.mark + (events if count is None and outcome != b"\0" else count or 0)
            place.handled = max(place.handled, stop)
            if self._mailbox.group is not None and stop > item.mark:
                place.done.append((item.mark, stop))
            if item.delivery:
                self._report(place, item, outcome)
            self._fetch(place)

    def _report(self, place: Place, item: Delivered, outcome: bytes) -> None:
        mailbox = self._mailbox
        offset = item.mark + len(item.events) - 1
        message = calls.Handled(mailbox.channel, place.log, mailbox.number, offset, outcome)
        self._endpoint.calls.begin(place.address.node, place.address.endpoint, message, lambda call: None)

    def position(self, item: Delivered, count: int) -> Position:
        """See `Source`."""
        lot: Any = item.reception
        place: Place = lot.place
        with self._lock:
            place.handled = max(place.handled, item.mark + count)
            return Position.of({each.log: each.handled for each in self._places.values()})

    def producer(self, item: Delivered) -> str:
        """See `Source`."""
        lot: Any = item.reception
        return str(lot.producer)

    # ---- the end ----

    def stop(self) -> None:
        """Fetch nothing more."""
        with self._lock:
            self._closed = True
        self._endpoint.timers.remove(self._timer)

    def leave(self) -> None:
        """Tell the keepers, of a group's member also what it has handled."""
        mailbox = self._mailbox
        with self._lock:
            messages = [
                (place.address.node, place.address.endpoint,
                 calls.Leave(mailbox.channel, place.log, mailbox.number, mailbox.group, place.done))
                for place in self._places.values() if place.is_here
            ]  # fmt: skip
        pending = [self._endpoint.calls.begin(*message) for message in messages]
        for call in pending:
            self._endpoint.calls.wait(call, time.monotonic() + _LOOK_SECONDS)
