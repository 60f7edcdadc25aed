"""Records of every kind of type as those of every other, defaults and missing fields."""

import dataclasses
import pickle
import struct
import uuid
from collections import deque
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echannel_ray.errors import NotSerialisable
from echannel_ray.formats.packs import Undecodable
from echannel_ray.records.arrow import batch_block, batch_format
from echannel_ray.records.generic import Record
from echannel_ray.records.layouts import format_of_dtype
from echannel_ray.records.reader import Reader
from echannel_ray.records.writer import Writer, block_of, format_of
from echannel_ray.schemas import schema
from echannel_ray.schemas.declarations import schema_of
from tests.records.everything import EVERYTHING, Everything, Side
from tests.records.same_record import FIXED_TYPES, Values, made, values_of

VALUES = Values(
    -5, [1.0, 2.5, -3.0], (0.5, 7.0), datetime(2024, 2, 29, 12, 30, 1, 5), timedelta(days=-1, microseconds=3)
)


def received(event_type, event, reader):
    """The one event of what a producer sends of this."""
    if isinstance(event, np.ndarray):
        (got,) = reader.rows(format_of_dtype(event.dtype, schema_of(event.dtype)), block_of(event), len(event))
    elif isinstance(event, pa.RecordBatch):
        (got,) = reader.rows(batch_format(event.schema, schema_of(event.schema)), batch_block(event), event.num_rows)
    else:
        write = Writer(event_type, schema_of(event_type))
        (got,) = reader.events(write.format, [write(event)])
    if isinstance(got, Undecodable):
        raise got.error
    return got


def sent_to(target, event):
    """The event as a consumer of this type gets it."""
    return received(type(event), event, Reader(target, schema_of(target)))


@pytest.mark.parametrize("target", [*FIXED_TYPES, None], ids=str)
@pytest.mark.parametrize("source", FIXED_TYPES, ids=str)
def test_a_record_of_every_kind_arrives_as_every_other(source, target):
    reader = Reader(target, schema_of(FIXED_TYPES[0] if target is None else target))
    got = received(source, made(source, VALUES), reader)
    assert values_of(got) == VALUES
    if isinstance(target, type):
        assert type(got) is target
        assert type(got.where) is type(made(target, VALUES).where)
    elif isinstance(target, np.dtype):
        assert got.dtype == target
    else:
        assert type(got) is type(got.where) is Record


def test_all_that_annotations_can_say_arrives_as_it_was():
    got = sent_to(Everything, EVERYTHING)
    assert got == EVERYTHING
    for field in dataclasses.fields(Everything):
        assert type(getattr(got, field.name)) is type(getattr(EVERYTHING, field.name)), field.name
    assert got.at.utcoffset() == timedelta(hours=2)


def test_a_generic_record_of_it_can_be_published_again():
    record = schema_of(Everything)
    write = Writer(Everything, record)
    (generic,) = Reader(None, record).events(write.format, [write(EVERYTHING)])
    assert generic.maybe.x == generic["maybe"]["x"] == 1.0
    assert generic.side == "s"
    again = Writer(None, record)
    assert Reader(Everything, record).events(again.format, [again(generic)]) == [EVERYTHING]
    assert Reader(Everything, record).of_mapping(generic) == EVERYTHING


@pytest.mark.parametrize("at", [datetime(2024, 1, 1), datetime.min, datetime(2024, 1, 1, tzinfo=timezone.utc)])
def test_a_datetime_stays_naive_or_aware(at):
    assert sent_to(Everything, dataclasses.replace(EVERYTHING, at=at)).at.tzinfo == at.tzinfo


ran: list[str] = []


@dataclasses.dataclass
class Plain:
    a: int
    b: list[int] = dataclasses.field(default_factory=list)
    c: int = 7

    def __post_init__(self):
        ran.append("dataclass")


@dataclasses.dataclass(slots=True, frozen=True)
class Slotted:
    a: int
    b: list[int] = dataclasses.field(default_factory=list)
    c: int = 7


