"""Batches: whole blocks as one array or record batch, and Arrow's own as rows."""

import dataclasses
import enum
import uuid
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from echannel_ray.errors import NotSerialisable
from echannel_ray.formats.packs import Undecodable
from echannel_ray.records.arrow import batch_block, batch_format
from echannel_ray.records.layouts import format_of_dtype
from echannel_ray.records.reader import Reader
from echannel_ray.records.sources import part_of_block
from echannel_ray.records.writer import Writer, block_of, format_of
from echannel_ray.schemas import schema
from echannel_ray.schemas.declarations import schema_of
from tests.records.same_record import FIXED_TYPES, FixedData, Values, made, values_of

VALUES = [
    Values(i, [1.0 * i, 2.5, -3.0], (0.5, 7.0 + i), datetime(2024, 2, 29, 12, 30, i), timedelta(microseconds=-i))
    for i in range(3)
]


def batch_of(source, values, reader):
    """What a consumer of batches gets of these records, all of which were published together."""
    events = [made(source, each) for each in values]
    if isinstance(source, np.dtype):
        array = np.array([event[0] for event in events], source)
        return reader.batch_of_block(format_of_dtype(source, schema_of(source)), block_of(array), len(values))
    if isinstance(source, pa.Schema):
        batch = pa.Table.from_batches(events).combine_chunks().to_batches()[0]
        return reader.batch_of_block(batch_format(source, schema_of(source)), batch_block(batch), len(values))
    write = Writer(source, schema_of(source))
    return reader.batch(write.format, [write(event) for event in events])


@pytest.mark.parametrize("target", FIXED_TYPES, ids=str)
@pytest.mark.parametrize("source", FIXED_TYPES, ids=str)
def test_records_of_every_kind_become_arrays_for_every_other(source, target):
    array = batch_of(source, VALUES, Reader(target, schema_of(target), "numpy"))
    assert [values_of(each) for each in array] == VALUES
    if isinstance(target, np.dtype):
        assert array.dtype == target


@pytest.mark.parametrize("target", FIXED_TYPES, ids=str)
@pytest.mark.parametrize("source", FIXED_TYPES, ids=str)
def test_records_of_every_kind_become_record_batches_for_every_other(source, target):
    batch = batch_of(source, VALUES, Reader(target, schema_of(target), "arrow"))
    rows = Reader(FixedData, schema_of(FixedData)).rows(
        batch_format(batch.schema, schema_of(batch.schema)), batch_block(batch), batch.num_rows
    )
    assert [values_of(each) for each in rows] == VALUES
    if isinstance(target, pa.Schema):
        assert batch.schema == target


def test_a_block_of_the_same_layout_is_not_copied():
    dtype = np.dtype([("a", ">i8"), ("b", "f4")])
    array = np.zeros(4, dtype)
    view = Reader(dtype, schema_of(dtype), "numpy").batch_of_block(format_of(dtype), block_of(array), 4)
    assert np.shares_memory(view, array)
    assert not view.flags.writeable


def test_columns_of_the_same_arrow_schema_are_not_copied():
    wanted = pa.schema([("b", pa.string()), ("a", pa.int64())])
    batch = pa.RecordBatch.from_pydict({"a": list(range(1000)), "b": ["x"] * 1000})
    block = batch_block(batch)
    got = Reader(wanted, schema_of(wanted), "arrow").batch_of_block(format_of(batch.schema), block, 1000)
    assert got.schema == wanted
    assert got.to_pydict() == {"b": ["x"] * 1000, "a": list(range(1000))}
    start = memoryview(block).nbytes and pa.py_buffer(block).address
    assert start <= got.column("a").buffers()[1].address < start + memoryview(block).nbytes


class Side(enum.Enum):
    BUY = "b"


@dataclasses.dataclass
class Order:
    name: str
    side: Side
    maybe: int | None
    counts: list[int]
    by_name: dict[str, float]
    day: date
    hour: time
    took: timedelta
    key: uuid.UUID
    at: datetime
    tags: set[str]
    data: bytes


ORDER = Order(
    "x", Side.BUY, None, [1, 2], {"a": 1.0}, date(2024, 1, 2), time(1, 2, 3), timedelta(seconds=1), uuid.UUID(int=3),
    datetime(2024, 1, 1, tzinfo=timezone.utc), {"t"}, b"\0",
)  # fmt: skip


