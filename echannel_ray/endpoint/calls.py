"""What one process asks of another over the links, without a Ray call: all that is asked and not answered yet.

Rules:

* A call is repeated until it is answered: its caller need not know where it, or its answer, was lost. Whoever serves
  one does it once per number while it lasts, and has to bear that it comes again later.
* A request to a manager (see `requests`) is one that is repeated on a new link only: its concentrator asks on.
* Calls to a neighbour go by its direct link. A call goes over to another way only when no other one to the same
  endpoint is open, so that none overtakes another; where a direct link has ended, all that is open is said again.
* What nobody will answer any more is returned by the relay that knows it, and raises `Nobody`.
* The thread that reads the link decodes calls and hands them to the crew, as it does with events: to serve one may
  take code of the user's.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, Union

import msgspec

from echannel_ray import errors
from echannel_ray.core import frames
from echannel_ray.core.ways import BUSY_PACKS
from echannel_ray.endpoint.crew import Job, Waiter
from echannel_ray.endpoint.deadlines import deadline_of

if TYPE_CHECKING:
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint

logger = logging.getLogger(__name__)

_REPEAT_SECONDS = 0.3
# One whose addressee is stopped may be repeated for long; what is repeated piles up before it.
_MAX_REPEAT_SECONDS = 1.0
_MAX_REPEAT_OF_LARGE_SECONDS = 5.0
_LARGE_BYTES = 64 << 10
_COPIED_BYTES = 4 << 10

Message: TypeAlias = msgspec.Struct


class Nobody(Exception):
    """Who was called is gone: its process or node died, or it has left the namespace."""


def _framed(kind: int, fixed: bytes, message: bytes) -> tuple[bytes, ...]:
    """A frame of these. To copy a megabyte for it takes longer than to write it."""
    head = frames.HEADER.pack(len(fixed) + len(message), kind, 0, frames.MAGIC) + fixed
    return (head + message,) if len(message) < _COPIED_BYTES else (head, message)


class Caller(NamedTuple):
    """Whose call it is, and which of its calls."""

    node: int
    endpoint: int
    number: int


Answer: TypeAlias = Callable[[Message], None]
Handler: TypeAlias = Callable[[Any, Caller, Answer], None]


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The answer where serving the call raised."""

    reason: str


class Call(Waiter):
    """A question; `then` is told of its end by the thread that reads the link, so it must not wait for anything."""

    __slots__ = (
        "answer", "endpoint", "error", "frame", "interval_seconds", "max_interval_seconds", "node", "number",
        "repeat_at", "then",
    )  # fmt: skip

    def __init__(self, number: int, node: int, endpoint: int, then: Callable[[Call], None] | None) -> None:
        super().__init__()
        self.number = number
        self.node = node
        self.endpoint = endpoint
        self.then = then
        self.frame: tuple[bytes, ...] = ()  # its parts
        self.answer: Any = None
        self.error: Exception | None = None
        self.repeat_at = 0.0
        self.interval_seconds = _REPEAT_SECONDS
        self.max_interval_seconds = _MAX_REPEAT_SECONDS

    def end(self, answer: Any, error: Exception | None) -> None:
        """End the call: it was answered, or won't be."""
        self.answer, self.error = answer, error
        if isinstance(answer, Failed):
            self.error = errors.EChannelError(f"a call failed in the process that was called: {answer.reason}")
        self.set()
        if self.then is not None:
            self.then(self)

    def result(self) -> Any:
        """The answer; raises where there is none."""
        if self.error is not None:
            raise self.error
        return self.answer


