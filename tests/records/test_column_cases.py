"""Blocks become batches column by column: single cases, and what is refused."""

import dataclasses
import enum
from datetime import date

import numpy as np
import pyarrow as pa
import pytest

from echannel_ray.records.arrow import batch_block
from echannel_ray.records.arrow_types import schema_of_record
from echannel_ray.records.layouts import format_of_dtype
from echannel_ray.records.reader import Reader
from echannel_ray.records.writer import block_of, format_of
from echannel_ray.schemas import schema
from echannel_ray.schemas.declarations import schema_of


def sent(array, target, kind="arrow"):
    """What a consumer of batches gets of the array."""
    form = format_of_dtype(array.dtype, schema_of(array.dtype))
    return Reader(target, schema_of(target), kind).batch_of_block(form, block_of(array), len(array))


@pytest.mark.parametrize(
    "declared",
    [
        pa.list_(pa.int64()), pa.large_list(pa.int32()), pa.list_view(pa.int16()), pa.large_list_view(pa.int16()),
        pa.list_(pa.field("each", pa.int16(), nullable=False), 2),
    ],
)  # fmt: skip
def test_arrays_become_lists_of_every_kind(declared):
    array = np.array([([1, 2],), ([3, -4],)], [("a", ">i2", (2,))])
    got = sent(array, pa.schema([("a", declared)]))
    got.validate(full=True)
    assert got.column("a").type == declared
    assert got.column("a").to_pylist() == [[1, 2], [3, -4]]


@pytest.mark.parametrize(
    "declared",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
)
def test_texts_become_columns_of_every_kind(declared):
    array = np.array([("ä\0b",), ("",), ("abc",)], [("a", ">U4")])
    got = sent(array, pa.schema([pa.field("a", declared, metadata={"optional": "true"})]))
    assert got.column("a").type == declared
    assert got.column("a").to_pylist() == ["ä\0b", "", "abc"]


def test_bytes_keep_the_nuls_inside():
    array = np.array([(b"a\0b\0", b"a\0")], [("padded", "S4"), ("exact", "V2")])
    got = sent(array, pa.schema([("exact", pa.binary(2)), ("padded", pa.large_binary())]))
    assert got.to_pylist() == [{"exact": b"a\0", "padded": b"a\0b"}]


def test_a_batch_does_not_hold_its_block():
    array = np.zeros(4, [("a", "i8")])
    got = sent(array, pa.schema([("a", pa.int64())]))
    assert not np.shares_memory(got.column("a").to_numpy(), array)


@pytest.mark.parametrize("points", [b"\xff\xff\xff\xff", b"\x00\xd8\x00\x00"])
def test_what_is_no_text_is_refused(points):
    dtype = np.dtype([("a", "<U1")])
    with pytest.raises(ValueError, match="'a'"):
        Reader(dtype, schema_of(dtype), "arrow").batch_of_block(format_of(dtype), points, 1)


def test_items_of_no_bytes_are_not_multiplied():
    inner = schema.RecordType((schema.Field("x", schema.Bytes(0)),))
    record = schema.RecordType(
        (schema.Field("a", schema.Int(8)), schema.Field("b", schema.Array(inner, (2**30,)))),
    )
    nested = schema.Layout(0, (schema.LaidOut("x", 0, "|V0"),))
    layout = schema.Layout(1, (schema.LaidOut("a", 0, "|i1"), schema.LaidOut("b", 1, "", (2**30,), nested)))
    form = schema.Format(record, schema.LAYOUT, layout)
    with pytest.raises(ValueError, match="'b' has"):
        Reader(None, record, "arrow").batch_of_block(form, b"x", 1)


def test_a_flag_is_true_whatever_its_byte():
    dtype = np.dtype([("a", "?"), ("b", "?", (2,))])
    got = Reader(dtype, schema_of(dtype), "arrow").batch_of_block(format_of(dtype), b"\x02\x00\xff", 1)
    assert got.to_pylist() == [{"a": True, "b": [False, True]}]


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Alarm:
    level: Level


def test_members_of_enums_are_checked():
    form = format_of(Alarm)
    reader = Reader(Alarm, schema_of(Alarm), "arrow")
    block = np.array([2, 1], "i8").tobytes()
    assert reader.batch_of_block(form, block, 2).to_pydict() == {"level": [2, 1]}
    with pytest.raises(ValueError, match="'level' has 3"):
        reader.batch_of_block(form, np.array([1, 3], "i8").tobytes(), 2)


