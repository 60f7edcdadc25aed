"""Spark's types as Arrow's and back, without Spark running."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from echannel_ray.errors import NotSerialisable, TypeMismatch
from echannel_ray.integrations.spark.types import cast, check_readable, declared, spark_schema, travelling
from echannel_ray.schemas.types import describe
from tests.integrations.values import SCHEMA


def test_every_type_becomes_that_of_a_channel_and_comes_back():
    arrow = travelling(SCHEMA, "c")
    assert describe(arrow) is not None
    assert spark_schema(arrow, "c") == SCHEMA


def test_columns_keep_whether_they_may_be_null():
    schema = spark.StructType().add("a", "long", nullable=False).add("b", "long")
    described = describe(travelling(schema, "c"))
    assert described is not None
    assert described["fields"] == {"a": "int", "b": "int | None"}


@pytest.mark.parametrize(
    ("type_", "path"),
    [
        (spark.YearMonthIntervalType(), "a"),
        (spark.VariantType(), "a"),
        (spark.ArrayType(spark.VariantType()), "a[]"),
        (spark.MapType(spark.StringType(), spark.YearMonthIntervalType()), "a[value]"),
        (spark.StructType().add("x", spark.StructType().add("y", spark.CalendarIntervalType())), "a.x.y"),
    ],
)
def test_what_can_not_travel_is_refused_by_name(type_, path):
    with pytest.raises(TypeMismatch) as refused:
        travelling(spark.StructType().add("b", "integer").add("a", type_), "c")
    assert refused.value.field == path
    assert repr(path) in str(refused.value)


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(TypeMismatch, match="two columns are called 'a'"):
        travelling(spark.StructType().add("a", "integer").add("a", "integer"), "c")


@pytest.mark.parametrize(
    ("arrow", "expected"),
    [
        (pa.uint8(), "smallint"), (pa.uint16(), "int"), (pa.uint32(), "bigint"), (pa.uint64(), "decimal(20,0)"),
        (pa.float16(), "float"), (pa.large_string(), "string"), (pa.binary(3), "binary"), (pa.date64(), "date"),
        (pa.timestamp("ns", "Europe/Berlin"), "timestamp"), (pa.timestamp("s"), "timestamp_ntz"),
        (pa.duration("ns"), "interval day to second"), (pa.list_(pa.int8(), 3), "array<tinyint>"),
        (pa.map_(pa.string(), pa.uint8()), "map<string,smallint>"),
        (pa.struct([("x", pa.uint8())]), "struct<x:smallint>"),
    ],
)  # fmt: skip
def test_types_that_spark_has_not_are_read_as_wider_ones(arrow, expected):
    schema = pa.schema([("a", arrow)])
    read = spark_schema(schema, "c")
    assert read["a"].dataType.simpleString() == expected
    check_readable(schema, declared(read), "c")


def test_decimals_that_are_too_long_are_refused():
    with pytest.raises(TypeMismatch, match=r"'a'.*more than 38 digits"):
        spark_schema(pa.schema([("a", pa.decimal256(60, 2))]), "c")


@pytest.mark.parametrize("wanted", [pa.timestamp("us"), pa.list_(pa.int8()), None])
def test_what_can_not_be_read_as_declared_is_refused(wanted):
    schema = pa.schema([("a", pa.timestamp("us", "UTC"))])
    with pytest.raises(TypeMismatch, match=r"column '[ab]' is declared"):
        check_readable(schema, pa.schema([("a", wanted) if wanted else ("b", pa.int8())]), "c")


def test_batches_are_cast_and_nothing_is_rounded():
    batch = pa.RecordBatch.from_pydict({"b": [1, None], "a": pa.array([1000, 2001], pa.timestamp("ns"))})
    wanted = pa.schema([("a", pa.timestamp("us")), ("b", pa.int32()), ("c", pa.string())])
    with pytest.raises(NotSerialisable, match="column 'a'"):
        cast(batch, wanted)
    got = cast(batch.slice(0, 1), wanted)
    assert got.schema == wanted
    assert got.column("a").cast(pa.int64()).to_pylist() == [1]
    assert got.column("c").to_pylist() == [None]
    with pytest.raises(NotSerialisable, match="1 nulls"):
        cast(batch, pa.schema([pa.field("b", pa.int64(), nullable=False)]))
