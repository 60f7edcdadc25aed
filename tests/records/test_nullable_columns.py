"""Columns with nulls at every depth, as engines that take every field for nullable have them."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from echannel_ray.errors import NotSerialisable
from echannel_ray.records.arrow import arrow_schema, batch_block, batch_format
from echannel_ray.records.arrow_types import schema_of_record
from echannel_ray.records.reader import Reader
from echannel_ray.records.sources import part_of_block
from echannel_ray.schemas.column_types import record_of_arrow


def optional(name, type_):
    return pa.field(name, type_, metadata={"optional": "true"})


UTC = pa.timestamp("us", "UTC")
POINT = pa.struct([optional("x", pa.int32()), optional("tags", pa.list_(optional("item", pa.string())))])
SCHEMA = pa.schema(
    [
        optional("decimal", pa.decimal128(38, 10)),
        optional("span", pa.duration("us")),
        optional("at", UTC),
        optional("nothing", pa.null()),
        optional("decimals", pa.list_(optional("item", pa.decimal128(5, 2)))),
        optional("times", pa.map_(pa.string(), optional("value", pa.list_(optional("item", UTC))))),
        optional("point", POINT),
        optional("points", pa.list_(optional("item", POINT))),
        optional("pairs", pa.list_(optional("item", pa.int8()), 2)),
        pa.field("required", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False),
    ]
)
AT = dt.datetime(2026, 7, 1, 12, tzinfo=dt.timezone.utc)
ROWS = [
    {
        "decimal": Decimal("1234567890123456789012345678.0123456789"), "span": dt.timedelta(days=-3, microseconds=7),
        "at": AT, "decimals": [None, Decimal("1.25")], "times": [("a", [AT, None]), ("b", None)],
        "point": {"x": None, "tags": ["p", None]}, "points": [None, {"x": 1, "tags": None}], "pairs": [None, 1],
        "required": [1],
    },
    {"required": []},
]  # fmt: skip
RECORD = record_of_arrow(SCHEMA)
BATCH = pa.RecordBatch.from_pylist([*ROWS, ROWS[0]], SCHEMA)


@pytest.mark.parametrize("part", [BATCH, BATCH.slice(1, 2), BATCH.slice(1, 1)])
@pytest.mark.parametrize("target", [SCHEMA, schema_of_record(RECORD)])
def test_they_arrive_as_they_were(part, target):
    block = bytes(batch_block(part))
    got = Reader(target, RECORD, "arrow").batch_of_block(batch_format(SCHEMA, RECORD), block, part.num_rows)
    assert got.schema.equals(target)
    assert got.to_pylist() == part.to_pylist()


def test_parts_of_them_are_read_as_the_whole_is():
    form, block = batch_format(SCHEMA, RECORD), bytes(batch_block(BATCH))
    part = part_of_block(form, block, 3, 1, 3)
    for target in (SCHEMA, schema_of_record(RECORD)):
        got = Reader(target, RECORD, "arrow").batch_of_block(form, part, 2)
        assert got.to_pylist() == BATCH.slice(1, 2).to_pylist()
    rows = Reader(None, RECORD)
    assert rows.rows(form, part, 2) == rows.rows(form, block, 3)[1:]


def test_a_format_says_where_nulls_may_be():
    assert record_of_arrow(arrow_schema(batch_format(SCHEMA, RECORD).arrow)) == RECORD


def test_nulls_inside_of_what_may_be_null_are_refused():
    inner = pa.struct([pa.field("x", pa.int32())])
    batch = pa.RecordBatch.from_pylist([{"a": None}, {"a": {"x": None}}], pa.schema([optional("a", inner)]))
    with pytest.raises(NotSerialisable, match=r"'a\.x' has to have a value"):
        batch_block(batch)
