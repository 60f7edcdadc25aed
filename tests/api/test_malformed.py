"""Malformed calls: each gets the error of the API, at the call, and nothing else is disturbed."""

from __future__ import annotations

import math
import pickle
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import ray

import echannel_ray as ec
from echannel_ray.endpoint.deadlines import deadline_of
from tests.api.parties import ask, publish_all

BAD_NAMES = [
    "",
    "/",
    "a/",
    "/a",
    "a//b",
    "new\nline",
    "nul\0",
    "x" * 256,
    "\ud800",
    None,
    3,
    b"bytes",
    ["list"],
    object(),
]


@pytest.fixture
def witness(near, channel):
    """A producer and a consumer that must notice nothing."""
    ray.get(near.consume.remote(channel))
    with channel.producer() as producer:
        producer.publish("before")
        yield producer
        assert producer.publish("after")
        assert producer.deliver("last").result(timeout=10).consumers == 1
        assert ray.get(near.received.remote(3)) == ["before", "after", "last"]


@pytest.mark.parametrize("bad", BAD_NAMES, ids=range(len(BAD_NAMES)))
def test_names_of_channels(witness, bad):
    with pytest.raises(ec.InvalidName, match="channel") as caught:
        ec.channel(bad)
    assert isinstance(pickle.loads(pickle.dumps(caught.value)).name, str)


@pytest.mark.parametrize("bad", [name for name in BAD_NAMES if name is not None], ids=range(len(BAD_NAMES) - 1))
def test_names_of_groups(witness, channel, bad):
    with pytest.raises(ec.InvalidName, match="group"):
        channel.subscribe(group=bad)


@pytest.mark.parametrize("namespace", ["", "a/b", "a b", "ü", "x" * 256, 3, b"x"], ids=range(7))
def test_names_of_namespaces(witness, namespace):
    for call in (
        lambda: ec.connect(namespace),
        lambda: ec.channel("x", namespace=namespace),
        lambda: ec.shutdown(namespace),
        lambda: ec.status(namespace),
    ):
        with pytest.raises(ec.InvalidName, match="namespace"):
            call()


@pytest.mark.parametrize("good", ["a", "a/b", "ünï", "with space", "a" * 255, "a.b-c:d*"], ids=range(6))
def test_good_names(nodes, good):
    channel = ec.channel(good)
    assert channel.name == good
    channel.delete()


@pytest.mark.parametrize("event_type", [int, "Trade", 3, [("a", int)], object()], ids=range(5))
def test_event_types(witness, name, channel, event_type):
    with pytest.raises(TypeError, match="event type"):
        ec.channel(name + "typed", event_type)
    with pytest.raises(TypeError, match="event type"):
        channel.subscribe(event_type=event_type)
    assert name + "typed" not in ec.status().channels


@pytest.mark.parametrize("overflow", ["", "drop", "BLOCK", None, 3, ["block"]], ids=str)
def test_overflow(witness, channel, overflow):
    with pytest.raises(ValueError, match="overflow is one of block, raise, drop_newest, drop_oldest"):
        channel.producer(overflow=overflow)
    assert channel.stats().producers == 1


@pytest.mark.parametrize("timeout", ["1", [1], object()], ids=range(3))
def test_timeouts(witness, name, timeout):
    channel = ec.channel(f"{name}-timeouts")
    with channel.subscribe() as subscription, channel.producer() as other:
        delivery = other.deliver("not counted")
        subscription.get(timeout=5)
        other.publish("waits")
        for call in (
            lambda: subscription.get(timeout=timeout),
            lambda: subscription.drain(timeout=timeout),
            lambda: other.drain(timeout=timeout),
            lambda: other.publish(1, timeout=timeout),
            lambda: delivery.result(timeout=timeout),
            lambda: channel.subscribe(timeout=timeout),
        ):
            with pytest.raises(TypeError, match="seconds"):
                call()
        subscription.get(timeout=5)
    assert channel.stats().consumers == 0


