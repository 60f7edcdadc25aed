"""Which types may open a channel, publish to it and subscribe to it."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pytest

from echannel_ray.errors import TypeMismatch
from echannel_ray.schemas import opening_rules
from echannel_ray.schemas.declarations import schema_of
from echannel_ray.schemas.schema import Bool, Date, Float, Int, RecordType, Text
from tests.schemas.declarations import EQUIVALENT, SAME, record

NOTHING = RecordType(())


@pytest.mark.parametrize("first", EQUIVALENT)
@pytest.mark.parametrize("second", EQUIVALENT)
def test_equivalent_declarations_go_together(first, second):
    defined, asked = schema_of(EQUIVALENT[first]), schema_of(EQUIVALENT[second])
    opening_rules.check_opening("c", defined, asked, NOTHING)
    opening_rules.check_producer("c", defined, asked, NOTHING)
    opening_rules.check_consumer("c", defined, asked, NOTHING)
    assert opening_rules.extended(defined, asked, NOTHING) == NOTHING


@pytest.mark.parametrize("first", SAME)
@pytest.mark.parametrize("second", SAME)
def test_fields_of_fixed_size_go_together(first, second):
    defined, asked = schema_of(SAME[first]), schema_of(SAME[second])
    opening_rules.check_producer("c", defined, asked, NOTHING)
    opening_rules.check_consumer("c", defined, asked, NOTHING)


@dataclasses.dataclass
class Lists:
    values: list[float]
    size: int
    name: str


@pytest.mark.parametrize(
    "narrow",
    [
        np.dtype([("values", "f4", (3,)), ("size", "i2"), ("name", "U3")]),
        pa.schema([("values", pa.list_(pa.float32(), 3)), ("size", pa.uint32()), ("name", pa.string())]),
        dataclasses.make_dataclass(
            "Narrow",
            [("name", str), ("size", np.int8), ("values", Annotated[list[float], np.dtype(("f4", (3,)))])],
        ),
    ],
    ids=["numpy", "arrow", "dataclass"],
)
def test_narrow_producers_and_wide_consumers(narrow):
    wide, narrow = schema_of(Lists), schema_of(narrow)
    opening_rules.check_producer("c", wide, narrow, NOTHING)
    opening_rules.check_consumer("c", narrow, wide, NOTHING)
    opening_rules.check_opening("c", wide, narrow, NOTHING)
    opening_rules.check_opening("c", narrow, wide, NOTHING)
    with pytest.raises(TypeMismatch, match=r"values|size"):
        opening_rules.check_consumer("c", wide, narrow, NOTHING)
    with pytest.raises(TypeMismatch, match=r"values|size"):
        opening_rules.check_producer("c", narrow, wide, NOTHING)


TRADE = record(symbol=Text(), price=Float(), size=(Int(),))


def refused(
    check: Any, asked: RecordType, extensions: RecordType = NOTHING, defined: RecordType = TRADE
) -> TypeMismatch:
    with pytest.raises(TypeMismatch, match="'trades'") as raised:
        check("trades", defined, asked, extensions)
    error: TypeMismatch = pickle.loads(pickle.dumps(raised.value))
    for part in (error.field, error.expected, error.got):
        assert part is None or part in str(error)
    assert error.channel == "trades"
    return error


def test_a_producer_may_have_more():
    more = record(venue=Text(), price=Float(32), symbol=Text(4))
    opening_rules.check_producer("trades", TRADE, more, NOTHING)
    extensions = opening_rules.extended(TRADE, more, NOTHING)
    assert extensions == record(venue=(Text(),))
    assert opening_rules.extended(TRADE, more, extensions) is extensions
    wider = record(symbol=Text(), price=Float(), venue=Text(4), at=Date())
    opening_rules.check_producer("trades", TRADE, wider, extensions)
    assert opening_rules.extended(TRADE, wider, extensions) == record(venue=(Text(),), at=(Date(),))
    error = refused(opening_rules.check_producer, record(symbol=Text(), price=Float(), venue=Int()), extensions)
    assert (error.field, error.expected, error.got) == ("venue", "str", "int")


def test_a_consumer_may_have_less():
    opening_rules.check_consumer("trades", TRADE, record(price=Float()), NOTHING)
    opening_rules.check_consumer("trades", TRADE, record(price=Float(), venue=(Text(),)), NOTHING)
    opening_rules.check_consumer("trades", TRADE, record(venue=(Text(),)), record(venue=(Text(4),)))
    error = refused(opening_rules.check_consumer, record(venue=Text()), record(venue=(Text(4),)))
    assert "not all its records have a field 'venue' (here: str). Give it a default" in str(error)
    error = refused(opening_rules.check_consumer, record(price=Float(), venue=Text()))
    assert (error.field, error.expected, error.got) == ("venue", None, "str")
    assert str(error) == (
        "channel 'trades' can't be subscribed to so: its type has no field 'venue' (here: str). Give it a default, "
        "leave it out, use the type that the channel was created with, or another channel"
    )
    error = refused(opening_rules.check_consumer, record(venue=Int()), record(venue=(Text(),)))
    assert (error.field, error.expected, error.got) == ("venue", "str", "int")


def test_a_producer_needs_what_has_no_default():
    opening_rules.check_producer("trades", TRADE, record(symbol=Text(), price=Float()), NOTHING)
    error = refused(opening_rules.check_producer, record(symbol=Text()))
    assert (error.field, error.expected, error.got) == ("price", "float", None)
    assert str(error) == (
        "channel 'trades' can't be published to so: its type has a field 'price' (float) that is missing here. Add it, "
        "use the type that the channel was created with, or another channel"
    )
    error = refused(opening_rules.check_producer, record(symbol=Text(), price=Int()))
    assert (error.field, error.expected, error.got) == ("price", "float", "int")
    assert "its field 'price' is float, not int (not every int fits float). Declare it as float, use" in str(error)


def test_opening_is_for_producers_or_consumers():
    opening_rules.check_opening("trades", TRADE, record(symbol=Text()), NOTHING)  # a consumer's
    opening_rules.check_opening(
        "trades", TRADE, record(symbol=Text(), price=Float(32), venue=Text()), NOTHING
    )  # a producer's
    error = refused(opening_rules.check_opening, record(symbol=Text(), price=Text()))
    assert str(error) == (
        "channel 'trades' can't be opened so: its field 'price' is float, not str. "
        "Use the type that the channel was created with, or another channel"
    )
    error = refused(opening_rules.check_opening, record(symbol=Text(), venue=Text()))
    assert (error.field, error.expected, error.got) == ("price", "float", None)
    error = refused(opening_rules.check_opening, record(symbol=Text(4), price=Int(), venue=Text()))
    assert (error.field, error.expected, error.got) == ("price", "float", "int")
    error = refused(
        opening_rules.check_opening, record(symbol=Text(), price=Float(), venue=Int()), record(venue=(Text(),))
    )
    assert (error.field, error.expected, error.got) == ("venue", "str", "int")


def test_a_field_that_hinders_both_is_named_first():
    # `symbol` hinders producers only; `price`, behind it, everybody.
    error = refused(
        opening_rules.check_opening, record(symbol=Text(), price=Bool()), defined=record(symbol=Text(4), price=Int())
    )
    assert error.field == "price"


def test_nested_differences_are_located():
    defined = record(position=record(x=Float(), y=Float()))
    error = refused(opening_rules.check_opening, record(position=record(x=Float(), y=Text())), defined=defined)
    assert error.field == "position"
    assert "its field 'position' is {x: float, y: float}, not {x: float, y: str} (at y: str is no float)" in str(error)