def test_events_of_a_class_become_columns_of_its_fields():
    write = Writer(Order, schema_of(Order))
    batch = Reader(Order, schema_of(Order), "arrow").batch(write.format, [write(ORDER)] * 2)
    assert batch.num_rows == 2
    row = batch.to_pylist()[1]
    assert row == {
        **dataclasses.asdict(ORDER), "side": "b", "key": ORDER.key.bytes, "tags": ["t"], "by_name": [("a", 1.0)]
    }  # fmt: skip
    assert not batch.schema.field("name").nullable
    naive = write(dataclasses.replace(ORDER, at=datetime(2024, 1, 1)))
    with pytest.raises(ValueError, match="time zone"):
        Reader(Order, schema_of(Order), "arrow").batch(write.format, [naive])


def test_values_without_a_fixed_size_are_no_arrays():
    with pytest.raises(ValueError, match=r"'name' is str.*batches=\"arrow\""):
        Reader(Order, schema_of(Order), "numpy")


def test_values_without_an_arrow_type_are_named():
    @dataclasses.dataclass
    class Priced:
        price: Decimal

    with pytest.raises(ValueError, match="'price' has no Arrow type"):
        Reader(Priced, schema_of(Priced), "arrow")


ARROW = pa.schema(
    [
        ("flag", pa.bool_()), ("small", pa.float16()), ("text", pa.large_string()),
        ("at", pa.timestamp("ns", "Europe/Berlin")), ("naive", pa.timestamp("ms")), ("took", pa.duration("s")),
        ("price", pa.decimal128(10, 2)), ("day", pa.date32()),
        ("hour", pa.time32("ms")), ("raw", pa.binary(2)), ("word", pa.dictionary(pa.int8(), pa.string())),
        ("items", pa.list_(pa.struct([("x", pa.int8()), ("at", pa.timestamp("us"))]))),
        ("by_name", pa.map_(pa.string(), pa.timestamp("us"))), ("pair", pa.list_(pa.list_(pa.int32(), 2), 2)),
        pa.field("maybe", pa.struct([("x", pa.duration("us"))]), metadata={"optional": "true"}), ("none", pa.null()),
    ]
)  # fmt: skip
ROW = {
    "flag": True, "small": 0.5, "text": "ä", "at": datetime(2024, 1, 1, tzinfo=timezone.utc),
    "naive": datetime(2024, 1, 1), "took": timedelta(seconds=3), "price": Decimal("1.50"), "day": date(2024, 1, 1),
    "hour": time(1, 2, 3), "raw": b"ab", "word": "w",
    "items": [{"x": 1, "at": datetime(2024, 1, 1)}, {"x": 2, "at": datetime(2024, 1, 2)}],
    "by_name": [("a", datetime(2024, 1, 1))], "pair": [[1, 2], [3, 4]], "maybe": {"x": timedelta(1)}, "none": None,
}  # fmt: skip
ROWS = [ROW, {**ROW, "items": [], "maybe": None, "by_name": []}, ROW]


def test_decimals_have_all_the_digits_that_arrow_has():
    wide = pa.schema([("price", pa.decimal128(38, 10))])
    write = Writer(None, schema_of(wide))
    reader = Reader(wide, schema_of(wide), "arrow")
    values = [Decimal("9" * 28 + "." + "9" * 10), Decimal("1.5").scaleb(-9), Decimal("1.50E-9"), Decimal("-0.0E-30")]
    got = reader.batch(write.format, [write({"price": each}) for each in values])
    assert got["price"].to_pylist() == values
    for each in (Decimal("1E-11"), Decimal("9" * 28 + ".99999999991")):
        with pytest.raises(NotSerialisable, match="at most 10 decimal places"):
            write({"price": each})


def test_rows_of_a_record_batch_are_records():
    batch = pa.RecordBatch.from_pylist(ROWS, ARROW)
    reader = Reader(ARROW, schema_of(ARROW))
    got = reader.rows(format_of(ARROW), batch_block(batch), 3)
    expected = {**ROW, "by_name": {"a": datetime(2024, 1, 1)}, "at": np.datetime64("2024-01-01", "ns")}
    assert got == [expected, {**expected, "items": [], "maybe": None, "by_name": {}}, expected]
    write = Writer(None, schema_of(ARROW))
    assert reader.events(write.format, [write(each) for each in got]) == got
    again = Reader(ARROW, schema_of(ARROW), "arrow").batch(write.format, [write(each) for each in got])
    assert again.equals(batch.cast(ARROW))