class Calls:
    """The calls of one endpoint to others, and those that it serves."""

    def __init__(self, endpoint: ProcessEndpoint) -> None:
        self._endpoint = endpoint
        self._numbers = itertools.count(1)
        self._open: dict[int, Call] = {}
        self._used: dict[int, deque[frames.Buffer]] = {}  # by endpoint: the way of the last call to it
        self._begun: Counter[int] = Counter()  # calls to endpoints of this node, since somebody looked
        self._served: set[Caller] = set()  # taken in and not answered yet
        self._handlers: dict[type[Message], Handler] = {}
        self._at_once: set[type[Message]] = set()
        self._answer_types: tuple[type[Message], ...] = (Failed,)
        self._questions: Any = None
        self._answers: Any = None
        self._encode = msgspec.msgpack.Encoder().encode

    def serve(self, handlers: Mapping[Any, Handler], answers: Iterable[type[Message]], at_once: bool = False) -> None:
        """Set which handler serves which question, and what answers there are; each class has a tag of its own.

        `at_once`: by the thread that reads the link, in the order in which they came; such handlers wait for nothing.
        """
        self._handlers.update(handlers)
        self._at_once.update(handlers if at_once else ())
        self._questions = msgspec.msgpack.Decoder(Union[tuple(self._handlers)])  # noqa: UP007 (of a tuple)
        self._answer_types += tuple(answers)
        self._answers = msgspec.msgpack.Decoder(Union[self._answer_types])  # noqa: UP007

    # ---- the caller's side ----

    def call(self, node: int, endpoint: int, message: Message, timeout: float | None = None) -> Any:
        """Call another endpoint; the answer. Raises `Nobody` where there will be none."""
        return self.call_all([(node, endpoint, message)], timeout)[0]

    def call_all(self, messages: Iterable[tuple[int, int, Message]], timeout: float | None = None) -> list[Any]:
        """Ask several at once: all the answers, in order."""
        deadline = deadline_of(timeout)
        calls = [self.begin(node, endpoint, message) for node, endpoint, message in messages]
        try:
            for call in calls:
                self.wait(call, deadline)
        finally:
            self.forget(calls)
        return [call.result() for call in calls]

    def wait(self, call: Call, deadline: float | None) -> None:
        """Wait until a call has ended; `TimeoutError` at the deadline."""
        if not self._endpoint.crew.wait(call, deadline):
            raise TimeoutError("the process that was asked has not answered in time")

    def begin(
        self,
        node: int,
        endpoint: int,
        message: Message,
        then: Callable[[Call], None] | None = None,
        max_interval_seconds: float = _MAX_REPEAT_SECONDS,
    ) -> Call:
        """Ask without waiting. One whose answer may take long need not be repeated as often as others."""
        own = self._endpoint
        call = Call(next(self._numbers), node, endpoint, then)
        if endpoint == own.id:
            own.check_usable()
            self._serve(message, Caller(node, endpoint, call.number), lambda answer: call.end(answer, None))
            return call
        fixed = frames.CALL_FIXED.pack(node, endpoint, own.node, own.id, call.number)
        call.frame = _framed(frames.CALL, fixed, self._encode(message))
        call.max_interval_seconds = max_interval_seconds
        if len(call.frame[-1]) > _LARGE_BYTES:
            call.interval_seconds *= 2
            call.max_interval_seconds = max(max_interval_seconds, _MAX_REPEAT_OF_LARGE_SECONDS)
        call.repeat_at = time.monotonic() + call.interval_seconds
        with own.lock:
            own.check_usable()
            self._put(call)
            self._open[call.number] = call
            self._begun[endpoint] += node == own.node
        # The leader, if it is the leader who calls, writes before it reads again, and may have more to say until then.
        if then is None or not own.crew.leads:
            own.outgoing.write()
        return call

    def _put(self, call: Call) -> None:
        ways = self._endpoint.core.ways
        way = ways.to(call.node, call.endpoint)
        used = self._used.get(call.endpoint, way)
        if used is not way and used is self._endpoint.core.out:
            others = (each for each in self._open.values() if each.endpoint == call.endpoint and each is not call)
            if any(others):
                way = used
        self._used[call.endpoint] = way
        way.extend(call.frame)

    def request(self, payload: bytes) -> Call:
        """Ask a manager; under the endpoint's lock."""
        call = Call(next(self._numbers), 0, 0, None)
        call.frame = _framed(frames.REQUEST, frames.REQUEST_ID.pack(call.number), payload)
        call.repeat_at = call.interval_seconds = math.inf
        self._open[call.number] = call
        self._endpoint.outgoing.put_parts(call.frame)
        return call

    def forget(self, calls: Iterable[Call]) -> None:
        """Nobody waits for these any more."""
        for call in calls:
            self._open.pop(call.number, None)

    @property
    def is_waiting(self) -> bool:
        """Whether there is anything to repeat soon."""
        return any(call.interval_seconds <= _MAX_REPEAT_SECONDS for call in [*self._open.values()])

    def repeat(self, node: int | None = None) -> None:
        """The link (or the path to a node) is a new one; under the endpoint's lock."""
        for call in [*self._open.values()]:
            if node is None or call.node == node:
                if call.repeat_at < math.inf:  # the rest of the way may be away as well, for a while
                    call.interval_seconds = min(call.interval_seconds, 2 * _REPEAT_SECONDS)
                    call.repeat_at = min(call.repeat_at, time.monotonic() + call.interval_seconds)
                if call.endpoint:
                    self._put(call)
                else:
                    self._endpoint.outgoing.put_parts(call.frame)

    def direct_link_ended(self, endpoint: int) -> None:
        """What was in a direct link is lost; under the endpoint's lock."""
        if self._used.pop(endpoint, None) is not None:
            for call in [*self._open.values()]:
                if call.endpoint == endpoint:
                    self._put(call)

    def tick(self, now: float) -> None:
        """Repeat what has waited for long; under the endpoint's lock."""
        for call in [*self._open.values()]:
            if call.repeat_at <= now:
                call.interval_seconds = min(2 * call.interval_seconds, call.max_interval_seconds)
                call.repeat_at = now + call.interval_seconds
                self._put(call)
        ways = self._endpoint.core.ways
        ways.wanted.update(
            endpoint
            for endpoint, count in self._begun.items()
            if count >= BUSY_PACKS and endpoint not in ways.neighbours
        )
        self._begun.clear()

    def returned(self, flags: int, body: memoryview) -> None:
        """Take in a RETURNED frame; without the endpoint's lock."""
        _, _, _, number = frames.RETURNED_FIXED.unpack_from(body)
        if number not in self._open:
            return
        if flags & frames.IS_NOBODY:
            self._end(number, None, Nobody())
        else:
            # What does not parse is skipped before the call is: it is repeated, and the next answer may be a good one.
            self._end(number, self._answers.decode(body[frames.RETURNED_FIXED.size :]), None)

    def replied(self, body: memoryview) -> None:
        """Take in a REPLY frame: what a manager answers. Who waits for it decodes it."""
        (number,) = frames.REQUEST_ID.unpack_from(body)
        self._end(number, bytes(body[frames.REQUEST_ID.size :]), None)

    def _end(self, number: int, answer: Any, error: Exception | None) -> None:
        call = self._open.pop(number, None)
        if call is not None:
            call.end(answer, error)

    def endpoint_gone(self, endpoint: int) -> None:
        """End calls to a process that has died or left; under the endpoint's lock."""
        self._used.pop(endpoint, None)
        for call in [*self._open.values()]:
            if call.endpoint == endpoint:
                self._endpoint.crew.submit(Job(self._end, call.number, None, Nobody()))

    def fail(self, error: errors.EChannelError) -> None:
        """End all calls: no answer will come any more. Without the endpoint's lock."""
        for number in [*self._open]:
            self._end(number, None, error)

    # ---- the side that is called ----

    def arrived(self, body: memoryview) -> None:
        """Take in a CALL frame; without the endpoint's lock."""
        caller = Caller._make(frames.CALL_FIXED.unpack_from(body)[2:])
        message = self._questions.decode(body[frames.CALL_FIXED.size :])
        if caller not in self._served:
            self._served.add(caller)
            if type(message) in self._at_once:
                self._serve(message, caller, partial(self._reply, caller))
                return
            self._endpoint.crew.submit(Job(self._serve, message, caller, partial(self._reply, caller)))

    def _serve(self, message: Message, caller: Caller, answer: Answer) -> None:
        try:
            self._handlers[type(message)](message, caller, answer)
        except Exception as error:
            logger.exception("a call from endpoint %016x failed", caller.endpoint)
            answer(Failed(repr(error)))

    def _reply(self, caller: Caller, message: Message) -> None:
        own = self._endpoint
        self._served.discard(caller)
        fixed = frames.RETURNED_FIXED.pack(caller.node, caller.endpoint, own.id, caller.number)
        parts = _framed(frames.RETURNED, fixed, self._encode(message))
        with own.lock:
            own.core.ways.to(caller.node, caller.endpoint).extend(parts)
        if not own.crew.leads:
            own.outgoing.write()
