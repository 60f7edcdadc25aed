"""How a batch is read in a sandbox, and what is said of what goes wrong there."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from echannel_ray.formats import events as formats
from echannel_ray.sandbox.sandbox_calls import text_of

_decode: Final = msgspec.msgpack.Decoder(tuple[bytes, list[Any]]).decode


def read_batch(data: bytes | memoryview, events: list[Any]) -> tuple[bool, BaseException | None]:
    """Fill `events`, up to the first that can't be decoded: whether all are scalars, and the error of that one."""
    kinds, payloads = _decode(data)
    if not kinds.strip(b"\0"):
        events += payloads
        return True, None
    decode = formats.decode
    add = events.append
    try:
        for kind, payload in zip(kinds, payloads, strict=True):
            add(decode(kind, payload))
    except BaseException as error:
        return False, CannotDecode(error)
    return False, None


class CannotDecode(Exception):
    """Stands for an event that this process can't make again (`.cause`)."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__("the event can't be decoded in the sandbox")
        self.cause = cause


def explain(error: BaseException, max_memory_bytes: int) -> str:
    """What a consumer reads of an error in its modulator."""
    if isinstance(error, CannotDecode):
        return f"{text_of(error)}: {explain(error.cause, max_memory_bytes)}"
    text = ": ".join(filter(None, (type(error).__name__, text_of(error))))
    if isinstance(error, MemoryError):
        text += f" (it needed more than max_memory_bytes, {round(max_memory_bytes / (1 << 20), 1):,g} MiB)"
    if isinstance(error, ImportError | PermissionError):
        name = getattr(error, "name", None) or "what it imports"
        text += f" (a sandbox reaches no files; list {name} in the producer's Admission(modules=...) to have it there)"
    return text
