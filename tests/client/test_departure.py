"""How a process leaves its namespace, and a node that is to be removed."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from echannel_ray import errors
from echannel_ray.client.consumption import consume
from echannel_ray.client.departure import leave, leave_node
from echannel_ray.client.production import produce
from echannel_ray.consumers.function_driver import FunctionDriver
from echannel_ray.consumers.inbox import Inbox
from echannel_ray.core.messages import Subscribe, UnregisterProducer, Unsubscribe


@pytest.fixture
def publisher(endpoint, script):
    return produce(endpoint, script.definition, None)


@pytest.fixture
def told() -> list[Any]:
    return []


@pytest.fixture
def inbox(endpoint, script, told):
    made = Inbox(endpoint, endpoint.new_subscription(), "c", None, "", partial(FunctionDriver, told.append))
    made.on_error = told.append
    consume(endpoint, script.definition, made, None)
    return made


def test_it_leaves_all_books(endpoint, script, publisher, inbox):
    leave(endpoint, None)
    assert script.kinds[-2:] == [Unsubscribe, UnregisterProducer]
    assert inbox.closed
    assert publisher.stream.closed


def test_what_can_not_be_said_in_time_holds_nothing_up(endpoint, script, publisher, inbox):
    script.held |= {Unsubscribe, UnregisterProducer}
    leave(endpoint, 0.0)
    assert inbox.closed
    assert publisher.stream.closed
    script.of(UnregisterProducer)


def test_producers_of_a_node_that_is_removed_refuse(endpoint, script, publisher, inbox, told):
    assert leave_node(endpoint, 20.0)
    assert script.kinds[-2:] == [Unsubscribe, UnregisterProducer]
    with pytest.raises(errors.Disconnected, match="being drained"):
        publisher.publish(b"late")
    (error,) = told
    assert isinstance(error, errors.Disconnected)
    assert isinstance(endpoint.broken, errors.Disconnected)
    assert script.of(Subscribe)[0].subscription == inbox.number
