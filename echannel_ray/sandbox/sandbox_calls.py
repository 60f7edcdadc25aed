"""What calls of a modulator in a sandbox carry, and their answers: values, and errors in pieces and whole again."""

from __future__ import annotations

from typing import Any

from echannel_ray import errors
from echannel_ray.formats import plain
from echannel_ray.sandbox import messages
from echannel_ray.sandbox.owner import ServiceFailed


def pack(value: Any) -> bytes:
    """What a call carries, as bytes; `NotPlain` where it is no plain data or too much."""
    data = plain.encode(value)
    if len(data) > messages.MAX_CALL_BYTES:
        raise plain.NotPlain(f"a call of {len(data):,} bytes: the limit is {messages.MAX_CALL_BYTES:,}")
    return data


def take_apart(call: int, error: BaseException) -> messages.Refuse:
    """An error of the producer's as a message."""
    facts = {}
    for name, fact in getattr(error, "facts", {}).items():
        try:
            plain.encode(fact)
        except plain.NotPlain:
            continue
        facts[name] = fact
    return messages.Refuse(call, type(error).__name__, text_of(error), plain.encode(facts))


def rebuild(refusal: messages.Refuse) -> Exception:
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
    return text[: messages.MAX_TEXT].encode("utf-8", "replace").decode()
