"""Frames as tests look at them: found by the reader that ships, in bytes or at a relay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from echannel_ray.core import frames
from echannel_ray.core.frames import HEADER_BYTES, MAX_FRAME_BYTES
from echannel_ray.core.framing import Framer
from echannel_ray.core.relay import Link, Relay


class Frame(NamedTuple):
    """One frame: where its body is, and the body."""

    kind: int
    flags: int
    start: int
    stop: int
    body: bytes


def found_in(data: bytes, max_bytes: int = MAX_FRAME_BYTES) -> list[Frame]:
    """The whole frames in some bytes."""
    found = Framer(max_bytes).frames(data, len(data))
    return [Frame(kind, flags, start, stop, bytes(data[start:stop])) for kind, flags, start, stop in found]


def first_of(data: bytes) -> Frame:
    """The first frame in some bytes."""
    return found_in(data)[0]


def routed(relay: Relay, link: Link, data: bytes) -> list[tuple[Link, bytes]]:
    """What goes out when a link has brought this to a relay: frames, each with its link."""
    for kind, *_ in relay.route(link, Framer().frames(data, len(data)), memoryview(data)):
        assert not frames.FIRST_ADDRESSED <= kind <= frames.LAST_ADDRESSED
    return [*_sent(relay)]


def _sent(relay: Relay) -> Iterator[tuple[Link, bytes]]:
    for link, data in relay.take_outbox():
        for each in found_in(bytes(data)):
            yield link, bytes(data)[each.start - HEADER_BYTES : each.stop]
