"""What the page's server and the process that looks at the namespace say to each other: JSON behind its length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from echannel_ray.page.picture import Picture


class LookAround(msgspec.Struct, tag=True):
    """A request to read the namespace once."""

    call: int
    afresh: bool = False  # there was a pause: what was counted before says nothing of rates


class OpenTap(msgspec.Struct, tag=True):
    """A request to send events of a channel as they come, until `CloseTap`."""

    call: int
    channel: str
    rate: float  # events in a second, from each producer


class CloseTap(msgspec.Struct, tag=True):
    """The end of a tap."""

    call: int


class LookerJoined(msgspec.Struct, tag=True):
    """The first frame of the looking process: it is in the cluster, and can be asked."""


class PictureSeen(msgspec.Struct, tag=True):
    """The answer to `LookAround`."""

    call: int
    picture: Picture


class Tapped(msgspec.Struct, tag=True):
    """An event, or the news that the tap is open (without an event)."""

    call: int
    producer: str = ""
    sequence: int = 0
    published_at: float = 0.0
    text: str = ""
    missed: int = 0  # events before it that were sampled, and are not shown: there were too many


class LookFailed(msgspec.Struct, tag=True):
    """The answer to a call that can't be served; with call 0, none can be."""

    call: int
    reason: str


Question = LookAround | OpenTap | CloseTap
Answer = LookerJoined | PictureSeen | Tapped | LookFailed

LENGTH_BYTES: Final = 4

# What a message has behind its length.
question: Final[Callable[[bytes], Question]] = msgspec.json.Decoder(Question).decode
answer: Final[Callable[[bytes], Answer]] = msgspec.json.Decoder(Answer).decode


def packed(message: Question | Answer) -> bytes:
    """The message as bytes, behind their length."""
    body = msgspec.json.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "little") + body


def length_of(head: bytes) -> int:
    """The length that these first four bytes of a message tell."""
    return int.from_bytes(head, "little")
