"""Layouts and conversions between them, compared with a conversion field by field."""

import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from echannel_ray.formats import plain
from echannel_ray.records import layouts
from echannel_ray.schemas import schema
from echannel_ray.schemas.declarations import schema_of
from echannel_ray.schemas.schema import LaidOut, Layout


def converted(array, target):
    return layouts.conversion(layouts.format_of_dtype(array.dtype, schema_of(array.dtype)), target)(array)


def reference(array, target):
    """The same, one value at a time."""
    made = np.zeros(len(array), target)
    for name in target.names:
        if name not in array.dtype.names:
            continue
        if target[name].base.names is not None:
            flat = reference(array[name].reshape(-1), target[name].base)
            made[name] = flat.reshape(made[name].shape)
        else:
            made[name] = array[name]
    return made


_WIDER = {
    "i2": ["i2", "i4", "i8"], "u1": ["u1", "u2", "i2", "u8"], "u4": ["u4", "u8", "i8", "f8"], "i8": ["i8"], "?": ["?"],
    "f4": ["f4", "f8"], "f8": ["f8"], "c8": ["c8", "c16"], "S3": ["S3", "S7"], "U2": ["U2", "U5"], "V5": ["V5"],
    "M8[s]": ["M8[s]", "M8[ms]"], "m8[us]": ["m8[us]", "m8[ns]"],
}  # fmt: skip


@st.composite
def _laid_out(draw, fields):
    """A dtype with these fields: shuffled, in any byte order, with any padding."""
    fields = draw(st.permutations(fields))
    orders = st.sampled_from("<>")
    formats, offsets, end = [], [], 0
    for _, code, shape in fields:
        base = np.dtype(code).newbyteorder(draw(orders)) if isinstance(code, str) else draw(_laid_out(code))
        formats.append((base, shape) if shape else base)
        offsets.append(end + draw(st.sampled_from([0, 0, 0, 1, 4, 8])))
        end = offsets[-1] + np.dtype(formats[-1]).itemsize
    itemsize = end + draw(st.sampled_from([0, 0, 3]))
    return np.dtype(
        {"names": [name for name, *_ in fields], "formats": formats, "offsets": offsets, "itemsize": itemsize}
    )


def _field_pairs(depth):
    """Of one field: its code in the source, its code in the target, its shape."""
    shapes = st.sampled_from([(), (), (), (0,), (1,), (3,), (2, 2), (7,)])
    simple = st.sampled_from([(narrow, wide) for narrow, all_ in _WIDER.items() for wide in all_])
    pairs = st.tuples(simple, shapes)
    if depth:
        pairs |= st.tuples(_records(depth - 1), shapes)
    return pairs


