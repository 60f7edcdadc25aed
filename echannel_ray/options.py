"""The options of a channel, as they are declared when it is created."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from echannel_ray.protocol.packing import Packing as Packing

DEFAULT_WINDOW_BYTES = 8 << 20


def as_dict(packing: Packing | None) -> dict[str, Any]:
    """The options as they are kept with the channel's definition."""
    return asdict(packing or Packing())


def packing_of(options: dict[str, Any]) -> Packing:
    """The packing of a channel that was defined with these options."""
    known = asdict(Packing())
    return Packing(**{name: options[name] for name in known.keys() & options.keys()})
