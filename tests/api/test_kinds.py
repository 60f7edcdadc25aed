"""Events of any kind arrive in other processes as what they were, type for type and all the way down."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import pathlib
import threading
import uuid

import msgspec
import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pytest
import ray

import echannel_ray as ec
from tests.api import kinds
from tests.api.parties import Inbox, ask

NUMBERS = [True, False, 0, -1, 2**63, -(2**63), 2**200, 1.5, float("inf"), 1 + 2j]
STRINGS = ["", "text", "\ud800", b"", b"bytes"]
CONTAINERS = [
    bytearray(b"changeable"), (), (1,), (1, [2, (3, {4})]), [], [[]], {}, {"a": (1, 2)}, {1: "one", (2, 3): [4]}, set(),
    {1, 2}, frozenset({(1,)}), range(3), slice(1, 2), collections.OrderedDict(b=1, a=2), collections.Counter("aab"),
    collections.deque([1, 2], maxlen=5), collections.defaultdict(list, a=[1]),
]  # fmt: skip
OBJECTS = [
    ..., NotImplemented, int, ValueError("x", 1), kinds.Side.BUY, kinds.Access.READ | kinds.Access.WRITE,
    [kinds.Side.SELL], kinds.Point(1, kinds.Point(2, 3)), kinds.Trade("X", (1, 2)), {"trade": [kinds.Trade("Y", None)]},
    kinds.Record("r", {1}), kinds.Model(name="m", values=[1, 2]), decimal.Decimal("1.10"), fractions.Fraction(1, 3),
    datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.timezone.utc), datetime.date(2024, 1, 1), uuid.UUID(int=7),
    datetime.timedelta(days=1, microseconds=1), pathlib.PurePosixPath("/a/b"), np.float32(1.5), np.int64(7),
    np.datetime64("2024-01-01"),
]  # fmt: skip
EVENTS = [None, *NUMBERS, *STRINGS, *CONTAINERS, *OBJECTS]


def same(a, b):
    """Equal, and of the same types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, BaseException):
        return a.args == b.args
    if isinstance(a, dict):
        return [*a] == [*b] and all(same(x, y) for x, y in zip(a.items(), b.items(), strict=True))
    if isinstance(a, list | tuple | collections.deque):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


@pytest.fixture(params=["near", "far"])
def consumer(request, parties, channel):
    ray.get(parties[request.param].consume.remote(channel))
    return parties[request.param]


def test_whatever_it_is(consumer, channel):
    def check(party, count):
        received = party.kept["inbox"].wait(count)
        return [(i, type(event), event) for i, event in enumerate(received) if not same(event, EVENTS[i % count])]

    with channel.producer() as producer:
        for event in EVENTS:
            assert producer.publish(event)
        for event in EVENTS:
            assert producer.deliver(event).result(timeout=10).consumers == 1
    assert ask(consumer, check, len(EVENTS)) == []
    assert ask(consumer, lambda party: len(party.kept["inbox"].items)) == 2 * len(EVENTS)


def test_arrays_are_read_only_views(consumer, channel):
    def check(party):
        array, table, frame, nested = party.kept["inbox"].wait(4)
        assert isinstance(array, np.ndarray)
        assert array.sum() == 499_999_500_000
        assert not array.flags.writeable
        assert not array.flags.owndata
        assert table.equals(pa.table({"a": [*range(100_000)]}))
        assert frame.equals(pd.DataFrame({"x": np.arange(100_000.0), "y": ["s"] * 100_000}))
        assert nested["deep"][0][1].shape == (1000, 100)
        return True

    with channel.producer() as producer:
        producer.publish(np.arange(1_000_000))
        producer.publish(pa.table({"a": [*range(100_000)]}))
        producer.publish(pd.DataFrame({"x": np.arange(100_000.0), "y": ["s"] * 100_000}))
        producer.publish({"deep": [(1, np.zeros((1000, 100)))]})
    assert ask(consumer, check)


