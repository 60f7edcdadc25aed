"""What a program sees of the public classes: these names and no others, typed in full."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pydantic
import pytest

import echannel_ray as ec

NAMES = {
    ec.EventChannel: {
        "asubscribe", "delete", "derive", "event_type", "name", "namespace", "producer", "schema", "stats", "subscribe",
    },
    ec.Producer: {
        "aclose", "adrain", "apublish", "close", "deliver", "drain", "loan", "name", "publish", "publish_many",
    },
    ec.Delivery: {"done", "result"},
    ec.Subscription: {"aclose", "areset", "close", "drain", "get", "messages", "reset", "stats"},
    ec.Session: {"close", "gateway", "grant", "namespace", "revoke", "status"},
    ec.SharedObject: {"apublish", "apull", "policy", "publish", "pull", "snapshot", "version"},
    ec.Ecode: {"output", "source"},
}  # fmt: skip
# Events are of any type, and so are modulators, demodulators and what describes a type.
ANY = {"event", "events", "modulator", "demodulator", "dtype", "event_type", "params", "services"}


class Window(ec.SharedObject):
    low: float = 0.0


def public(of: object) -> set[str]:
    """The names without an underscore."""
    return {name for name in dir(of) if not name.startswith("_")}


def methods(cls: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Those of a public class that a program may call."""
    for name in sorted(NAMES[cls]):
        found = inspect.getattr_static(cls, name, None)
        if isinstance(found, property):
            assert found.fget is not None
            yield name, found.fget
        elif found is not None and not inspect.isdatadescriptor(found):
            yield name, found


@pytest.fixture
def instances(channel: ec.EventChannel) -> Iterator[dict[type, Any]]:
    """One of each class, at work."""
    with channel.subscribe() as subscription, channel.producer() as producer:
        delivery = producer.deliver("an event")
        assert subscription.get(timeout=20) == "an event"
        yield {
            ec.EventChannel: channel,
            ec.Producer: producer,
            ec.Delivery: delivery,
            ec.Subscription: subscription,
            ec.Session: ec.connect(),
            ec.SharedObject: Window(),
            ec.Ecode: ec.ecode("input.price > 1"),
        }


def test_what_is_seen_is_the_api(instances):
    for cls, names in NAMES.items():
        seen = public(instances[cls])
        if cls is ec.SharedObject:
            seen -= public(pydantic.BaseModel) | {"low"}
        assert seen == names, cls


def test_retained_and_derived_ones_show_nothing_else(name):
    channel = ec.channel(name, retain=ec.Retention())
    derived = channel.derive(ec.FIFOModulator())
    for each in (channel, derived):
        assert public(each) == NAMES[ec.EventChannel]
        with each.subscribe(print) as subscription, each.producer() as producer:
            assert public(subscription) == NAMES[ec.Subscription]
            assert public(producer) == NAMES[ec.Producer]
            assert public(producer.deliver("an event")) == NAMES[ec.Delivery]


@pytest.mark.parametrize("cls", [*NAMES], ids=lambda cls: cls.__name__)
def test_every_method_is_documented_and_annotated_in_full(cls):
    known = {
        **{each: getattr(ec, each) for each in ec.__all__},
        "GatewayEndpoint": ec.Endpoint,
        "S": ec.SharedObject,
    }
    for name, method in methods(cls):
        assert inspect.getdoc(method), name
        hints = typing.get_type_hints(method, localns=known)
        parameters = [*inspect.signature(method).parameters.values()][1:]
        assert "return" in hints, name
        for each in parameters:
            assert each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL), f"{name}({each})"
            assert each.name in hints, f"{name}({each.name}) has no annotation"
            assert hints[each.name] is not Any or each.name in ANY, f"{name}({each.name}) is of any type"


@pytest.mark.parametrize("cls", [*NAMES], ids=lambda cls: cls.__name__)
def test_a_coroutine_takes_what_the_plain_call_takes(cls):
    plain = dict(methods(cls))
    for name, method in plain.items():
        if inspect.iscoroutinefunction(method):
            assert inspect.signature(method) == inspect.signature(plain[name.removeprefix("a")]), name


def test_publish_of_a_producer_costs_no_call_of_its_own(channel):
    with channel.subscribe() as subscription, channel.producer() as producer:
        assert producer.publish == producer._publisher.publish
        assert producer.publish("one")
        assert ec.Producer.publish(producer, "another")
        assert [subscription.get(timeout=20) for _ in range(2)] == ["one", "another"]
