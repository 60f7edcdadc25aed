"""What a modulator in a sandbox may ask of its producer: services, and the masters of its shared objects."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from echannel_ray import errors
from echannel_ray.formats import plain
from echannel_ray.sandbox import messages
from echannel_ray.sandbox.owner import ServiceFailed


class SandboxCalls:
    """The calls of one sandbox: it numbers them, and turns answers into values and errors."""

    def __init__(self, ask: Callable[[messages.Question], messages.Reply]) -> None:
        """`ask` sends a message, and blocks until it is answered."""
        self._ask = ask
        self._numbers = itertools.count(1)

    def service(self, name: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method of a service that was granted."""
        arguments = pack([list(args), kwargs])
        return self.value(lambda call: messages.CallService(call, name, method, arguments))

    def value(self, question: Callable[[int], messages.Question]) -> Any:
        """What a call returns, which is asked for under a number; raises what it has raised."""
        answer = self._ask(question(next(self._numbers)))
        if isinstance(answer, messages.CallReturned):
            return plain.decode(answer.value)
        raise rebuild(answer)


class SandboxLink:
    """The link of a shared object's copy in a sandbox to its master."""

    def __init__(self, calls: SandboxCalls, index: int) -> None:
        self._calls = calls
        self._index = index

    def publish(self, fields: dict[str, Any], expected_version: int | None) -> tuple[int, dict[str, Any]]:
        """Publish these fields; the new version, and all fields."""
        data = pack(fields)
        version, state = self._calls.value(
            lambda call: messages.PublishShared(call, self._index, data, expected_version)
        )
        return version, state

    def pull(self) -> tuple[int, dict[str, Any]]:
        """The newest version, and its fields."""
        version, state = self._calls.value(lambda call: messages.Pull(call, self._index))
        return version, state


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
