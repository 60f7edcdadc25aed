"""E-code behind modulators and before them, and what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import ray

import echannel_ray as ec
from tests.api.parties import SOON, Inbox, ask
from tests.api.ticks import (
    DOUBLING,
    SOURCES,
    Doubled,
    Tick,
    array,
    at,
    ecode,
    produce,
    publish,
    ticks,
)


class Making(ec.Modulator):
    """Emits dicts with the fields of the channel's type."""

    def enqueue(self, event: Any) -> None:
        self.emit({"number": event.number + 1, "price": 1.0})

    def knows(self) -> type:
        """Ships the class with it."""
        return Tick


class Above(ec.Modulator):
    """Passes on events with a greater number, and two of those with an even one."""

    def __init__(self, least: int) -> None:
        self.least = least

    def enqueue(self, event: Any) -> None:
        if event.number > self.least:
            self.emit(event)
            if event.number % 2 == 0:
                self.emit(event)

    def knows(self) -> type:
        """Ships the class with it."""
        return Tick


def test_a_filter_behind_a_filter(near, name):
    channel = ec.channel(name, Tick)
    ask(near, produce, channel)
    inbox = Inbox()
    derived = channel.derive("number > 10").derive(ecode(DOUBLING, output=Doubled)).derive("double < 16")
    assert derived.schema() == {"number": "int", "double": "float"}
    with derived.subscribe(inbox) as subscription:
        ask(near, publish, array(1, 30))
        ask(near, publish, ticks(1, 30))
        subscription.drain(SOON)
        assert inbox.items == [Doubled(12, 12.0), Doubled(14, 14.0)] * 2


@pytest.mark.parametrize("tier", ["inline", "isolated"])
@pytest.mark.parametrize("source", ["singles", "arrays"])
@pytest.mark.parametrize("where", ["near", "here"])
def test_it_works_behind_a_modulator(parties, here, name, tier, source, where):
    channel = ec.channel(name, Tick)
    there = at(parties, where, here)
    there(produce, channel)
    inbox, failures = Inbox(), Inbox()
    derived = channel.derive(Above(4), tier=tier).derive("number < 8")
    with derived.subscribe(inbox, on_error=failures) as subscription:
        there(publish, SOURCES[source](1, 10))
        subscription.drain(SOON)
        assert failures.items == []
        assert inbox.items == [Tick(number, number / 2) for number in (5, 6, 6, 7)]


@pytest.mark.parametrize("tier", ["inline", "isolated"])
def test_it_reads_the_dicts_of_a_modulator(near, name, tier):
    channel = ec.channel(name, Tick)
    ask(near, produce, channel)
    inbox, failures = Inbox(), Inbox()
    with channel.derive(Making(), tier=tier).derive("number < 5").subscribe(inbox, on_error=failures) as subscription:
        ask(near, publish, ticks(1, 10))
        subscription.drain(SOON)
        assert failures.items == []
        assert inbox.items == [Tick(number, 1.0) for number in (2, 3, 4)]


@pytest.mark.parametrize("tier", ["inline", "isolated"])
@pytest.mark.parametrize("source", ["singles", "arrays"])
@pytest.mark.parametrize("where", ["near", "here"])
def test_a_modulator_works_behind_it(parties, here, name, tier, source, where):
    channel = ec.channel(name, Tick)
    there = at(parties, where, here)
    there(produce, channel)
    inbox, failures = Inbox(), Inbox()
    with channel.derive("number < 8").subscribe(
        inbox, modulator=Above(4), tier=tier, on_error=failures
    ) as subscription:
        there(publish, SOURCES[source](1, 10))
        subscription.drain(SOON)
        assert failures.items == []
        assert inbox.items == [Tick(number, number / 2) for number in (5, 6, 6, 7)]


def test_what_is_published_into_a_derived_channel_bypasses_it(near, name):
    channel = ec.channel(name, Tick)
    derived = channel.derive("number > 100")
    ray.get(near.consume.remote(derived))
    inbox, others = Inbox(), Inbox()
    with derived.subscribe(inbox) as subscription, channel.subscribe(others), derived.producer() as producer:
        producer.publish(Tick(1, 0.5))
        producer.publish_many(array(2, 4))
        producer.drain(SOON)
        subscription.drain(SOON)
        assert inbox.items == ticks(1, 4)
        assert ray.get(near.received.remote(4)) == ticks(1, 4)
        assert others.items == []


