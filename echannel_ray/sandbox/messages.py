"""What a sandbox and its producer say to each other: typed messages, each behind its length, over a socket pair.

What a sandbox says is read by types alone: whatever does not parse is a `Violation`, and ends the sandbox. Values of
its making travel inside as bytes of `formats.plain`.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any, Final

import msgspec

from echannel_ray import errors
from echannel_ray.formats import plain
from echannel_ray.sandbox.owner import ServiceFailed

MAX_ANSWER_BYTES: Final = 64 << 20  # of one message from a sandbox, with all that a batch emitted
MAX_OUTPUTS: Final = 1 << 20  # of one message: each costs the producer more than its four bytes
MAX_CALL_BYTES: Final = 64 << 10  # what a call carries: the producer itself reads it
MAX_TEXT: Final = 4096
MIN_PERIOD_SECONDS: Final = 0.001
MAX_PERIOD_SECONDS: Final = 1e6  # in milliseconds, what `poll` takes

_LENGTH: Final = struct.Struct("<I")
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Text = Annotated[str, msgspec.Meta(max_length=2 * MAX_TEXT)]
_Plain = Annotated[bytes, msgspec.Meta(max_length=MAX_CALL_BYTES)]


class Violation(Exception):
    """Raised where a sandbox says what no sandbox says."""


class _Message(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    pass


# ---- from the producer ---------------------------------------------------------------------------------------------


class Start(_Message, tag=0):
    """Lock yourself down. With it come the descriptors of the area and of the page of progress."""

    max_memory_bytes: int


class Install(_Message, tag=1):
    """Asks to unpickle and set up this pair of class and modulator."""

    code: bytes
    services: list[str]
    shared: list[tuple[int, bytes]]
    wants_key: bool


class Batch(_Message, tag=2):
    """So many bytes of events are in the area, or, where that is too small, in one that comes with this message."""

    number: int
    size: int


class Dequeue(_Message, tag=3):
    """Tells that the transport can take so many of what waits."""

    number: int
    count: int


class Flush(_Message, tag=4):
    """Asks to emit what is held back."""

    number: int


class Restart(_Message, tag=5):
    """Asks to make a new modulator from what was installed."""


class UpdateShared(_Message, tag=6):
    """Tells that a shared object has changed."""

    index: int
    version: int
    fields: bytes


class CallReturned(_Message, tag=7):
    """What a call has returned."""

    call: int
    value: bytes


class Refuse(_Message, tag=8):
    """What a call has raised."""

    call: int
    kind: str
    text: str
    facts: bytes


# ---- from the sandbox ----------------------------------------------------------------------------------------------


class Ready(_Message, tag=20):
    """Tells that the sandbox is locked down, by these layers."""

    layers: Annotated[list[_Text], msgspec.Meta(max_length=20)]


class Unavailable(_Message, tag=21):
    """Tells that the sandbox could not be locked down."""

    reason: _Text


class InstallDone(_Message, tag=22):
    """Tells what came of `Install`; nothing of it is more than a claim."""

    queues: bool
    flushes: bool
    period_seconds: float | None
    key: _Plain | None

    @property
    def holds_back(self) -> bool:
        """Whether it may emit what belongs to no event that it is about to be given."""
        return self.queues or self.flushes or self.period_seconds is not None


class InstallFailed(_Message, tag=23):
    """Tells that `Install` failed."""

    description: _Text


class Outcome(_Message, tag=24):
    """What came of a batch, a `dequeue`, a `flush` or (number 0) a `period`.

    `picks` are 32-bit numbers, one for each output, in order: below the number of events in the batch an event of it,
    then of `values`, then of `held`. `passed`: all events of the batch, and nothing else. `keeps` are the events of the
    batch that the modulator holds on to (they get the next handles), `drops` the handles of those that it let go.
    """

    number: _Count
    index: Annotated[int, msgspec.Meta(ge=-1, le=2**32)]
    passed: bool
    picks: bytes
    values: Annotated[list[bytes], msgspec.Meta(max_length=MAX_OUTPUTS)]
    held: Annotated[list[_Count], msgspec.Meta(max_length=MAX_OUTPUTS)]
    keeps: bytes
    drops: Annotated[list[_Count], msgspec.Meta(max_length=MAX_OUTPUTS)]
    waiting: _Count
    failure: _Text | None


class CallService(_Message, tag=25):
    """A call of a service."""

    call: _Count
    service: _Text
    method: _Text
    arguments: _Plain


class PublishShared(_Message, tag=26):
    """Publishes a shared object."""

    call: _Count
    index: _Count
    fields: _Plain
    expected_version: _Count | None


class Pull(_Message, tag=27):
    """Pulls a shared object."""

    call: _Count
    index: _Count


class Updated(_Message, tag=28):
    """Tells that `UpdateShared` was done."""

    index: _Count
    version: _Count


Downward = Start | Install | Batch | Dequeue | Flush | Restart | UpdateShared | CallReturned | Refuse
# What a sandbox asks for and waits, and how that is answered.
Question = CallService | PublishShared | Pull
Reply = CallReturned | Refuse
Upward = Ready | Unavailable | InstallDone | InstallFailed | Outcome | CallService | PublishShared | Pull | Updated

_encode: Final = msgspec.msgpack.Encoder().encode
# Reads a message for a sandbox.
read_down: Final = msgspec.msgpack.Decoder(Downward).decode


def _refuse_extension(code: int, data: memoryview) -> Any:
    raise Violation(f"a message with an extension ({code})")


_decode_up: Final = msgspec.msgpack.Decoder(Upward, ext_hook=_refuse_extension).decode


def frame(message: _Message) -> bytes:
    """The message with its length, ready to be sent."""
    data = _encode(message)
    return _LENGTH.pack(len(data)) + data


def read_up(data: bytes) -> Upward:
    """A message from a sandbox, or `Violation`."""
    try:
        message: Upward = _decode_up(data)
    except Violation:
        raise
    except Exception as error:
        raise Violation(f"a message that can't be read: {error}") from None
    if isinstance(message, Outcome):
        if len(message.picks) % 4 or len(message.keeps) % 4:
            raise Violation("half a number")
        if len(message.picks) > 4 * MAX_OUTPUTS:
            raise Violation(f"more than {MAX_OUTPUTS:,} outputs at once")
    elif isinstance(message, InstallDone):
        period = message.period_seconds
        if period is not None and not MIN_PERIOD_SECONDS <= period <= MAX_PERIOD_SECONDS:  # NaN is not between them
            raise Violation(f"a period of {period} s")
    return message


class MessageAssembly:
    """Puts messages together again from what a stream brings."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are complete now; `Violation` as soon as one says that it is too long."""
        self._buffer += data
        messages = []
        at = 0
        while len(self._buffer) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, at)
            if length > self._max_bytes:
                raise Violation(f"a message of {length:,} bytes: the limit is {self._max_bytes:,}")
            end = at + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            messages.append(bytes(self._buffer[at + _LENGTH.size : end]))
            at = end
        del self._buffer[:at]
        return messages


