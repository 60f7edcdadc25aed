"""What many producers publish in turn, a few events each: one list of it, for all who share a mixture."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from echannel_ray.core.frames import MAX_PACK_BYTES
from echannel_ray.core.gather import MAX_MIXED_BYTES, MAX_MIXED_EVENTS
from echannel_ray.core.kinds import typed
from echannel_ray.core.mixtures import LANE_BYTES, Mixture
from echannel_ray.endpoint.crew import TICK_SECONDS
from echannel_ray.formats.events import OVERHEAD_BYTES

if TYPE_CHECKING:
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
    from echannel_ray.producers.consumer_sink import ConsumerSink

# All of a full list may be of one stream.
RESERVE_BYTES: Final = MAX_MIXED_EVENTS * (MAX_MIXED_BYTES + OVERHEAD_BYTES)
_FREQUENT_TICKS = 3


class MixedList:
    """The events of one mixture that are published and not taken in yet; under the endpoint's lock, but for `pending`.

    A producer that is in the mixture appends its lane and the event, in one call and so without a lock, while there are
    fewer than `room`. At a tick, or when it is full, all of it is taken in at once.
    """

    __slots__ = (
        "_core",
        "_each_bytes",
        "_endpoint",
        "_interval_seconds",
        "_sinks",
        "_taken_at_tick",
        "mixture",
        "pending",
        "room",
    )

    def __init__(self, endpoint: ProcessEndpoint, mixture: Mixture, interval_seconds: float) -> None:
        self.mixture = mixture
        self.pending: list[Any] = []  # lanes, as bytes, and payloads in turn
        self.room = 0  # how long `pending` may become: two for each event
        self._endpoint = endpoint
        self._core = endpoint.core
        self._sinks: list[ConsumerSink | None] = []  # by lanes; those of closed producers are forgotten
        self._interval_seconds = interval_seconds  # of the channels' packing
        self._each_bytes = OVERHEAD_BYTES  # of an event, as they have been of late
        self._taken_at_tick = -_FREQUENT_TICKS

    # ---- who is in it ----

    def join(self, sink: ConsumerSink, kind: int) -> bytes | None:
        """Take a producer in, if its consumers have room: its lane."""
        lane = self.mixture.join(sink.stream, sink.left_mixture, kind, RESERVE_BYTES)
        if lane is None:
            return None
        if lane == len(self._sinks):
            self._sinks.append(sink)
        return lane.to_bytes(LANE_BYTES, "little")

    def forget(self, lane: bytes) -> None:
        """A producer that was in it is closed."""
        self._sinks[int.from_bytes(lane, "little")] = None

    @property
    def is_wanted(self) -> bool:
        """Whether the link has so much to do that packs gather."""
        return self.mixture.policy.unasked > 0

    # ---- events ----

    def take(self, lane: bytes, payload: Any) -> bool:
        """An event for which the list had no room, or was closed. Whether packs have left."""
        self.pending.extend((lane, payload))
        self.absorb()
        outgoing = self._endpoint.outgoing
        has_left = outgoing.see_off_mixed(self.mixture)
        crew = self._endpoint.crew
        ticks = crew.ticks
        if ticks - self._taken_at_tick < _FREQUENT_TICKS and self.is_wanted:
            most = min(self.mixture.policy.unasked, MAX_MIXED_EVENTS - 1, MAX_PACK_BYTES // self._each_bytes)
            self.room = 2 * most
            self._endpoint.armed[self] = None
            if not crew.ticking:  # it has found nothing for a while, perhaps since others had the processor
                crew.wake_ticker()
        self._taken_at_tick = ticks
        return has_left

    def absorb(self) -> bool:
        """Take in what was published. Whether there was anything."""
        count = len(self.pending)
        if not count:
            return False
        # Another thread may append between these two, behind what is taken.
        taken = self.pending[:count]
        del self.pending[:count]
        payloads = taken[1::2]
        lanes = np.frombuffer(b"".join(taken[0::2]), "<u2")
        sizes = np.fromiter(map(len, payloads), np.int64, len(payloads)) + OVERHEAD_BYTES
        self._each_bytes = int(sizes.sum()) // len(payloads)
        began = time.monotonic()
        late = self._core.publish_mixed(self.mixture, lanes, payloads, sizes, RESERVE_BYTES)
        self._endpoint.outgoing.sent(began)
        for place in late:
            sink = self._sinks[lanes[place]]
            if sink is not None:
                token = self.mixture.tokens[lanes[place]]
                sink.take_late(typed(self.mixture.kind, token) if token else self.mixture.kind, payloads[place])
        return True

    def is_young(self, now: float) -> bool:
        """Whether what came need not be taken in yet: it is taken at each tick, whoever of many it came from."""
        return False

    def has_little(self, armed: int) -> bool:
        """Whether so little came since the last tick that each event should be looked at, and leave at once."""
        return not self.mixture.policy.unasked

    def disarm(self) -> bool:
        """Have the next event ask first. Whether it would not have."""
        was_armed, self.room = bool(self.room), 0
        return was_armed

    def see_off(self, now: float) -> None:
        """What was taken in at a tick leaves when its time has come."""
        mixture = self.mixture
        if mixture.gather and not self._endpoint.outgoing.see_off_mixed(mixture):
            mixture.gather.leave_by(now + self._interval_seconds - TICK_SECONDS)
