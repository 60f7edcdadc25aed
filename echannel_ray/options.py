"""The options of a channel, as they are declared when it is created."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from echannel_ray.core.packing import Packing as Packing
from echannel_ray.errors import TypeMismatch

DEFAULT_WINDOW_BYTES = 8 << 20
# What a log keeps where nothing is said; in memory beyond 64 MiB it goes to a temporary file.
_MEMORY_BYTES: Final = 256 << 20
_DISK_BYTES: Final = 16 << 30


@dataclass(frozen=True)
class Retention:
    """What a channel keeps of what was published, in a log at each node where something is: so much, for so long, in
    memory (it is lost with the node's concentrator) or on disk. Without `max_bytes` 256 MiB, on disk 16 GiB.
    """

    max_bytes: int | None = None
    max_age_seconds: float | None = None
    disk: bool = False

    def __post_init__(self) -> None:
        if self.max_bytes is not None and (type(self.max_bytes) is not int or self.max_bytes < 1):
            raise ValueError(f"max_bytes is a number of bytes, 1 or more, not {self.max_bytes!r}")
        if self.max_age_seconds is not None and not self.max_age_seconds > 0:
            raise ValueError(f"max_age_seconds is more than 0, not {self.max_age_seconds!r}")
        if type(self.disk) is not bool:
            raise TypeError(f"disk is True or False, not {self.disk!r}")
        if self.max_bytes is None:
            object.__setattr__(self, "max_bytes", _DISK_BYTES if self.disk else _MEMORY_BYTES)


def as_dict(packing: Packing | None, retain: Retention | None = None) -> dict[str, Any]:
    """The options as they are kept with the channel's definition."""
    options = asdict(packing or Packing())
    return options if retain is None else {**options, "retain": asdict(retain)}


def retention_from(retain: Mapping[str, Any] | None) -> Retention | None:
    """The retention that these options say, as a client outside gives them; `ValueError` where they are none."""
    if retain is None:
        return None
    try:
        return Retention(**retain)
    except TypeError as error:
        raise ValueError(f"a retention has max_bytes, max_age_seconds and disk: {error}") from None


def retention_of(options: dict[str, Any]) -> Retention | None:
    """The retention of a channel that was defined with these options."""
    retain = options.get("retain")
    return None if retain is None else Retention(**retain)


def packing_of(options: dict[str, Any]) -> Packing:
    """The packing of a channel that was defined with these options."""
    known = asdict(Packing())
    return Packing(**{name: options[name] for name in known.keys() & options.keys()})


def check_retention(channel: str, options: dict[str, Any], wanted: Retention | None) -> None:
    """`TypeMismatch` where a channel was there before, and keeps less than is wanted now; its bounds stay."""
    if wanted is None:
        return
    known = retention_of(options)
    if known is None or (wanted.disk and not known.disk):
        what = "keeps nothing" if known is None else "keeps its events in memory"
        raise TypeMismatch(
            f"channel {channel!r} was created before, and {what}: delete() it and create it anew with "
            f"retain={wanted!r}, or use another name",
            channel=channel, field="retain",
        )  # fmt: skip
