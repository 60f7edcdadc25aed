"""E-code: filters and transformations as text, at every producer of a typed channel."""

from __future__ import annotations

import dataclasses
import gc
import pickle
from typing import Any

import numpy as np
import pytest
import ray

import echannel_ray as ec
from tests.api.parties import SOON, Inbox, ask
from tests.api.ticks import (
    BOTH,
    DOUBLING,
    SOURCES,
    TICK,
    Doubled,
    Quote,
    Shown,
    Tick,
    Window,
    array,
    at,
    batch,
    ecode,
    numbers,
    produce,
    publish,
    ticks,
)
from tests.clusters import wait_until


@pytest.mark.parametrize("where", ["near", "far", "here"])
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("declared", [Tick, TICK, Quote], ids=["class", "dtype", "any size"])
def test_only_what_passes_travels(parties, here, name, declared, source, where):
    if declared is Quote and source != "singles":
        declared = dataclasses.make_dataclass("Loose", [("number", int), ("price", float), ("note", str, "")])
    channel = ec.channel(name, declared)
    there = at(parties, where, here)
    there(produce, channel)
    derived = channel.derive("price < 2 or price > 48")
    inbox, everything = Inbox(), Inbox()
    with derived.subscribe(inbox) as some, channel.subscribe(everything) as every:
        there(publish, SOURCES[source](1, 100) if declared is not Quote else ticks(1, 100, Quote))
        some.drain(SOON)
        every.drain(SOON)
        assert numbers(inbox.items) == [1, 2, 3, 97, 98, 99, 100]
        assert numbers(everything.items) == [*range(1, 101)]
        assert {type(event) for event in inbox.items} == {np.void if declared is TICK else declared}
    (stats,) = channel.stats().derived.values()
    assert (stats.events_in, stats.events_out, stats.events_delivered) == (100, 7, 7)
    assert stats.modulator == "price < 2 or price > 48"


def test_what_passes_is_not_doubled_where_others_get_everything(near, far, name):
    channel = ec.channel(name, Tick)
    ray.get([near.consume.remote(channel), far.consume.remote(channel.derive("number > 0"))])
    with channel.producer() as producer:
        for number in range(1, 40_001):
            producer.publish(Tick(number, 0.0))
        producer.drain(SOON)
        for party in (near, far):
            ask(party, lambda party: party.kept["subscription"].drain(SOON))
            found = ask(party, lambda party: numbers(party.kept["inbox"].items))
            assert found == [*range(1, 40_001)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('symbol == "RAY" and price > 1', [3]),
        ('symbol in ("RAY", "☃")', [1, 2, 3]),
        ("symbol == param.symbol", [1, 3]),
        ("len(sizes) > 1 and sizes[1] == 7", [3]),
        ("for i in range(2):\n    if i < len(sizes) and sizes[i] == 5:\n        return True\nreturn False", [2, 3]),
        ("input.number % 2", [1, 3]),
    ],
)
@pytest.mark.parametrize("how", ["instances", "dicts"])
def test_texts_and_lists(near, name, text, expected, how):
    channel = ec.channel(name, Quote)
    ask(near, produce, channel)
    events: list[Any] = [Quote(1, 0.5, "RAY"), Quote(2, 2.0, "☃", [5]), Quote(3, 3.0, "RAY", [5, 7])]
    inbox = Inbox()
    with channel.derive(text, params=Window()).subscribe(inbox) as subscription:
        ask(near, publish, events if how == "instances" else [dataclasses.asdict(event) for event in events])
        subscription.drain(SOON)
        assert inbox.items == [event for event in events if event.number in expected]


def test_deliver_waits_for_what_passes_only(near, name):
    channel = ec.channel(name, Tick)
    derived = channel.derive("number > 3")
    ray.get(near.consume.remote(derived))
    with channel.producer() as producer, derived.subscribe(Inbox()):
        assert producer.deliver(Tick(1, 0.0)).result(SOON).consumers == 0
        assert producer.deliver(Tick(4, 0.0)).result(SOON).consumers == 2
        assert numbers(ray.get(near.received.remote(1))) == [4]


@pytest.mark.parametrize("declared", BOTH)
def test_a_shared_object_steers_it_in_all_producers(near, far, name, declared):
    channel = ec.channel(name, declared)
    window = Window()
    parties = (near, far)
    for party in parties:
        ask(party, produce, channel)
    inbox = Inbox()
    with channel.derive("param.low <= number <= param.high", params=window).subscribe(inbox) as subscription:
        expected: list[int] = []
        for low in range(1, 12):
            window.low, window.high = low, low + 1
            window.publish()
            for party in parties:
                ask(party, publish, ticks(1, 20, declared))
                expected += [low, low + 1]
            subscription.drain(SOON)
            assert numbers(inbox.items) == expected


