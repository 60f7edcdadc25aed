"""What a gateway says of a channel's logs while it has not been told yet of the newest."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from echannel_ray.core.messages import Definition, GetMembership, LogAddress, Membership
from echannel_ray.gateway.backend import LEASE_SECONDS, GatewayBackend
from echannel_ray.retained import log_calls

HERE, THERE = LogAddress(1, 11, "here"), LogAddress(2, 22, "there")


def membership(version: int, *logs: LogAddress) -> Membership:
    return Membership("orders", 1, version, (), False, 1, logs=logs)


class Endpoint:
    """It has been told of one log; the manager knows of two, and each log host answers."""

    namespace, node = "default", 1

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.memberships = {"orders": membership(1, HERE)}
        self.definitions: dict[str, Definition] = {}
        self.requests = SimpleNamespace(ask=self._ask)
        self.calls = SimpleNamespace(call=self._call)
        self.held: list[str] = []

    def _ask(self, request: Any, timeout: float | None = None) -> Any:
        if isinstance(request, GetMembership):
            return membership(2, HERE, THERE)
        return Definition("orders", None, {"retain": {}}, 1)

    def _call(self, node: int, endpoint: int, question: Any, seconds: float) -> Any:
        if isinstance(question, log_calls.Hold):
            self.held.append(question.log)
            return SimpleNamespace(start=node)
        return SimpleNamespace(first=0, next=100 * node)


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.fixture
def backend(endpoint: Any) -> GatewayBackend:
    unused: Any = None
    return GatewayBackend(endpoint, lambda name: unused, unused)


def test_offsets_are_those_of_a_log_too_that_was_begun_just_now(backend: GatewayBackend):
    assert backend.offsets("orders") == {"here": (0, 100), "there": (0, 200)}


def test_a_group_begins_in_a_log_too_that_was_begun_just_now(backend: GatewayBackend):
    assert backend.group("orders", "query", "earliest", LEASE_SECONDS) == {"here": 1, "there": 2}


def test_what_a_group_acknowledges_in_such_a_log_is_not_passed_over(backend: GatewayBackend, endpoint: Endpoint):
    backend.acknowledge("orders", "query", {"there": 7}, LEASE_SECONDS)
    assert endpoint.held == ["there"]
