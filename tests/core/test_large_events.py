"""Large events: what may go ahead of their chunks, and what may not. Two endpoints that ship, joined by hand."""

from __future__ import annotations

import pytest

from echannel_ray.core import frames
from echannel_ray.core.drain_point import DrainPoint
from echannel_ray.core.endpoint import EndpointCore, LargeEventLeft
from echannel_ray.core.framing import Framer
from echannel_ray.core.kinds import PLAIN
from echannel_ray.core.large_events import Large
from echannel_ray.core.messages import Consumer
from echannel_ray.core.receiver import Delivered
from echannel_ray.core.streams import SenderStream
from echannel_ray.core.windows import BLOCK
from echannel_ray.formats.packs import decode_body, encode_pack

NODE, PRODUCER, CONSUMER = 0xA, 1, 2
LARGE_BYTES = frames.CHUNK_BYTES + 1  # what is said of it: its text is short, and so are its chunks
CHUNK_BYTES, WINDOW_BYTES = 4, 8
NOW = 1.0


class Pair:
    """A producer's endpoint and a consumer's. What leaves is carried over when a test says so."""

    def __init__(self) -> None:
        self.producer = EndpointCore(
            NODE, PRODUCER, self._encode, chunk_bytes=CHUNK_BYTES, flow_window_bytes=WINDOW_BYTES
        )
        self.consumer = EndpointCore(NODE, CONSUMER, self._encode)
        self.got: list[Delivered] = []
        self.version = 0

    def _encode(self, columns, gathered_bytes, stamp):
        return encode_pack(columns, gathered_bytes, stamp)

    def stream(self, channel: str, *consumers: Consumer) -> SenderStream:
        stream = self.producer.open_stream(channel, BLOCK, 10 * LARGE_BYTES)
        self.members(stream, *consumers)
        return stream

    def members(self, stream: SenderStream, *consumers: Consumer) -> None:
        self.version += 1
        for each in consumers:
            if each.endpoint == CONSUMER:
                self.consumer.subscription_opened(each.subscription)
        self.producer.members_changed(stream, (1, self.version), consumers)

    def publish(self, stream: SenderStream, text: bytes) -> None:
        self.producer.publish_one(stream, PLAIN, text, len(text))

    def publish_large(self, stream: SenderStream, text: bytes) -> None:
        self.producer.publish_one(stream, PLAIN, Large(stream, PLAIN, [text]), LARGE_BYTES)

    def carry_over(self) -> None:
        """What the producer has written arrives, and is acknowledged."""
        data = b"".join(self.producer.out)
        self.producer.out.clear()
        view = memoryview(data)
        for kind, flags, start, stop in Framer().frames(data, len(data)):
            if kind != frames.PACK:
                self.consumer.frame(kind, flags, view[start:stop], NOW)
                continue
            flow = self.consumer.next_pack(view, start)
            assert flow is not None
            body = view[start + frames.PACK_FIXED.size : stop]
            if flags & frames.IS_CHUNK:
                delivered, _, assembled = self.consumer.chunk_received(flow, body) or ([], 0, b"")
                self.got += [each._replace(events=[assembled]) for each in delivered]
            else:
                self.got += self.consumer.pack_received(flow, decode_body(body), len(body))

    def acknowledge(self) -> None:
        """The producer hears of what has arrived, and goes on."""
        self.consumer.tick(NOW)
        answers = b"".join(self.consumer.out)
        self.consumer.out.clear()
        for kind, flags, start, stop in Framer().frames(answers, len(answers)):
            self.producer.frame(kind, flags, memoryview(answers)[start:stop], NOW)
        self.consumer._due_acks = 0.0

    def exchange_all(self) -> None:
        while self.producer.out:
            self.carry_over()
            self.acknowledge()

    def texts(self, subscription: int) -> list[bytes]:
        return [event for each in self.got if each.source.subscription == subscription for event in each.events]


@pytest.fixture
def pair():
    pair = Pair()
    yield pair
    pair.producer.validate()
    pair.consumer.validate()