@pytest.mark.parametrize("handler", [3, "print", [print]], ids=str)
def test_handlers(witness, channel, handler):
    with pytest.raises(TypeError, match="handler"):
        channel.subscribe(handler)
    with pytest.raises(TypeError, match="on_error"):
        channel.subscribe(print, on_error=handler)


def test_publish_many(witness, channel):
    with channel.producer() as other, pytest.raises(TypeError):
        other.publish_many(3)


def test_managers(witness):
    bad: list[Any] = [0, 65, "2", 1.5, None]
    for managers in bad:
        with pytest.raises(ValueError, match="managers"):
            ec.connect(managers=managers)


@pytest.mark.parametrize("degree", [0, -1, 1 << 20, "adaptiv", 1.5, True])
def test_packing(degree):
    with pytest.raises(ValueError, match="degree"):
        ec.Packing(degree=degree)


@pytest.mark.parametrize("seconds", [0, -1, 61, math.nan, "x", None])
def test_packing_interval(seconds):
    with pytest.raises(ValueError, match=f"interval .* not {seconds!r}"):
        ec.Packing(interval_seconds=seconds)


@pytest.mark.parametrize("seconds", [0, -1, 3601, math.nan, "x", None, True])
def test_measuring_interval_of_packing(seconds):
    with pytest.raises(ValueError, match=f"measuring interval .* not {seconds!r}"):
        ec.Packing(degree="hill-climb", measuring_seconds=seconds)


@pytest.mark.parametrize("seconds", [5, True, np.float32(5), np.int64(5), Fraction(5)], ids=repr)
def test_a_timeout_is_any_number_of_seconds(seconds):
    began = time.monotonic()
    deadline = deadline_of(seconds)
    assert type(deadline) is float
    assert began + float(seconds) <= deadline <= time.monotonic() + float(seconds)


def test_a_timeout_that_is_no_number():
    assert deadline_of(None) is None
    assert deadline_of(math.inf) is None
    assert deadline_of(1e12) is None  # longer than locks and selectors can wait
    with pytest.raises(TypeError, match="'x'"):
        deadline_of("x")
    with pytest.raises(ValueError, match="nan"):
        deadline_of(math.nan)


def test_unknown_keywords(witness, channel):
    for call in (
        lambda: ec.connect(wrong=1),  # type: ignore[call-arg]
        lambda: ec.channel("x", wrong=1),  # type: ignore[call-arg]
        lambda: channel.subscribe(wrong=1),
        lambda: channel.producer(wrong=1),
    ):
        with pytest.raises(TypeError, match="wrong"):
            call()


def test_errors_survive_ray(near, channel):
    def fail(party):
        raise ec.Overloaded("too much", channel="c", consumer="x")

    with pytest.raises(ec.Overloaded) as caught:
        ask(near, fail)
    assert isinstance(caught.value, ec.EChannelError)
    assert (caught.value.channel, caught.value.consumer) == ("c", "x")


@pytest.mark.parametrize(
    "error",
    [
        "TypeMismatch",
        "NotSerialisable",
        "Overloaded",
        "DeliveryFailed",
        "ServiceNotGranted",
        "ModulatorRefused",
        "ModulatorQuarantined",
        "MasterLost",
        "StaleVersion",
        "ChannelDeleted",
        "Closed",
        "InvalidName",
        "Disconnected",
        "VersionMismatch",
        "NotAuthorised",
    ],
)
def test_every_error_survives_pickling(error):
    cls = getattr(ec, error)
    assert issubclass(cls, ec.EChannelError)
    again = pickle.loads(pickle.dumps(cls("do this", channel="c", failures=(ec.Failure("x", "y"),))))
    assert type(again) is cls
    assert (str(again), again.channel, again.failures) == ("do this", "c", (ec.Failure("x", "y"),))


def test_a_consumer_that_is_told_to_close_twice(near, channel):
    ray.get(near.consume.remote(channel))
    ask(near, lambda party: [party.kept["subscription"].close() for _ in range(3)])
    assert publish_all(None, channel, [1])
