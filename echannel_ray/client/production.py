"""Producers: made, entered in their channel's books, and taken out of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from echannel_ray import errors
from echannel_ray.client.channels import retains
from echannel_ray.core.messages import Definition, RegisterProducer
from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
from echannel_ray.endpoint.record_codec import RecordEncoder
from echannel_ray.modulation.admission import Admission
from echannel_ray.options import DEFAULT_WINDOW_BYTES, packing_of
from echannel_ray.producers.consumer_sink import ConsumerSink
from echannel_ray.producers.publisher import Publisher
from echannel_ray.retained.log_sink import LogSink


def produce(
    endpoint: ProcessEndpoint,
    definition: Definition,
    records: RecordEncoder | None,
    *,
    overflow: str = "block",
    derived: str = "",
    admission: Admission | None = None,
    services: Mapping[Any, Any] | None = None,
    delegate: Callable[[str], Any] | None = None,
) -> Publisher:
    """A producer of the channel (into its log, where it retains), or of what is derived from it by this key."""
    to_consumers = partial(ConsumerSink, admission=admission, services=services, delegate=delegate)
    publisher = Publisher(
        endpoint,
        definition.channel,
        definition.incarnation,
        overflow,
        DEFAULT_WINDOW_BYTES,
        packing_of(definition.options),
        derived,
        records,
        LogSink if retains(definition) and not derived else to_consumers,
    )
    enter_producer(publisher)
    return publisher


def enter_producer(publisher: Publisher) -> None:
    """Have it in its channel's books, and with the consumers and modulators that there are; or nothing stays of it."""
    endpoint = publisher.endpoint
    request = RegisterProducer(
        publisher.channel, publisher.stream.number, publisher.incarnation, publisher.derived, publisher.log
    )
    try:
        publisher.enter()
        membership = endpoint.requests.ask(request)
        if isinstance(publisher.sink, LogSink):
            publisher.sink.begin(membership)
    except BaseException:
        endpoint.requests.tell(publisher.retire())
        raise
    endpoint.installer.install(membership)


def end_producer(publisher: Publisher, timeout: float | None = None) -> None:
    """Drain it, and take it out of its channel's books. A second call does nothing."""
    stream = publisher.stream
    if stream.closed:
        return
    endpoint = publisher.endpoint
    if endpoint.closed or endpoint.broken is not None:
        stream.closed = True
        return
    try:
        if not stream.deleted:
            publisher.drain(timeout)
    finally:
        farewell = publisher.retire()
    try:
        endpoint.requests.ask(farewell)
    except errors.ChannelDeleted:
        pass  # nobody keeps its books any more