def test_only_the_slice_travels():
    batch = pa.RecordBatch.from_pylist(ROWS * 1000, ARROW)
    block = batch_block(batch.slice(1, 2))
    assert len(memoryview(block)) < 10_000
    got = Reader(ARROW, schema_of(ARROW)).rows(format_of(ARROW), block, 2)
    assert [len(each["items"]) for each in got] == [0, 2]


@pytest.mark.parametrize(("start", "stop"), [(0, 3), (1, 3), (2, 3), (1, 2), (1, 1)])
def test_a_part_of_columns_is_read_as_the_whole_is(start, stop):
    form, block = format_of(ARROW), bytes(batch_block(pa.RecordBatch.from_pylist(ROWS, ARROW)))
    part, count = part_of_block(form, block, 3, start, stop), stop - start
    reader = Reader(ARROW, schema_of(ARROW))
    assert reader.rows(form, part, count) == reader.rows(form, block, 3)[start:stop]
    # Of other types, so that columns are converted; by rows and not.
    for target in (ARROW, ARROW.set(1, pa.field("small", pa.float64())), pa.schema([ARROW.field("items")])):
        columns = Reader(target, schema_of(target), "arrow")
        assert columns.batch_of_block(form, part, count).equals(columns.batch_of_block(form, block, 3)[start:stop])


@pytest.mark.parametrize("source", FIXED_TYPES, ids=str)
def test_a_part_of_a_block_is_read_as_the_whole_is(source):
    whole = batch_of(source, VALUES, Reader(FixedData, schema_of(FixedData), "numpy"))
    if isinstance(source, pa.Schema):
        columns = [made(source, each) for each in VALUES]
        form = batch_format(source, schema_of(source))
        block = batch_block(pa.Table.from_batches(columns).combine_chunks().to_batches()[0])
    else:
        form, block = format_of_dtype(whole.dtype, schema_of(whole.dtype)), block_of(whole)
    part = part_of_block(form, block, 3, 1, 3)
    assert np.array_equal(Reader(whole.dtype, schema_of(whole.dtype), "numpy").batch_of_block(form, part, 2), whole[1:])
    reader = Reader(FixedData, schema_of(FixedData))
    assert reader.rows(form, part, 2) == reader.rows(form, block, 3)[1:]


def test_what_is_no_block_has_no_parts():
    form = format_of_dtype(np.dtype([("x", "i4")]), schema_of(np.dtype([("x", "i4")])))
    with pytest.raises(ValueError, match="a block of 3 records has 8 bytes, not 12"):
        part_of_block(form, bytes(8), 3, 0, 1)
    with pytest.raises(ValueError, match="msgpack"):
        part_of_block(format_of(Order), b"x", 1, 0, 1)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"text": None}, "text"),
        ({"word": None}, "word"),
        ({"items": [None]}, "items[]"),
        ({"items": [{"x": None, "at": datetime(2024, 1, 1)}]}, "items[].x"),
        ({"by_name": [("a", None)]}, "by_name[]"),
        ({"pair": [[1, 2], [3, None]]}, "pair[][]"),
        ({"maybe": {"x": None}}, "maybe.x"),
    ],
)
def test_nulls_without_a_place_for_none_are_refused_by_name(changes, path):
    batch = pa.RecordBatch.from_pylist([ROW, {**ROW, **changes}], ARROW)
    with pytest.raises(NotSerialisable) as caught:
        batch_block(batch)
    assert caught.value.path == path
    assert batch_block(batch.slice(0, 1))


