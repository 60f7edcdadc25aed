"""A client's connection to its gateway, what its failures mean, and how it gets across forks.

gRPC, which carries Flight, does not survive a fork: the child has its state without its threads, and hangs. It does
where nothing of it is in use at that moment. So before a fork all connections of this process are put down; the next
call on either side makes another. A child that was forked in the middle of a call can't call gateways, and is told so.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from echannel_ray import errors
from echannel_ray.gateway import failures
from echannel_ray.gateway.address import Endpoint
from echannel_ray.gateway.flight import flight

_OPTIONS: Final = [
    # A gateway that is restarted is back within seconds.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Other connections of this process, to a gateway that was there before, have no say in that.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
]
# gRPC ends its threads some milliseconds after its last client, and does not say when.
_GRPC_THREADS: Final = ("event_engine", "grpc_", "lifeguard", "timer_manager")
_MAX_WAIT_SECONDS: Final = 0.5

_lock = threading.Lock()
_connections: weakref.WeakSet[ClientConnection] = weakref.WeakSet()
_is_grpc_used = False  # since the last fork
_is_spoiled = False


class FlightCaller(NamedTuple):
    """What a call needs: Flight's client, and the options that carry the token."""

    client: Any
    options: Any


class ClientConnection:
    """The connection of one client to its gateway, made when it is needed; any thread may use it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._caller: FlightCaller | None = None
        self._calls = 0  # in progress
        self._is_closed = False
        with _lock:
            _connections.add(self)

    @contextmanager
    def call(self) -> Iterator[FlightCaller]:
        """Make a call within: its errors become ours. `Closed` where there can be none."""
        caller = self._begin()
        try:
            yield caller
        except flight().FlightError as error:
            raise self._as_ours(error) from None
        finally:
            del caller
            with _lock:
                self._calls -= 1

    def _begin(self) -> FlightCaller:
        global _is_grpc_used
        with _lock:
            if self._is_closed:
                raise errors.Closed("this client was closed: make another", what="gateway client")
            if _is_spoiled:
                raise errors.Closed(
                    "this process was forked from one that was calling a gateway at that moment, and can't call one "
                    'itself: start it with the method "spawn", or fork between the calls',
                    what="gateway client",
                )
            if self._caller is None:
                _is_grpc_used = True
                self._caller = self._make()
            self._calls += 1
            return self._caller

    def close(self) -> None:
        """End the connection: calls in progress go on, and there will be no others."""
        with _lock:
            self._is_closed = True
            self._caller = None

    def _make(self) -> FlightCaller:
        endpoint = self.endpoint
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        client = flight().FlightClient(
            f"grpc+tls://{host}:{endpoint.port}",
            tls_root_certs=endpoint.certificate_pem,
            # Each gateway's certificate has this name. No other certificate is trusted, so that a gateway may be
            # reached by an address that it does not know, such as a tunnel's.
            override_hostname="localhost",
            generic_options=_OPTIONS,
        )
        token = endpoint.token.encode()
        return FlightCaller(client, flight().FlightCallOptions(headers=[(b"authorization", b"Bearer " + token)]))

    def _as_ours(self, error: Exception) -> Exception:
        where = f"{self.endpoint.host}:{self.endpoint.port}"
        if getattr(error, "extra_info", b""):
            return failures.decode(error.extra_info)  # type: ignore[attr-defined]
        if isinstance(error, flight().FlightUnauthenticatedError):
            return errors.NotAuthorised(
                f"the gateway at {where} does not know this token: ask its session for the endpoint again",
                gateway=where,
            )
        if "certificate verify failed" in str(error).lower().replace("_", " "):
            return errors.NotAuthorised(
                f"who answers at {where} has another key than the gateway of this endpoint: ask its session for the "
                "endpoint again",
                gateway=where,
            )
        return errors.Disconnected(
            f"the gateway at {where} can't be reached, or went away in the middle of a call: see that its cluster runs "
            f"and has a gateway with this endpoint, then call again ({error!s:.300})",
            gateway=where,
        )


def _before_fork() -> None:
    """Put all connections down."""
    global _is_grpc_used
    _lock.acquire()
    for connection in _connections:
        if not connection._calls:
            connection._caller = None
    if _is_grpc_used and not any(connection._calls for connection in _connections):
        _wait_for_grpc()
        _is_grpc_used = False


def _in_child() -> None:
    """Let calls go on in the child of a fork, if that is possible."""
    global _is_spoiled
    _is_spoiled = _is_spoiled or any(connection._calls for connection in _connections)
    _lock.release()


def _wait_for_grpc() -> None:
    deadline = time.monotonic() + _MAX_WAIT_SECONDS
    while time.monotonic() < deadline and any(name.startswith(_GRPC_THREADS) for name in _thread_names()):
        time.sleep(0.001)


def _thread_names() -> Iterator[str]:
    for path in Path("/proc/self/task").iterdir():
        try:
            yield (path / "comm").read_text()
        except OSError:  # it has ended
            pass


os.register_at_fork(before=_before_fork, after_in_parent=_lock.release, after_in_child=_in_child)
