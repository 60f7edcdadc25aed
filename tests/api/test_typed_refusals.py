"""Typed channels: what is no event of the type raises, and nothing of it is sent."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pyarrow as pa
import pydantic
import pytest
import ray

import echannel_ray as ec
from tests.api import modulators
from tests.api.parties import SOON, Inbox, publish_all
from tests.api.quotes import (
    OPEN,
    LegData,
    Numbered,
    numbers,
)


async def publish_by(how: str, producer: ec.Producer, event: Any) -> None:
    """Publish in one of the four ways."""
    if how == "publish":
        await asyncio.to_thread(producer.publish, event)
    elif how == "publish_many":
        await asyncio.to_thread(producer.publish_many, [event])
    elif how == "apublish":
        await producer.apublish(event)
    else:
        await producer.deliver(event)


class Stranger:
    """No record."""


NO_RECORDS = [b"bytes", "text", 1, None, (1, 2.0), Stranger(), np.zeros(3)]
UNFIT = [
    (Numbered("one"), "number"),  # type: ignore[arg-type]
    (Numbered(1, None), "weight"),  # type: ignore[arg-type]
    (Numbered(2**70), "number"),
    ({"number": 1.5, "weight": 1.0}, "number"),
    ({"weight": 1.0}, "number"),
]
WAYS = ["publish", "publish_many", "apublish", "deliver"]


@pytest.mark.parametrize("how", WAYS)
async def test_what_is_no_record_is_refused(consume, name, how):
    channel = ec.channel(name, Numbered)
    received = consume(channel)
    producer = channel.producer()
    for event in NO_RECORDS:
        with pytest.raises(ec.TypeMismatch, match="number, weight") as caught:
            await publish_by(how, producer, event)
        assert caught.value.channel == name
    await publish_by(how, producer, Numbered(1))
    await producer.aclose()
    assert await asyncio.to_thread(received, 1) == [Numbered(1)]
    assert channel.stats().events_published == 1


@pytest.mark.parametrize("how", WAYS)
async def test_values_that_do_not_fit_are_refused_by_name(near, name, how):
    channel = ec.channel(name, Numbered)
    await near.consume.remote(channel)
    producer = channel.producer()
    for event, field in UNFIT:
        with pytest.raises(ec.NotSerialisable, match=field) as caught:
            await publish_by(how, producer, event)
        assert field in str(caught.value.path or caught.value.reason)
        assert f"{field!r}" in str(caught.value)
    await publish_by(how, producer, Numbered(1))
    await producer.aclose()
    assert await near.received.remote(1) == [Numbered(1)]
    assert channel.stats().events_published == 1


def test_a_class_that_lacks_a_field_is_refused(near, name):
    channel = ec.channel(name, Numbered)
    ray.get(near.consume.remote(channel))
    with channel.producer() as producer:
        with pytest.raises(ec.TypeMismatch, match="number") as caught:
            producer.publish(LegData("X", 1))
        assert caught.value.field == "number"
        with pytest.raises(ec.TypeMismatch, match="number"):
            producer.publish_many(np.zeros(3, [("number", "f8"), ("weight", "f8")]))
        with pytest.raises(ec.TypeMismatch, match="number"):
            producer.publish_many(pa.RecordBatch.from_pylist([{"weight": 1.0}]))
        producer.publish(Numbered(7))
    assert ray.get(near.received.remote(1)) == [Numbered(7)]
    assert channel.stats().events_published == 1


def test_what_only_a_modulator_would_get_is_refused_too(consume, name):
    channel = ec.channel(name, Numbered)
    received = consume(channel, modulator=modulators.Repeat(1), tier="inline")
    with channel.producer(admission=OPEN) as producer:
        for number in range(3000):  # until it takes the shortest way
            producer.publish(Numbered(number))
        for event in NO_RECORDS:
            with pytest.raises(ec.TypeMismatch):
                producer.publish(event)
        producer.drain(timeout=SOON)
        assert numbers(received()) == [*range(3000)]


@pytest.mark.parametrize("how", WAYS)
async def test_of_what_is_refused_no_consumer_gets_anything(name, how):
    """Neither those who would take the object as it is."""
    channel = ec.channel(name, Numbered)
    own = Inbox()
    with channel.subscribe(own) as first, ec.channel(name).subscribe(Inbox()), channel.producer() as producer:
        with pytest.raises(ec.NotSerialisable, match="number"):
            await publish_by(how, producer, Numbered("one"))  # type: ignore[arg-type]
        await publish_by(how, producer, Numbered(1))
        first.drain(SOON)
        assert own.items == [Numbered(1)]
        assert channel.stats().events_published == 1


class Bounded(pydantic.BaseModel):
    """Looks at its values when it is made, and not when they are changed."""

    number: int = pydantic.Field(ge=0)


def test_without_validation_only_types_count(near, name):
    channel = ec.channel(name, Bounded)
    ray.get(near.consume.remote(channel))
    event = Bounded(number=1)
    event.number = -5
    publish_all(None, channel, [event])
    assert [each.number for each in ray.get(near.received.remote(1))] == [-5]


@pytest.mark.parametrize("how", WAYS)
async def test_validation_compares_values_with_the_declaration(consume, name, how):
    channel = ec.channel(name, Bounded)
    received = consume(channel)
    producer = channel.producer(validate=True)
    event = Bounded(number=1)
    event.number = -5
    with pytest.raises(ec.NotSerialisable, match="number"):
        await publish_by(how, producer, event)
    event.number = 5
    await publish_by(how, producer, event)
    await producer.aclose()
    assert numbers(await asyncio.to_thread(received, 1)) == [5]
    assert channel.stats().events_published == 1
