"""A class whose fields are of all that annotations can say, and a value of it."""

import dataclasses
import enum
import uuid
from collections import deque
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypedDict


class Side(enum.Enum):
    BUY = "b"
    SELL = "s"


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Options(TypedDict):
    depth: int


@dataclasses.dataclass(frozen=True)
class Point:
    x: float
    y: float


@dataclasses.dataclass
class Everything:
    side: Side
    kind: Literal["a", 3]
    maybe: Point | None
    at: datetime
    day: date
    hour: time
    price: Decimal
    key: uuid.UUID
    text: str
    data: bytes
    raw: bytearray
    number: complex
    some: set[int]
    points: frozenset[Point]
    queue: deque[int]
    numbers: tuple[int, ...]
    mixed: tuple[int, str, Point]
    union: int | str | Point
    by_name: dict[str, list[Point]]
    by_place: dict[tuple[int, int], date]
    anything: Any
    pair: Pair
    options: Options


EVERYTHING = Everything(
    Side.SELL, 3, Point(1.0, 2.0), datetime(2024, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))), date(2024, 1, 2),
    time(1, 2, 3, 4), Decimal("1.50"), uuid.UUID(int=7), "ä\0", b"\xff", bytearray(b"x"), 1 + 2j, {1, 2},
    frozenset({Point(1.0, 1.0)}), deque([1, 2]), (1, 2, 3), (1, "b", Point(0.0, 0.0)), Point(5.0, 6.0),
    {"a": [Point(1.0, 2.0)]}, {(1, 2): date(2024, 1, 1)}, {"k": [1, None, "x", b"y"]}, Pair(1, "q"), {"depth": 2},
)  # fmt: skip
