"""What one subscription of a connection sends: the events of a feed as frames, as long as its client has credit."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from echannel_ray import errors
from echannel_ray.consumers.message import Gap, Message
from echannel_ray.gateway import event_frames as wire
from echannel_ray.gateway.feeds import Feed, FeedEnded
from echannel_ray.gateway.outward import outward

MAX_CREDIT_BYTES: Final = 64 << 20  # what a client gives beyond it counts for nothing
_GATHERED_BYTES: Final = 64 << 10
_GATHERED_EVENTS: Final = 1000
_NIL: Final = b"\xc0"
_FINAL: Final = (errors.ChannelDeleted, errors.Closed, errors.Disconnected)
_encode: Final = msgspec.msgpack.Encoder().encode


class OutgoingEvents:
    """The thread that writes uses it, and the one that reads gives it credit."""

    def __init__(self, number: int, feed: Feed, credit: int) -> None:
        self.feed = feed
        self.is_announced = False  # its client knows of it
        self.is_over = False
        self.events = 0
        self._number = number
        # Two counters, of which each thread changes one.
        self._given_bytes = min(credit, MAX_CREDIT_BYTES)
        self._used_bytes = 0
        self._left: Message | Gap | Exception | None = None  # taken, and no part of the frame before it

    def add_credit(self, more_bytes: int) -> None:
        """Send so many bytes more: the client takes them."""
        self._given_bytes = min(self._given_bytes + more_bytes, self._used_bytes + MAX_CREDIT_BYTES)

    def next_frame(self) -> bytes | None:
        """What is to be sent next; None where there is nothing, or no credit."""
        if self.is_over or self._used_bytes >= self._given_bytes:
            return None
        try:
            item = self._take()
            if item is None:
                return None
            if isinstance(item, Message):
                frame = self._events(item)
            else:
                frame = wire.frame(wire.GapFrame(self._number, item.producer, item.first, item.last))
        except FeedEnded:
            self.is_over = True
            return wire.frame(wire.EndedFrame(self._number))
        except Exception as error:  # what is told in the place of an event
            frame = wire.frame(wire.error_of(error, subscription=self._number))
            if isinstance(error, _FINAL):
                self.is_over = True
                frame += wire.frame(wire.EndedFrame(self._number))
        self._used_bytes += len(frame)
        return frame

    def _take(self) -> Message | Gap | None:
        left, self._left = self._left, None
        if isinstance(left, Exception):
            raise left
        return left or self.feed.take()

    def _events(self, first: Message) -> bytes:
        """A frame of this event, and of those that are there and follow it."""
        events: list[msgspec.Raw] = []
        opaque: list[tuple[int, str, int]] = []
        last, size_bytes = first, 0
        following: Message | None = first
        while following is not None:
            last = following
            data = _as_bytes(last.event)
            if isinstance(data, wire.Opaque):
                opaque.append((len(events), *data))
                data = _NIL
            events.append(msgspec.Raw(data))
            size_bytes += len(data)
            is_full = size_bytes >= _GATHERED_BYTES or len(events) >= _GATHERED_EVENTS
            following = None if is_full else self._following(last)
        self.events += len(events)
        position = None if last.position is None else str(last.position)
        return wire.frame(
            wire.EventsFrame(
                self._number, first.producer, first.sequence, first.published_at, events, opaque, first.redelivered,
                position,
            )
        )  # fmt: skip

    def _following(self, last: Message) -> Message | None:
        """The next event, if it belongs into the same frame."""
        try:
            item = self._take()
        except Exception as error:  # see `next_frame`
            self._left = error
            return None
        if isinstance(item, Message) and _about(item, 0) == _about(last, 1):
            return item
        self._left = item
        return None


def _about(message: Message, more: int) -> tuple[Any, ...]:
    return message.producer, message.sequence + more, message.published_at, message.redelivered


def _as_bytes(event: Any) -> bytes | wire.Opaque:
    plain = outward(event)
    if isinstance(plain, wire.Opaque):
        return plain
    try:
        return _encode(plain)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return wire.Opaque(f"{type(event).__module__}.{type(event).__qualname__}", 0)
