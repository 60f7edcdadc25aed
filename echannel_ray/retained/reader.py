"""A subscription of a retained channel: it fetches what the logs hold, one after another what each of them has.

Rules:

* Of each log one fetch is under way, and the next begins when its answer has come; but not while more than a window
  waits for the handler. A member of a group asks again only when it has handled what it had: others may want the rest.
* A log keeps its name when its keeper is restarted, and is read on where this reader is. Another log in the place of
  one means that that one is lost; what was asked for and is gone is told to the subscription in its place.
* A producer that found its log anew may have had events logged twice: what has come of a producer does not come again.
* Nothing waits for a message that may never come: now and then each place is looked at that neither joins nor fetches.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from echannel_ray.core.messages import LogAddress, Membership
from echannel_ray.core.receiving import Delivered
from echannel_ray.errors import EChannelError, EventsMissing
from echannel_ray.logs.entries import Entry
from echannel_ray.logs.positions import Position
from echannel_ray.retained import calls
from echannel_ray.retained.places import Lot, Place, Seen
from echannel_ray.retained.reading import Part, decoded, size_of, unfolded
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
# A fetch may wait for long, and what loses it mostly tells: to repeat it often would keep idle readers busy.
_MAX_FETCH_INTERVAL_SECONDS: Final = 5.0
_LEAVE_SECONDS: Final = 5.0


class LogReader:
    """One per subscription of a retained channel."""

    def __init__(self, endpoint: Endpoint, mailbox: Mailbox, start: str | Position, skips_missing: bool) -> None:
        self._endpoint = endpoint
        self._mailbox = mailbox
        self._start = start
        self._skips_missing = skips_missing
        # Taken around the endpoint's, never within it.
        self._lock = threading.RLock()
        self._joined_all = threading.Condition(self._lock)
        self._places: dict[str, Place] = {}
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
                place = self._places[address.log] = Place(address, self._start_in(address.log, start))
                self._join(place)
            for log in self._marks.keys() - self._places.keys():  # gone, or its keeper is being restarted
                self._places[log] = Place(LogAddress(0, 0, log), self._marks[log])
                self._places[log].went_away()
            self._has_begun = True
        with self._endpoint.lock:
            newest = self._endpoint.memberships.get(membership.channel, membership)
        if (newest.epoch, newest.version) > (membership.epoch, membership.version):
            self._take_logs(newest.logs)
        self._endpoint.crew.step_aside()
        with self._joined_all:
            # One whose keeper dies now comes back, or is taken out.
            while any(not place.is_here and not place.away_since for place in self._places.values()):
                if self._refusal is not None:
                    raise self._refusal
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"the logs of channel {self._mailbox.channel!r} did not answer in time")
                self._joined_all.wait(_LOOK_SECONDS if left is None else min(_LOOK_SECONDS, left))
                self._endpoint.check_usable()

    def _knows_us(self, address: LogAddress) -> bool:
        """Whether our group has been at this log before."""
        mailbox = self._mailbox
        if mailbox.group is None:
            return False
        question = calls.Look(mailbox.channel, address.log, mailbox.group)
        try:
            answer = self._endpoint.calls.call(address.node, address.endpoint, question, _LOOK_SECONDS)
        except (Nobody, TimeoutError):  # its keeper is being restarted
            return False
        return isinstance(answer, calls.Extent) and answer.knows_group

    @property
    def _marks(self) -> dict[str, int]:
        return {} if isinstance(self._start, str) else dict(self._start.marks)

    def _start_in(self, log: str, otherwise: int | str | Position) -> int | str:
        """Where to begin in a log: at its mark, if there are marks, and what has none came after them."""
        return otherwise if isinstance(otherwise, int | str) else self._marks.get(log, 0)

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
                    # An old log whose keeper was away: what is new began with its return.
                    later = address.since if self._start == "new" else self._start
                    place = self._places[log] = Place(address, self._start_in(log, later))
                elif place.address != address:  # its keeper was restarted
                    place.address = address
                    place.restart()
                place.away_since, place.is_lost = 0.0, False
                self._go_on(place)
            nodes = {address.node for address in logs}
            for place in [each for each in self._places.values() if each.log not in here]:
                place.went_away()
                if place.address.node in nodes:  # that node has another one now
                    del self._places[place.log]
                    self._lose(place)
            self._joined_all.notify_all()

    def _look_around(self) -> None:
        now = time.monotonic()
        with self._lock:
            for place in self._places.values() if self._has_begun and not self._closed else ():
                if not place.away_since:
                    self._go_on(place)
                elif not place.is_lost and now - place.away_since > _PATIENCE_SECONDS:
                    self._lose(place)

    def _lose(self, place: Place) -> None:
        if not place.is_lost:
            place.is_lost = True
            place.restart()
            self._tell_missing(place, place.at, None)

    def _tell_missing(self, place: Place, first: int, stop: int | None) -> None:
        with self._endpoint.lock:
            for told in self._missing(place, first, stop, "the retention's bounds are past it"):
                self._mailbox.offer(told)

    def _missing(self, place: Place, first: int, stop: int | None, why: str) -> Iterator[Told]:
        """Events of a log, up to an offset or all that came, are gone: what to tell of it."""
        channel = self._mailbox.channel
        self._seen.missed(place)
        if stop is not None:
            self._mailbox.counters.dropped += stop - first
            self._mailbox.missing += stop - first
        if self._skips_missing:
            return
        what = f"events {first} to {stop - 1}" if stop is not None else f"what came from event {first} on"
        why = why if stop is not None else "it was lost with its node or process"
        missing = EventsMissing(
            f"{what} of log {place.log} of channel {channel!r} are gone, since {why}: retain more, read faster, or "
            'subscribe with on_missing="skip"',
            channel=channel, log=place.log, first=first, last=None if stop is None else stop - 1,
        )  # fmt: skip
        yield Told(missing)

    def _tell(self, error: EChannelError) -> None:
        with self._endpoint.lock:
            self._mailbox.offer(Told(error))

    # ---- asking the keepers ----

    def _ask(self, place: Place, message: Any, then: Callable[[Place, Any], None], **how: float) -> None:
        attempt = place.attempt

        def answered(call: Call) -> None:
            # On the thread that reads the link, so not here: what follows takes locks and calls.
            self._endpoint.crew.submit(Errand(self._answered, place, attempt, call, then))

        try:
            address = place.address
            self._endpoint.calls.begin(address.node, address.endpoint, message, answered, **how)
        except EChannelError as error:
            logger.debug("reading channel %r: %s", self._mailbox.channel, error)  # this process leaves

    def _answered(self, place: Place, attempt: int, call: Call, then: Callable[[Place, Any], None]) -> None:
        with self._lock:
            if self._closed or place.attempt != attempt:
                return
            answer = self._answer(place, call)
        if answer is not None:
            then(place, answer)

    def _answer(self, place: Place, call: Call) -> Any:
        """What came; None where it was nothing to go on with."""
        try:
            answer = call.result()
        except Nobody:  # the manager says where the log is now
            place.restart()
            return None
        except EChannelError as error:
            answer = calls.Unlogged(str(error))
        if isinstance(answer, calls.OtherLog):
            place.restart()
            if answer.log == place.log:  # its keeper was restarted, or took us for dead
                self._join(place)
            return None
        if isinstance(answer, calls.Unlogged):  # asked again when we look around
            place.restart()
            refusal = EChannelError(
                f"channel {self._mailbox.channel!r} can't be read now: {answer.reason}; see to the disk of node "
                f"{place.address.node:016x}, on which its log {place.log} is",
                channel=self._mailbox.channel,
            )
            if isinstance(place.start, str):
                self._refusal = refusal
                self._joined_all.notify_all()
            self._tell(refusal)
            return None
        return answer

    def _go_on(self, place: Place) -> None:
        if place.is_here:
            self._fetch(place)
        elif not place.joining:
            self._join(place)

    def _join(self, place: Place) -> None:
        place.joining = True
        mailbox = self._mailbox
        done = [*place.told, *place.done]
        message = calls.Join(mailbox.channel, place.log, mailbox.number, mailbox.group, place.start, done, place.held)
        self._ask(place, message, self._joined)

    def _joined(self, place: Place, answer: calls.Joined) -> None:
        with self._lock:
            place.joined(answer.start, self._mailbox.group is not None)
            self._joined_all.notify_all()
            self._fetch(place)

    def _fetch(self, place: Place) -> None:
        mailbox = self._mailbox
        room = WINDOW_BYTES - place.waiting_bytes if mailbox.group is None else not place.waiting_bytes
        if self._closed or place.fetching or not place.is_here or room <= 0:
            return
        place.fetching = True
        place.fetches += 1
        place.given = (0, 0)
        done, place.done = place.done, []
        place.told += done
        message = calls.Fetch(
            mailbox.channel, place.log, mailbox.number, place.at, calls.MAX_CALL_BYTES, mailbox.group, done,
            place.fetches,
        )  # fmt: skip
        self._ask(place, message, self._fetched, max_interval_seconds=_MAX_FETCH_INTERVAL_SECONDS)

    def _fetched(self, place: Place, answer: calls.Fetched | calls.Gone) -> None:
        with self._lock:
            if isinstance(answer, calls.Gone):
                for first, stop in answer.lost:
                    self._tell_missing(place, first, stop)
                if self._mailbox.group is None:
                    place.at = max(place.at, answer.first)
                place.fetching = False
                self._fetch(place)
                return
            if answer.slices:
                place.parts = []
                self._fetch_slice(place, answer)
                return
        self._take(place, answer, answer.entries)

    def _fetch_slice(self, place: Place, fetched: calls.Fetched) -> None:
        about = fetched.entries[0]

        def sliced(place: Place, answer: calls.Sliced | calls.Gone) -> None:
            with self._lock:
                if isinstance(answer, calls.Gone):
                    place.fetching = False
                    self._fetch(place)
                    return
                place.parts.append(answer.data)
                if len(place.parts) < fetched.slices:
                    self._fetch_slice(place, fetched)
                    return
                parts, place.parts = place.parts, []
            self._take(place, fetched, [calls.with_data(about, b"".join(parts))])

        at = sum(map(len, place.parts))
        self._ask(place, calls.FetchSlice(self._mailbox.channel, place.log, about.first, at), sliced)

    # ---- what has come ----

    def _take(self, place: Place, fetched: calls.Fetched, entries: Sequence[Entry]) -> None:
        attempt = place.attempt
        # Without the lock: code of the user's may run in it.
        parts = [part for entry in entries for part in self._parts(entry, fetched)]
        with self._lock:
            if self._closed or place.attempt != attempt:
                return
            items = [
                item
                for part in parts
                for item in (
                    self._items(place, part, fetched) if isinstance(part, Part) else self._missing(place, *part)
                )
            ]
            if place.address.node != self._endpoint.node:
                size_bytes = sum(len(entry.data) for entry in entries)
                self._mailbox.counters.fetched_between_nodes_bytes += size_bytes
            self._note_taken(place, fetched, [item for item in items if isinstance(item, Delivered)])
            # With the reader's lock held, so that they come in order.
            with self._endpoint.lock:
                for item in items:
                    self._mailbox.offer(item)
            self._fetch(place)

    def _parts(self, entry: Entry, fetched: calls.Fetched) -> list[Part] | list[tuple[int, int, str]]:
        """The events of an entry that are meant, as a mailbox takes them; or which of them are missing, and why."""
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

    def _items(self, place: Place, part: Part, fetched: calls.Fetched) -> Iterator[Delivered | LocalGap]:
        entry, start, stop, kind, events = part
        begin = start
        if self._mailbox.group is None and entry.producer:
            begin, gap = self._seen.sort_out(place, entry, start, stop)
            if gap is not None:
                yield LocalGap(Gap(entry.producer, *gap))
        if begin < stop:
            place_of_it: Any = Lot(place, entry.producer)
            yield Delivered(
                place_of_it, entry.sequence + begin - entry.first, events[begin - start :], begin,
                max(1, size_of(entry)), fetched.is_redelivered, int(stop - 1 in fetched.delivered), 0,
                entry.published_at, 0, kind,
            )  # fmt: skip

    def _note_taken(self, place: Place, fetched: calls.Fetched, items: Sequence[Delivered]) -> None:
        place.at = fetched.stop
        place.fetching = False
        place.given = (fetched.start, fetched.stop)
        place.acknowledged(fetched.acknowledged)
        if not items and not place.waiting_bytes:
            place.handled = max(place.handled, fetched.stop)
        place.waiting_bytes += sum(item.size_bytes for item in items)
        at = fetched.start
        for start, stop in [*((item.mark, item.mark + len(item.events)) for item in items), (fetched.stop, 0)]:
            if at < start and self._mailbox.group is not None:  # what can't be read is done with
                place.done.append((at, start))
            at = stop
        ends = {item.mark + len(item.events) - 1 for item in items}
        for offset in fetched.delivered:
            if offset not in ends:
                self._report(place, offset, b"")  # it came before, by another log

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
                self._report(place, item.mark + events - 1, outcome)
            self._fetch(place)

    def _report(self, place: Place, offset: int, outcome: bytes) -> None:
        mailbox = self._mailbox
        message = calls.Handled(mailbox.channel, place.log, mailbox.number, offset, outcome)
        try:
            self._endpoint.calls.begin(place.address.node, place.address.endpoint, message, lambda call: None)
        except EChannelError as error:
            logger.debug("reading channel %r: %s", mailbox.channel, error)  # this process leaves

    def arrived(self) -> dict[str, int]:
        """See `Source`. Under the endpoint's lock, so without ours."""
        return {f"{place.log}/": place.at for place in [*self._places.values()] if place.is_here}

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

    def leave(self, timeout: float | None = None) -> None:
        """Tell the keepers, of a group's member also what it has handled."""
        mailbox = self._mailbox
        with self._lock:
            messages = [
                (place.address.node, place.address.endpoint,
                 calls.Leave(mailbox.channel, place.log, mailbox.number, mailbox.group, place.done))
                for place in self._places.values() if place.is_here or place.joining
            ]  # fmt: skip
        pending = [self._endpoint.calls.begin(*message) for message in messages]
        deadline = time.monotonic() + (_LEAVE_SECONDS if timeout is None else min(timeout, _LEAVE_SECONDS))
        for call in pending:
            self._endpoint.calls.wait(call, deadline)