@pytest.mark.parametrize("kind", ["M8", "m8"])
def test_times_without_a_place_are_refused_both_ways(kind):
    make = pa.timestamp if kind == "M8" else pa.duration
    coarse = np.array([(2**60,)], [("t", "i8")]).view([("t", f"{kind}[s]")])
    nothing = np.array([("NaT",)], [("t", f"{kind}[s]")])
    for array, unit in [(coarse, "ns"), (nothing, "s")]:
        with pytest.raises(ValueError, match="'t'"):
            sent(array, pa.schema([("t", make(unit))]))
        fields = pa.schema([("t", make("s"))])
        batch = pa.RecordBatch.from_arrays([pa.array(array["t"].view("i8")).view(make("s"))], schema=fields)
        target = np.dtype([("t", f"{kind}[{unit}]")])
        with pytest.raises(ValueError, match="'t'"):
            Reader(target, schema_of(target), "numpy").batch_of_block(format_of(fields), batch_block(batch), 1)
    optional = pa.schema([pa.field("t", make("s"), metadata={"optional": "true"})])
    assert sent(nothing, optional).to_pylist() == [{"t": None}]


def test_columns_have_place_for_years_that_dates_have_not():
    array = np.array([("20000-01-01",)], [("t", "M8[s]")])
    batch = sent(array, pa.schema([("t", pa.timestamp("ms"))]))
    assert batch.column("t").cast(pa.int64()).to_pylist() == [array["t"].astype("M8[ms]").view("i8")[0]]
    target = np.dtype([("t", "M8[us]")])
    back = Reader(target, schema_of(target), "numpy").batch_of_block(format_of(batch.schema), batch_block(batch), 1)
    assert back["t"] == array["t"]


def test_days_become_moments():
    fields = pa.schema([("day", pa.date32()), ("late", pa.date64())])
    batch = pa.RecordBatch.from_pydict({"day": [1, 2], "late": [86_400_000, 0]}, fields)
    target = np.dtype([("late", ">M8[us]"), ("day", "M8[D]")])
    got = Reader(target, schema_of(target), "numpy").batch_of_block(format_of(fields), batch_block(batch), 2)
    assert got["day"].tolist() == [date(1970, 1, 2), date(1970, 1, 3)]
    assert got["late"].astype("i8").tolist() == [86_400_000_000, 0]


def test_a_format_whose_columns_are_something_else_is_refused():
    fields = pa.schema([("a", pa.float64())])
    batch = pa.RecordBatch.from_pydict({"a": [0.5, None]}, fields)
    number = schema.RecordType((schema.Field("a", schema.Int()),))
    flag = schema.RecordType((schema.Field("a", schema.Enum((("ONE", 1),))),))
    for said in (number, flag):
        form = schema.Format(said, schema.ARROW, arrow=fields.serialize().to_pybytes())
        with pytest.raises(ValueError, match=r"\bat a\b"):
            Reader(None, number, "numpy").batch_of_block(form, batch.serialize(), 2)
    ints = batch.cast(pa.schema([("a", pa.int64())]), safe=False)
    form = schema.Format(flag, schema.ARROW, arrow=ints.schema.serialize().to_pybytes())
    with pytest.raises(ValueError, match="'a' has 1 nulls"):
        Reader(None, number, "numpy").batch_of_block(form, ints.serialize(), 2)


def test_a_default_that_nobody_wrote_down_is_refused():
    record = schema.RecordType((schema.Field("a", schema.Int()), schema.Field("b", schema.Int(), None, True)))
    array = np.zeros(1, [("a", "i8")])
    source = schema_of(array.dtype)
    with pytest.raises(ValueError, match="'b' is missing"):
        Reader(None, record, "arrow").batch_of_block(format_of_dtype(array.dtype, source), block_of(array), 1)
    batch = pa.RecordBatch.from_pydict({"a": [1]})
    with pytest.raises(ValueError, match="'b' is missing"):
        Reader(None, record, "numpy").batch_of_block(format_of(batch.schema), batch_block(batch), 1)


def test_broken_record_batches_do_no_harm_to_arrays():
    dtype = np.dtype([("a", "i8", (2,)), ("b", [("x", "?"), ("y", "V3")]), ("t", "M8[us]")])
    arrow = schema_of_record(schema_of(dtype))
    block = bytes(memoryview(batch_block(sent(np.zeros(3, dtype), arrow))))
    reader = Reader(dtype, schema_of(dtype), "numpy")
    assert len(reader.batch_of_block(format_of(arrow), block, 3)) == 3
    broken = [block[:end] for end in range(0, len(block), 29)]
    for at in range(len(block)):
        broken.append(block[:at] + bytes([block[at] ^ 0xFF]) + block[at + 1 :])  # noqa: PERF401
    for each in broken:
        try:
            reader.batch_of_block(format_of(arrow), each, 3)
        except ValueError:
            pass
