"""Rows with a value of every type that travels, at its edges, and with nulls everywhere."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

from pyspark.sql import types as spark

_INNER = spark.StructType().add("x", "integer").add("y", spark.ArrayType(spark.StringType()))
SCHEMA = (
    spark.StructType()
    .add("boolean", "boolean")
    .add("byte", "byte")
    .add("short", "short")
    .add("int", "integer")
    .add("long", "long")
    .add("float", "float")
    .add("double", "double")
    .add("decimal", "decimal(38,10)")
    .add("whole", "decimal(38,0)")
    .add("text", "string")
    .add("binary", "binary")
    .add("date", "date")
    .add("timestamp", "timestamp")
    .add("wall_clock", "timestamp_ntz")
    .add("interval", spark.DayTimeIntervalType())
    .add("time", spark.TimeType())
    .add("void", spark.NullType())
    .add("decimals", spark.ArrayType(spark.DecimalType(5, 2)))
    .add("lists", spark.ArrayType(spark.ArrayType(spark.LongType())))
    .add("full", spark.ArrayType(spark.LongType(), containsNull=False))
    .add("map", spark.MapType(spark.StringType(), spark.ArrayType(spark.TimestampType())))
    .add("days", spark.MapType(spark.DateType(), spark.DoubleType(), valueContainsNull=False))
    .add("struct", _INNER)
    .add("structs", spark.ArrayType(_INNER))
    .add("required", "long", nullable=False)
)
# Spelled out: arithmetic would round to the 28 digits of the default context.
_NINES = Decimal(f"{'9' * 28}.{'9' * 10}")
_MINUS_NINES = Decimal(f"-{'9' * 38}")


def _instant(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.timezone.utc)  # type: ignore[arg-type, misc]


def _row(**given: Any) -> tuple[Any, ...]:
    return tuple(given.get(name) for name in SCHEMA.names)


ROWS = [
    _row(required=0),
    _row(
        boolean=True, byte=127, short=-32768, int=2**31 - 1, long=-(2**63), float=math.inf, double=math.nan,
        decimal=_NINES, whole=_MINUS_NINES, text="ä\0𝄞", binary=b"\0\xff", date=dt.date(1, 1, 1),
        timestamp=_instant(2026, 10, 25, 0, 30, 0, 123456), wall_clock=dt.datetime(2026, 10, 25, 2, 30),
        interval=dt.timedelta(days=-3, microseconds=7), time=dt.time(23, 59, 59, 999999),
        decimals=[None, Decimal("-1.25")],
        lists=[[], None, [1, None]], full=[1, 2], map={"a": [_instant(1950, 1, 1), None], "b": None},
        days={dt.date(9999, 12, 31): 0.5}, struct=(None, ["p", None]), structs=[None, (1, None), (2, [])], required=1,
    ),
    _row(
        boolean=False, byte=-128, short=32767, int=-(2**31), long=2**63 - 1, float=-0.0, double=-math.inf,
        decimal=Decimal("0.0000000001"), whole=Decimal(0), text="", binary=b"", date=dt.date(9999, 12, 31),
        timestamp=_instant(1900, 1, 1, 12), wall_clock=dt.datetime(1, 1, 1), interval=dt.timedelta(0), time=dt.time(0),
        decimals=[], lists=[], full=[], map={}, days={}, struct=(5, None), structs=[], required=2,
    ),
    _row(float=math.nan, double=-0.0, required=3),
]  # fmt: skip
