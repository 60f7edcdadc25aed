"""E-code: filters and transformations as text, verified and compiled at every producer of a typed channel."""

from __future__ import annotations

import dataclasses
import gc
import pickle
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
import ray

import echannel_ray as ec
from tests.api.parties import SOON, Inbox, Party, Valve, ask
from tests.clusters import wait_until

OPEN = ec.Admission(tiers=("ecode", "isolated", "inline"))


def ecode(source: str | Callable[..., Any], output: Any = None) -> Any:
    """A program, as programs of users make it."""
    return ec.ecode(source, output)


@dataclasses.dataclass
class Tick:
    """Of fixed size: its records are a layout."""

    number: int
    price: float


TICK = np.dtype([("number", "<i8"), ("price", "<f8")])


@dataclasses.dataclass
class Quote:
    """Of any size: its records are msgpack."""

    number: int
    price: float
    symbol: str = ""
    sizes: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Doubled:
    number: int
    double: float


class Shown(msgspec.Struct):
    """What a consumer without all the fields asks for."""

    double: float


class Window(ec.SharedObject):
    """What a program and its consumer share."""

    low: float = 3.0
    high: float = 6.0
    count: int = 0
    symbol: str = "RAY"


BOTH: list[Any] = [Tick, Quote]


def ticks(first: int, last: int, event_type: Any = Tick) -> list[Any]:
    return [event_type(number, number / 2) for number in range(first, last + 1)]


def array(first: int, last: int) -> np.ndarray:
    made = np.zeros(last - first + 1, TICK)
    made["number"] = np.arange(first, last + 1)
    made["price"] = made["number"] / 2
    return made


def batch(first: int, last: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array(array(first, last)[name]) for name in TICK.names})


SOURCES: dict[str, Callable[[int, int], Any]] = {"singles": ticks, "arrays": array, "batches": batch}


def produce(party: Any, channel: ec.EventChannel, **options: Any) -> str:
    """Have a producer that stays: its name."""
    producer = channel.producer(**{"admission": OPEN, **options})
    party.kept["producer"] = producer
    return producer.name


def publish(party: Any, events: Any) -> None:
    party.kept["producer"].publish_many(events)
    party.kept["producer"].drain(SOON)


def numbers(events: list[Any]) -> list[int]:
    return [int(event["number"] if isinstance(event, np.void) else event.number) for event in events]


def at(parties: dict[str, Any], where: str, here: Party) -> Callable[..., Any]:
    """Calls functions there."""
    return (lambda f, *a: f(here, *a)) if where == "here" else (lambda f, *a: ask(parties[where], f, *a))


@pytest.fixture
def here() -> Any:
    party = Party()
    yield party
    party.leave()


# ---- filters ----


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


# ---- transformations ----


def doubling(event, output):
    output.number = event.number
    output.double = event.price * 2
    return event.number % 2 == 0


DOUBLING = "output.number = number\noutput.double = price * 2\nreturn number % 2 == 0"


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


def dataclass_of(**types: Any) -> type:
    return dataclasses.make_dataclass("Made", list(types.items()))


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


# ---- state, and what is shared ----

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


# ---- behind each other ----


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


# ---- what is refused ----


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


