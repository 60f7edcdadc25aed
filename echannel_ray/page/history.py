"""What channels did in the last minutes, in bounded memory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from typing import Final

from echannel_ray.page.picture import ChannelRow

POINTS: Final = 300  # of one channel: five minutes, at one in a second
MAX_CHANNELS: Final = 2000  # with a history: 34 MB
FIELDS: Final = ("published_rate", "delivered_rate", "dropped_rate", "p50", "p99", "packing")
_WIDTH: Final = 1 + len(FIELDS)


class History:
    """The last points of each channel, the oldest first."""

    def __init__(self, points: int = POINTS, max_channels: int = MAX_CHANNELS) -> None:
        self._points = points
        self._max_channels = max_channels
        self._of: dict[str, array[float]] = {}  # the numbers of all points of a channel, one after the other

    def add(self, at: float, rows: Iterable[ChannelRow]) -> None:
        """Append a point for each channel that is there; those that have gone are forgotten."""
        present = set()
        for row in rows:
            present.add(row.channel)
            if row.channel in self._of or len(self._of) < self._max_channels:
                self._append(row.channel, (at, *(_number(getattr(row, field)) for field in FIELDS)))
        for gone in self._of.keys() - present:
            del self._of[gone]

    def of(self, channel: str) -> list[list[float | None]]:
        """Points of one channel: when, and then the fields; None is unknown."""
        values = [None if math.isnan(value) else value for value in self._of.get(channel, ())]
        return [values[i : i + _WIDTH] for i in range(0, len(values), _WIDTH)]

    def _append(self, channel: str, point: tuple[float, ...]) -> None:
        kept = self._of.setdefault(channel, array("d"))
        if len(kept) == self._points * _WIDTH:
            del kept[:_WIDTH]  # moves the others, which takes less than a microsecond
        kept.extend(point)


def _number(value: float | None) -> float:
    return math.nan if value is None else value
