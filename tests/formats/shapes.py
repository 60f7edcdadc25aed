"""Classes of events that can be imported, for the tests of this folder."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, NamedTuple

import msgspec
import pydantic


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Trade:
    symbol: str
    price: Any
    size: Any = 0


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return type(other) is Slotted and self.value == other.value

    def __hash__(self):
        return hash(self.value)


class Record(msgspec.Struct):
    name: str
    value: Any


class Model(pydantic.BaseModel):
    name: str
    values: list[int]


class Bytes(bytes):
    pass


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Real(float):
    pass


class Items(list):
    pass
