"""Blocks become batches column by column: the same that comes out record by record, which is the reference here."""

import math
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from echannel_ray.errors import NotSerialisable
from echannel_ray.formats import plain
from echannel_ray.formats.packs import Undecodable
from echannel_ray.records import layouts
from echannel_ray.records.arrow import batch_block, batch_format
from echannel_ray.records.arrow_rows import batch_of_rows
from echannel_ray.records.arrow_types import schema_of_record
from echannel_ray.records.layouts import format_of_dtype
from echannel_ray.records.reader import Reader
from echannel_ray.records.writer import Writer, block_of
from echannel_ray.schemas import schema
from echannel_ray.schemas.declarations import schema_of

NUMBERS = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "V3"]
TIMES = [f"{kind}[{unit}]" for kind in ("M8", "m8") for unit in ("W", "D", "h", "s", "ms", "us", "ns")]
TEXTS = ["U3", "S4"]
UNITS: list[Any] = ["s", "ms", "us", "ns"]


def dtypes(codes):
    """Structured dtypes of these, nested ones and arrays among them, of either byte order."""
    leaves = st.builds(
        lambda code, order: np.dtype(code).newbyteorder(order), st.sampled_from(codes), st.sampled_from("<>")
    )
    shapes = st.sampled_from([(), (), (), (3,), (2, 2), (0,)])

    def records(inner):
        fields = st.lists(st.tuples(inner, shapes), min_size=1, max_size=4)
        return st.builds(
            lambda each, align: np.dtype([(f"f{i}", *field) for i, field in enumerate(each)], align=align),
            fields, st.booleans(),
        )  # fmt: skip

    # The reference has no way to count records of no bytes in an array.
    inner = records(leaves).filter(lambda dtype: dtype.itemsize > 0)
    middle = records(st.one_of(leaves, inner)).filter(lambda dtype: dtype.itemsize > 0)
    return records(st.one_of(leaves, middle))


def filled(dtype, count, rng):
    """Records of random values, none of which is NaN."""
    array = np.zeros(count, dtype)
    _fill(array, rng)
    return array


def _fill(places, rng):
    if places.dtype.names is not None:
        for name in places.dtype.names:
            _fill(places[name], rng)
        return
    kind, size = places.dtype.kind, places.dtype.itemsize
    if kind in "Mm":
        values = rng.integers(-50_000, 50_000, places.shape)
        values[rng.random(places.shape) < 0.02] = np.iinfo("i8").min
        places[...] = values.view(f"{kind}8[{np.datetime_data(places.dtype)[0]}]")
    elif kind == "f":
        places[...] = rng.integers(-1000, 1000, places.shape) / 4
    elif kind == "U":
        places[...] = rng.choice(["", "a", "ä\0b", "\0", "日本𝄞"], places.shape)
    elif kind == "b":
        places[...] = rng.integers(0, 2, places.shape)
    else:
        raw = rng.integers(0, 256, (math.prod(places.shape), size), "u1")
        places[...] = raw.view(places.dtype.newbyteorder("=")).reshape(places.shape)


def wider(type_, rng, is_arrow):
    """A type for which such values can stand, fields in another order, some missing and one with a default."""
    match type_:
        case schema.RecordType():
            fields = [schema.Field(each.name, wider(each.type, rng, is_arrow)) for each in type_.fields]
            fields = [fields[i] for i in rng.permutation(len(fields))][: max(1, len(fields) - rng.integers(2))]
            if rng.random() < 0.3:
                items = schema.Array(schema.Float(), (2,))
                fields.insert(0, schema.Field("more", items, plain.encode([1.5, 2.5]), True))
            return schema.RecordType(tuple(fields))
        case schema.Array():
            row = schema.Array(type_.item, type_.shape[1:]) if len(type_.shape) > 1 else type_.item
            if is_arrow and rng.random() < 0.3:
                return schema.List(wider(row, rng, is_arrow))
            return schema.Array(wider(type_.item, rng, is_arrow), type_.shape)
    made = rng.choice(np.array([type_, *_wider_leaves(type_, is_arrow)], object))
    return schema.Optional(made) if is_arrow and rng.random() < 0.3 else made


