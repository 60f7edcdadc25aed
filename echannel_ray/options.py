"""The options of a channel, as they are declared when it is created."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DEFAULT_WINDOW_BYTES = 8 << 20


@dataclass(frozen=True)
class Packing:
    """A pack leaves with `degree` events, or when its first one has waited for `interval_seconds`."""

    degree: int = 256
    interval_seconds: float = 0.002

    def __post_init__(self) -> None:
        if not isinstance(self.degree, int) or isinstance(self.degree, bool) or not 1 <= self.degree <= 65536:
            raise ValueError(f"the packing degree is a number of events from 1 to 65536, not {self.degree!r}")
        if not isinstance(self.interval_seconds, int | float) or not 0 < self.interval_seconds <= 60:
            raise ValueError(
                f"the packing interval is more than 0 and at most 60 seconds, not {self.interval_seconds!r}"
            )


def as_dict(packing: Packing | None) -> dict[str, Any]:
    """The options as they are kept with the channel's definition."""
    packing = packing or Packing()
    return {"degree": packing.degree, "interval_seconds": packing.interval_seconds}


def packing_of(options: dict[str, Any]) -> Packing:
    """The packing of a channel that was defined with these options."""
    return Packing(int(options.get("degree", 256)), float(options.get("interval_seconds", 0.002)))