# ---- what calls and their answers carry ------------------------------------------------------------------------------


def pack(value: Any) -> bytes:
    """What a call carries, as bytes; `NotPlain` where it is no plain data or too much."""
    data = plain.encode(value)
    if len(data) > MAX_CALL_BYTES:
        raise plain.NotPlain(f"a call of {len(data):,} bytes: the limit is {MAX_CALL_BYTES:,}")
    return data


def take_apart(call: int, error: BaseException) -> Refuse:
    """An error of the producer's as a message."""
    facts = {}
    for name, fact in getattr(error, "facts", {}).items():
        try:
            plain.encode(fact)
        except plain.NotPlain:
            continue
        facts[name] = fact
    return Refuse(call, type(error).__name__, text_of(error), plain.encode(facts))


def rebuild(refusal: Refuse) -> Exception:
    """The error again, where it is one of this library's; `ServiceFailed` for all others."""
    cls = getattr(errors, refusal.kind, None)
    if isinstance(cls, type) and issubclass(cls, errors.EChannelError):
        return cls(refusal.text, **plain.decode(refusal.facts))
    if refusal.kind == "TimeoutError":
        return TimeoutError(refusal.text)
    return ServiceFailed(f"{refusal.kind}: {refusal.text}", kind=refusal.kind)


def text_of(error: BaseException) -> str:
    """What an error says, whatever its class makes of `str`; not too long, and such that it can be sent."""
    try:
        text = str.__str__(str(error))
    except BaseException:
        text = "(its text can't be had)"
    return text[:MAX_TEXT].encode("utf-8", "replace").decode()
