"""How errors travel to a gateway's clients, where they are raised again as the same class."""

from __future__ import annotations

from typing import Any, Final

from echannel_ray import errors
from echannel_ray.logs.entries import Missing, NotStaged
from echannel_ray.transport import wire

# What a host may raise. Beside our own errors these are known by name; of `ValueError`, malformed requests are most.
_OTHERS: Final[dict[str, type[Exception]]] = {
    "Missing": Missing,
    "NotStaged": NotStaged,
    "LookupError": LookupError,
    "TimeoutError": TimeoutError,
    "ValueError": ValueError,
}
EXPECTED: Final[tuple[type[Exception], ...]] = (errors.EChannelError, *_OTHERS.values())
# gRPC refuses trailers of more than 8 KB or so, and with them the whole error.
_MAX_MESSAGE_CHARS: Final = 1500
_MAX_BYTES: Final = 6000


def described(error: Exception) -> tuple[str, str, dict[str, Any]]:
    """An error's class by name, its text, and its facts."""
    for name, cls in _OTHERS.items():
        if isinstance(error, cls):
            # `str` of a KeyError is the `repr` of what it says.
            message = str(error.args[0]) if isinstance(error, LookupError) and error.args else str(error)
            return name, message, {}
    if isinstance(error, errors.EChannelError):
        return type(error).__name__, error.message, error.facts
    return "EChannelError", f"the gateway failed: {error!r:.500}. Its log says where; other calls go on", {}


def again(name: str, message: str, facts: dict[str, Any]) -> Exception:
    """The error that was described so, made again."""
    if name in _OTHERS and name != "Missing":
        return _OTHERS[name](message)
    return wire.error_class(name)(message, **facts)


def encode(error: Exception) -> bytes:
    """An error as bytes, shortened where it is long; what is none of `EXPECTED` becomes an `EChannelError`."""
    if isinstance(error, Missing):
        return wire.encode(("Missing", (error.log, error.first, error.next)))
    name, message, _ = described(error)
    if name in _OTHERS:
        return wire.encode((name, (message[:_MAX_MESSAGE_CHARS],)))
    if not isinstance(error, errors.EChannelError):
        error = errors.EChannelError(message)
    data = wire.encode_error(error)
    if len(data) > _MAX_BYTES:
        data = wire.encode_error(type(error)(error.message[:_MAX_MESSAGE_CHARS]))
    return data


def decode(data: bytes) -> Exception:
    """The error that these bytes describe, made again."""
    try:
        name, arguments = wire.decode(data)
        return _OTHERS[name](*arguments)
    except errors.EChannelError as error:
        return error
    except (KeyError, TypeError, ValueError) as error:
        return errors.VersionMismatch(
            f"the gateway answered what is no error of ours ({error!r:.200}): it is of another version, so install the "
            "same one on both sides"
        )
