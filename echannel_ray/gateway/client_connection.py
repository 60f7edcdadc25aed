"""A client's connection to its gateway, and what its failures mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from typing_extensions import override

from echannel_ray import errors
from echannel_ray.gateway import failures
from echannel_ray.gateway.address import Endpoint
from echannel_ray.gateway.flight import flight
from echannel_ray.gateway.fork_safety import ForkSafeClient

_OPTIONS: Final = [
    # A gateway that is restarted is back within seconds.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Other connections of this process, to a gateway that was there before, have no say in that.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
]


class FlightCaller(NamedTuple):
    """What a call needs: Flight's client, and the options that carry the token."""

    client: Any
    options: Any


class ClientConnection(ForkSafeClient):
    """The connection of one client to its gateway; any thread may use it."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__()
        self.endpoint = endpoint

    @contextmanager
    def call(self) -> Iterator[FlightCaller]:
        """Make a call within: its errors become ours."""
        with self.in_use() as caller:
            try:
                yield caller
            except flight().FlightError as error:
                raise self._as_ours(error) from None

    @override
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
