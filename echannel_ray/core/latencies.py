"""How long deliveries took: samples counted by fixed bounds, so that those of many processes can be added up.

Each sample is counted once, under the smallest bound that it does not exceed, or under "inf".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

_NAMES: Final = (
    "0.00005", "0.0001", "0.0002", "0.0005", "0.001", "0.002", "0.005", "0.01", "0.02", "0.05",
    "0.1", "0.2", "0.5", "1", "2", "5", "10", "20", "60", "inf",
)  # fmt: skip
BOUNDS_SECONDS: Final = tuple(map(float, _NAMES[:-1]))


class Latencies:
    """The latencies of one subscription, counted by how long they are."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts = [0] * len(_NAMES)

    def add(self, seconds: float) -> None:
        """Count a sample. Between nodes it is as good as their clocks: what seems negative took next to nothing."""
        self._counts[bisect_left(BOUNDS_SECONDS, seconds)] += 1

    def counts(self) -> dict[str, int]:
        """How many samples there are, by their bounds in seconds; those that have any."""
        return {name: count for name, count in zip(_NAMES, self._counts, strict=True) if count}


def quantile(counts: Mapping[str, int], fraction: float) -> float | None:
    """What so many of the samples took at most, taken to be evenly spread between two bounds; None without samples.

    Of those above the last bound only that is known.
    """
    wanted = fraction * sum(counts.values())
    if not wanted:
        return None
    below, lower = 0, 0.0
    for name, upper in zip(_NAMES, BOUNDS_SECONDS, strict=False):
        count = counts.get(name, 0)
        if below + count >= wanted:
            return lower + (upper - lower) * (wanted - below) / count
        below, lower = below + count, upper
    return lower
