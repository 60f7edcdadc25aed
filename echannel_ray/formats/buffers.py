"""The wire layout of an event with large buffers, and what of it has to be copied.

    number of buffers, length of the pickle, length of each buffer     64-bit little-endian numbers
    the pickle
    each buffer, from the next multiple of 64 bytes on

64 bytes is what Arrow and vectorised loops like; where the payload itself starts decides whether they really get it.
"""

from __future__ import annotations

import struct
from typing import Any, Final

_ALIGNMENT: Final = 64
_PADDING: Final = bytes(_ALIGNMENT)
_HEAD: Final = struct.Struct("<QQ")


def pieces_of(data: bytes, views: list[memoryview]) -> list[bytes | memoryview]:
    """The payload in pieces, of which the caller's own memory is some."""
    lengths = [view.nbytes for view in views]
    header = struct.pack(f"<{2 + len(views)}Q", len(views), len(data), *lengths)
    pieces: list[bytes | memoryview] = [header, data]
    end = len(header) + len(data)
    for view, length in zip(views, lengths, strict=True):
        if end % _ALIGNMENT:
            padding = -end % _ALIGNMENT
            pieces.append(_PADDING[:padding])
            end += padding
        pieces.append(view)
        end += length
    return pieces


def kept(pieces: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """The pieces for good: memory that nobody can change is used where it is, all other is copied now."""
    frozen = [is_frozen(piece) for piece in pieces if type(piece) is memoryview]
    # Without frozen buffers one join makes the only copy, straight into a contiguous payload.
    if not any(frozen):
        return [b"".join(pieces)]
    keep = iter(frozen)
    return [bytes(piece) if type(piece) is memoryview and not next(keep) else piece for piece in pieces]


def split(payload: bytes | memoryview) -> tuple[memoryview, list[memoryview]]:
    """The pickle and its buffers, as read-only views of the payload; `ValueError` where it is no such payload."""
    view = memoryview(payload).toreadonly()
    total = view.nbytes
    if total < _HEAD.size:
        raise ValueError("an event with buffers is shorter than its header")
    count, length = _HEAD.unpack_from(view)
    at = _HEAD.size + 8 * count
    if at + length > total:
        raise ValueError("an event with buffers is shorter than its header says")
    lengths = struct.unpack_from(f"<{count}Q", view, _HEAD.size)
    data = view[at : at + length]
    at += length
    views = []
    for length in lengths:
        at += -at % _ALIGNMENT
        views.append(view[at : at + length])
        at += length
    if at != total:
        raise ValueError(f"an event with buffers has {total} bytes, and its header says {at}")
    return data, views


def is_frozen(view: memoryview) -> bool:
    """Whether nobody can change this memory.

    That the view is read-only says little: pandas hands out read-only views of memory that it then changes. So the
    chain of owners is followed (an array by `base`, a view by `obj`) to its end.
    """
    owner: Any = view
    while True:
        if type(owner) is bytes:
            return True
        if type(owner) is memoryview:
            if not owner.readonly:
                return False
            owner = owner.obj
            continue
        flags = getattr(owner, "flags", None)
        if flags is not None and getattr(flags, "writeable", False):
            return False
        if getattr(owner, "is_mutable", False):  # a pyarrow.Buffer
            return False
        base = getattr(owner, "base", None)
        if base is None:
            # An array that owns its memory and was made read-only; Arrow's memory, which is immutable by contract.
            return flags is not None or hasattr(owner, "is_mutable")
        owner = base
