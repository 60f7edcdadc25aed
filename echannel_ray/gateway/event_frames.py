"""What goes over a gateway's port for events: frames, each a length and a msgpack map. docs/gateway-protocol.md is the
page about it; its test vectors are read by the tests of each language.

Nothing here knows of sockets, and nothing is ever unpickled: a frame is one of these structures, or is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from echannel_ray.gateway import failures

VERSION: Final = 1
MAX_HELLO_BYTES: Final = 4096  # of the first frame: whoever sends it may be anybody
OVERHEAD_BYTES: Final = 4096  # of a frame, beside its events
MAX_ANSWER_BYTES: Final = 128 << 20  # of what a gateway sends: an event as large as there may be
MAX_EVENTS: Final = 10_000  # of a frame
LENGTH: Final = struct.Struct(">I")

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
_Id = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]  # what a JavaScript number can count
_Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
_Fields = Annotated[dict[_Name, _Name], msgspec.Meta(max_length=1000)]


class Malformed(ValueError):
    """What came is no frame of this protocol; the connection ends."""


class Opaque(NamedTuple):
    """An event that has no form here: what its pickle says that it is ("": nothing), and how large it is."""

    type_name: str
    size_bytes: int


# ---- from clients --------------------------------------------------------------------------------------------------


class _FromClient(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", omit_defaults=True):
    """A frame that clients send."""


class HelloFrame(_FromClient, frozen=True, tag="hello"):
    """The first frame; answered by a `WelcomeFrame`, or an `ErrorFrame` and the end."""

    version: int
    token: str


class RequestFrame(_FromClient, frozen=True):
    """What is answered by an `AnswerFrame` or an `ErrorFrame` with the same number."""

    id: _Id


class PingFrame(RequestFrame, frozen=True, tag="ping"):
    """A question that is answered at once."""


class OnChannel(RequestFrame, frozen=True):
    """A request about a channel."""

    channel: _Name


class OpenFrame(OnChannel, frozen=True, tag="open"):
    """Answered by what is known of the channel. With `fields` it is made where there is none; without any, untyped."""

    fields: _Fields | None = None


class PublishFrame(OnChannel, frozen=True, tag="publish"):
    """Events, in order; answered when they are queued for all consumers (on a retained channel: logged)."""

    events: list[msgspec.Raw]


class DrainFrame(OnChannel, frozen=True, tag="drain"):
    """Answered when all that was published here before is acknowledged."""


class DeriveFrame(OnChannel, frozen=True, tag="derive"):
    """A derived channel by the text of an E-code program; its name in the answer is good on this connection."""

    source: Annotated[str, msgspec.Meta(max_length=65_536)]
    params: Annotated[dict[_Name, bool | int | float], msgspec.Meta(max_length=100)] | None = None
    output: _Fields | None = None


class SubscribeFrame(OnChannel, frozen=True, tag="subscribe"):
    """A request for events, which come with its number, as long as there is credit."""

    credit: _Bytes
    group: _Name | None = None
    start: Annotated[str, msgspec.Meta(max_length=65_536)] | None = None


class UnsubscribeFrame(RequestFrame, frozen=True, tag="unsubscribe"):
    """The end of a subscription: when this is answered, none of its events follows."""

    subscription: _Id


class CreditFrame(_FromClient, frozen=True, tag="credit"):
    """So many bytes more may come; not answered. A member of a group says how many more events it has handled."""

    subscription: _Id
    bytes: _Bytes
    handled: _Id = 0


# ---- to clients ----------------------------------------------------------------------------------------------------


class _ToClient(msgspec.Struct, frozen=True, tag_field="op", omit_defaults=True):
    """What gateways send. Clients leave alone what they don't know, so there may be more fields later."""


class WelcomeFrame(_ToClient, frozen=True, tag="welcome"):
    """The answer to a hello whose token is known: what its client has to keep to."""

    version: int
    namespace: str
    max_event_bytes: int
    max_frame_bytes: int


class AnswerFrame(_ToClient, frozen=True, tag="answer"):
    """The answer to the request with this number."""

    id: int
    result: Any = None


class ErrorFrame(_ToClient, frozen=True, tag="error"):
    """About a request or a subscription; with neither, the connection ends. `error` is the name of a class of ours."""

    error: str
    message: str
    attributes: dict[str, Any] = {}
    id: int | None = None
    subscription: int | None = None


