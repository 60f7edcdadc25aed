"""Traces from a producer to a consumer in another process, on another node, and through modulators."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import ray
from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import echannel_ray as ec
from echannel_ray.derived.traced_replica import TracedReplica
from echannel_ray.formats.events import decode, encode
from echannel_ray.formats.trace_context import Traced, switch
from echannel_ray.modulation.modulator import Modulator
from tests.clusters import on, wait_until

SECONDS = 30


@dataclass
class Tick:
    price: float


@dataclass(frozen=True)
class Span:
    """What the tests want to know of one."""

    name: str
    kind: str
    trace_id: int
    span_id: int
    parent_id: int | None
    links: tuple[int, ...]
    attributes: dict[str, Any]
    status: str


def span_of(span: Any) -> Span:
    return Span(
        span.name,
        span.kind.name,
        span.context.trace_id,
        span.context.span_id,
        span.parent.span_id if span.parent is not None else None,
        tuple(link.context.span_id for link in span.links),
        dict(span.attributes),
        span.status.status_code.name,
    )


class Even(ec.Modulator):
    def enqueue(self, event):
        if event["number"] % 2 == 0:
            self.emit(event)


class Changed(ec.Modulator):
    def enqueue(self, event):
        self.emit({"number": event["number"] + 100})


class Queued(ec.Modulator):
    def enqueue(self, event):
        self.emit(event)

    def dequeue(self, event):
        return event if event["number"] % 2 == 0 else None


class Twice:
    def receive(self, event):
        return [event, event]


@ray.remote
class Process:
    """One that traces, and keeps its spans."""

    def __init__(self):
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        trace.set_tracer_provider(provider)
        ec.connect(tracing=True)
        self.kept = {}
        self.seen = []  # events, and the spans that they were handled in

    def spans(self):
        spans = [*map(span_of, self.exporter.get_finished_spans())]
        self.exporter.clear()
        return spans

    def do(self, work, *arguments):
        return work(self, *arguments)

    def handle(self, event):
        self.seen.append((event, trace.get_current_span().get_span_context().span_id))
        if event == "fail":
            raise ValueError("as asked")


@pytest.fixture(scope="module")
def tracing(nodes):
    """A producer's process, and a consumer's on another node."""
    made = [Process.options(**on(node)).remote() for node in nodes.nodes]
    ray.get([each.spans.remote() for each in made])
    yield made
    for each in made:
        ray.kill(each)


@pytest.fixture
def sender(tracing):
    yield tracing[0]
    ray.get([each.do.remote(leave) for each in tracing])
    ray.get([each.spans.remote() for each in tracing])


@pytest.fixture
def receiver(tracing):
    return tracing[1]


def leave(process):
    for each in process.kept.values():
        each.close()
    process.kept.clear()
    process.seen.clear()


def consume(process, channel, **options):
    async def handle_soon(event):
        process.handle(event)

    handler = handle_soon if options.pop("is_awaited", False) else process.handle
    process.kept["subscription"] = channel.subscribe(handler, **options)


def publish(process, channel, *events, **options):
    with channel.producer(**options) as producer:
        for event in events:
            producer.publish(event)


def run(actor, work, *arguments, **options):
    return ray.get(actor.do.remote(lambda process: work(process, *arguments, **options)))


def handled(actor, count):
    """The events that were handled, and the spans; when there are so many."""
    kept: list[Any] = []

    def are_there() -> bool:
        kept.extend(ray.get(actor.spans.remote()))
        return bool(len(kept) >= count)

    wait_until(are_there)
    return [event for event, _ in run(actor, lambda process: [*process.seen])], kept


def check_family(sent, received, channel):
    assert (received.trace_id, received.parent_id) == (sent.trace_id, sent.span_id)
    assert (sent.kind, received.kind) == ("PRODUCER", "CONSUMER")
    common = {"messaging.system": "echannel", "messaging.destination.name": channel.name}
    named = {"messaging.operation.name": "publish", "messaging.operation.type": "send"}
    assert sent.attributes == {**common, **named}
    named = {"messaging.operation.name": "process", "messaging.operation.type": "process"}
    assert received.attributes == {**common, **named}
    assert (sent.name, received.name) == (f"publish {channel.name}", f"process {channel.name}")


@pytest.mark.parametrize("is_awaited", [False, True], ids=["function", "coroutine function"])
def test_a_handler_runs_in_a_child_of_the_producers_span(sender, receiver, channel, is_awaited):
    run(receiver, consume, channel, is_awaited=is_awaited)

    def publish_in_a_span(process):
        with trace.get_tracer("test").start_as_current_span("outer"):
            publish(process, channel, {"number": 1}, b"bytes")

    run(sender, publish_in_a_span)
    first, second, outer = ray.get(sender.spans.remote())
    events, received = handled(receiver, 2)
    assert events == [{"number": 1}, b"bytes"]
    for sent, got in zip((first, second), received, strict=True):
        check_family(sent, got, channel)
        assert sent.parent_id == outer.span_id
    current = run(receiver, lambda process: [span for _, span in process.seen])
    assert current == [each.span_id for each in received]


def test_in_the_producers_own_process(sender, channel):
    run(sender, consume, channel)
    run(sender, publish, channel, "an event")
    events, spans = handled(sender, 2)
    sent, received = sorted(spans, key=lambda span: span.kind, reverse=True)
    assert events == ["an event"]
    check_family(sent, received, channel)


def test_many_events_of_one_call_share_its_span(sender, receiver, channel):
    run(receiver, consume, channel)

    def publish_many(process):
        with channel.producer() as producer:
            producer.publish_many(iter(range(3)))

    run(sender, publish_many)
    (sent,) = ray.get(sender.spans.remote())
    events, received = handled(receiver, 3)
    assert events == [0, 1, 2]
    assert sent.attributes["messaging.batch.message_count"] == 3
    assert {(each.trace_id, each.parent_id) for each in received} == {(sent.trace_id, sent.span_id)}


def test_a_handler_that_raises_is_seen_in_its_span_and_told_to_deliver(sender, receiver, channel):
    run(receiver, consume, channel, group="g")

    def deliver(process):
        with channel.producer() as producer, pytest.raises(ec.DeliveryFailed):
            producer.deliver("fail").result(SECONDS)

    run(sender, deliver)
    (sent,) = ray.get(sender.spans.remote())
    _, (received,) = handled(receiver, 1)
    assert received.parent_id == sent.span_id
    assert (received.status, received.attributes["error.type"]) == ("ERROR", "ValueError")
    assert received.attributes["messaging.consumer.group.name"] == "g"
    assert sent.attributes["messaging.operation.name"] == "deliver"


@pytest.mark.parametrize("tier", ["isolated", "inline"])
@pytest.mark.parametrize("modulator", [Even, Queued])
def test_the_context_passes_modulators_with_its_event(sender, receiver, channel, tier, modulator):
    admission = ec.Admission(tiers=("isolated", "inline"))

    def hold(process):
        process.kept["producer"] = channel.producer(admission=admission)

    def publish_held(process):
        for number in range(4):
            process.kept["producer"].publish({"number": number})
        process.kept["producer"].drain()

    run(sender, hold)
    run(receiver, consume, channel, modulator=modulator(), demodulator=Twice(), tier=tier)
    run(sender, publish_held)
    sent = ray.get(sender.spans.remote())
    events, received = handled(receiver, 2)
    assert events == [{"number": number} for number in (0, 0, 2, 2)]
    assert [each.parent_id for each in received] == [sent[0].span_id, sent[2].span_id]


def test_what_a_modulator_makes_anew_begins_a_trace(sender, receiver, channel):
    run(receiver, consume, channel, modulator=Changed())
    run(sender, publish, channel, {"number": 1})
    (sent,) = ray.get(sender.spans.remote())
    events, (received,) = handled(receiver, 1)
    assert events == [{"number": 101}]
    assert received.parent_id is None
    assert received.trace_id != sent.trace_id


def test_who_pulls_gets_the_headers_and_a_linked_span(sender, receiver, channel):
    run(receiver, lambda process: process.kept.update(subscription=channel.subscribe()))
    run(sender, publish, channel, "an event")
    (sent,) = ray.get(sender.spans.remote())

    def pull(process):
        message = next(process.kept["subscription"].messages())
        continued = trace.get_current_span(propagate.extract(message.trace)).get_span_context()
        return message.event, continued.trace_id, continued.span_id

    assert run(receiver, pull) == ("an event", sent.trace_id, sent.span_id)
    (received,) = ray.get(receiver.spans.remote())
    assert (received.kind, received.links, received.parent_id) == ("CLIENT", (sent.span_id,), None)
    assert received.attributes["messaging.operation.type"] == "receive"


def test_coroutines_publish_in_spans_too(sender, receiver, channel):
    run(receiver, consume, channel)

    def apublish(process):
        async def go():
            producer = channel.producer()
            await producer.apublish("an event")
            await producer.aclose()

        asyncio.run(go())

    run(sender, apublish)
    (sent,) = ray.get(sender.spans.remote())
    _, (received,) = handled(receiver, 1)
    check_family(sent, received, channel)


def test_retained_events_keep_their_traces(sender, receiver, name):
    channel = ec.channel(name, retain=ec.Retention())
    run(sender, publish, channel, "early")
    run(receiver, consume, channel, start="earliest")
    (sent,) = ray.get(sender.spans.remote())
    _, (received,) = handled(receiver, 1)
    check_family(sent, received, channel)


def test_records_of_typed_channels_have_spans_without_a_common_trace(sender, receiver, name):
    channel = ec.channel(name, Tick)
    run(receiver, consume, channel, batches="numpy")

    def publish_block(process):
        with channel.producer() as producer:
            producer.publish_many(np.zeros(5, [("price", "f8")]))

    run(sender, publish_block)
    (sent,) = ray.get(sender.spans.remote())
    _, received = handled(receiver, 1)
    assert sent.attributes["messaging.batch.message_count"] == 5
    assert [each.attributes["messaging.batch.message_count"] for each in received] == [5]
    assert received[0].parent_id is None


def test_processes_without_tracing_get_and_send_the_events_alone(sender, receiver, near, channel):
    run(receiver, consume, channel)
    ray.get(near.consume.remote(channel))
    run(sender, publish, channel, {"number": 1}, b"bytes", 7)
    assert ray.get(near.received.remote(3)) == [{"number": 1}, b"bytes", 7]
    with channel.producer() as producer:
        producer.deliver("from here").result(SECONDS)
    events, received = handled(receiver, 4)
    assert events == [{"number": 1}, b"bytes", 7, "from here"]
    assert received[-1].parent_id is None


def test_what_can_not_be_serialised_is_named_as_without_tracing(sender, receiver, channel):
    run(receiver, consume, channel)

    def refused(process):
        with channel.producer() as producer, pytest.raises(ec.NotSerialisable) as caught:
            producer.publish({"lock": threading.Lock()})
        return caught.value.type, caught.value.path

    assert run(sender, refused) == ("dict", "event['lock']")
    (sent,) = ray.get(sender.spans.remote())
    assert (sent.status, sent.attributes["error.type"]) == ("ERROR", "NotSerialisable")


def test_tracing_begins_before_the_first_subscription(nodes, channel):
    with channel.subscribe(), pytest.raises(ec.EChannelError, match="before the first subscribe"):
        ec.connect(tracing=True)
    assert not switch.is_on


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("echannel_ray.session._sessions", {})
    with pytest.raises(ModuleNotFoundError, match=r"echannel-ray\[tracing\]"):
        ec.connect(tracing=True)
    assert not switch.is_on


OFF = """
import sys, traceback

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            if any("echannel_ray" in frame.filename for frame in traceback.extract_stack()):
                traceback.print_stack()
                raise SystemExit("echannel_ray imports " + name)

