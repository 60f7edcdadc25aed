"""What the page's server and the process that looks at the namespace say to each other: JSON behind its length."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import msgspec

from echannel_ray.page.picture import Picture

_LENGTH: Final = struct.Struct("<I")
LENGTH_BYTES: Final = _LENGTH.size


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

_questions: msgspec.json.Decoder[Question] = msgspec.json.Decoder(Question)
_answers: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


def packed(message: Question | Answer) -> bytes:
    """The message as bytes, behind their length."""
    body = msgspec.json.encode(message)
    return _LENGTH.pack(len(body)) + body


def length_of(head: bytes) -> int:
    """The length that these first four bytes of a message tell."""
    length: int = _LENGTH.unpack(head)[0]
    return length


def question(body: bytes) -> Question:
    """The question that a message of the server has."""
    return _questions.decode(body)


def answer(body: bytes) -> Answer:
    """The answer that a message to the server has."""
    return _answers.decode(body)


Send = Callable[[Answer], Any]
