"""Gateways in this process, and in one that may be killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from echannel_ray.gateway.client import GatewayClient
from echannel_ray.gateway.event_client import EventClient
from echannel_ray.gateway.rights import Rights
from echannel_ray.gateway.server import Gateway
from tests.gateway.local import LocalHost
from tests.gateway.processes import Server
from tests.gateway.rows import ON_DISK, SCHEMA


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    """With a channel "rows", retained on disk."""
    with closing(LocalHost(tmp_path / "data")) as made:
        made.channel("rows", SCHEMA, ON_DISK)
        yield made


def gateway_of(served, **rights) -> Gateway:
    """A gateway whose token gives these rights."""
    return Gateway(served, "default", rights=Rights(**{"publish": ("*",), "subscribe": ("*",), "derive": (), **rights}))


@pytest.fixture
def connect(host: LocalHost) -> Iterator[Callable[..., GatewayClient]]:
    """Call it with rights to have a gateway, and a client of it (its `gateway`)."""
    with ExitStack() as stack:

        def start(served=host, patience_seconds: float = 10, **rights) -> GatewayClient:
            gateway = stack.enter_context(closing(gateway_of(served, **rights)))
            client = stack.enter_context(GatewayClient(str(gateway.start()), patience_seconds))
            client.gateway = gateway
            return client

        yield start


@pytest.fixture
def client(connect: Callable[..., GatewayClient]) -> GatewayClient:
    return connect()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "server")
    (tmp_path / "server").mkdir()
    yield made
    made.end()


@pytest.fixture
def gateway(host: LocalHost) -> Iterator[Gateway]:
    """With a channel "notes" of events."""
    host.open("notes", {})
    with closing(gateway_of(host, derive=("*",))) as made:
        made.endpoint = made.start()
        yield made


@pytest.fixture
def events(gateway: Gateway) -> Iterator[EventClient]:
    """A client of its port for events."""
    with EventClient(gateway.endpoint, patience_seconds=0) as made:
        yield made