def test_chunks_leave_as_their_flow_has_room(pair: Pair) -> None:
    stream = pair.stream("a", Consumer(NODE, CONSUMER, 20, None))
    pair.publish_large(stream, b"a large event")
    pair.producer.flush_all(NOW)
    assert stream.chunks == 4  # the declaration of its stream, which goes ahead of them, fills the window
    assert not pair.producer.instructions
    pair.exchange_all()
    assert not stream.chunks
    assert LargeEventLeft(stream.number) in pair.producer.instructions
    assert pair.texts(20) == [b"a large event"]


def test_no_stream_overtakes_itself_behind_anothers_chunks(pair: Pair) -> None:
    """What came behind a large event in its pack waits with it, events of other streams among it."""
    large, other = (
        pair.stream(name, Consumer(NODE, CONSUMER, number, None)) for name, number in (("a", 20), ("b", 21))
    )
    pair.publish_large(large, b"a large event")
    pair.publish(large, b"a2")
    pair.publish(other, b"b1")
    pair.producer.flush_all(NOW)
    point = DrainPoint([other])
    pair.publish(other, b"b2")
    pair.producer.flush_all(NOW)
    assert other.chunks
    pair.carry_over()
    assert not point.is_reached()
    pair.acknowledge()
    pair.exchange_all()
    assert pair.texts(21) == [b"b1", b"b2"]
    assert pair.texts(20) == [b"a large event", b"a2"]
    assert pair.consumer.receiver.refused == 0
    assert point.is_reached()


def test_other_streams_go_ahead_of_chunks(pair: Pair) -> None:
    large, other = (
        pair.stream(name, Consumer(NODE, CONSUMER, number, None)) for name, number in (("a", 20), ("b", 21))
    )
    pair.publish_large(large, b"a large event")
    pair.producer.flush_all(NOW)
    pair.publish(other, b"b1")
    pair.producer.flush_all(NOW)
    pair.carry_over()
    assert pair.texts(21) == [b"b1"]
    assert pair.texts(20) == []
    pair.acknowledge()
    pair.exchange_all()
    assert pair.texts(20) == [b"a large event"]


def test_a_member_is_given_events_again_in_one_order_with_what_it_has(pair: Pair) -> None:
    """It reports the last that it has handled: what was given before that must not have been overtaken."""
    stays, dies = Consumer(NODE, CONSUMER, 20, "g"), Consumer(NODE, 3, 30, "g")
    stream = pair.stream("a", stays, dies)
    pair.publish(stream, b"one")
    pair.publish(stream, b"two")
    (lost,) = (unhandled.event for unhandled in stream.recipients[3, 30].sent)
    pair.publish_large(stream, b"a large event")
    pair.producer.flush_all(NOW)
    assert stream.chunks
    pair.producer.frame(frames.GONE, 0, memoryview(frames.NUMBER.pack(3)), NOW)
    member = stream.recipients[CONSUMER, 20]
    given = [unhandled.sequence for unhandled in member.sent]
    pair.exchange_all()
    assert [each.first for each in pair.got] == given
    assert pair.texts(20)[-1] == lost
    for each in pair.got:
        pair.consumer.handled(each.source, each.mark, 0, b"")
    pair.producer.ask_for_credit(stream)
    pair.exchange_all()
    assert not member.sent


def test_what_is_held_is_counted_as_what_leaves_at_once(pair: Pair) -> None:
    large = pair.stream("a", Consumer(NODE, CONSUMER, 20, None))
    other = pair.stream("b", Consumer(NODE, CONSUMER, 21, None))
    pair.publish_large(large, b"a large event")
    pair.producer.flush_all(NOW)
    pair.publish(other, b"b1")
    pair.producer.close_stream(large)  # which is said in the pack of the other one
    pair.producer.flush_all(NOW)
    assert other.chunks
    assert other.packs == 1
    pair.exchange_all()
    assert pair.texts(21) == [b"b1"]


def test_routes_that_nothing_has_gone_by_leave_nothing(pair: Pair) -> None:
    pair.stream("a", Consumer(NODE, CONSUMER, 20, None))  # whose flow stays
    for _ in range(100):
        pair.producer.close_stream(pair.stream("b", Consumer(NODE, CONSUMER, 20, None)))
    (gather,) = pair.producer.sender.gathers.values()
    assert not gather._left_now
