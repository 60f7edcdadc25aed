"""How many events a member of a group is given at once.

More where it is soon back, less where that takes it long, since others could have had them.

What a member takes for each share, however small (a handler of batches that asks a server once for each, say), is no
reason to give it less: that would only make it pay more often. It is told from what the events take by the sizes of the
last two shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST: Final = 64
MOST: Final = 65_536
_SOON_SECONDS: Final = 0.02
_LONG_SECONDS: Final = 0.2


@dataclass
class Share:
    """The size of what one member of a group is given at once."""

    most: int = FIRST
    _given: int = 0
    _given_at: float | None = None  # None: it has nothing
    _before: tuple[int, float] = (0, 0.0)  # a share of another size, and how long it took
    _fixed: float = 0.0  # of those seconds, what a share of any size takes

    def given(self, events: int, now: float) -> None:
        """Note that the member was given so many events."""
        self._given, self._given_at = events, now

    def is_back(self, now: float) -> None:
        """Work out the next size: the member has done with what it had, if it had something."""
        if self._given_at is None:
            return
        events, took = self._given, now - self._given_at
        self._given_at = None
        events_before, took_before = self._before
        if events != events_before:
            if events_before:
                for_each = max(0.0, (took - took_before) / (events - events_before))
                self._fixed = max(0.0, took - for_each * events)
            self._before = events, took
        for_events = took - self._fixed
        enough = max(_SOON_SECONDS, self._fixed / 2) if events_before else _LONG_SECONDS  # tell by trying another size
        if for_events < enough:
            self.most = min(2 * self.most, MOST)
        elif for_events > max(_LONG_SECONDS, self._fixed):
            self.most = max(1, self.most // 2)
