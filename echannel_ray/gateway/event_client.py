"""A client of a gateway's port for events: what shells and programs outside the cluster use, without Ray."""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from echannel_ray import errors
from echannel_ray.gateway import event_frames as frames
from echannel_ray.gateway.address import Endpoint
from echannel_ray.gateway.event_frames import Opaque as Opaque
from echannel_ray.gateway.event_tls import Wire, client_context
from echannel_ray.gateway.patience import Patience

_HELLO_SECONDS: Final = 10.0
_WINDOW_BYTES: Final = 1 << 20
_FRAME_BYTES: Final = 128 << 10
_UNDER_WAY: Final = 16
_encode: Final = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True)
class EventMessage:
    """An event with what is known about it; one that has no form outside Python is an `Opaque`."""

    event: Any
    producer: str
    sequence: int
    published_at: float
    redelivered: bool = False
    position: str | None = None  # on a retained channel, of the last event of those that came together


@dataclass(frozen=True)
class EventGap:
    """Events `first` to `last` of a producer were dropped for this subscription, by the producer's policy."""

    producer: str
    first: int
    last: int


class EventSubscription:
    """What `EventClient.subscribe` returns: iterate over it, by one thread at a time. It is a context manager, too.

    What is told in the place of events (of a modulator that failed, say) is raised, and iteration may go on. An event
    is handled when it was handed out: what a member of a group has not handed out when it ends goes to another one.
    """

    def __init__(self, client: EventClient, number: int, queue: deque[Any], is_member: bool) -> None:
        self._client = client
        self._number = number
        self._is_member = is_member
        self._frames: deque[tuple[frames.EventsFrame | frames.GapFrame | Exception | None, int]] = queue
        self._ready: deque[EventMessage | EventGap] = deque()
        self._frame_bytes = 0  # of the frame that `_ready` came in
        # Since the gateway was told:
        self._taken_bytes = 0
        self._handled = 0
        self._is_over = False

    def __enter__(self) -> EventSubscription:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> EventSubscription:
        return self

    def __next__(self) -> EventMessage | EventGap:
        try:
            return self.get(None)
        except errors.Closed:
            raise StopIteration from None

    def get(self, timeout: float | None = None) -> EventMessage | EventGap:
        """The next one; `TimeoutError`, or `Closed` where nothing more comes."""
        while not self._ready:
            if self._is_over:
                raise errors.Closed("this subscription has ended: subscribe again", what="subscription")
            item, self._frame_bytes = self._client._wait(self._frames, timeout)
            if item is None:
                self._is_over = True
            elif isinstance(item, Exception):
                self._frame_is_taken()
                raise item
            else:
                self._ready.extend(_messages(item))
        message = self._ready.popleft()
        self._handled += isinstance(message, EventMessage)
        if not self._ready:
            self._frame_is_taken()
        return message

    def _frame_is_taken(self) -> None:
        self._taken_bytes += self._frame_bytes
        # Others wait for what a member of a group has handled: the gateway knows before there is a pause.
        if self._taken_bytes >= _WINDOW_BYTES // 2 or (self._is_member and not self._frames):
            self._tell()

    def _tell(self) -> None:
        """Tell the gateway what was taken, and handled.

        What has come is handed out, also where the connection is lost: who waits for more is told.
        """
        if not self._is_over:
            handled = self._handled if self._is_member else 0
            credit = frames.CreditFrame(self._number, self._taken_bytes, handled)
            with contextlib.suppress(errors.EChannelError):
                self._client._write(frames.frame(credit))
            self._taken_bytes = self._handled = 0

    def _tell_last(self) -> None:
        """Before the end of a member of a group: what it has handled is nobody else's."""
        if self._is_member and self._handled:
            self._tell()

    def close(self) -> None:
        """End the subscription; a second call does nothing."""
        self._tell_last()
        self._client._end(self._number, self._frames)


