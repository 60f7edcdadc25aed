"""One logical record, declared in each of the five ways, and values of it as each of them has it."""

import dataclasses
import enum
from datetime import datetime, timedelta
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pydantic


class Side(enum.Enum):
    """What an enum is for those who have classes; for the others it is a number."""

    BUY = 1
    SELL = 2


NAIVE = Annotated[datetime, np.dtype("M8[us]")]
ROW = Annotated[list[float], np.dtype(("f8", (3,)))]


@dataclasses.dataclass
class PointData:
    x: float
    y: float


class PointModel(pydantic.BaseModel):
    x: float
    y: float


class PointStruct(msgspec.Struct):
    x: float
    y: float


@dataclasses.dataclass(frozen=True)
class FixedData:
    number: int
    row: ROW
    where: PointData
    at: NAIVE
    took: timedelta


class FixedModel(pydantic.BaseModel):
    number: int
    row: ROW
    where: PointModel
    at: NAIVE
    took: timedelta


class FixedStruct(msgspec.Struct, frozen=True):
    number: int
    row: ROW
    where: PointStruct
    at: NAIVE
    took: timedelta


FIXED_DTYPE = np.dtype(
    [
        ("took", ">m8[us]"),
        ("where", [("y", "f8"), ("x", ">f8")]),
        ("number", "<i8"),
        ("at", "M8[us]"),
        ("row", ">f8", (3,)),
    ]
)
FIXED_ARROW = pa.schema(
    [
        pa.field("at", pa.timestamp("us")),
        pa.field("where", pa.struct([("x", pa.float64()), ("y", pa.float64())])),
        pa.field("row", pa.list_(pa.float64(), 3)),
        pa.field("number", pa.int64()),
        pa.field("took", pa.duration("us")),
    ]
)
FIXED_TYPES = [FixedData, FixedModel, FixedStruct, FIXED_DTYPE, FIXED_ARROW]


class Values(NamedTuple):
    """The values of one such record."""

    number: int
    row: list[float]
    where: tuple[float, float]
    at: datetime
    took: timedelta


def made(event_type: Any, values: Values) -> Any:
    """The record as an event of this type: an array or a batch of one for the last two."""
    if event_type is FIXED_DTYPE:
        array = np.zeros(1, FIXED_DTYPE)
        array[0] = (values.took, values.where[::-1], values.number, values.at, values.row)
        return array
    x, y = values.where
    if event_type is FIXED_ARROW:
        return pa.RecordBatch.from_pylist([{**values._asdict(), "where": {"x": x, "y": y}}], FIXED_ARROW)
    point = {FixedData: PointData, FixedModel: PointModel, FixedStruct: PointStruct}[event_type]
    return event_type(**{**values._asdict(), "where": point(x=x, y=y)})


def values_of(event: Any) -> Values:
    """The values of an event, of whichever type it is."""
    if isinstance(event, np.void):
        where = event["where"]
        took, at = event["took"].item(), event["at"].item()
        return Values(int(event["number"]), event["row"].tolist(), (float(where["x"]), float(where["y"])), at, took)
    return Values(event.number, event.row, (event.where.x, event.where.y), event.at, event.took)