# ---- traps ----


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("where", ["near", "here"])
@pytest.mark.parametrize("program", ["filter", "transformation"])
def test_traps_are_told_and_end_it_at_last(parties, here, name, source, where, program):
    """Each event that traps is lost to the consumers of the program, and to nobody else."""
    channel = ec.channel(name, Tick)
    there = at(parties, where, here)
    there(produce, channel)
    inbox, failures, others, everything = Inbox(), Inbox(), Inbox(), Inbox()
    text = "output.number = 1000 // (number % 10)\noutput.double = price * 2\nreturn True"
    trapping = ecode(text, output=Doubled) if program == "transformation" else "1000 // (number % 10) > 0"
    with (
        channel.derive(trapping).subscribe(inbox, on_error=failures) as subscription,
        channel.derive("number > 0").subscribe(others) as other,
        channel.subscribe(everything) as every,
    ):
        there(publish, SOURCES[source](1, 60))
        for each in (subscription, other, every):
            each.drain(SOON)
        told = failures.items
        assert [type(each) for each in told] == [ec.ModulatorFailed] * 3 + [ec.ModulatorQuarantined]
        for failure, number in zip(told, (10, 20, 30), strict=False):
            assert "divided by 0 (line 1, column" in failure.reason
            assert f"number={number}," in failure.event
        passed = [number for number in range(1, 40) if number % 10]
        if program == "filter":
            assert numbers(inbox.items) == passed
        else:
            assert inbox.items == [Doubled(1000 // (number % 10), float(number)) for number in passed]
        assert numbers(others.items) == numbers(everything.items) == [*range(1, 61)]


def test_a_trap_begins_anew(near, name):
    channel = ec.channel(name, Tick)
    ask(near, produce, channel)
    inbox, failures = Inbox(), Inbox()
    text = "n: static = 0\nn += 1\nreturn n % 3 == 0 and 10 // (number - 7) < 100"
    with channel.derive(text).subscribe(inbox, on_error=failures) as subscription:
        for events in (ticks(1, 6), array(8, 9), ticks(7, 7), array(10, 15)):
            ask(near, publish, events)
        subscription.drain(SOON)
        assert [type(each) for each in failures.items] == [ec.ModulatorFailed]
        assert numbers(inbox.items) == [3, 6, 12, 15]


def test_a_pull_subscription_is_told_when_it_asks(near, name):
    channel = ec.channel(name, Tick)
    ask(near, lambda party: produce(party, channel, admission=ec.Admission(max_restarts=0)))
    with channel.derive("1 // (number - 2) > -9").subscribe() as subscription:
        ask(near, publish, ticks(1, 4))
        assert subscription.get(SOON) == Tick(1, 0.5)
        with pytest.raises(ec.ModulatorQuarantined, match="divided by 0"):
            subscription.get(SOON)


# ---- machine code ----


def native(party: Any, timeout_seconds: float = SOON) -> list[str]:
    """The forms of the programs in the producer, as soon as they are compiled or never will be."""
    branches = party.kept["producer"].branches
    engines = [engine for branch in branches for engine in branch.host._engines.values()]
    for engine in engines:
        engine.wait_native(timeout_seconds)
    return [engine.form for engine in engines]


STATEFUL = """
total: static = 0.0
last: static = [0] * 4
n: static = 0
total += price * 0.1
last[n % 4] = number
n += 1
output.number = last[0] - last[3]
output.double = total / 3
return n % 2 == 0 or price // 7 > 3
"""


def reference(first: int, last: int) -> list[Doubled]:
    """The same in Python."""
    total, kept, made = 0.0, [0] * 4, []
    for n, number in enumerate(range(first, last + 1)):
        total += number / 2 * 0.1
        kept[n % 4] = number
        if (n + 1) % 2 == 0 or number / 2 // 7 > 3:
            made.append(Doubled(kept[0] - kept[3], total / 3))
    return made


@pytest.mark.parametrize("source", SOURCES)
def test_machine_code_takes_over_amid_the_stream(new_party, name, source):
    if source != "batches":  # whose columns are read event by event
        pytest.importorskip("llvmlite")
    channel = ec.channel(name, Tick)
    party = new_party()
    ask(party, produce, channel)
    inbox = Inbox()
    with channel.derive(ecode(STATEFUL, output=Doubled)).subscribe(inbox) as subscription:
        for first in range(1, 2001, 100):
            ask(party, publish, SOURCES[source](first, first + 99))
            if first == 1001:
                forms = ask(party, native)
                assert source == "batches" or forms == ["native"]
        subscription.drain(SOON)
        assert inbox.items == reference(1, 2000)


def test_without_llvmlite_it_is_interpreted(new_party, name):
    channel = ec.channel(name, Tick)
    party = new_party()
    ask(party, lambda party: sys.modules.update({"llvmlite": None, "llvmlite.binding": None}))  # type: ignore[dict-item]
    ask(party, produce, channel)
    inbox, filtered = Inbox(), Inbox()
    with (
        channel.derive(ecode(STATEFUL, output=Doubled)).subscribe(inbox) as subscription,
        channel.derive("price > 10").subscribe(filtered) as other,
    ):
        ask(party, publish, array(1, 50))
        assert sorted(ask(party, native)) == ["columnar", "interpreted"]
        ask(party, publish, ticks(51, 100))
        subscription.drain(SOON)
        other.drain(SOON)
        assert inbox.items == reference(1, 100)
        assert numbers(filtered.items) == [*range(21, 101)]


# ---- windows ----


@pytest.mark.parametrize("overflow", ["drop_newest", "drop_oldest"])
@pytest.mark.parametrize("source", ["singles", "arrays"])
def test_policies_drop_what_has_passed(here, name, overflow, source):
    channel = ec.channel(name, Tick)
    valve, gaps = Valve(), Inbox()
    produce(here, channel, overflow=overflow)
    derived = channel.derive("number % 2 == 0")
    with derived.subscribe(valve, on_error=gaps) as subscription:
        here.kept["producer"].publish_many(SOURCES[source](1, 40_000))
        valve.opened.set()
        here.kept["producer"].drain(SOON)
        subscription.drain(SOON)
        got = numbers(valve.inbox.items)
        lost = sum(gap.last - gap.first + 1 for gap in gaps.items)
    assert got == sorted(set(got))
    assert not any(number % 2 for number in got)
    assert lost > 0
    assert len(got) + lost == 20_000


def test_the_average_of_a_large_array(near, name):
    dtype = np.dtype([("wind", "<f8", (300, 40))])
    channel = ec.channel(name, dtype)
    ask(near, produce, channel)
    text = """
        total = 0.0
        for i in range(300):
            for j in range(40):
                total += wind[i][j]
        output.average = total / (300 * 40)
        return True
    """
    average = dataclass_of(average=float)
    inbox = Inbox()
    block = np.zeros(3, dtype)
    block["wind"] = np.arange(3)[:, None, None] + 0.5
    with channel.derive(ecode(text, output=average)).subscribe(inbox) as subscription:
        ask(near, publish, block)
        subscription.drain(SOON)
        assert [event.average for event in inbox.items] == [0.5, 1.5, 2.5]
