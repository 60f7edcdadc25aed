"""Classes of events that every process can import."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, NamedTuple

import msgspec
import pydantic


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass(frozen=True)
class Trade:
    symbol: str
    price: Any


class Record(msgspec.Struct):
    name: str
    value: Any


class Model(pydantic.BaseModel):
    name: str
    values: list[int]


class Unreadable:
    """Can be pickled; reading it raises where `FORBIDDEN` is set, as when its module is missing there."""

    def __reduce__(self) -> Any:
        return _read, ()


FORBIDDEN = False


def _read() -> Unreadable:
    if FORBIDDEN:
        raise ImportError("no module named 'elsewhere'")
    return Unreadable()