import ray
sys.meta_path.insert(0, Watch())
import echannel_ray as ec
ray.init(address=sys.argv[1], log_to_driver=False)
channel = ec.channel("untraced")
with channel.subscribe() as subscription, channel.producer() as producer:
    producer.publish({"number": 1})
    print(subscription.get(timeout=30), "echannel_ray.tracing" in sys.modules)
"""


def test_off_nothing_of_it_is_imported(nodes):
    done = subprocess.run([sys.executable, "-c", OFF, nodes.address], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1:] == ["{'number': 1} False"], done.stderr


# ---- without Ray ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [None, 1, "text", b"bytes", {"a": (1, {2})}, Tick(1.0)])
def test_what_arrives_depends_on_the_process(event, monkeypatch):
    kind, payload, _ = encode(Traced(event, {"traceparent": "00-1-1-01"}))
    assert decode(kind, payload) == event
    monkeypatch.setattr(switch, "is_on", True)
    arrived = decode(kind, payload)
    assert type(arrived) is Traced
    assert (arrived.event, arrived.headers) == (event, {"traceparent": "00-1-1-01"})


def test_large_buffers_stay_out_of_the_pickle():
    array = np.arange(10_000.0)
    kind, segments, size = encode(Traced(array, {"traceparent": "00-1-1-01"}))
    assert size > array.nbytes
    assert type(segments) is list
    assert np.array_equal(decode(kind, b"".join(segments)), array)


class Late(Modulator):
    def enqueue(self, event):
        self.held = event

    def flush(self):
        self.emit(self.held)


def test_an_inline_modulator_never_sees_what_events_travel_in():
    traced = Traced(["an event"], {})
    replica = TracedReplica(ec.FIFOModulator(), {})  # type: ignore[arg-type]
    replica.enqueue([traced, "plain"])
    assert replica.take() == [traced, "plain"]
    replica.enqueue_one(traced)
    assert replica.emitted == [["an event"]]
    assert replica.take() == [traced]
    late = TracedReplica(Late(), {})  # type: ignore[arg-type]
    late.enqueue([traced])
    assert late.take() == []
    late.flush()
    assert late.take() == [["an event"]]  # what is held back would have to be known for good
