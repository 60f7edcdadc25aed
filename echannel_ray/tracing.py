"""Traces by OpenTelemetry's conventions for messaging: producers and mailboxes of a process where tracing is on.

They are classes of their own, which nobody else has to import, so that a process without tracing does not ask at each
event. The context travels as `formats.traced` says; records of typed channels have no place for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from opentelemetry import context, propagate, trace
from opentelemetry.trace import Link, Span, SpanKind

from echannel_ray.errors import NotSerialisable
from echannel_ray.formats.traced import Traced
from echannel_ray.retained.publisher import RetainedPublisher
from echannel_ray.runtime.deliveries import PendingDelivery
from echannel_ray.runtime.handlers import CoroutineMailbox, FunctionMailbox
from echannel_ray.runtime.mailbox import Mailbox, Message
from echannel_ray.runtime.publisher import Publisher
from echannel_ray.runtime.pulling import PullMailbox

SYSTEM: Final = "echannel"
_COUNT: Final = "messaging.batch.message_count"

_tracer = trace.get_tracer("echannel_ray")


def _attributes(part: Publisher | Mailbox, operation: str, kind: str) -> dict[str, Any]:
    attributes = {
        "messaging.system": SYSTEM,
        "messaging.destination.name": part.channel,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
    }
    if isinstance(part, Mailbox) and part.group is not None:
        attributes["messaging.consumer.group.name"] = part.group
    return attributes


@contextmanager
def _span(part: Publisher | Mailbox, operation: str, kind: str, span_kind: SpanKind, **more: Any) -> Iterator[Span]:
    """A span that is the current one meanwhile, and knows what was raised."""
    name = f"{operation} {part.channel}"
    attributes = _attributes(part, operation, kind)
    with _tracer.start_as_current_span(name, kind=span_kind, attributes=attributes, **more) as span:
        try:
            yield span
        except BaseException as error:
            span.set_attribute("error.type", type(error).__qualname__)
            raise


# ---- producing -----------------------------------------------------------------------------------------------------


class _Tracing(Publisher):
    """A producer each of whose calls is a span, which the events take along."""

    def publish(self, event: Any, timeout: float | None = None) -> bool:
        """See `Publisher`."""
        if type(event) is Traced:  # one of many
            return super().publish(event, timeout)
        with self._sending("publish", event) as (traced, _):
            return super().publish(traced, timeout)

    def publish_many(self, events: Iterable[Any]) -> bool:
        """See `Publisher`. It is one span, and all the events take that along."""
        with self._sending("publish", None) as (traced, span):
            count = 0

            def counted(events: Iterable[Any]) -> Iterator[Any]:
                nonlocal count
                for event in events:
                    count += 1
                    yield Traced(event, traced.headers) if type(traced) is Traced else event

            if self.records is None:
                rows = getattr(events, "to_pylist", None)
                complete = super().publish_many(counted(rows() if rows is not None else events))
            else:
                sized: Any = events if hasattr(events, "__len__") else [*events]
                count = len(sized)
                complete = super().publish_many(sized)
            span.set_attribute(_COUNT, count)
            return complete

    def deliver(self, event: Any, timeout: float | None = None) -> PendingDelivery:
        """See `Publisher`. The span ends with the call, not with the delivery."""
        with self._sending("deliver", event) as (traced, _):
            return super().deliver(traced, timeout)

    async def apublish(self, event: Any, timeout: float | None = None) -> bool:
        """See `Publisher`."""
        with self._sending("publish", event) as (traced, _):
            return await super().apublish(traced, timeout)

    @contextmanager
    def _sending(self, operation: str, event: Any) -> Iterator[tuple[Any, Span]]:
        with _span(self, operation, "send", SpanKind.PRODUCER) as span:
            headers: dict[str, str] = {}
            if self.records is None:
                propagate.inject(headers)
            try:
                yield Traced(event, headers) if headers else event, span
            except NotSerialisable:
                self.encode(event)  # which says where in the event the trouble is, and not in what it travels in
                raise


class TracedPublisher(_Tracing, Publisher):
    """A producer where tracing is on."""


class TracedRetainedPublisher(_Tracing, RetainedPublisher):
    """A producer on a retained channel where tracing is on."""


# ---- consuming -----------------------------------------------------------------------------------------------------


@contextmanager
def _processing(mailbox: Mailbox, event: Any, weight: int = 1) -> Iterator[tuple[Any, Span]]:
    """The event itself, in a span that is a child of its producer's."""
    parent = context.Context()  # never that of what the thread has done before
    if type(event) is Traced:
        parent = propagate.extract(event.headers, parent)
        event = event.event
    token = context.attach(parent)  # with its baggage
    try:
        with _span(mailbox, "process", "process", SpanKind.CONSUMER) as span:
            if weight > 1:
                span.set_attribute(_COUNT, weight)
            yield event, span
    finally:
        context.detach(token)


class TracedFunctionMailbox(FunctionMailbox):
    """Runs demodulator and handler inside a span."""

    def begin_turn(self, turn: int, demodulator: Any) -> None:
        """See `Mailbox`."""
        super().begin_turn(turn, demodulator)
        self._handlers[turn] = self._in_span(self._handlers[turn])

    def _in_span(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        is_batch = self.records is not None and self.records.makes_batches

        def handle(event: Any) -> None:
            with _processing(self, event, len(event) if is_batch else 1) as (plain, _):
                handler(plain)

        return handle


class TracedCoroutineMailbox(CoroutineMailbox):
    """Awaits demodulator and handler inside a span."""

    async def _handle_one(self, event: Any, turn: int, weight: int = 1) -> BaseException | None:
        with _processing(self, event, weight) as (plain, span):
            failure = await super()._handle_one(plain, turn, weight)
            if failure is not None:
                span.set_attribute("error.type", type(failure).__qualname__)
                span.record_exception(failure)
                span.set_status(trace.StatusCode.ERROR, str(failure))
            return failure


class TracedPullMailbox(PullMailbox):
    """Hands out events, each in a message that says of which trace it is; that it was taken is a span of its own."""

    def _receive(self, message: Message, turn: int, weight: int = 1) -> BaseException | None:
        headers: dict[str, str] = {}
        if type(message.event) is Traced:
            headers = message.event.headers
            message = replace(message, event=message.event.event, trace=headers)
        creation = trace.get_current_span(propagate.extract(headers, context.Context())).get_span_context()
        links = [Link(creation)] if creation.is_valid else []
        with _span(self, "receive", "receive", SpanKind.CLIENT, links=links):
            return super()._receive(message, turn, weight)
