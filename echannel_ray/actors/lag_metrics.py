"""How far the consumers of channels are behind, for Prometheus: only the counters of all nodes together say it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from echannel_ray.actors.metrics import LAG, Instruments, MetricLabels

logger = logging.getLogger(__name__)

# In one round: each asks all processes that take part. What is shown of the others is older.
MAX_ASKED: Final = 100


class Lags:
    """The lags of one manager's channels: it asks for those that had something to do, as concentrators say."""

    def __init__(
        self, namespace: str, stats: Callable[[str], Awaitable[dict[str, Any]]], instruments: Instruments
    ) -> None:
        self._names = MetricLabels(namespace)
        self._stats = stats
        self._instruments = instruments
        self._lags: dict[str, int] = {}  # as they were found last; in the order in which they are asked for

    def noted(self, channels: Iterable[str]) -> None:
        """Have the lag of these channels asked for next time: they had something to do."""
        for channel in channels:
            self._lags.setdefault(channel, 0)

    async def show(self) -> None:
        """Ask for the lags of channels that were noted, and show Prometheus all that are known."""
        for channel in [*self._lags][:MAX_ASKED]:
            del self._lags[channel]
            lag = await self._lag(channel)
            self._set(channel, lag)
            if lag:  # one at rest is asked for when it is noted again
                self._lags[channel] = lag
        for channel, lag in self._lags.items():
            self._set(channel, lag)

    def _set(self, channel: str, lag: int) -> None:
        self._instruments.set(LAG, lag, {"channel": self._names.channel(channel)})

    async def _lag(self, channel: str) -> int:
        try:
            stats = await self._stats(channel)
            return sum(each.get("consumer_lag_events", 0) for each in (stats, *stats.get("derived", {}).values()))
        except Exception as error:  # it has just been deleted, say
            logger.debug("the lag of %r is not known: %s", channel, error)
            return 0