def _wider_leaves(type_, is_arrow):
    match type_:
        case schema.Int(bits=bits, signed=signed) if bits < 64:
            return [schema.Int(64), schema.Int(64 if bits == 32 else 32, signed), schema.Float(64)]
        case schema.Float():
            return [schema.Float(64)]
        case schema.Timestamp(unit="D" | "W") if is_arrow:
            return [schema.Timestamp("ns", ""), schema.Date()]
        case schema.Timestamp():
            return [schema.Timestamp(unit, "") for unit in _finer(type_.unit)]
        case schema.Duration():
            return [schema.Duration(unit) for unit in _finer(type_.unit)]
        case schema.Bytes():
            return [schema.Bytes()] if is_arrow else []
        case schema.Text():
            return [schema.Text()]
    return []


def _finer(unit):
    return UNITS[UNITS.index(unit) :] if unit in UNITS else UNITS


def record_by_record(target, format, block, count):  # noqa: A002
    """The events; the error of the first that is none."""
    events = Reader(None, target).rows(format, block, count)
    for event in events:
        if isinstance(event, Undecodable):
            raise ValueError from event.error
    return events


def values(array):
    """The values of an array, without what lies between fields, and times as counts."""
    if array.dtype.names is not None:
        return {name: values(array[name]) for name in array.dtype.names}
    return (array.astype("i8") if array.dtype.kind in "Mm" else array).tolist()


def outcome(make):
    """What it makes; None where it refuses."""
    try:
        return make()
    except (ValueError, OverflowError, NotSerialisable):
        return None


@given(dtypes([*NUMBERS, *TIMES, *TEXTS]), st.integers(0, 2**32), st.integers(0, 5))
def test_a_block_of_a_layout_becomes_the_record_batch_of_its_records(dtype, seed, count):
    assume(dtype.itemsize)
    rng = np.random.default_rng(seed)
    array, record = filled(dtype, count, rng), schema_of(dtype)
    target = wider(record, rng, is_arrow=True)
    form, block = format_of_dtype(dtype, record), block_of(array)
    reader = Reader(None, target, "arrow")
    wanted = schema_of_record(target)
    expected = outcome(lambda: batch_of_rows(record_by_record(target, form, block, count), target, wanted))
    got = outcome(lambda: reader.batch_of_block(form, block, count))
    if expected is None or got is None:
        assert got is expected
        return
    got.validate(full=True)
    assert got.schema.equals(wanted, check_metadata=True)
    assert got.equals(expected)
    payloads = [array[i].tobytes() for i in range(count)]
    assert reader.batch(form, payloads).equals(expected)


@given(dtypes([*NUMBERS, *TIMES]), st.integers(0, 2**32), st.integers(0, 5), st.sampled_from("<>"))
def test_a_record_batch_becomes_the_array_of_its_rows(dtype, seed, count, order):
    assume(dtype.itemsize)
    rng = np.random.default_rng(seed)
    record = schema_of(dtype)
    target = wider(record, rng, is_arrow=False)
    arrow = schema_of_record(record)
    batch = outcome(lambda: Reader(None, record, "arrow").batch_of_block(
        format_of_dtype(dtype, record), block_of(filled(dtype, count, rng)), count
    ))  # fmt: skip
    if batch is None:  # a NaT
        return
    form, block = batch_format(arrow, schema_of(arrow)), batch_block(batch)
    wanted = layouts.natural(target).newbyteorder(order)
    assume(wanted.itemsize)  # or the reference can't be counted
    reader, write = Reader(wanted, target, "numpy"), Writer(None, target)
    rows = outcome(lambda: [write(each) for each in record_by_record(target, form, block, count)])
    got = outcome(lambda: reader.batch_of_block(form, block, count))
    if rows is None or got is None:
        assert got is rows
        return
    assert got.dtype == wanted
    assert values(got) == values(reader.batch(write.format, rows))