def test_what_is_published_into_a_transformation_is_of_its_output_type(near, name):
    channel = ec.channel(name, Tick)
    derived = channel.derive(ecode(DOUBLING, output=Doubled))
    ray.get(near.consume.remote(derived))
    with derived.producer() as producer:
        producer.publish(Doubled(1, 7.0))
        with pytest.raises(ec.TypeMismatch, match="'double'"):
            producer.publish(Tick(1, 1.0))
    assert ray.get(near.received.remote(1)) == [Doubled(1, 7.0)]


@pytest.mark.parametrize(
    ("text", "line", "column", "what"),
    [
        ("number > 3 and\\\n prize < 5", 2, 2, "price"),
        ("x = 1\nreturn x +", 2, None, "line 2"),
        ("number > 3\nimport os", 2, 1, "line 2, column 1"),
        ("number.__class__", 1, None, "line 1"),
        ("while True:\n    pass", 1, 1, "while"),
        ("number > param.low", 1, None, "param"),
        ("number == 'text'", 1, None, "line 1"),
        ("", 1, 1, "nothing"),
    ],
)
def test_errors_have_their_line_and_column(near, name, text, line, column, what):
    channel = ec.channel(name, Tick)
    ask(near, produce, channel)
    with pytest.raises(ec.ModulatorRefused, match=what) as caught:
        channel.derive(text)
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.line == line
    assert column in (None, error.column)
    assert f"line {line}" in str(error)
    assert channel.stats().derived == {}


def test_an_output_without_a_value_for_a_copy_is_refused(name):
    channel = ec.channel(name, Tick)
    with pytest.raises(ec.ModulatorRefused, match="prise"):
        channel.derive(ecode("output.prise = price\nreturn True", output=Doubled))


def test_an_untyped_channel_has_no_ecode(channel):
    with pytest.raises(ec.ModulatorRefused, match="untyped"):
        channel.derive("number > 3")
    assert channel.stats().derived == {}


@pytest.mark.parametrize(
    ("arguments", "options", "error", "what"),
    [
        (("number > param.low",), {"params": {"low": 3}}, TypeError, "shared object"),
        (("number > 3",), {"tier": "inline"}, ValueError, "ecode"),
        ((5,), {}, TypeError, "Modulator"),
    ],
)
def test_what_makes_no_sense_says_so(name, arguments, options, error, what):
    with pytest.raises(error, match=what):
        ec.channel(name, Tick).derive(*arguments, **options)


@pytest.mark.parametrize(
    ("admission", "reason"),
    [
        (ec.Admission(tiers=("isolated", "inline")), "tiers"),
        (ec.Admission(max_cost=3), "max_cost"),
        (ec.Admission(max_modulators=0), "most"),
        (ec.Admission(max_shipped_bytes=10), "bytes"),
    ],
)
def test_what_is_not_admitted_is_refused(near, name, admission, reason):
    channel = ec.channel(name, Tick)
    producer = ask(near, lambda party: produce(party, channel, admission=admission))
    with pytest.raises(ec.ModulatorRefused, match=reason) as caught:
        channel.derive("n = 0\nfor i in range(10):\n    n += i\nreturn n > 3")
    assert caught.value.reason
    assert caught.value.producer == producer
    assert channel.stats().derived == {}


def test_a_producer_that_comes_later_and_can_not_have_it_tells(near, name):
    channel = ec.channel(name, Tick)
    inbox, failures = Inbox(), Inbox()
    with channel.derive("number > 3").subscribe(inbox, on_error=failures):
        producer = ask(near, lambda party: produce(party, channel, admission=ec.Admission(tiers=("isolated",))))
        ask(near, publish, ticks(1, 9))
        (failure,) = failures.wait(1)
        assert isinstance(failure, ec.ModulatorRefused)
        assert failure.producer == producer
        assert inbox.items == []