class EventClient:
    """A client of one gateway, for any number of threads; also a context manager.

    A gateway that is away has `patience_seconds` to come back before this raises `Disconnected`. A connection that is
    lost later is told by `Disconnected` from every call, and by subscriptions: then make another client. What was
    published and not acknowledged may have come or not.
    """

    def __init__(self, endpoint: str | Endpoint, patience_seconds: float = 30.0) -> None:
        self.endpoint = endpoint if isinstance(endpoint, Endpoint) else Endpoint.parse(endpoint)
        self._changed = threading.Condition()
        self._answers: dict[int, frames.AnswerFrame | Exception | None] = {}
        self._subscriptions: dict[int, deque[Any]] = {}
        self._members: weakref.WeakSet[EventSubscription] = weakref.WeakSet()  # of groups
        self._numbers = itertools.count(1)
        self._lost: Exception | None = None
        self._where = f"{self.endpoint.host}:{self.endpoint.events_port}"
        patience = Patience(patience_seconds)
        while True:
            try:
                self._wire, self._welcome, self._incoming = self._connect()
                break
            except errors.Disconnected as error:
                patience.wait(error)
        threading.Thread(target=self._read, name="echannel-event-client", daemon=True).start()

    def __enter__(self) -> EventClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection: subscriptions end, and what was not acknowledged may have come or not."""
        for subscription in [*self._members]:
            subscription._tell_last()
        self._lose(errors.Closed("this client was closed: make another", what="gateway client"))
        self._wire.close()

    # ---- what there is to be done ----

    def open(self, channel: str, fields: Mapping[str, str] | None = None) -> dict[str, Any]:
        """What is known of a channel: "channel", "fields" (names and types, or None), "is_retained".

        With `fields` it is made where there is none: such as {"price": "float"}, or {} for one without a type.
        """
        named = None if fields is None else dict(fields)
        return self._ask(lambda number: frames.OpenFrame(number, channel, named))  # type: ignore[no-any-return]

    def publish(self, channel: str, events: Iterable[Any]) -> int:
        """Publish plain data (on a typed channel: dicts of its fields), and wait until it is acknowledged: how many.

        As with `Producer.drain` that means received by the consumers, handled by members of groups, or logged.
        """
        under_way: deque[int] = deque()
        count = 0
        try:
            for part in _parts(events, self._welcome.max_event_bytes):
                count += len(part)
                under_way.append(self._begin(lambda number, part=part: frames.PublishFrame(number, channel, part)))
                if len(under_way) >= _UNDER_WAY:
                    self._finish(under_way.popleft())
            while under_way:
                self._finish(under_way.popleft())
        finally:
            with self._changed:
                for number in under_way:  # where one failed: nobody asks for the answers to the others
                    self._answers.pop(number, None)
        self._ask(lambda number: frames.DrainFrame(number, channel))
        return count

    def derive(
        self,
        channel: str,
        source: str,
        params: Mapping[str, bool | int | float] | None = None,
        output: Mapping[str, str] | None = None,
    ) -> str:
        """A derived channel by the text of an E-code program, which reads `params` as `param.name`: the name by which
        this client may subscribe to it. With `output` (fields and types) it makes events of those.
        """
        given = None if params is None else dict(params)
        made = None if output is None else dict(output)
        derived = self._ask(lambda number: frames.DeriveFrame(number, channel, source, given, made))
        return str(derived["channel"])

    def subscribe(
        self,
        channel: str,
        where: str | None = None,
        params: Mapping[str, bool | int | float] | None = None,
        group: str | None = None,
        start: str | None = None,
    ) -> EventSubscription:
        """Consume a channel; with `where`, an E-code filter, only what passes it at the producers.

        When this returns, every event that is published afterwards comes. `start` is "new", "earliest" or a position.
        """
        source = channel if where is None else self.derive(channel, where, params)
        number = self._begin(lambda number: frames.SubscribeFrame(number, source, _WINDOW_BYTES, group, start), True)
        subscription = EventSubscription(self, number, self._subscriptions[number], group is not None)
        try:
            self._finish(number)
        except BaseException:
            self._subscriptions.pop(number, None)
            raise
        if group is not None:
            self._members.add(subscription)
        return subscription

    def ping(self) -> float:
        """Ask the gateway for an answer: the seconds until it came."""
        before = time.monotonic()
        self._ask(lambda number: frames.PingFrame(number))
        return time.monotonic() - before

    # ---- requests ----

    def _ask(self, message: Any) -> Any:
        return self._finish(self._begin(message))

    def _begin(self, message: Any, is_subscription: bool = False) -> int:
        number = next(self._numbers)
        frame = frames.frame(message(number))
        self._check_size(len(frame) - frames.LENGTH.size)
        with self._changed:
            self._check()
            self._answers[number] = None
            if is_subscription:
                self._subscriptions[number] = deque()
        self._write(frame)
        return number

    def _check_size(self, size_bytes: int) -> None:
        """The gateway would end the connection, and its other subscriptions, for a frame that is too large."""
        most, token_allows = self._welcome.max_frame_bytes, self._welcome.max_event_bytes
        if size_bytes > most:
            raise errors.NotAuthorised(
                f"a request of {size_bytes} bytes does not fit into a frame, and this token allows events of "
                f"{token_allows}: send smaller ones, or have `session.gateway()` or `session.grant()` give another "
                "max_event_bytes",
                size_bytes=size_bytes,
                max_event_bytes=token_allows,
            )

    def _finish(self, number: int) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._answers[number] is not None or self._lost is not None)
            answer = self._answers.pop(number)
        if answer is None:
            self._check()
        if isinstance(answer, Exception):
            raise answer
        assert answer is not None
        return answer.result

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost

    def _write(self, frame: bytes) -> None:
        try:
            self._wire.write(frame)
        except OSError as error:
            self._lose(self._gone(error))
            assert self._lost is not None
            raise self._lost from None

    def _wait(self, queue: deque[Any], timeout: float | None) -> Any:
        with self._changed:
            if not self._changed.wait_for(lambda: queue or self._lost is not None, timeout):
                raise TimeoutError(f"nothing came within {timeout:.3g} s")
            if not queue:
                self._check()
            return queue.popleft()

    def _end(self, number: int, queue: deque[Any]) -> None:
        with self._changed:
            if self._subscriptions.pop(number, None) is None or self._lost is not None:
                return
            queue.append((None, 0))
            self._changed.notify_all()
        try:
            self._ask(lambda request: frames.UnsubscribeFrame(request, number))
        except LookupError:
            pass  # it has ended meanwhile

    # ---- the connection ----

    def _connect(self) -> tuple[Wire, frames.WelcomeFrame, frames.FrameCutter]:
        endpoint = self.endpoint
        try:
            sock = socket.create_connection((endpoint.host, endpoint.events_port), _HELLO_SECONDS)
            sock.settimeout(None)
            wire = Wire(sock, client_context(endpoint.key), False)
        except OSError as error:
            raise self._gone(error) from None
        incoming = frames.FrameCutter(frames.MAX_ANSWER_BYTES)
        deadline = time.monotonic() + _HELLO_SECONDS
        try:
            wire.handshake(deadline)
            wire.write(frames.frame(frames.HelloFrame(frames.VERSION, endpoint.token)))
            bodies: list[bytes] = []
            while not bodies:
                data = wire.read(deadline)
                if not data:
                    raise ConnectionResetError("it ended before its welcome")
                bodies += incoming.feed(data)
        except ssl.SSLCertVerificationError:
            wire.dispose()
            raise errors.NotAuthorised(
                f"who answers at {self._where} has another key than the gateway of this endpoint: ask its session for "
                "the endpoint again",
                gateway=self._where,
            ) from None
        except OSError as error:
            wire.dispose()
            raise self._gone(error) from None
        welcome = frames.to_client(bodies[0])
        if isinstance(welcome, frames.WelcomeFrame):
            return wire, welcome, incoming
        wire.dispose()
        if isinstance(welcome, frames.ErrorFrame):
            raise frames.exception_of(welcome)
        raise errors.VersionMismatch("the gateway's first frame is no welcome: have the same version on both sides")

    def _read(self) -> None:
        try:
            while data := self._wire.read():
                for body in self._incoming.feed(data):
                    self._take(frames.to_client(body), len(body) + frames.LENGTH.size)
            self._lose(self._gone("the connection has ended"))
        except (OSError, frames.Malformed) as error:
            self._lose(self._gone(error))
        finally:
            self._wire.dispose()

    def _take(self, message: frames.ToClient, size_bytes: int) -> None:
        with self._changed:
            match message:
                case frames.AnswerFrame():
                    if message.id in self._answers:
                        self._answers[message.id] = message
                case frames.ErrorFrame(id=int()):
                    assert message.id is not None
                    if message.id in self._answers:
                        self._answers[message.id] = frames.exception_of(message)
                case frames.ErrorFrame(subscription=None):
                    self._lost = self._lost or frames.exception_of(message)
                case frames.ErrorFrame():
                    self._put(message.subscription, (frames.exception_of(message), size_bytes))
                case frames.EndedFrame():
                    self._put(message.subscription, (None, 0))
                    self._subscriptions.pop(message.subscription, None)
                case frames.EventsFrame() | frames.GapFrame():
                    self._put(message.subscription, (message, size_bytes))
            self._changed.notify_all()

    def _put(self, number: int | None, item: Any) -> None:
        queue = self._subscriptions.get(number)  # type: ignore[arg-type]
        if queue is not None:  # else it was closed meanwhile
            queue.append(item)

    def _lose(self, error: Exception) -> None:
        with self._changed:
            self._lost = self._lost or error
            self._changed.notify_all()

    def _gone(self, error: object) -> errors.Disconnected:
        return errors.Disconnected(
            f"the gateway at {self._where} can't be reached, or went away ({error!s:.300}): see that its cluster runs "
            "and has a gateway with this endpoint, and make another client",
            gateway=self._where,
        )


def _messages(item: frames.EventsFrame | frames.GapFrame) -> Iterator[EventMessage | EventGap]:
    if isinstance(item, frames.GapFrame):
        yield EventGap(item.producer, item.first, item.last)
        return
    opaque = {index: Opaque(type_name, size_bytes) for index, type_name, size_bytes in item.opaque}
    for i, event in enumerate(item.events):
        yield EventMessage(
            opaque.get(i, event), item.producer, item.sequence + i, item.published_at, item.redelivered, item.position
        )


def _parts(events: Iterable[Any], max_event_bytes: int) -> Iterator[list[msgspec.Raw]]:
    """Events as frames take them."""
    part: list[msgspec.Raw] = []
    size_bytes = 0
    for event in events:
        try:
            data = _encode(event)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise errors.NotSerialisable(
                f"an event for a gateway is plain data (None, bool, int, float, str, bytes, lists and dicts of these): "
                f"{error}",
                path=None,
            ) from None
        if part and (size_bytes + len(data) > min(_FRAME_BYTES, max_event_bytes) or len(part) >= frames.MAX_EVENTS):
            yield part
            part, size_bytes = [], 0
        part.append(msgspec.Raw(data))
        size_bytes += len(data)
    if part:
        yield part
