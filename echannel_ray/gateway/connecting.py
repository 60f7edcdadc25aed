"""A client's connection to its gateway, and what its failures mean.

gRPC, which carries Flight, does not survive a fork: the child has its state without its threads, and hangs. It does
where nothing of it is in use at that moment. So before a fork all connections of this process are put down; the next
call on either side makes another. A child that was forked in the middle of a call can't use gateways, and is told so.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from echannel_ray import errors
from echannel_ray.gateway import failures
from echannel_ray.gateway.endpoint import Endpoint
from echannel_ray.gateway.flight import flight

_OPTIONS: Final = [
    # A gateway that is restarted is back within seconds.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Other connections of this process, to a gateway that was there before, have no say in that.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
]


class Line(NamedTuple):
    """What a call needs: Flight's client, and the options that carry the token."""

    client: Any
    options: Any


_lock = threading.Lock()
_connections: weakref.WeakSet[Connection] = weakref.WeakSet()
_is_spoiled = False


class Connection:
    """One per client; any thread may use it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._line: Line | None = None
        self.calls = 0  # in progress
        self._closed = False
        with _lock:
            _connections.add(self)

    @contextmanager
    def call(self) -> Iterator[Line]:
        """Around each call: its errors become ours."""
        with _lock:
            if self._closed:
                raise errors.Closed("this client was closed: make another", what="gateway client")
            if _is_spoiled:
                raise errors.Disconnected(
                    "this process was forked from one that was calling a gateway at that moment, and can't call one "
                    'itself: start it with the method "spawn", or fork between the calls'
                )
            line = self._line = self._line or self._connect()
            self.calls += 1
        try:
            yield line
        except flight().FlightError as error:
            raise self._as_ours(error) from None
        finally:
            with _lock:
                self.calls -= 1

    def close(self) -> None:
        """Calls in progress go on; there will be no others."""
        with _lock:
            self._closed = True
            self._line = None

    def put_down(self) -> None:
        """Be without a connection until the next call, if there is no call now."""
        if not self.calls:
            self._line = None

    def _connect(self) -> Line:
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
        return Line(client, flight().FlightCallOptions(headers=[(b"authorization", b"Bearer " + token)]))

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
    _lock.acquire()
    for connection in _connections:
        connection.put_down()


def _in_parent() -> None:
    _lock.release()


def _in_child() -> None:
    global _is_spoiled
    _is_spoiled = _is_spoiled or any(connection.calls for connection in _connections)
    for connection in _connections:
        connection.calls = 0
    _lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