def test_functions_and_local_classes(consumer, channel):
    class Local:
        def __init__(self, value):
            self.value = value

        def double(self):
            return 2 * self.value

    def check(party):
        function, instance, cls = party.kept["inbox"].wait(3)
        return function(3), instance.double(), cls(5).double(), type(instance) is cls

    factor = 7
    with channel.producer() as producer:
        producer.publish(lambda x: factor * x)
        producer.publish(Local(4))
        producer.publish(Local)
    assert ask(consumer, check) == (21, 8, 10, True)


def test_actor_handles_work(consumer, near, channel):
    def call(party):
        return ray.get(party.kept["inbox"].wait(1)[0]["actor"].where.remote())

    with channel.producer() as producer:
        producer.publish({"actor": near})
    if ray.get(near.where.remote()) != ray.get(consumer.where.remote()):
        assert ask(consumer, call) == ray.get(near.where.remote())


@pytest.mark.parametrize("bad", ["lock", "ref", "generator"])
@pytest.mark.parametrize("call", ["publish", "publish_many", "deliver"])
def test_not_serialisable(consumer, channel, bad, call):
    event = {"good": 1, "bad": [{"lock": threading.Lock(), "ref": ray.put(1), "generator": (i for i in [1])}[bad]]}
    with channel.producer() as producer:
        producer.publish("before")
        with pytest.raises(ec.NotSerialisable, match="Publish") as caught:
            getattr(producer, call)([event] if call == "publish_many" else event)
        assert caught.value.path == "event['bad'][0]"
        if bad == "ref":
            assert "ObjectRef" in str(caught.value)
        producer.publish("after")
    assert ray.get(consumer.received.remote(2)) == ["before", "after"]


def test_an_event_that_can_not_be_read_there(consumer, channel):
    def consume(party):
        kinds.FORBIDDEN = True
        party.kept["errors"] = Inbox()
        party.kept["inbox"] = Inbox()
        party.kept["careful"] = channel.subscribe(party.kept["inbox"], on_error=party.kept["errors"])

    def outcome(party):
        kinds.FORBIDDEN = False
        return party.kept["inbox"].wait(2), [str(error) for error in party.kept["errors"].wait(2)]

    ask(consumer, consume)
    with channel.producer() as producer:
        producer.publish("before")
        producer.publish(kinds.Unreadable())
        with pytest.raises(ec.DeliveryFailed):
            producer.deliver(kinds.Unreadable()).result(timeout=10)
        producer.publish("after")
        producer.drain(timeout=10)
    events, errors = ask(consumer, outcome)
    assert events == ["before", "after"]
    assert all("elsewhere" in error and "importable" in error for error in errors)


def test_fifty_megabytes_between_small_ones(consumer, channel):
    with channel.producer() as producer:
        for number in range(5):
            producer.publish(number)
            producer.publish(np.full(6_250_000, number, dtype="i8"))
            producer.publish(b"x" * 50_000_000)
        producer.publish("end")
        producer.drain(timeout=30)

    def summary(party):
        def short(event):
            return (len(event), int(event[0]), int(event[-1])) if isinstance(event, np.ndarray) else event

        return [len(e) if isinstance(e, bytes) else short(e) for e in party.kept["inbox"].wait(16)]

    expected = [each for n in range(5) for each in (n, (6_250_000, n, n), 50_000_000)]
    assert ask(consumer, summary) == [*expected, "end"]


def test_more_than_a_gigabyte(near, channel):
    size = (1_200 if psutil.virtual_memory().available > 8 << 30 else 300) << 20

    def handle(event):
        assert event[:4] == b"head"
        assert event[-4:] == b"tail"
        assert len(event) == size

    def subscribe(party):
        party.kept["subscription"] = channel.subscribe(handle)

    ask(near, subscribe)
    event = b"".join((b"head", bytes(size - 8), b"tail"))
    with channel.producer() as producer:
        assert producer.deliver(event).result(timeout=60).consumers == 1


def test_structs_inside_containers_stay_themselves(consumer, channel):
    def check(party):
        (event,) = party.kept["inbox"].wait(1)
        return type(event[0]).__name__, isinstance(event[0], msgspec.Struct), event[1] is event[2]

    shared = [1]
    with channel.producer() as producer:
        producer.publish([kinds.Record("a", 1), shared, shared])
    assert ask(consumer, check) == ("Record", True, True)
