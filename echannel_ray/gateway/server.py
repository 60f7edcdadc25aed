"""A gateway's server. Nothing is pickled here, in either direction."""

from __future__ import annotations

import atexit
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from echannel_ray.gateway import commands, failures
from echannel_ray.gateway.counting import Counts
from echannel_ray.gateway.endpoint import Endpoint
from echannel_ray.gateway.flight import flight
from echannel_ray.gateway.hosting import Host
from echannel_ray.gateway.identity import Identity
from echannel_ray.gateway.listening import listen
from echannel_ray.gateway.rights import Rights, has_token
from echannel_ray.gateway.service import Service

_logger = logging.getLogger(__name__)
_ANY_HOST: Final = ("0.0.0.0", "::", "")


class Gateway:
    """One per node that was asked for one: the port of its concentrator for clients that are not in Ray.

    Calls run on threads of Flight's own. One that waits in the host holds up its client, and that is the back-pressure.
    """

    def __init__(
        self,
        host: Host,
        namespace: str,
        host_name: str = "127.0.0.1",
        port: int = 0,
        publish: Sequence[str] = ("*",),
        subscribe: Sequence[str] = ("*",),
        derive: Sequence[str] = (),
        identity: Identity | None = None,
        files: Sequence[str] = ("*",),
    ) -> None:
        """`identity` is that of a predecessor, whose clients find this one by the same string."""
        self._host_name = host_name
        self._reached_as = socket.gethostname() if host_name in _ANY_HOST else host_name
        self._namespace = namespace
        self._identity = identity or Identity.generate([self._reached_as], port)
        self._counts = Counts()
        self._rights = Rights(tuple(publish), tuple(subscribe), tuple(derive), tuple(files))
        self._service = Service(host, self._counts)
        self._closing = threading.Event()
        self._stopping: threading.Thread | None = None

    @property
    def identity(self) -> Identity:
        """What a successor needs; after `start`, with the port."""
        return self._identity

    def start(self) -> Endpoint:
        """Listen; the endpoint is a secret."""
        identity = self._identity
        server = listen(self, self._host_name)
        self._identity = Identity(identity.token, identity.key_pem, identity.certificate_pem, server.port)
        # Made in advance: at the exit of the interpreter, where `close` may be called, no threads are made any more. It
        # also keeps the server alive for calls that are left.
        self._stopping = threading.Thread(target=self._stop, args=(server,), name="gateway-close", daemon=True)
        self._stopping.start()
        atexit.register(self.close)
        return Endpoint(self._reached_as, server.port, self._namespace, identity.token, identity.certificate_der)

    def close(self, grace_seconds: float = 5.0) -> None:
        """Stop listening; calls end at their next batch. One that waits in the host is waited for no longer than this,
        and ends with whatever it waits for.
        """
        self._closing.set()
        atexit.unregister(self.close)
        if self._stopping is not None:
            self._stopping.join(grace_seconds)

    def _stop(self, server: Any) -> None:
        self._closing.wait()
        server.shutdown()  # which waits for all calls, however long

    def stats(self) -> dict[str, int]:
        """Rows, batches and bytes that came in and went out, and how many clients there are now."""
        return self._counts.stats()

    # ---- what the Flight server calls ----

    @contextmanager
    def call(self, context: Any) -> Iterator[None]:
        """Around each call: it is counted, and its errors travel."""
        with self._counts.call(context.peer()):
            try:
                self._check_open()
                yield
            except Exception as error:
                raise _as_flight(error) from None

    def command(self, data: Any) -> commands.Command:
        """The command of a call, if its sender may do that."""
        command = commands.decode(bytes(data or b""))
        self._rights.check(command)
        return command

    def put(self, data: Any, reader: Any, acknowledge: Callable[[int], None]) -> None:
        """A stream of batches comes."""
        command = self.command(data)
        if not isinstance(command, commands.Publish | commands.Stage):
            raise ValueError(f"a {type(command).__name__} takes no batches")
        for number in self._service.take(command, self._batches(reader)):
            acknowledge(number)

    def _batches(self, reader: Any) -> Iterator[Any]:
        while True:
            try:
                batch = reader.read_chunk().data
            except StopIteration:
                return
            self._check_open()
            if batch is None:
                raise ValueError("a message without a batch came: send nothing else in such a stream")
            yield batch

    def get(self, data: Any, context: Any) -> Any:
        """A stream of batches is wanted."""
        import pyarrow as pa

        command = self.command(data)
        if not isinstance(command, commands.Read):
            raise ValueError(f"a {type(command).__name__} gives no batches")

        def batches() -> Iterator[Any]:
            with self.call(context):
                for batch, behind in self._service.read(command):
                    self._check_open()
                    yield batch if behind is None else (batch, pa.py_buffer(b"%d" % behind))

        return flight().GeneratorStream(self._service.schema(command.channel), batches())

    def act(self, kind: str, data: Any) -> bytes:
        """A question; its answer as JSON."""
        if kind != commands.ACTION:
            raise ValueError(f"there is no action {kind!r}: the one that there is, is {commands.ACTION!r}")
        return commands.encode(self._service.answer(self.command(data)))

    def is_allowed(self, headers: Any) -> bool:
        """Whether a request has the token."""
        return has_token(headers.get("authorization", ()), self._identity.token)

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise flight().FlightUnavailableError("the gateway is closing")


def _as_flight(error: Exception) -> Exception:
    """An error as Flight carries it, with ours inside."""
    if isinstance(error, flight().FlightError):
        return error  # type: ignore[no-any-return]
    if not isinstance(error, failures.EXPECTED):
        _logger.error("a call at the gateway failed", exc_info=error)
    carrier: Exception = flight().FlightServerError(type(error).__name__, extra_info=failures.encode(error))
    return carrier