def test_what_is_no_record_batch_is_refused():
    batch = pa.RecordBatch.from_pylist(ROWS, ARROW)
    block = bytes(memoryview(batch_block(batch)))
    reader, columns = Reader(ARROW, schema_of(ARROW)), Reader(ARROW, schema_of(ARROW), "arrow")
    broken = [block[:end] for end in range(0, len(block), 97)]
    # Each byte changed may spoil it or not, but not the process.
    for start in range(0, len(block), 61):
        broken.append(block[:start] + bytes([block[start] ^ 0xFF]) + block[start + 1 :])  # noqa: PERF401
    for each in broken:
        for read in (reader.rows, columns.batch_of_block):
            try:
                read(format_of(ARROW), each, 3)
            except ValueError:
                pass
    for read in (reader.rows, columns.batch_of_block):
        for each, count in [(b"", 0), (block[: len(block) // 2], 3), (block, 2), (b"\xff" * 100, 3)]:
            with pytest.raises(ValueError, match="block"):
                read(format_of(ARROW), each, count)


def test_a_single_record_is_no_record_batch_and_msgpack_no_block():
    (got,) = Reader(ARROW, schema_of(ARROW)).events(format_of(ARROW), [b"x"])
    assert isinstance(got, Undecodable)
    with pytest.raises(ValueError, match="msgpack"):
        Reader(Order, schema_of(Order)).rows(format_of(Order), b"x", 1)


def test_a_record_of_the_wrong_size_spoils_its_batch():
    reader = Reader(FixedData, schema_of(FixedData), "numpy")
    write = Writer(FixedData, schema_of(FixedData))
    good = write(made(FixedData, VALUES[0]))
    with pytest.raises(ValueError, match="size"):
        reader.batch(write.format, [good[:-1], good + b"x"])


def test_fields_that_do_not_come_get_their_defaults_in_batches_too():
    @dataclasses.dataclass
    class Less:
        a: int

    write = Writer(Less, schema_of(Less))
    more = schema.RecordType(
        (schema.Field("b", schema.Float(), b"\xcb\x3f\xf8" + bytes(6), True), schema.Field("a", schema.Int()))
    )
    assert Reader(None, more, "numpy").batch(write.format, [write(Less(1))]).tolist() == [(1.5, 1)]
    assert Reader(None, more, "arrow").batch(write.format, [write(Less(1))]).to_pylist() == [{"a": 1, "b": 1.5}]


def test_arrays_have_all_that_was_asked_for():
    dtype = np.dtype([("a", "i8"), ("b", "i8")])
    less = np.zeros(2, [("a", "i8")])
    with pytest.raises(ValueError, match="'b'"):
        Reader(dtype, schema_of(dtype), "numpy").batch_of_block(format_of(less.dtype), block_of(less), 2)
    got = Reader(dtype, schema_of(dtype)).events(format_of(less.dtype), [bytes(8), bytes(8)])
    assert [type(each) for each in got] == [Undecodable] * 2


def test_nulls_that_come_all_the_same_are_refused():
    fields = pa.schema([("a", pa.int64())])
    batch = pa.RecordBatch.from_pydict({"a": [1, None]}, fields)
    for reader in (Reader(fields, schema_of(fields), "arrow"), Reader(fields, schema_of(fields), "numpy")):
        with pytest.raises(ValueError, match="'a'"):
            reader.batch_of_block(format_of(fields), batch.serialize(), 2)
    with pytest.raises(ValueError, match="'a'"):
        Reader(fields, schema_of(fields)).rows(format_of(fields), batch.serialize(), 2)


def test_runs_and_dictionaries_are_decoded_on_their_way():
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"])
    batch = pa.RecordBatch.from_arrays([runs, runs_words()], names=["runs", "words"])
    got = Reader(None, schema_of(batch.schema)).rows(format_of(batch.schema), batch_block(batch.slice(1, 2)), 2)
    assert got == [{"runs": "a", "words": "y"}, {"runs": "b", "words": "x"}]


def runs_words():
    return pa.array(["x", "y", "x"]).dictionary_encode()


def test_uuids_of_arrow_arrive_as_such():
    fields = pa.schema([("key", pa.uuid())])
    key = uuid.UUID(int=5)
    batch = pa.RecordBatch.from_arrays([pa.array([key.bytes], pa.uuid())], schema=fields)
    assert Reader(None, schema_of(fields)).rows(format_of(fields), batch_block(batch), 1) == [{"key": key}]
    write = Writer(None, schema_of(fields))
    assert Reader(fields, schema_of(fields), "arrow").batch(write.format, [write({"key": key})]) == batch