def change(party: Any, window: Window, low: float) -> None:
    window.low = low
    window.publish()


def test_it_is_steered_from_any_process(near, far, name):
    channel = ec.channel(name, Tick)
    window = Window()
    ask(near, produce, channel)
    derived = channel.derive("number >= param.low", params=window)
    inbox = Inbox()
    with derived.subscribe(inbox) as subscription:
        for low in (19, 5, 18):
            ask(far, change, window, low)
            ask(near, publish, array(1, 20))
            subscription.drain(SOON)
            assert numbers(inbox.items) == [*range(low, 21)]
            inbox.items.clear()


@pytest.mark.parametrize("declared", BOTH)
def test_a_number_that_does_not_fit_ends_it(near, name, declared):
    channel = ec.channel(name, declared)
    window = Window()
    ask(near, produce, channel)
    inbox, failures = Inbox(), Inbox()
    with channel.derive("number > param.count", params=window).subscribe(inbox, on_error=failures):
        ask(near, publish, ticks(1, 2, declared))
        assert numbers(inbox.wait(2)) == [1, 2]
        window.count = 2**70
        window.publish()
        ask(near, publish, ticks(1, 2))
        (failure,) = failures.wait(1)
        assert isinstance(failure, ec.ModulatorQuarantined)
        assert "'count'" in failure.reason
        assert len(inbox.items) == 2


@pytest.mark.parametrize("declared", BOTH)
def test_a_number_that_does_not_fit_is_refused(near, name, declared):
    channel = ec.channel(name, declared)
    ask(near, produce, channel)
    with pytest.raises(ec.ModulatorRefused, match="'count'"):
        channel.derive("number > param.count", params=Window(count=2**70))
    assert channel.stats().derived == {}


def doubling(event, output):
    output.number = event.number
    output.double = event.price * 2
    return event.number % 2 == 0


@pytest.mark.parametrize("program", [DOUBLING, doubling], ids=["text", "function"])
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("where", ["near", "here"])
def test_a_transformation_makes_events_of_its_output_type(parties, here, name, program, source, where):
    channel = ec.channel(name, Tick)
    there = at(parties, where, here)
    there(produce, channel)
    derived = channel.derive(ecode(program, output=Doubled))
    assert derived.event_type is Doubled
    assert derived.schema() == {"number": "int", "double": "float"}
    inbox, generic, other = Inbox(), Inbox(), Inbox()
    subscriptions = [
        derived.subscribe(inbox),
        derived.subscribe(other, event_type=Shown),
        derived.subscribe(generic, event_type=np.dtype([("number", ">i8")])),
    ]
    there(publish, SOURCES[source](1, 10))
    for subscription in subscriptions:
        subscription.drain(SOON)
        subscription.close()
    assert inbox.items == [Doubled(number, float(number)) for number in (2, 4, 6, 8, 10)]
    assert other.items == [Shown(float(number)) for number in (2, 4, 6, 8, 10)]
    assert numbers(generic.items) == [2, 4, 6, 8, 10]
    with pytest.raises(ec.TypeMismatch, match="'price'"):
        derived.subscribe(event_type=Tick)


@dataclasses.dataclass
class Labelled:
    symbol: str
    total: int


@pytest.mark.parametrize("where", ["near", "here"])
def test_outputs_of_any_size(parties, here, name, where):
    channel = ec.channel(name, Quote)
    there = at(parties, where, here)
    there(produce, channel)
    text = """
        total = 0
        for size in sizes[:9]:
            total += size
        output.symbol = symbol
        output.total = total
        return True
    """
    inbox = Inbox()
    with channel.derive(ecode(text, output=Labelled)).subscribe(inbox) as subscription:
        there(publish, [Quote(1, 1.0, "RAY", [1, 2]), Quote(2, 1.0, "☃"), Quote(3, 1.0, "", [5] * 9)])
        subscription.drain(SOON)
        assert inbox.items == [Labelled("RAY", 3), Labelled("☃", 0), Labelled("", 45)]


def test_a_derived_channel_goes_to_other_processes(near, far, name):
    channel = ec.channel(name, Tick)
    derived = channel.derive(ecode(DOUBLING, output=Doubled))
    ask(far, produce, channel)
    ray.get(near.consume.remote(pickle.loads(pickle.dumps(derived))))
    ask(far, publish, array(1, 4))
    assert ray.get(near.received.remote(2)) == [Doubled(2, 2.0), Doubled(4, 4.0)]


