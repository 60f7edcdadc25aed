"""What events weigh that go into a modulator, and that come out of it: their serialised bytes.

Objects that go to an inline modulator are never serialised if it keeps them, which is what it is there for; nor is what
it emits for consumers of its own process. Of these one is serialised in a second, at most, and the others are taken to
be like those. Records of E-code and all that goes to a sandbox have their bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from echannel_ray.formats.events import OVERHEAD_BYTES

_LOOK_SECONDS: Final = 1.0


class Weight:
    """The number and size of all events that have passed one place."""

    def __init__(self) -> None:
        self._bytes = 0
        self._unknown = 0  # events whose bytes nobody has
        self._seen_bytes = self._looks = 0  # of those that were looked at
        self._look_at = float("-inf")

    def add(self, size_bytes: int) -> None:
        """Count events that have so many bytes."""
        self._bytes += size_bytes

    def add_unknown(self, count: int) -> None:
        """Count events that nobody has serialised."""
        self._unknown += count

    def look(self, event: Any, encode: Callable[[Any], tuple[int, Any, int]], now: float) -> None:
        """Weigh an event, whose size (by `encode`) counts for the others, if none was looked at in the last second."""
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_SECONDS
        try:
            size = encode(event)[2] - OVERHEAD_BYTES
        except Exception:  # it can't be serialised, say by a class's own code: nor would it have travelled
            return
        self._seen_bytes += size
        self._looks += 1

    @property
    def total_bytes(self) -> int:
        """The bytes of all events, as far as that is known."""
        return self._bytes + (self._unknown * self._seen_bytes // self._looks if self._looks else 0)


class Savings:
    """What one modulator saves: the weight of what it sees, and of what it sends."""

    def __init__(self) -> None:
        self.seen, self.emitted = Weight(), Weight()
        self._most_bytes = 0

    @property
    def saved_bytes(self) -> int:
        """The bytes of what it has seen, less those of what it has emitted.

        It never falls, as counters don't: what a modulator holds back, to emit it together, counts as saved until then,
        and after that nothing does before more than that is.
        """
        self._most_bytes = max(self._most_bytes, self.seen.total_bytes - self.emitted.total_bytes)
        return self._most_bytes
