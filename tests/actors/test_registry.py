"""What a concentrator can tell a manager that was restarted."""

from __future__ import annotations

from dataclasses import replace

from echannel_ray.actors.registry import Registry
from echannel_ray.core.messages import (
    Consumer,
    Definition,
    Derive,
    Derived,
    Membership,
    OpenChannel,
    RegisterProducer,
    Registrations,
    Release,
    Shipment,
    Subscribe,
    Unsubscribe,
)

ENDPOINT = 20
DEFINITION = Definition("c", None, {}, 1)
PARENT = Derived("k1", "", Shipment("One", "isolated", b"one"), ENDPOINT)
CHILD = Derived("k2", "k1", Shipment("Two", "isolated", b"two"), ENDPOINT)


def opened() -> Registry:
    registry = Registry(1)
    registry.attached(ENDPOINT)
    registry.answered(ENDPOINT, OpenChannel("c", None, {}), DEFINITION)
    return registry


def held(registry: Registry) -> Registrations:
    (registrations,) = registry.of_slot(0, 1)
    return registrations


def membership(consumer: Consumer) -> Membership:
    without_code = replace(CHILD, shipment=replace(CHILD.shipment, code=b""))
    return Membership("c", 1, 1, (consumer,), derived=(PARENT, without_code))


def test_what_is_derived_is_held_with_its_code_and_parents() -> None:
    registry = opened()
    registry.answered(ENDPOINT, Derive("c", 5, "", PARENT.shipment), PARENT)
    answer = membership(Consumer(1, ENDPOINT, 7, None, "k2", 3))
    registry.answered(
        ENDPOINT, Subscribe("c", 7, None, "p", parent="k1", shipment=CHILD.shipment, handler_version=3), answer
    )
    registry.answered(ENDPOINT, RegisterProducer("c", 1, derived="k1"), answer)
    assert held(registry) == Registrations(
        1, ENDPOINT, "c", DEFINITION, ((1, "k1"),), ((7, None, "p", "k2", 3),), (PARENT, CHILD), ((5, "k1"),)
    )
    registry.answered(ENDPOINT, Release("c", 5), None)
    assert held(registry).derived == (PARENT, CHILD)
    registry.answered(ENDPOINT, Unsubscribe("c", 7, {}), None)
    assert held(registry).derived == (PARENT,)


def test_a_handle_alone_is_reported() -> None:
    registry = opened()
    registry.answered(ENDPOINT, Derive("c", 5, "", PARENT.shipment), PARENT)
    assert held(registry).handles == ((5, "k1"),)
    registry.answered(ENDPOINT, Release("c", 5), None)
    assert registry.of_slot(0, 1) == []
    assert not registry._derived


def test_a_reset_replaces_what_is_held() -> None:
    registry = opened()
    registry.answered(ENDPOINT, Derive("c", 5, "", PARENT.shipment), PARENT)
    answer = membership(Consumer(1, ENDPOINT, 7, None, "k2", 0))
    registry.answered(ENDPOINT, Subscribe("c", 7, None, "p", parent="k1", shipment=CHILD.shipment), answer)
    registry.answered(ENDPOINT, Release("c", 5), None)
    registry.answered(
        ENDPOINT, Subscribe("c", 7, None, "", handler_version=1), membership(Consumer(1, ENDPOINT, 7, None, "", 1))
    )
    assert held(registry).consumers == ((7, None, "", "", 1),)
    assert not registry._derived


def test_what_the_dead_used_is_forgotten() -> None:
    registry = opened()
    registry.answered(ENDPOINT, Derive("c", 5, "", PARENT.shipment), PARENT)
    registry.gone(ENDPOINT)
    assert not registry._derived


def test_what_an_endpoint_reports_is_learned() -> None:
    registry = Registry(1)
    reported = Registrations(1, ENDPOINT, "c", DEFINITION, (), ((7, None, "p", "k2", 1),), (PARENT, CHILD))
    registry.reported(ENDPOINT, (reported,))
    registry.answered(ENDPOINT, RegisterProducer("c", 1), Membership("c", 1, 1, ()))
    assert held(registry).derived == (PARENT, CHILD)
