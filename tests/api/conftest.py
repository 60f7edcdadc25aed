"""The cluster of two nodes for all tests of the public API, and a few actors that they share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray

import echannel_ray as ec
from tests.api.parties import AsyncPartyActor, Party, PartyActor, ThreadedPartyActor, ask
from tests.api.quotes import Consume, handled
from tests.clusters import LastingCluster, LocalCluster, on

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def nodes(lasting: LastingCluster) -> Iterator[LocalCluster]:
    """The shared cluster; this process is its driver, in namespace "default"."""
    with lasting.joined() as running:
        yield running


@pytest.fixture(scope="package")
def shared_parties(nodes: LocalCluster) -> dict[str, Any]:
    """Actors by name: making one for each test would take longer than the tests."""
    first, second = nodes.nodes
    return {
        "near": PartyActor.options(**on(first)).remote(),
        "far": PartyActor.options(**on(second)).remote(),
        "threaded": ThreadedPartyActor.options(**on(first)).remote(),
        "asynchronous": AsyncPartyActor.options(**on(first)).remote(),
    }


@pytest.fixture
def parties(shared_parties: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The shared actors, without what the test before left open."""
    yield shared_parties
    ray.get([party.leave.remote() for party in shared_parties.values()], timeout=60)


@pytest.fixture
def near(parties: dict[str, Any]) -> Any:
    """An actor on the driver's node."""
    return parties["near"]


@pytest.fixture
def far(parties: dict[str, Any]) -> Any:
    """An actor on the other node."""
    return parties["far"]


@pytest.fixture
def new_party(nodes: LocalCluster) -> Iterator[Callable[..., Any]]:
    """Makes actors for tests that end them."""
    made = []

    def make(actor_class: Any = PartyActor, node: int = 0) -> Any:
        made.append(actor_class.options(**on(nodes.nodes[node])).remote())
        return made[-1]

    yield make
    for actor in made:
        ray.kill(actor)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A channel's name that no other test uses."""
    return f"{request.node.name}-{next(_numbers)}"


@pytest.fixture
def channel(nodes: LocalCluster, name: str) -> ec.EventChannel:
    """An untyped channel of its own for each test."""
    return ec.channel(name)


@pytest.fixture
def here() -> Any:
    party = Party()
    yield party
    party.leave()


@pytest.fixture(params=["in another process", "in the producer's process"])
def consume(request: pytest.FixtureRequest, near: Any) -> Iterator[Consume]:
    """Subscribes there; what it returns waits for so many events, or tells which have come."""
    here = Party()

    def subscribe(channel: ec.EventChannel, **options: Any) -> Callable[..., list[Any]]:
        if request.param == "in another process":
            ray.get(near.consume.remote(channel, **options))
            return lambda count=0: ray.get(near.received.remote(count)) if count else ask(near, handled)
        here.consume(channel, **options)
        return lambda count=0: here.received(count) if count else handled(here)

    yield subscribe
    here.leave()