def _records(depth):
    """The fields of a source, and those of a target that has some of them."""

    def split(pairs):
        named = [(f"f{i}", *pair) for i, pair in enumerate(pairs)]
        source = [(name, codes[0], shape) for name, codes, shape in named]
        target = [(name, codes[1], shape) for name, codes, shape in named[: len(named) // 2 + 1]]
        return source, target

    return st.lists(_field_pairs(depth), min_size=1, max_size=7).map(split)


@given(st.data())
def test_records_of_any_two_layouts_convert_as_field_by_field(data):
    fields, wanted = data.draw(_records(2))
    source, target = data.draw(_laid_out(fields)), data.draw(_laid_out(wanted))
    assume(source.itemsize)
    count = data.draw(st.integers(0, 3))
    # Small numbers everywhere: no field is ever out of range, and every byte of them counts.
    array = _filled(source, count, np.random.default_rng(data.draw(st.integers(0, 2**32))))
    made, expected = converted(array, target), reference(array, target)
    assert made.dtype == target
    _check_equal(made, expected)


def _check_equal(one, other):
    if one.dtype.names is None:
        assert np.array_equal(one, other)
    for name in one.dtype.names or ():
        _check_equal(one[name], other[name])


def _filled(dtype, count, random):
    array = np.zeros(count, dtype)
    for name in dtype.names:
        place, base = array[name], dtype[name].base
        if base.names is not None:
            place[...] = _filled(base, place.size, random).reshape(place.shape)
        elif base.kind in "SU":
            place[...] = random.choice(["", "a", "bc"], place.shape)
        elif base.kind == "V":
            place[...] = np.frombuffer(random.bytes(5 * place.size), "V5").reshape(place.shape)
        else:
            place[...] = random.integers(0, 2, place.shape).astype("?" if base.kind == "b" else base)
    return array


@given(st.data())
def test_a_layout_is_the_dtype_that_it_was_made_of(data):
    fields, _ = data.draw(_records(1))
    dtype = data.draw(_laid_out(fields))
    assume(dtype.itemsize)
    assert layouts.dtype_of(layouts.layout_of(dtype)) == dtype
    made = schema.format_from(schema.as_bytes(layouts.format_of_dtype(dtype, schema_of(dtype))))
    assert layouts.source_dtype(made) == dtype


def test_the_same_layout_is_not_copied():
    array = np.zeros(3, [("a", "f8"), ("b", ">i4")])
    assert converted(array, array.dtype) is array


def test_neighbours_move_together_when_a_field_in_front_is_new():
    target = np.dtype([("a", "f8"), ("b", "i4"), ("c", "i4"), ("d", "S16")])
    source = np.dtype([("new", "i8"), *((name, target[name]) for name in target.names)])
    steps = [step for run in layouts._runs(layouts._leaves(source, target, "", 0, 0)) for step in layouts._merged(run)]
    assert [(step.source.str, step.source_offset, step.target_offset) for step in steps] == [("|V32", 8, 0)]


def test_swapped_neighbours_move_together_whatever_they_are():
    target = np.dtype([(f"f{i}", code) for i, code in enumerate(["f8", "i8", "M8[us]", "u8", "f8", "c16"])])
    source = target.newbyteorder("S")
    (run,) = layouts._runs(layouts._leaves(source, target, "", 0, 0))
    (step,) = layouts._merged(run)
    assert (step.target.kind, step.items) == ("u", 7)


def test_a_missing_field_gets_its_default_or_zero():
    source = np.zeros(2, [("a", "i4")])
    target = np.dtype([("a", "i4"), ("b", "f8"), ("c", "i2")])
    record = schema.RecordType(
        (
            schema.Field("a", schema.Int(32)),
            schema.Field("b", schema.Float(), plain.encode(2.5), True),
            schema.Field("c", schema.Int(16)),
        )
    )
    convert = layouts.conversion(layouts.format_of_dtype(source.dtype, schema_of(source.dtype)), target, record)
    assert convert(source).tolist() == [(0, 2.5, 0)] * 2


def test_finer_units_refuse_what_they_have_no_place_for():
    array = np.array([("9999-01-01",), ("NaT",)], [("t", "M8[s]")])
    with pytest.raises(OverflowError, match="'t'"):
        converted(array, np.dtype([("t", "M8[ns]")]))
    assert np.isnat(converted(array[1:], np.dtype([("t", "M8[ns]")]))["t"]).all()


@pytest.mark.parametrize(
    ("source", "target"), [("i8", "i4"), ("f8", "f4"), ("M8[ns]", "M8[s]"), ("S8", "S4"), ("i8", "S8")]
)
def test_what_would_lose_something_is_refused_by_name(source, target):
    with pytest.raises(ValueError, match="'price'"):
        converted(np.zeros(1, [("price", source)]), np.dtype([("price", target)]))


@pytest.mark.parametrize(
    "layout",
    [
        Layout(8, (LaidOut("a", 0, "|O"),)),
        Layout(8, (LaidOut("a", 4, "<f8"),)),
        Layout(8, (LaidOut("a", -4, "<f8"),)),
        Layout(8, (LaidOut("a", 0, "<f8", (2**40, 2**40)),)),
        Layout(8, (LaidOut("a", 0, "<f8"), LaidOut("a", 0, "<f8"))),
        Layout(8, (LaidOut("a", 0, "f8,f8"),)),
        Layout(-8, (LaidOut("a", 0, "<f8"),)),
        Layout(8, (LaidOut("a", 0, "nonsense"),)),
        Layout(-1, ()),
    ],
)
def test_a_senseless_layout_is_refused(layout):
    with pytest.raises((ValueError, TypeError)):
        layouts.dtype_of(layout)


def test_records_without_bytes_are_refused():
    empty = schema.Format(schema.RecordType(()), schema.LAYOUT, Layout(0, ()))
    with pytest.raises(ValueError, match="no bytes"):
        layouts.source_dtype(empty)


def test_records_that_have_nothing_in_common_are_all_default():
    assert converted(np.ones(2, [("a", "i8")]), np.dtype([("b", "i8")])).tolist() == [(0,), (0,)]


def test_a_layout_that_is_not_what_its_schema_says_is_refused():
    dtype = np.dtype([("a", "S8")])
    lying = schema.Format(
        schema.RecordType((schema.Field("a", schema.Int()),)), schema.LAYOUT, layouts.layout_of(dtype)
    )
    with pytest.raises(ValueError, match="does not fit"):
        layouts.source_dtype(lying)


def test_a_natural_layout_is_that_of_c():
    @dataclasses.dataclass
    class Sample:
        flag: bool
        price: float
        count: int

    dtype = layouts.natural(schema_of(Sample))
    layout = layouts.layout_of(dtype)
    assert [field.offset for field in layout.fields] == [0, 8, 16]
    assert dtype.itemsize == 24


def test_defaults_of_nested_records_are_filled_in_too():
    inner = schema.RecordType(
        (schema.Field("x", schema.Int(8)), schema.Field("y", schema.Int(8), plain.encode(9), True))
    )
    record = schema.RecordType(
        (
            schema.Field("one", inner),
            schema.Field("many", schema.Array(inner, (2,))),
            schema.Field("new", schema.Array(inner, (2,)), plain.encode([{"x": 1, "y": 2}, {"x": 3, "y": 4}]), True),
            schema.Field("raw", schema.Bytes(2), plain.encode(b"ab"), True),
        )
    )
    source = np.ones(1, [("many", [("x", "i1")], (2,)), ("one", [("x", "i1")])])
    convert = layouts.conversion(
        layouts.format_of_dtype(source.dtype, schema_of(source.dtype)), layouts.natural(record), record
    )
    (made,) = convert(source)
    assert made["one"].tolist() == (1, 9)
    assert made["many"].tolist() == [(1, 9), (1, 9)]
    assert made["new"].tolist() == [(1, 2), (3, 4)]
    assert made["raw"].tobytes() == b"ab"


def test_what_lies_between_fields_is_not_what_was_in_memory_before():
    inner = np.dtype([("a", "u1"), ("b", "f8")], align=True)
    source = np.dtype([("n", "<i2"), ("items", inner, (4,))])
    target = np.dtype([("n", "<i4"), ("items", inner.newbyteorder(), (4,))])
    records = np.zeros(50, source)
    for _ in range(20):
        junk = np.full(50 * target.itemsize, 0xAA, "u1")
        del junk
        made = converted(records, target)
        assert 0xAA not in made.tobytes()
