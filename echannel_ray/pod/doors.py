"""The doors of the parts that run in this pod; see `transport.door`."""

from __future__ import annotations

import os

from echannel_ray.transport.door import SUFFIX


def doors(directory: str) -> list[str]:
    """The doors at which the parts of this pod can be asked."""
    return sorted(entry.path for entry in os.scandir(directory) if entry.name.endswith(SUFFIX))


def part_of(door: str) -> str:
    """The name of the part at a door."""
    return os.path.basename(door).removesuffix(SUFFIX)
