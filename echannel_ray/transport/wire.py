"""How the control plane's messages travel in frames: msgpack of a message's class and fields; never a pickle.

A class travels as its place in a table, so only these can be made by a peer, and their fields are checked as they are
read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from echannel_ray import errors
from echannel_ray.core import messages
from echannel_ray.ids import WIRE_VERSION


@dataclass(frozen=True)
class Hello:
    """The first frame of a link: who is there. An endpoint has a number; a concentrator and a manager have 0."""

    namespace: str
    node: int
    endpoint: int
    pid: int
    incarnation: int = 0
    wire_version: int = WIRE_VERSION
    slot: int | None = None  # a manager's


@dataclass(frozen=True)
class Welcome:
    """The answer to a Hello that was accepted."""

    node: int
    incarnation: int


@dataclass(frozen=True)
class Refusal:
    """The answer to a Hello that was not: an error's class and what it says."""

    error: str
    message: str
    facts: dict[str, Any]


@dataclass(frozen=True)
class Registered:
    """An endpoint says (again) what it holds open; a few hundred channels at a time. The last one has `complete`."""

    registrations: tuple[messages.Registrations, ...]
    complete: bool


@dataclass(frozen=True)
class Told:
    """An endpoint says, now and then, what it has counted since it last did; nobody answers."""

    tallies: tuple[messages.Tally, ...]


@dataclass(frozen=True)
class Asked:
    """An endpoint's request, as its concentrator passes it on to a manager; answered by what the endpoint gets."""

    endpoint: int
    request: bytes


@dataclass(frozen=True)
class ToBePushed:
    """What a manager pushes to some endpoints of a node, by way of their concentrator; answered by `Confirmations`."""

    endpoints: tuple[int, ...]
    push: bytes


@dataclass(frozen=True)
class Confirmations:
    """What each of those endpoints has answered: None for one that is gone, `Unconfirmed` where nothing came yet."""

    answers: tuple[bytes, ...]


@dataclass(frozen=True)
class Plain:
    """An answer that is plain data."""

    value: Any


_CLASSES: tuple[type, ...] = (
    Hello,
    Welcome,
    Refusal,
    Registered,
    Plain,
    messages.OpenChannel,
    messages.DeleteChannel,
    messages.RegisterProducer,
    messages.UnregisterProducer,
    messages.Subscribe,
    messages.Unsubscribe,
    messages.GetChannelStats,
    messages.GetStatus,
    messages.Definition,
    messages.Membership,
    messages.StatsWanted,
    messages.Derive,
    messages.Release,
    messages.GetModulator,
    messages.ModulatorGone,
    messages.Derived,
    messages.Installed,
    messages.OpenLog,
    messages.OpenGateway,
    messages.LogAddress,
    messages.LookUpChannel,
    messages.GetMembership,
    messages.GrantAtGateway,
    messages.RevokeAtGateway,
    Told,
    messages.NodeDrains,
    messages.Unconfirmed,
    Asked,
    ToBePushed,
    Confirmations,
)
_NUMBERS = {cls: number for number, cls in enumerate(_CLASSES)}
_DECODERS: tuple[msgspec.msgpack.Decoder[Any], ...] = tuple(msgspec.msgpack.Decoder(cls) for cls in _CLASSES)
_ENCODER = msgspec.msgpack.Encoder()

_ERRORS: dict[str, type[errors.EChannelError]] = {
    name: cls for name, cls in vars(errors).items() if isinstance(cls, type) and issubclass(cls, errors.EChannelError)
}


class MalformedMessage(ValueError):
    """A message of no class that we know, or with fields of other types."""


def encode(message: object) -> bytes:
    """A message as bytes; what is of none of the classes must be plain data."""
    number = _NUMBERS.get(type(message))
    if number is None:
        number, message = _NUMBERS[Plain], Plain(message)
    return bytes((number,)) + _ENCODER.encode(message)


def encode_error(error: errors.EChannelError) -> bytes:
    """An error as a `Refusal`; facts that are no plain data travel as their text."""
    facts = {}
    for name, fact in error.facts.items():
        try:
            _ENCODER.encode(fact)
        except (TypeError, ValueError, OverflowError):
            fact = repr(fact)
        facts[name] = fact
    return encode(Refusal(type(error).__name__, error.message, facts))


def decode(data: bytes | memoryview) -> Any:
    """The message; an encoded error is raised, and plain data comes as itself."""
    try:
        if not data:
            raise ValueError("empty")
        message = _DECODERS[data[0]].decode(data[1:])
    except (IndexError, ValueError, msgspec.DecodeError) as error:
        raise MalformedMessage(f"not a message: {error}") from None
    if isinstance(message, Refusal):
        raise error_class(message.error)(message.message, **message.facts)
    return message.value if isinstance(message, Plain) else message


def error_class(name: str) -> type[errors.EChannelError]:
    """The class of an error that travels by its name."""
    return _ERRORS.get(name, errors.EChannelError)