class EventsFrame(_ToClient, frozen=True, tag="events"):
    """Events of one producer, which follow one another: the first has this sequence number.

    `opaque` lists those that have no form here: their place in `events` (where a nil is), type and size in bytes.
    """

    subscription: int
    producer: str
    sequence: int
    published_at: float
    events: list[Any]
    opaque: list[tuple[int, str, int]] = []
    redelivered: bool = False
    position: str | None = None


class GapFrame(_ToClient, frozen=True, tag="gap"):
    """Events of a producer that were dropped for this subscription."""

    subscription: int
    producer: str
    first: int
    last: int


class EndedFrame(_ToClient, frozen=True, tag="ended"):
    """The end of a subscription's events; an `ErrorFrame` before it said why."""

    subscription: int


FromClient = (
    HelloFrame
    | PingFrame
    | OpenFrame
    | PublishFrame
    | DrainFrame
    | DeriveFrame
    | SubscribeFrame
    | UnsubscribeFrame
    | CreditFrame
)
ToClient = WelcomeFrame | AnswerFrame | ErrorFrame | EventsFrame | GapFrame | EndedFrame


# ---- bytes ---------------------------------------------------------------------------------------------------------

_encode: Final = msgspec.msgpack.Encoder().encode


def _no_extension(code: int, data: memoryview) -> Any:
    raise ValueError(f"msgpack's extension {code} has no meaning here: timestamps are the only one")


_from_client: Final[msgspec.msgpack.Decoder[FromClient]] = msgspec.msgpack.Decoder(FromClient, ext_hook=_no_extension)
_to_client: Final[msgspec.msgpack.Decoder[ToClient]] = msgspec.msgpack.Decoder(ToClient, ext_hook=_no_extension)
_any: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(ext_hook=_no_extension)


def frame(message: FromClient | ToClient) -> bytes:
    """A message as it travels; `TypeError` and the like where it holds what msgpack has no form for."""
    body = _encode(message)
    return LENGTH.pack(len(body)) + body


def from_client(body: bytes | memoryview) -> FromClient:
    """What a client has sent; `Malformed` says what is wrong with it."""
    return _decoded(_from_client, body)  # type: ignore[no-any-return]


def to_client(body: bytes | memoryview) -> ToClient:
    """What a gateway has sent; `Malformed` says what is wrong with it."""
    return _decoded(_to_client, body)  # type: ignore[no-any-return]


def event_of(raw: msgspec.Raw) -> Any:
    """An event of a `PublishFrame`; `Malformed` where it is no plain data."""
    return _decoded(_any, memoryview(raw))


def _decoded(decoder: msgspec.msgpack.Decoder[Any], body: bytes | memoryview) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError, OverflowError) as error:
        raise Malformed(f"what came is no frame of version {VERSION}: {error!s:.300}") from None


class FrameCutter:
    """Cuts what comes into the bodies of frames. It keeps no more than one frame and what came with its end."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._kept = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that are whole now; `Malformed` where one is empty or longer than it may be."""
        kept = self._kept
        kept += data
        at = 0
        try:
            while len(kept) - at >= LENGTH.size:
                (length,) = LENGTH.unpack_from(kept, at)
                if not 0 < length <= self.max_bytes:
                    raise Malformed(
                        f"a frame of {length} bytes was announced, and it has from 1 to {self.max_bytes}: send fewer "
                        "events in one, or have a token with a larger max_event_bytes"
                    )
                end = at + LENGTH.size + length
                if len(kept) < end:
                    break
                body = bytes(kept[at + LENGTH.size : end])
                at = end
                yield body
        finally:
            del kept[:at]


# ---- errors --------------------------------------------------------------------------------------------------------

_MAX_MESSAGE_CHARS: Final = 2000
_MAX_ATTRIBUTES_BYTES: Final = 4000


def error_of(error: Exception, id: int | None = None, subscription: int | None = None) -> ErrorFrame:  # noqa: A002
    """An error as it travels: the class, what it says and its facts, shortened where they are long."""
    name, message, facts = failures.described(error)
    try:
        if len(_encode(facts)) > _MAX_ATTRIBUTES_BYTES:
            facts = {}
    except (TypeError, ValueError, OverflowError):
        facts = {key: repr(fact)[:200] for key, fact in facts.items()}
    return ErrorFrame(name, message[:_MAX_MESSAGE_CHARS], facts, id, subscription)


def exception_of(error: ErrorFrame) -> Exception:
    """The error again; one of a class that is not known here is an `EChannelError`."""
    return failures.again(error.error, error.message, error.attributes)