class Model(pydantic.BaseModel):
    a: int
    b: list[int] = []
    c: int = pydantic.Field(7, alias="sea", lt=10)
    _hidden: int = pydantic.PrivateAttr(3)

    @pydantic.model_validator(mode="after")
    def note(self):
        ran.append("pydantic")
        return self


class Frozen(msgspec.Struct, frozen=True, kw_only=True):
    b: list[int] = []
    a: int
    c: int = 7

    def __post_init__(self):
        ran.append("struct")


class NoGc(msgspec.Struct, gc=False):
    a: int
    b: list[int] = []
    c: int = 7

    def __post_init__(self):
        ran.append("struct")


@dataclasses.dataclass
class Less:
    a: int


CLASSES = [Plain, Slotted, Model, Frozen, NoGc]


@pytest.mark.parametrize("cls", CLASSES)
def test_missing_fields_get_their_defaults_each_time_anew(cls):
    write = Writer(Less, schema_of(Less))
    first, second = Reader(cls, schema_of(cls)).events(write.format, [write(Less(1)), write(Less(2))])
    assert (first.a, first.b, first.c) == (1, [], 7)
    assert first.b is not second.b


@pytest.mark.parametrize("cls", CLASSES)
def test_nothing_of_the_class_runs_when_an_event_arrives(cls):
    event = cls(a=1, b=[2])
    write = Writer(cls, schema_of(cls))
    data = write(event)
    ran.clear()
    (got,) = Reader(cls, schema_of(cls)).events(write.format, [data])
    assert ran == []
    assert type(got) is cls
    assert got == event


def test_a_model_arrives_as_pydantic_makes_them():
    got = sent_to(Model, Less(1))
    assert got.model_fields_set == {"a"}
    assert got._hidden == 3
    assert got.model_copy() == got
    assert pickle.loads(pickle.dumps(got)) == got


@pytest.mark.parametrize("cls", CLASSES)
def test_fields_that_nobody_asked_for_are_ignored(cls):
    assert sent_to(Less, cls(a=5, b=[1])) == Less(5)


def test_generic_records_get_the_defaults_that_are_written_down():
    write = Writer(Less, schema_of(Less))
    (got,) = Reader(None, schema_of(Plain)).events(write.format, [write(Less(1))])
    assert got == {"a": 1, "b": [], "c": 7}


def test_a_field_that_is_required_and_missing_is_named():
    (got,) = Reader(Everything, schema_of(Everything)).events(format_of(Less), [b"12345678"])
    assert isinstance(got, Undecodable)
    assert "'side'" in str(got.error)


@dataclasses.dataclass
class Wide:
    small: float
    count: int


def test_numbers_widen():
    array = np.array([(1.5, -2)], [("count_not", "i1"), ("small", ">f4"), ("count", "<i4")][1:])
    got = received(None, array, Reader(Wide, schema_of(Wide)))
    assert got == Wide(1.5, -2)


def test_big_endian_and_packed_records_made_by_hand():
    record = schema.RecordType((schema.Field("count", schema.Int(16)), schema.Field("small", schema.Float())))
    layout = schema.Layout(11, (schema.LaidOut("count", 9, ">i2"), schema.LaidOut("small", 0, ">f8")))
    packed = schema.Format(record, schema.LAYOUT, layout)
    payload = struct.pack(">d x h", 2.5, -3)
    reader = Reader(Wide, schema_of(Wide))
    assert reader.events(packed, [payload]) == [Wide(2.5, -3)]
    assert reader.rows(packed, payload * 2, 2) == [Wide(2.5, -3)] * 2


def test_fixed_texts_and_bytes_lose_their_padding_only():
    array = np.array([("ä", b"a", b"b\0")], [("text", "U3"), ("padded", "S3"), ("exact", "V2")])
    got = received(None, array, Reader(None, schema_of(array.dtype)))
    assert got == {"text": "ä", "padded": b"a", "exact": b"b\0"}


