"""A gateway's server. Nothing is pickled here, in either direction."""

from __future__ import annotations

import atexit
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from echannel_ray import errors
from echannel_ray.gateway import commands, failures
from echannel_ray.gateway.address import Endpoint
from echannel_ray.gateway.counts import Counts
from echannel_ray.gateway.event_server import EventServer
from echannel_ray.gateway.flight import flight
from echannel_ray.gateway.identity import Identity, new_token
from echannel_ray.gateway.listener import listen
from echannel_ray.gateway.rights import Rights
from echannel_ray.gateway.service import Service
from echannel_ray.gateway.tokens import Grant, Remembered, Token, Tokens, digest_of

if TYPE_CHECKING:
    from echannel_ray.gateway.backend import GatewayBackend

_logger = logging.getLogger(__name__)
_ANY_HOST: Final = ("0.0.0.0", "::", "")
_ALL_RIGHTS: Final = Rights(("*",), ("*",), ())
_NOTHING: Final = Remembered()
_LOOK_SECONDS: Final = 0.25


def _forget(remembered: Remembered) -> None:
    """Remember nothing: nobody comes after this gateway."""


class Gateway:
    """One per node that was asked for one: the ports of its concentrator for clients that are not in Ray, one for
    record batches (Arrow Flight) and one for events.

    Calls run on threads of Flight's own. One that waits in the backend holds up its client: that is the back-pressure.
    """

    def __init__(
        self,
        backend: GatewayBackend,
        namespace: str,
        host_name: str = "127.0.0.1",
        port: int = 0,
        *,
        rights: Rights = _ALL_RIGHTS,
        identity: Identity | None = None,
        remembered: Remembered = _NOTHING,
        remember: Callable[[Remembered], None] = _forget,
        events_port: int = 0,
    ) -> None:
        """`rights` are those of the gateway's own token. `identity` is that of a predecessor, whose clients find this
        one by the same string, and `remembered` what there was of other tokens; `remember` is told of them.
        """
        self._host_name = host_name
        self._reached_as = socket.gethostname() if host_name in _ANY_HOST else host_name
        self._namespace = namespace
        # What a successor needs; after `start`, with the ports.
        self.identity = identity or Identity.generate([self._reached_as], port, events_port)
        self._counts = Counts()
        self._tokens = Tokens(remembered, remember)
        self._tokens.add(Grant(digest_of(self.identity.token), rights), is_remembered=False)
        self._service = Service(backend, self._counts)
        self._events = EventServer(backend, namespace, self._tokens)
        self._closing = threading.Event()
        self._stopping: threading.Thread | None = None

    def start(self) -> Endpoint:
        """Listen; the endpoint is a secret."""
        server = listen(self, self._host_name)
        try:
            events_port = self._events.start(self._host_name, self.identity.events_port, self.identity)
        except OSError:
            server.shutdown()
            raise
        self.identity = self.identity.at(server.port, events_port)
        # Made in advance: at the exit of the interpreter, where `close` may be called, no threads are made any more. It
        # also keeps the server alive for calls that are left.
        self._stopping = threading.Thread(target=self._stop, args=(server,), name="gateway-close", daemon=True)
        self._stopping.start()
        atexit.register(self.close)
        return self._endpoint(self.identity.token)

    def _endpoint(self, token: str) -> Endpoint:
        identity = self.identity
        return Endpoint(
            self._reached_as, identity.port, self._namespace, token, identity.certificate_der, identity.events_port
        )  # fmt: skip

    def grant(self, rights: Rights, expires_after_seconds: float | None = None) -> Endpoint:
        """Another token, and what its clients need. Nobody can be told it again."""
        expires_at = None if expires_after_seconds is None else time.time() + expires_after_seconds
        token = new_token()
        self._tokens.add(Grant(digest_of(token), rights, expires_at))
        return self._endpoint(token)

    def revoke(self, digest: bytes) -> None:
        """End a token that was granted; `LookupError` where there is none."""
        if digest == digest_of(self.identity.token):
            raise ValueError(
                "this token is the gateway's own: `session.gateway()` with other rights puts another gateway in its "
                "place, with another token, and ends all that this one has granted"
            )
        self._tokens.revoke(digest)

    def close(self, grace_seconds: float = 5.0) -> None:
        """Stop listening; calls end at their next batch. One that waits in the backend is left behind after this."""
        self._closing.set()
        atexit.unregister(self.close)
        self._events.close()
        if self._stopping is not None:
            self._stopping.join(grace_seconds)

    def _stop(self, server: Any) -> None:
        self._closing.wait()
        server.shutdown()  # which waits for all calls, however long

    def stats(self) -> dict[str, int]:
        """What came in and went out, how many clients there are now, and who was refused, why."""
        events = {f"events_{name}": count for name, count in self._events.stats().items()}
        return {**self._counts.stats(), **self._tokens.stats(), **events}

    # ---- what the Flight server calls ----

    @contextmanager
    def call(self, context: Any) -> Iterator[None]:
        """Serve a call within: it is counted, and its errors travel."""
        with self._counts.call(context.peer()):
            try:
                self._check_open()
                yield
            except Exception as error:
                self._tokens.refused(error)
                raise _as_flight(error) from None

    @staticmethod
    def command(token: Token, data: Any) -> commands.Command:
        """The command of a call, checked to be one that its sender may give."""
        command = commands.decode(bytes(data or b""))
        token.rights.check(command.channel, *command.needs)
        if isinstance(command, commands.StageFiles):
            token.rights.check_files(command.paths)
        return command

    def put(self, token: Token, data: Any, reader: Any, acknowledge: Callable[[int], None]) -> None:
        """Take a stream of batches from a client."""
        command = self.command(token, data)
        if not isinstance(command, commands.Publish | commands.Stage):
            raise ValueError(f"a {type(command).__name__} takes no batches")
        for number in self._service.take(command, self._batches(token, reader)):
            acknowledge(number)

    def _batches(self, token: Token, reader: Any) -> Iterator[Any]:
        while True:
            try:
                batch = reader.read_chunk().data
            except StopIteration:
                return
            self._check_good(token)
            if batch is None:
                raise ValueError("a message without a batch came: send nothing else in such a stream")
            token.rights.check_size(batch.nbytes, "a batch")
            yield batch
            # Who goes beyond the rates of its token is not read for a while.
            free_at = time.monotonic() + token.rates.take(batch.num_rows, batch.nbytes, time.monotonic())
            while (left_seconds := free_at - time.monotonic()) > 0:
                self._closing.wait(min(left_seconds, _LOOK_SECONDS))
                self._check_good(token)

    def get(self, token: Token, data: Any, context: Any) -> Any:
        """Give a client a stream of batches."""
        import pyarrow as pa

        command = self.command(token, data)
        if not isinstance(command, commands.Read):
            raise ValueError(f"a {type(command).__name__} gives no batches")

        def batches() -> Iterator[Any]:
            with self.call(context):
                for batch, behind in self._service.read(command):
                    self._check_good(token)
                    yield batch if behind is None else (batch, pa.py_buffer(b"%d" % behind))

        return flight().GeneratorStream(self._service.schema(command.channel), batches())

    def act(self, token: Token, kind: str, data: Any) -> bytes:
        """Answer a question with JSON."""
        if kind != commands.ACTION:
            raise ValueError(f"there is no action {kind!r}: the one that there is, is {commands.ACTION!r}")
        return commands.encode(self._service.answer(self.command(token, data)))

    def admit(self, headers: Any) -> Token:
        """The token of a request; `NotAuthorised` where it has none that is good."""
        shown = headers.get("authorization", ())
        scheme, _, token = (shown[0] if len(shown) == 1 else "").partition(" ")
        try:
            return self._tokens.admit(token if scheme == "Bearer" else "")
        except errors.NotAuthorised as error:
            self._tokens.refused(error)
            raise

    def _check_good(self, token: Token) -> None:
        self._check_open()
        token.check()

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise flight().FlightUnavailableError("the gateway is closing")


def _as_flight(error: Exception) -> Exception:
    """The error in the form that Flight carries, with ours inside."""
    if isinstance(error, flight().FlightError):
        return error  # type: ignore[no-any-return]
    if not isinstance(error, failures.EXPECTED):
        _logger.error("a call at the gateway failed", exc_info=error)
    carrier: Exception = flight().FlightServerError(type(error).__name__, extra_info=failures.encode(error))
    return carrier
