"""Dates and spans of time as whole numbers of a unit, which is how layouts and Arrow have them."""

from __future__ import annotations

import functools
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

from echannel_ray.schemas import schema

_NANOSECONDS: Final = {
    "W": 604_800 * 10**9, "D": 86_400 * 10**9, "h": 3_600 * 10**9, "m": 60 * 10**9, "s": 10**9,
    "ms": 10**6, "us": 10**3, "ns": 1,
}  # fmt: skip
_NOT_A_TIME: Final = -(2**63)  # how NumPy writes NaT
_EPOCH: Final = datetime(1970, 1, 1)
_UTC_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def count_of(span: timedelta, unit: str) -> int:
    """A span as a number of units; `ValueError` where it is no whole one, or needs more than 64 bits."""
    microseconds = (span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds
    if unit == "us":
        count = microseconds
    else:
        count, rest = divmod(microseconds * 1_000, _NANOSECONDS[unit])
        if rest:
            raise ValueError(f"a whole number of {unit}")
    if not _NOT_A_TIME < count < 2**63:
        raise ValueError(f"within the range of 64 bits of {unit}")
    return count


def since_epoch(moment: datetime, type_: schema.Timestamp) -> int:
    """A moment as a number of units since 1970, as `type_` has it."""
    return count_of(moment - (_EPOCH if moment.tzinfo is None else _UTC_EPOCH), type_.unit)


def span_of(count: int, unit: str) -> timedelta:
    """The span again; `ValueError` where there is none, or it has nanoseconds."""
    if unit == "us" and count != _NOT_A_TIME:
        return timedelta(microseconds=count)
    if count == _NOT_A_TIME:
        raise ValueError("it is not a time (NaT)")
    microseconds, rest = divmod(count * _NANOSECONDS[unit], 1_000)
    if rest:
        raise ValueError("it has nanoseconds, for which Python's dates and times have no place")
    return timedelta(microseconds=microseconds)


def moment_of(count: int, type_: schema.Timestamp) -> datetime:
    """The moment again, in the zone of `type_`."""
    span = span_of(count, type_.unit)
    if not type_.zone:
        return _EPOCH + span
    return (_UTC_EPOCH + span).astimezone(zone_of(type_.zone))


def rescaled(count: int, source: str, target: str) -> int:
    """A number of one unit in another; `ValueError` where that is no whole number."""
    if source == target or count == _NOT_A_TIME:
        return count
    made, rest = divmod(count * _NANOSECONDS[source], _NANOSECONDS[target])
    if rest:
        raise ValueError(f"it is no whole number of {target}")
    return made


def is_no_time(value: Any) -> bool:
    """Whether it is the count that stands for NaT."""
    return type(value) is int and value == _NOT_A_TIME


@functools.lru_cache(256)
def zone_of(name: str) -> tzinfo:
    """The time zone of this name, which may be an offset, as Arrow writes them ("+02:00")."""
    if name.upper() in ("UTC", "Z", "ETC/UTC"):
        return timezone.utc
    if name[0] in "+-":
        return datetime.strptime(name, "%z").tzinfo or timezone.utc
    return ZoneInfo(name)