def test_nanoseconds_are_kept_for_those_without_a_class():
    array = np.array([(5, 7)], [("at", "M8[ns]"), ("took", "m8[ns]")])
    got = received(None, array, Reader(None, schema_of(array.dtype)))
    assert (got.at, got.took) == (np.datetime64(5, "ns"), np.timedelta64(7, "ns"))
    back = Writer(None, schema_of(array.dtype))(got)
    assert back == array.tobytes()


@dataclasses.dataclass
class Arrays:
    row: npt.NDArray[np.float32]
    number: np.float32


def test_arrays_and_numpy_scalars_arrive_as_such():
    got = sent_to(Arrays, Arrays(np.array([1, 2], "f4"), np.float32(0.5)))
    assert got.row.dtype == np.float32
    assert got.row.tolist() == [1, 2]
    assert type(got.number) is np.float32


def test_a_reader_knows_what_needs_no_reading():
    assert Reader(Less, schema_of(Less)).is_target(Less(1))
    assert not Reader(Less, schema_of(Less)).is_target({"a": 1})
    assert Reader(None, schema_of(Less)).is_target(Record(a=1))
    dtype = np.dtype([("a", "i8")])
    assert Reader(dtype, schema_of(dtype)).is_target(np.zeros(1, dtype)[0])
    assert not Reader(dtype, schema_of(dtype)).is_target(np.zeros(2, dtype))
    with pytest.raises(NotSerialisable, match="'a'"):
        Reader(Less, schema_of(Less)).of_mapping({"a": "x"})


_SIMPLE = {
    bool: st.booleans(), int: st.integers(-(2**63), 2**63 - 1), float: st.floats(allow_nan=False), str: st.text(),
    bytes: st.binary(), date: st.dates(), datetime: st.datetimes(timezones=st.none() | st.just(timezone.utc)),
    time: st.times(), timedelta: st.timedeltas(timedelta(-(10**6)), timedelta(10**6)), uuid.UUID: st.uuids(),
    Decimal: st.decimals(allow_nan=False), complex: st.complex_numbers(allow_nan=False), Side: st.sampled_from(Side),
}  # fmt: skip


def _grow(children):
    def lists(each):
        annotation, values = each
        return st.sampled_from(
            [
                (list[annotation], st.lists(values, max_size=3)),  # type: ignore[valid-type]
                (annotation | None, st.none() | values),
                (tuple[annotation, str], st.tuples(values, st.text())),  # type: ignore[valid-type]
                (dict[str, annotation], st.dictionaries(st.text(), values, max_size=3)),  # type: ignore[valid-type]
                (deque[annotation], st.lists(values, max_size=3).map(deque)),  # type: ignore[valid-type]
            ]
        )

    return children.flatmap(lists)


_annotated = st.recursive(st.sampled_from(sorted(_SIMPLE.items(), key=str)), _grow, max_leaves=4)


@given(st.data())
def test_random_records_arrive_as_they_were(data):
    fields = data.draw(st.lists(_annotated, min_size=1, max_size=5))
    cls = dataclasses.make_dataclass("Random", [(f"f{i}", annotation) for i, (annotation, _) in enumerate(fields)])
    event = cls(*(data.draw(values) for _, values in fields))
    assert sent_to(cls, event) == event
    record = schema_of(cls)
    write = Writer(cls, record)
    (generic,) = Reader(None, record).events(write.format, [write(event)])
    assert Reader(cls, record).of_mapping(generic) == event


def test_records_are_dicts_with_attributes():
    record = Record(price=1.0, inner=Record(x=1))
    assert record.price == record["price"] == 1.0
    assert repr(record) == "Record(price=1.0, inner=Record(x=1))"
    assert pickle.loads(pickle.dumps(record)) == record
    assert type(pickle.loads(pickle.dumps(record)).inner) is Record
    with pytest.raises(AttributeError, match="size"):
        _ = record.size
