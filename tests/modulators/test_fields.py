"""How modulators read events, whatever these are."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from echannel_ray.modulators import _fields
from tests.modulators.events import RECORDS, TRADES, Trade


@pytest.mark.parametrize("event", TRADES, ids=lambda event: type(event).__name__)
def test_a_field_is_read_from_any_kind_of_event(event):
    assert _fields.reader("price")(event) == 70
    assert _fields.key_reader(["symbol", "price"])(event) == ("RAY", 70)


@pytest.mark.parametrize("event", TRADES, ids=lambda event: type(event).__name__)
def test_any_kind_of_event_becomes_a_dict_of_its_fields(event):
    assert _fields.as_plain(event) == {"symbol": "RAY", "price": 70}


def test_objects_inside_plain_data_become_plain():
    assert _fields.as_plain([(Trade("A", 1.0), 2), {"b": Trade("B", 2.0)}]) == [
        ({"symbol": "A", "price": 1.0}, 2),
        {"b": {"symbol": "B", "price": 2.0}},
    ]


def test_a_path_leads_through_objects():
    event = {"order": SimpleNamespace(trade=Trade("RAY", 70.0))}
    assert _fields.reader("order.trade.price")(event) == 70


def test_functions_and_nothing():
    assert _fields.reader(len)("abc") == 3
    assert _fields.reader(None)("abc") == "abc"
    assert _fields.key_reader(None)("abc") == _fields.key_reader(None)("other")


def test_a_column_may_be_called_like_an_attribute_of_arrays():
    records = np.array([(3,), (4,)], dtype=[("size", "i4")])
    assert _fields.reader("size")(records).tolist() == [3, 4]
    assert _fields.reader("price")(RECORDS).tolist() == [70, 1]


@pytest.mark.parametrize("event", [*TRADES, 5], ids=lambda event: type(event).__name__)
def test_a_field_that_is_missing_is_named_with_those_that_are_there(event):
    with pytest.raises(LookupError, match="no field 'size'") as raised:
        _fields.reader("size")(event)
    assert isinstance(event, int) or "it has symbol, price" in str(raised.value)


@pytest.mark.parametrize(
    ("field", "error"), [("", ValueError), ("a..b", ValueError), (".", ValueError), (3, TypeError)]
)
def test_what_names_no_field_is_refused(field, error):
    with pytest.raises(error):
        _fields.checked_field("field", field)
    with pytest.raises(error):
        _fields.checked_key("by", field)
    with pytest.raises(error):
        _fields.checked_names("fields", [field])
    with pytest.raises(ValueError, match="at least one"):
        _fields.checked_key("by", [])
