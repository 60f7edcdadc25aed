"""Events that are not decoded where they come in: for consumers that must not run anybody's code, such as gateways."""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from echannel_ray.core.kinds import BUFFERS, DATA, NOTICE, PICKLED
from echannel_ray.formats import pickled_data, plain
from echannel_ray.formats.events import Notice, decode
from echannel_ray.formats.packs import Decoded, decode_events

_SEALED: Final = frozenset({PICKLED, BUFFERS, DATA})
_LOOKED_AT: Final = 4096
_MAX_STEPS: Final = 64


class Sealed:
    """An event as it came: its kind, and the bytes, of which nobody has made anything."""

    __slots__ = ("kind", "payload")

    def __init__(self, kind: int, payload: Any) -> None:
        self.kind = kind
        self.payload = payload

    @property
    def size_bytes(self) -> int:
        """How many bytes it takes."""
        return len(self.payload)

    def opened(self) -> Any:
        """The event, where it is plain data; `plain.NotPlain` where only whoever unpickled it could tell."""
        if self.kind == DATA:
            return plain.decode(self.payload)
        if self.kind == PICKLED:
            return pickled_data.read(bytes(self.payload))
        raise plain.NotPlain("a pickle with buffers, which nobody reads here")

    def type_name(self) -> str:
        """What a pickle says that it is, as far as its beginning tells without being executed; else nothing."""
        if self.kind != PICKLED:
            return ""
        texts: list[str] = []
        try:
            for step, (opcode, argument, _) in enumerate(pickletools.genops(bytes(self.payload[:_LOOKED_AT]))):
                if opcode.name == "STACK_GLOBAL" and len(texts) > 1:
                    return f"{texts[-2]}.{texts[-1]}"[:256]
                if opcode.name == "GLOBAL":
                    return str(argument).replace(" ", ".")[:256]
                if isinstance(argument, str):
                    texts.append(argument)
                if step > _MAX_STEPS:
                    break
        except ValueError:  # what was left out of it, or it is none
            pass
        return ""


def sealed(kind: int, payload: Any) -> Any:
    """The event of `events.decode`, with what is neither a scalar nor a notice left sealed."""
    if kind in _SEALED:
        return Sealed(kind, payload)
    return Notice(payload) if kind == NOTICE else payload


def sealed_events(body: Decoded) -> list[Any]:
    """The events of a pack as sealed ones, in the way of `packs.decode_events`."""
    kinds = body.kinds
    if not kinds:
        return body.events
    if len(kinds) == 1:
        kinds *= len(body.events)
    return [sealed(kind, payload) for kind, payload in zip(kinds, body.events, strict=True)]


class Decoding(NamedTuple):
    """What becomes of what comes in at an endpoint: of the events of a pack, and of one that came in chunks."""

    events: Callable[[Decoded], Any]  # a list, or what stands for one
    event: Callable[[int, Any], Any]


ORDINARY: Final = Decoding(decode_events, decode)
SEALED: Final = Decoding(sealed_events, sealed)
