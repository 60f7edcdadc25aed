"""What stands in the places of events that can't be read, and how failures are told."""

from __future__ import annotations

from typing import Any, Final

from echannel_ray.errors import EChannelError, NotSerialisable
from echannel_ray.formats.events import Notice
from echannel_ray.formats.packs import Undecodable
from echannel_ray.transport import wire

PECULIAR: Final = frozenset({Undecodable, Notice})  # what may stand in the place of an event
_MAX_DESCRIPTION_BYTES: Final = 4096


def describe(error: BaseException) -> str:
    """A failure as it travels to whoever delivered: not too long, and fit for UTF-8."""
    try:
        text = f"{type(error).__name__}: {error}"
    except BaseException:  # of the user's own `__str__`
        text = type(error).__name__
    return text.encode("utf-8", "replace")[:_MAX_DESCRIPTION_BYTES].decode("utf-8", "ignore")


def undecodable(error: Exception, count: int) -> list[Any]:
    """What stands in the places of so many events that can't be read."""
    return [Undecodable(error, None)] * count


def unreadable(event: Undecodable) -> Exception:
    """The error to report for an event that could not be read here."""
    if isinstance(event.error, ImportError | AttributeError):
        advice = "make its class importable in this process (install the module, or put it into Ray's runtime_env)"
        reason = describe(event.error)
        return NotSerialisable(f"an event could not be read here: {reason}; {advice}", reason=reason)
    return event.error


def error_of(notice: Notice) -> EChannelError:
    """The error that a notice tells."""
    try:
        wire.decode(notice.error)
    except EChannelError as error:
        return error
    except wire.MalformedMessage as error:
        return EChannelError(f"a producer sent a notice that can't be read: {error}")
    return EChannelError("a producer sent a notice without an error")
