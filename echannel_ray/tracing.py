"""Traces by OpenTelemetry's conventions for messaging, in a process where tracing is on.

Producers call by a `TracedPublisher`, and inboxes have a tracer, so that a process without tracing neither imports this
nor asks at each event. The context travels as `formats.trace_context` says; records of typed channels have no place for
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from opentelemetry import context, propagate, trace
from opentelemetry.trace import Link, Span, SpanKind

from echannel_ray.consumers.inbox import Inbox
from echannel_ray.consumers.message import Message
from echannel_ray.errors import NotSerialisable
from echannel_ray.formats.trace_context import Traced
from echannel_ray.producers.pending_deliveries import PendingDelivery
from echannel_ray.producers.publisher import Publisher

SYSTEM: Final = "echannel"
_COUNT: Final = "messaging.batch.message_count"

_tracer = trace.get_tracer("echannel_ray")


def _attributes(part: Publisher | Inbox, operation: str, kind: str) -> dict[str, Any]:
    attributes = {
        "messaging.system": SYSTEM,
        "messaging.destination.name": part.channel,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
    }
    if isinstance(part, Inbox) and part.group is not None:
        attributes["messaging.consumer.group.name"] = part.group
    return attributes


@contextmanager
def _span(part: Publisher | Inbox, operation: str, kind: str, span_kind: SpanKind, **more: Any) -> Iterator[Span]:
    """A span that is the current one meanwhile, and knows what was raised."""
    name = f"{operation} {part.channel}"
    attributes = _attributes(part, operation, kind)
    with _tracer.start_as_current_span(name, kind=span_kind, attributes=attributes, **more) as span:
        try:
            yield span
        except BaseException as error:
            span.set_attribute("error.type", type(error).__qualname__)
            if not isinstance(error, Exception):  # else OpenTelemetry does
                span.record_exception(error)
                span.set_status(trace.StatusCode.ERROR, str(error))
            raise


# ---- producing -----------------------------------------------------------------------------------------------------


class TracedPublisher:
    """The calls of a producer where tracing is on: each is a span, which the events take along."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    def publish(self, event: Any, timeout: float | None = None) -> bool:
        """Publish inside a span."""
        with self._sending("publish", event) as (traced, _):
            return self._publisher.publish(traced, timeout)

    def publish_many(self, events: Iterable[Any]) -> bool:
        """Publish each of them inside one span, which all take along."""
        publisher = self._publisher
        with self._sending("publish", None) as (traced, span):
            count = 0

            def counted(events: Iterable[Any]) -> Iterator[Any]:
                nonlocal count
                for event in events:
                    count += 1
                    yield Traced(event, traced.headers) if type(traced) is Traced else event

            if publisher.records is None:
                rows = getattr(events, "to_pylist", None)
                complete = publisher.publish_many(counted(rows() if rows is not None else events))
            else:
                sized: Any = events if hasattr(events, "__len__") else [*events]
                count = len(sized)
                complete = publisher.publish_many(sized)
            span.set_attribute(_COUNT, count)
            return complete

    def deliver(self, event: Any, timeout: float | None = None) -> PendingDelivery:
        """Deliver inside a span, which ends with the call, not with the delivery."""
        with self._sending("deliver", event) as (traced, _):
            return self._publisher.deliver(traced, timeout)

    async def apublish(self, event: Any, timeout: float | None = None) -> bool:
        """Publish inside a span."""
        with self._sending("publish", event) as (traced, _):
            return await self._publisher.apublish(traced, timeout)

    @contextmanager
    def _sending(self, operation: str, event: Any) -> Iterator[tuple[Any, Span]]:
        publisher = self._publisher
        with _span(publisher, operation, "send", SpanKind.PRODUCER) as span:
            headers: dict[str, str] = {}
            if publisher.records is None:
                propagate.inject(headers)
            try:
                yield Traced(event, headers) if headers else event, span
            except NotSerialisable:
                publisher.encode(event)  # which says where in the event the trouble is, and not in what it travels in
                raise


# ---- consuming -----------------------------------------------------------------------------------------------------


@contextmanager
def _processing(inbox: Inbox, event: Any) -> Iterator[Any]:
    """The event itself, in a span that is a child of its producer's."""
    parent = context.Context()  # never that of what the thread has done before
    if type(event) is Traced:
        parent = propagate.extract(event.headers, parent)
        event = event.event
    token = context.attach(parent)  # with its baggage
    try:
        with _span(inbox, "process", "process", SpanKind.CONSUMER) as span:
            if inbox.records is not None and inbox.records.makes_batches and len(event) > 1:
                span.set_attribute(_COUNT, len(event))
            yield event
    finally:
        context.detach(token)


class ConsumerTracer:
    """Has demodulators and handlers run inside spans; that an event is pulled is a span of its own."""

    def function(self, inbox: Inbox, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A function that handles each event inside a span."""

        def handle(event: Any) -> None:
            with _processing(inbox, event) as plain:
                handler(plain)

        return handle

    def coroutine(self, inbox: Inbox, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A coroutine function that does."""

        async def handle(event: Any) -> None:
            with _processing(inbox, event) as plain:
                await handler(plain)

        return handle

    @contextmanager
    def receiving(self, inbox: Inbox, message: Message) -> Iterator[Message]:
        """A span that is linked to the producer's, and the message, which says of which trace it is."""
        headers: dict[str, str] = {}
        if type(message.event) is Traced:
            headers = message.event.headers
            message = replace(message, event=message.event.event, trace=headers)
        creation = trace.get_current_span(propagate.extract(headers, context.Context())).get_span_context()
        links = [Link(creation)] if creation.is_valid else []
        with _span(inbox, "receive", "receive", SpanKind.CLIENT, links=links):
            yield message
