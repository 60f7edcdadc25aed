"""What a tap is asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TapRequest:
    """What a tap shows, and how long."""

    count: int | None = None  # it ends after so many events
    timeout: float | None = None  # and after so many seconds
    where: str | None = None  # E-code: only what passes it leaves the producers
    rate: float | None = None  # and of that so many in a second
    as_lines: bool = False  # of JSON

    def check(self, channel: str, seen: int) -> None:
        """TimeoutError where fewer events came than were to come."""
        if self.count is not None and seen < self.count:
            raise TimeoutError(f"{seen} of {self.count} events came on channel {channel!r} within {self.timeout:g} s")
