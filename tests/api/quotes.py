"""Records and helpers of the tests of typed channels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pydantic

import echannel_ray as ec
from tests.api.parties import SOON

OPEN = ec.Admission(tiers=("ecode", "isolated", "inline"))
AT = datetime(2024, 2, 29, 12, 30, 1, 5)
NAMES = ["dataclass", "pydantic", "struct", "numpy", "arrow"]
Row = Annotated[list[float], np.dtype(("f8", (3,)))]
Moment = Annotated[datetime, np.dtype("M8[us]")]


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


@dataclasses.dataclass
class LegData:
    venue: str
    size: int


class LegModel(pydantic.BaseModel):
    venue: str
    size: int


class LegStruct(msgspec.Struct):
    venue: str
    size: int


@dataclasses.dataclass
class QuoteData:
    symbol: str
    is_open: bool
    price: float
    raw: bytes
    leg: LegData
    tags: list[str]
    row: Row
    note: str | None
    at: Moment


class QuoteModel(pydantic.BaseModel):
    symbol: str
    is_open: bool
    price: float
    raw: bytes
    leg: LegModel
    tags: list[str]
    row: Row
    note: str | None
    at: Moment


class QuoteStruct(msgspec.Struct):
    symbol: str
    is_open: bool
    price: float
    raw: bytes
    leg: LegStruct
    tags: list[str]
    row: Row
    note: str | None
    at: Moment


QUOTE_ARROW = pa.schema(
    [
        ("at", pa.timestamp("us")),
        pa.field("note", pa.string(), metadata={"optional": "true"}),
        ("row", pa.list_(pa.float64(), 3)),
        ("tags", pa.list_(pa.string())),
        ("leg", pa.struct([("size", pa.int64()), ("venue", pa.string())])),
        ("raw", pa.binary()),
        ("price", pa.float64()),
        ("is_open", pa.bool_()),
        ("symbol", pa.string()),
    ]
)
QUOTE_TYPES = [QuoteData, QuoteModel, QuoteStruct, QUOTE_ARROW]
LEGS: dict[Any, Any] = {QuoteData: LegData, QuoteModel: LegModel, QuoteStruct: LegStruct}


# What has no place in Arrow's types, for those who have classes.
@dataclasses.dataclass
class FeeData:
    fee: Decimal
    side: Side
    at: datetime
    took: timedelta


class FeeModel(pydantic.BaseModel):
    took: timedelta
    at: datetime
    side: Side
    fee: Decimal


class FeeStruct(msgspec.Struct):
    side: Side
    fee: Decimal
    took: timedelta
    at: datetime


@dataclasses.dataclass
class Numbered:
    number: int
    weight: float = 0.5


NUMBERED = np.dtype([("number", "<i8"), ("weight", "<f8")])


@dataclasses.dataclass
class Sized:
    number: int
    data: bytes


def numbered(first: int, last: int) -> np.ndarray:
    """An array of records with these numbers."""
    array = np.zeros(last - first + 1, NUMBERED)
    array["number"] = np.arange(first, last + 1)
    array["weight"] = 0.5
    return array


def numbers(events: list[Any]) -> list[int]:
    return [event.number for event in events]


def handled(party: Any) -> list[Any]:
    """The events that have come to its process, once they are handled."""
    party.kept["subscription"].drain(SOON)
    return list(party.kept["inbox"].items)


Consume = Callable[..., Callable[..., list[Any]]]


def quote_fields(number: int) -> dict[str, Any]:
    note = None if number % 2 else "☃"
    leg = {"venue": "X" * number, "size": number}
    return {
        "symbol": f"symbol {number}", "is_open": bool(number % 2), "price": number / 4, "raw": b"\0a\0",
        "leg": leg, "tags": ["a"] * number, "row": [1.0, 2.0, 3.5], "note": note, "at": AT,
    }  # fmt: skip


def quote(event_type: Any, number: int) -> Any:
    fields = quote_fields(number)
    if not isinstance(event_type, type):
        return fields
    return event_type(**{**fields, "leg": LEGS[event_type](**fields["leg"])})


def check_quotes(events: list[Any], event_type: Any, expected: range) -> None:
    if isinstance(event_type, type):
        assert events == [quote(event_type, number) for number in expected]
        assert {type(event.leg) for event in events} == {LEGS[event_type]}
    else:
        assert {(type(event), type(event.leg)) for event in events} == {(ec.Record, ec.Record)}
        assert events == [quote_fields(number) for number in expected]
