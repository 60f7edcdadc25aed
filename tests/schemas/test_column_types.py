"""Schemas of NumPy's dtypes and Arrow's schemas."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from echannel_ray.formats import plain
from echannel_ray.schemas import schema
from echannel_ray.schemas.declarations import schema_of


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("?", schema.Bool()),
        (">i2", schema.Int(16)),
        ("u8", schema.Int(64, False)),
        ("f2", schema.Float(16)),
        ("c16", schema.Complex()),
        ("M8[ns]", schema.Timestamp("ns", "")),
        ("m8[W]", schema.Duration("W")),
        ("S8", schema.Bytes(8, True)),
        (">U3", schema.Text(3)),
        ("V5", schema.Bytes(5)),
        (("f8", (37, 253)), schema.Array(schema.Float(), (37, 253))),
        ([("x", "i1"), ("y", "i1")], schema.RecordType(tuple(schema.Field(name, schema.Int(8)) for name in "xy"))),
    ],
)
def test_dtypes(code, expected):
    assert schema_of(np.dtype([("a", code)])) == schema.RecordType((schema.Field("a", expected),))


def test_layout_and_titles_are_no_part_of_a_schema():
    packed = np.dtype([("a", "i1"), ("b", "<f8")])
    apart = np.dtype({"names": ["a", "b"], "formats": ["i1", ">f8"], "offsets": [8, 16], "itemsize": 40})
    titled = np.dtype([(("a title", "a"), "i1"), (("another", "b"), "f8")])
    assert schema_of(packed) == schema_of(apart) == schema_of(titled)
    assert schema_of(np.dtype([("", "i1"), ("", "f8")])).names == ("f0", "f1")


@pytest.mark.parametrize(
    ("arrow", "expected"),
    [
        (pa.null(), schema.Enum((("None", None),))),
        (pa.bool_(), schema.Bool()),
        (pa.int8(), schema.Int(8)),
        (pa.uint64(), schema.Int(64, False)),
        (pa.float16(), schema.Float(16)),
        (pa.float32(), schema.Float(32)),
        (pa.string(), schema.Text()),
        (pa.large_string(), schema.Text()),
        (pa.string_view(), schema.Text()),
        (pa.binary(), schema.Bytes()),
        (pa.large_binary(), schema.Bytes()),
        (pa.binary_view(), schema.Bytes()),
        (pa.binary(4), schema.Bytes(4)),
        (pa.timestamp("ns"), schema.Timestamp("ns", "")),
        (pa.timestamp("ms", "Europe/Berlin"), schema.Timestamp("ms", "Europe/Berlin")),
        (pa.date32(), schema.Date()),
        (pa.date64(), schema.Date()),
        (pa.time32("s"), schema.Time("s")),
        (pa.time64("ns"), schema.Time("ns")),
        (pa.duration("us"), schema.Duration()),
        (pa.decimal128(10, 2), schema.Decimal(10, 2)),
        (pa.decimal256(50, 3), schema.Decimal(50, 3)),
        (pa.list_(pa.int8()), schema.List(schema.Int(8))),
        (pa.large_list(pa.int8()), schema.List(schema.Int(8))),
        (pa.list_view(pa.int8()), schema.List(schema.Int(8))),
        (pa.large_list_view(pa.int8()), schema.List(schema.Int(8))),
        (pa.list_(pa.list_(pa.int8(), 3), 2), schema.Array(schema.Int(8), (2, 3))),
        (pa.map_(pa.string(), pa.int8()), schema.Map(schema.Text(), schema.Int(8))),
        (pa.struct([("x", pa.int8())]), schema.RecordType((schema.Field("x", schema.Int(8)),))),
        (pa.dictionary(pa.int8(), pa.string()), schema.Text()),
        (pa.run_end_encoded(pa.int32(), pa.int8()), schema.Int(8)),
        (pa.uuid(), schema.Uuid()),
        (
            pa.list_(pa.field("item", pa.int8(), metadata={"optional": "true"})),
            schema.List(schema.Optional(schema.Int(8))),
        ),
    ],
)
def test_arrow_types(arrow, expected):
    assert schema_of(pa.schema([("a", arrow)])) == schema.RecordType((schema.Field("a", expected),))


def test_nulls_of_arrow_must_be_asked_for():
    plainly = pa.field("a", pa.int8())
    assert schema_of(pa.schema([plainly])) == schema_of(pa.schema([plainly.with_nullable(False)]))
    optional = pa.schema([plainly.with_metadata({"optional": "true", "unit": "m"})])
    field = schema.Field("a", schema.Optional(schema.Int(8)), plain.encode(None), True)
    assert schema_of(optional).fields == (field,)
