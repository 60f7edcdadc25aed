"""What a process on the simulated network does with mixtures: what the shell does, by a script without threads."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from echannel_ray.core.kinds import PICKLED
from echannel_ray.core.mixed_receipts import MixedArrival
from echannel_ray.core.mixtures import Mixture
from echannel_ray.core.streams import SenderStream
from tests.core.published import EVENT, Published, Subscription, event_of

if TYPE_CHECKING:
    from tests.core.processes import Process

MOST_BYTES = 40
MOST_PENDING = 4
RESERVE_BYTES = MOST_BYTES * (MOST_PENDING + 1)


class Pending(NamedTuple):
    """An event in the list of a mixture that is not taken in yet."""

    lane: int
    published: Published
    sequence: int
    size: int


class SentMixtures:
    """The lists of one process, to which its producers append in turn."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._rng = random.Random(process.number)
        self._lists: dict[Mixture, list[Pending]] = {}
        self.mixed = 0

    def publish(self, published: Published, size: int) -> bool:
        """Append an event to a list, if its stream is in a mixture or joins one."""
        stream = published.stream
        kind = PICKLED * (size % 2)
        if size > MOST_BYTES or self._rng.random() < 0.3:
            return False
        mixture = stream.mixture
        if mixture is None:
            mixture = self._process.core.sender.mixture_for(stream, kind)
            if mixture is None or mixture.join(stream, lambda: None, kind, RESERVE_BYTES) is None:
                return False
        elif mixture.kind != kind:
            return False
        pending = self._lists.setdefault(mixture, [])
        pending.append(Pending(stream.lane, published, published.last, size))
        if len(pending) >= MOST_PENDING or self._rng.random() < 0.3:
            self._absorb(mixture, may_wait=False)
        return True

    def may_take(self, stream: SenderStream, size: int) -> bool:
        """Whether an event needs no room of its own: the stream is in a mixture."""
        return size <= MOST_BYTES and stream.mixture is not None

    def absorb(self) -> None:
        """Take in what is in the lists: at a tick, and before anything else is done with their streams."""
        for mixture in [*self._lists]:
            self._absorb(mixture, may_wait=True)

    def _absorb(self, mixture: Mixture, may_wait: bool) -> None:
        taken = self._lists.pop(mixture, [])
        if not taken:
            return
        core, now = self._process.core, self._process.network.now
        number = self._process.number
        lanes = np.array([each.lane for each in taken], np.uint16)
        sizes = np.array([each.size for each in taken], np.int64)
        events = [event_of(number, each.published.stream.number, each.sequence, each.size) for each in taken]
        late = core.publish_mixed(mixture, lanes, events, sizes, RESERVE_BYTES)
        self.mixed += len(taken) - len(late)
        if not may_wait and mixture.gather:
            core.see_off_mixed(mixture, now)
        for place in late:
            each = taken[place]
            self._process.publish_late(each.published, each.size, each.sequence)

    @property
    def has_pending(self) -> bool:
        """Whether something is in the lists."""
        return bool(self._lists)


class ReceivedMixtures:
    """The arrivals of one process that have still to be handled, in order."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._rng = random.Random(process.number)
        self._queue: deque[MixedArrival] = deque()
        self.arrivals = 0

    def target_of(self, subscription: int, version: int, kind: int) -> Subscription | None:
        """The subscription, if nothing else is to be handled for it, or is being."""
        target = self._process.subscriptions.get(subscription)
        if target is None or target.closed or target.queue or target.busy or target.paused:
            return None
        return target if self._rng.random() < 0.8 else None

    def put(self, arrival: MixedArrival) -> None:
        """Handle it later, in turn."""
        assert [target.number for target in arrival.targets()] == [
            arrival.subscription(place) for place in range(len(arrival.events))
        ]
        for place in range(len(arrival.events)):
            self._process.note_arrival(arrival.run(place))
        self.arrivals += 1
        self._queue.append(arrival)
        self._process.network.after(0.02 * self._rng.random(), self._handle)

    def _handle(self) -> None:
        """Handle the first one, to its end or until somebody is paused: then the others are not held up."""
        if not self._queue or self._process.dead:
            return
        arrival = self._queue[0]
        for place in range(len(arrival.events)):
            if arrival.targets()[place].paused or self._rng.random() < 0.02:
                self._hand_over(place)
                break
            self._note_handled(arrival, place)
        else:
            self._queue.popleft()
            self._process.core.mixed_handled(arrival, len(arrival.events))
        self._process.perform()

    def _note_handled(self, arrival: MixedArrival, place: int) -> None:
        run = arrival.run(place)
        source = (run.source.stream.endpoint, run.source.stream.number)
        assert EVENT.unpack(run.events[0])[:3] == (*source, run.first)
        arrival.targets()[place].handled.setdefault(source, []).append((run.first, False))

    def give_up(self, subscription: Subscription) -> None:
        """Something else comes for a subscription, or it is closed: what is here for it comes first."""
        for arrival in self._queue:
            if any(target is subscription for target in arrival.targets()):
                self._hand_over(0)
                return

    def _hand_over(self, handled: int) -> None:
        """The first events of the first arrival are handled; all others become runs."""
        queue, self._queue = self._queue, deque()
        self._process.core.mixed_handled(queue[0], handled)
        for arrival in queue:
            for place in range(handled, len(arrival.events)):
                run = arrival.run(place)
                run.source.stand_up()
                target = arrival.targets()[place]
                if not target.closed:
                    target.queue.append(run)
                    self._process.work(target)
            handled = 0
