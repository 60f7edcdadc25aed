"""`tap --rate`: so many events a second at most, chosen in the producers, so that no other event leaves them."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

import echannel_ray as ec
from echannel_ray.endpoint.offload import meanwhile
from echannel_ray.modulators.sampling import AtMostRate
from echannel_ray.modulators.shared import Rate

_LOOK_SECONDS = 1.0


class Sample:
    """What is let through of a channel: by each of its producers an equal share of the rate."""

    def __init__(self, channel: ec.EventChannel, per_second: float) -> None:
        self._per_second = per_second
        self._share = Rate(per_second=self._share_of(channel.stats().producers))
        self.channel = channel.derive(AtMostRate(self._share))
        self.events = 0  # that were published, or passed the filter before
        self.left_out = 0

    def look(self) -> None:
        """Count, and share the rate among the producers that there are now."""
        stats = self.channel.stats()
        self.events, self.left_out = stats.events_in, max(0, stats.events_in - stats.events_out)
        share = self._share_of(stats.producers)
        if share != self._share.per_second:
            self._share.per_second = share
            self._share.publish()

    def watched(self) -> AbstractContextManager[None]:
        """Look each second while what is within runs, and at its end."""
        return meanwhile(_LOOK_SECONDS, self._try_to_look)

    def _try_to_look(self) -> None:
        # What was deleted, the reader is told; a part that is being restarted answers the next time.
        with contextlib.suppress(ec.EChannelError, TimeoutError):
            self.look()

    def _share_of(self, producers: int) -> float:
        return self._per_second / max(1, producers)