@pytest.mark.parametrize("kind", ["numpy", "arrow"])
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("where", ["near", "here"])
def test_batches_of_a_derived_channel(parties, here, name, kind, source, where):
    channel = ec.channel(name, Tick)
    there = at(parties, where, here)
    there(produce, channel)
    filtered, transformed = Inbox(), Inbox()
    with (
        channel.derive("number > 500").subscribe(filtered, batches=kind) as first,
        channel.derive(ecode(DOUBLING, output=Doubled)).subscribe(transformed, batches=kind) as second,
    ):
        there(publish, SOURCES[source](1, 1000))
        first.drain(SOON)
        second.drain(SOON)
    found = [n for each in filtered.items for n in np.asarray(each["number"]).tolist()]
    assert found == [*range(501, 1001)]
    assert [n for each in transformed.items for n in np.asarray(each["double"]).tolist()] == [
        float(n) for n in range(2, 1001, 2)
    ]


EVERY_THIRD = "n: static = 0\nn += 1\nreturn n % 3 == 0"


@pytest.mark.parametrize("source", SOURCES)
def test_each_producer_has_its_own_static_variables(near, far, name, source):
    channel = ec.channel(name, Tick)
    for party in (near, far):
        ask(party, produce, channel)
    inbox = Inbox()
    with channel.derive(EVERY_THIRD).subscribe(inbox) as subscription:
        for party, first in ((near, 1), (far, 1001), (near, 11), (far, 1011)):
            ask(party, publish, SOURCES[source](first, first + 9))
        subscription.drain(SOON)
        expected = [*range(3, 21, 3), *range(1003, 1021, 3)]
        assert sorted(numbers(inbox.items)) == expected


def test_static_variables_outlive_a_change_of_format(near, name):
    """Singles, arrays of another layout, and batches have each a form of their own, and one state."""
    channel = ec.channel(name, Tick)
    ask(near, produce, channel)
    inbox = Inbox()
    swapped = np.zeros(5, [("price", ">f8"), ("number", ">i4")])
    for field in ("price", "number"):
        swapped[field] = array(6, 10)[field]
    with channel.derive(EVERY_THIRD).subscribe(inbox) as subscription:
        for events in (ticks(1, 5), swapped, batch(11, 15), array(16, 20), ticks(21, 25)):
            ask(near, publish, events)
        subscription.drain(SOON)
        assert numbers(inbox.items) == [*range(3, 26, 3)]


def test_equal_texts_share_one_derived_channel(near, far, name):
    channel = ec.channel(name, Tick)
    window = Window()
    ask(near, produce, channel)
    consumers = [near, far]
    for party in consumers:
        ask(party, lambda party: party.consume(channel.derive("number > 3")))
    handles = [channel.derive("number > 3"), channel.derive(ecode("number > 3"))]
    assert len(channel.stats().derived) == 1
    inboxes = [Inbox(), Inbox()]
    subscriptions = [handle.subscribe(inbox) for handle, inbox in zip(handles, inboxes, strict=True)]
    ask(near, publish, array(1, 5))
    for inbox in inboxes:
        assert numbers(inbox.wait(2)) == [4, 5]
    for party in consumers:
        assert numbers(ray.get(party.received.remote(2))) == [4, 5]
    (stats,) = channel.stats().derived.values()
    assert (stats.consumers, stats.events_in, stats.events_out) == (4, 5, 2)
    # Another text, another output or another shared object is another channel.
    others = [channel.derive("number > param.low", params=each) for each in (window, Window())]
    others.append(channel.derive("number > 4"))
    assert len(channel.stats().derived) == 4
    assert channel.derive("number > param.low", params=window).name == others[0].name
    for subscription in subscriptions:
        subscription.close()


def test_it_ends_with_its_last_handle(name):
    channel = ec.channel(name, Tick)
    derived = channel.derive("number > 3")
    with channel.producer():
        assert [*channel.stats().derived] == [derived.name]
        del derived
        gc.collect()
        wait_until(lambda: not channel.stats().derived)


@pytest.mark.parametrize("source", SOURCES)
def test_producers_that_come_later_have_it(near, far, name, source):
    channel = ec.channel(name, Tick)
    inbox = Inbox()
    with channel.derive("number > 8").subscribe(inbox) as subscription:
        for party in (near, far):
            ask(party, produce, channel)
            ask(party, publish, SOURCES[source](1, 10))
        subscription.drain(SOON)
        assert sorted(numbers(inbox.items)) == [9, 9, 10, 10]
