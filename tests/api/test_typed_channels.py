"""Typed channels: what arrives, in the terms of each consumer."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import echannel_ray as ec
from tests.api.parties import Inbox, ask, publish_all
from tests.api.quotes import (
    AT,
    NAMES,
    QUOTE_TYPES,
    FeeData,
    FeeModel,
    FeeStruct,
    QuoteData,
    QuoteModel,
    QuoteStruct,
    Side,
    check_quotes,
    quote,
    quote_fields,
)
from tests.records.same_record import FIXED_TYPES, Values, made, values_of


def fixed(number: int) -> Values:
    return Values(number, [1.5, -2.0, 0.0], (2.0 * number, 1.0), AT, timedelta(microseconds=number))


@pytest.mark.parametrize("asked", FIXED_TYPES, ids=NAMES)
@pytest.mark.parametrize("declared", FIXED_TYPES, ids=NAMES)
def test_records_of_fixed_size_arrive_as_each_consumer_asked(consume, name, declared, asked):
    channel = ec.channel(name, declared)
    received = consume(channel, event_type=asked)
    with channel.producer() as producer:
        if isinstance(declared, type):
            producer.publish(made(declared, fixed(1)))
            producer.publish_many([made(declared, fixed(number)) for number in (2, 3)])
        elif isinstance(declared, np.dtype):
            producer.publish(made(declared, fixed(1))[0])
            producer.publish_many(np.concatenate([made(declared, fixed(number)) for number in (2, 3)]))
        else:
            producer.publish(made(declared, fixed(1)).to_pylist()[0])
            producer.publish_many(pa.concat_batches([made(declared, fixed(number)) for number in (2, 3)]))
    events = received(3)
    assert [values_of(event) for event in events] == [fixed(1), fixed(2), fixed(3)]
    expected = asked if isinstance(asked, type) else np.void if isinstance(asked, np.dtype) else ec.Record
    assert {type(event) for event in events} == {expected}


@pytest.mark.parametrize("asked", QUOTE_TYPES, ids=["dataclass", "pydantic", "struct", "arrow"])
@pytest.mark.parametrize("declared", QUOTE_TYPES, ids=["dataclass", "pydantic", "struct", "arrow"])
def test_records_of_any_size_arrive_as_each_consumer_asked(consume, name, declared, asked):
    channel = ec.channel(name, declared)
    received = consume(channel, event_type=asked)
    with channel.producer() as producer:
        producer.publish(quote(declared, 1))
        if isinstance(declared, type):
            producer.publish_many([quote(declared, 2), quote(declared, 3)])
        else:
            producer.publish_many(pa.RecordBatch.from_pylist([quote_fields(2), quote_fields(3)], declared))
    check_quotes(received(3), asked, range(1, 4))


@pytest.mark.parametrize("asked", [FeeData, FeeModel, FeeStruct])
@pytest.mark.parametrize("declared", [FeeData, FeeModel, FeeStruct])
def test_what_only_classes_have_arrives_as_each_consumer_asked(consume, name, declared, asked):
    channel = ec.channel(name, declared)
    received = consume(channel, event_type=asked)
    zoned = datetime(2024, 2, 29, tzinfo=timezone(timedelta(hours=2)))
    cases = [
        {"fee": Decimal("1.10"), "side": Side.BUY, "at": AT, "took": timedelta(1)},
        {"fee": Decimal("-1E+5"), "side": Side.SELL, "at": zoned, "took": timedelta(0, -1)},
    ]
    publish_all(None, channel, [declared(**fields) for fields in cases])
    events = received(2)
    assert events == [asked(**fields) for fields in cases]
    assert [str(event.fee) for event in events] == ["1.10", "-1E+5"]
    assert events[1].at.utcoffset() == timedelta(hours=2)


@pytest.mark.parametrize("declared", QUOTE_TYPES, ids=["dataclass", "pydantic", "struct", "arrow"])
def test_the_schema_is_known_without_the_class(near, name, declared):
    channel = ec.channel(name, declared)
    schema = channel.schema()
    assert schema is not None
    assert schema == ask(near, lambda party: ec.channel(name).schema())
    assert sorted(schema) == sorted(quote_fields(1))
    assert (schema["symbol"], schema["price"], schema["tags"]) == ("str", "float", "list[str]")


@pytest.mark.parametrize("declared", QUOTE_TYPES, ids=["dataclass", "pydantic", "struct", "arrow"])
def test_a_consumer_without_the_class_gets_records_by_name(consume, name, declared):
    channel = ec.channel(name, declared)
    received = consume(ec.channel(name))
    publish_all(None, channel, [quote(declared, 1), quote(declared, 2)])
    check_quotes(received(2), None, range(1, 3))


def test_only_an_instance_of_the_consumers_own_class_is_the_object_itself(name):
    channel = ec.channel(name, QuoteData)
    own, other, generic = Inbox(), Inbox(), Inbox()
    event = quote(QuoteData, 1)
    with (
        channel.subscribe(own),
        channel.subscribe(other, event_type=QuoteStruct),
        ec.channel(name).subscribe(generic),
    ):
        publish_all(None, channel, [event, quote_fields(2)])
        assert own.wait(2)[0] is event
        check_quotes(own.items, QuoteData, range(1, 3))
        check_quotes(other.wait(2), QuoteStruct, range(1, 3))
        check_quotes(generic.wait(2), None, range(1, 3))


def test_dicts_with_the_fields_are_events_too(consume, name):
    channel = ec.channel(name, QuoteStruct)
    received = consume(channel)
    with channel.producer() as producer:
        assert producer.publish(quote_fields(1))
        assert producer.publish_many([quote_fields(2), ec.Record(quote_fields(3))])
    check_quotes(received(3), QuoteStruct, range(1, 4))


def test_another_class_with_the_fields_is_an_event_too(consume, name):
    channel = ec.channel(name, QuoteStruct)
    received = consume(channel)
    publish_all(None, channel, [quote(QuoteData, 1), quote(QuoteModel, 2), quote(QuoteStruct, 3)])
    check_quotes(received(3), QuoteStruct, range(1, 4))
