"""A gateway's port: Arrow Flight over TLS, with a token."""

from __future__ import annotations

import gc
import socket
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from echannel_ray import errors
from echannel_ray.gateway import failures
from echannel_ray.gateway.flight import flight
from echannel_ray.gateway.tokens import Token

if TYPE_CHECKING:
    from echannel_ray.gateway.server import Gateway


def listen(gateway: Gateway, host: str) -> Any:
    """A Flight server at the port of the gateway's identity, which calls the gateway until its `shutdown`."""
    _check_free(host, gateway.identity.port)
    address = f"[{host}]" if ":" in host else host or "0.0.0.0"
    server = _server_class()(gateway, f"grpc+tls://{address}:{gateway.identity.port}")
    _leave_at_exit(server)
    return server


def _check_free(host: str, port: int) -> None:
    """`OSError` where somebody listens there: Flight would share the port, and each would get half of the clients."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that are ending are no hindrance
        probe.bind((host, port))


def _leave_at_exit(server: Any) -> None:
    """Let the process end while calls wait: at its exit pyarrow would wait for them, as `shutdown` does."""
    for part in gc.get_referents(server):
        if isinstance(part, weakref.finalize):
            part.atexit = False


def _token(context: Any) -> Token:
    """The token that the client of a call has shown, as `Doorkeeper` found it."""
    return context.get_middleware("token").token  # type: ignore[no-any-return]


def _server_class() -> Callable[[Gateway, str], Any]:
    """The class that Flight calls. It is made here since pyarrow may be missing where this module is imported."""
    import pyarrow as pa

    fl = flight()

    class Visitor(fl.ServerMiddleware):  # type: ignore[misc, name-defined]
        def __init__(self, token: Token) -> None:
            self.token = token

    class Doorkeeper(fl.ServerMiddlewareFactory):  # type: ignore[misc, name-defined]
        def __init__(self, gateway: Gateway) -> None:
            self._gateway = gateway

        def start_call(self, info: Any, headers: Any) -> Visitor:
            try:
                return Visitor(self._gateway.admit(headers))
            except errors.NotAuthorised as error:
                raise fl.FlightUnauthenticatedError(str(error), extra_info=failures.encode(error)) from None

    class Server(fl.FlightServerBase):  # type: ignore[misc, name-defined]
        def __init__(self, gateway: Gateway, location: str) -> None:
            self._gateway = gateway
            identity = gateway.identity
            certificates = [(identity.certificate_pem, identity.key_pem)]
            super().__init__(location, tls_certificates=certificates, middleware={"token": Doorkeeper(gateway)})

        def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
            def acknowledge(number: int) -> None:
                try:
                    writer.write(pa.py_buffer(b"%d" % number))
                except OSError:
                    raise fl.FlightCancelledError("the client is gone") from None

            with self._gateway.call(context):
                self._gateway.put(_token(context), descriptor.command, reader, acknowledge)

        def do_get(self, context: Any, ticket: Any) -> Any:
            with self._gateway.call(context):
                return self._gateway.get(_token(context), ticket.ticket, context)

        def do_action(self, context: Any, action: Any) -> list[bytes]:
            with self._gateway.call(context):
                return [self._gateway.act(_token(context), action.type, action.body)]

    return Server
