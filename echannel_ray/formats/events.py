"""How one event becomes bytes and back, type for type.

Three kinds, cheapest first:

* `PLAIN`: the object itself goes into the pack's msgpack list. Only for exact types that msgspec gives back unchanged,
  so no container (tuples inside would come back as lists).
* `PICKLED`: pickle protocol 5, everything in-band.
* `BUFFERS`: pickle protocol 5 with the large buffers (arrays, Arrow tables) behind the pickle, used there in place.

The C pickler does the work. What it gets wrong for another process is found in the bytes afterwards, which costs a few
nanoseconds where there is nothing to find: things defined in `__main__` (pickled by reference, which another process
can't follow) and Ray's `ObjectRef` (which must not travel so). Those events go through `by_value`, as does what the C
pickler refuses.

Tried and rejected: a pickler object with `reducer_override` for every event (4 times `pickle.dumps` for a small dict);
msgspec for containers after a check of their types in Python (a gain for a dict of three scalars, 197 against 227 ns to
write; for a list of 100 ints 1,880 against 711); marshal (153 and 1,776, and it turns arrays and bytearrays into bytes
without a word); a pickler that is used again and again (as long as `dumps`, and two threads must not have it at once).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Final

from echannel_ray.core.kinds import BUFFERS, DATA, GAP, NOTICE, PICKLED, PLAIN
from echannel_ray.formats import buffers, by_value, plain
from echannel_ray.formats.refusals import refusal

# What a waiting event costs besides its bytes (object header, slots in lists): windows count it, so that a flood of
# empty events is bounded too. The hot path of a producer adds it to len(event) itself.
OVERHEAD_BYTES: Final = 48

# Buffers below this travel inside the pickle, where an array arrives writable if it was; from here on sparing
# the receiver's copy is worth the header, the padding and the second pass of the pickler.
MIN_BUFFER_BYTES: Final = 16_384

# STACK_GLOBAL: a pickle without this byte names no class or function at all. One memchr decides most dicts and lists.
_GLOBAL: Final = 0x93
# As the C pickler writes them: SHORT_BINUNICODE, length, text, MEMOIZE. A name's first use is always spelled out so.
_MAIN: Final = b"\x8c\x08__main__\x94"
_OBJECT_REF: Final = b"\x8c\x09ObjectRef\x94"
# The pickler writes strings of bytes from this size on outside its frames: the search need not go through them.
_UNFRAMED_BYTES: Final = 65_536
_FRAME: Final = 0x95
_BINUNICODE_OR_BINBYTES: Final = b"XB"
_LONG_FORMS: Final = b"\x8d\x8e\x96"  # BINUNICODE8, BINBYTES8, BYTEARRAY8

MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**64 - 1
_SCALARS: Final[frozenset[type]] = frozenset({bool, int, float, str, type(None)})
_SCALAR_BYTES: Final = 9
_SCALAR_SIZE: Final = _SCALAR_BYTES + OVERHEAD_BYTES
_WITH_LENGTHS: Final = frozenset({bytes, str})

# What makes of the pieces of an event, which are the caller's own memory, a payload that nobody can change.
Keep = Callable[["list[bytes | memoryview]"], Any]

# Those of NumPy's classes of which a large one has come: their buffers are collected at once, not after a first try.
_buffered: Final[set[type]] = set()

_dumps = pickle.dumps
_loads = pickle.loads


class Notice:
    """What stands in the place of an event where there is an error to tell instead; still encoded."""

    __slots__ = ("error",)

    def __init__(self, error: bytes) -> None:
        self.error = error


class _LargeBuffer(Exception):
    """Tells `encode` from inside the pickler that this event has a buffer worth sending out of band."""


def encode(event: object, keep: Keep = buffers.kept) -> tuple[int, Any, int]:
    """The event as (kind, payload, size to account for); `NotSerialisable` where that is impossible.

    The payload is the event itself (`PLAIN`), bytes (`PICKLED`), or a list of bytes and memoryviews which joined are
    the payload (`BUFFERS`), which `keep` has made of pieces of the event itself. Nothing of it changes when the caller
    changes the event afterwards.
    """
    kind = type(event)
    if kind is bytes:
        return PLAIN, event, len(event) + OVERHEAD_BYTES  # type: ignore[arg-type]
    if kind in _SCALARS:
        size = _scalar_size(event)
        if size:
            return PLAIN, event, size
    if kind in _buffered:
        return _encode_buffers(event, keep)
    try:
        # A callback that is the same for all events costs 110 ns; a list for each, to collect its buffers in, 165.
        data = _dumps(event, 5, buffer_callback=_in_band_if_small)
    except _LargeBuffer:
        if kind.__module__ == "numpy":  # other classes may come and go
            _buffered.add(kind)
        return _encode_buffers(event, keep)
    except Exception as error:
        return _encode_by_value(event, error, keep)
    if _GLOBAL in data and _needs_by_value(data):
        return _encode_by_value(event, None, keep)
    return PICKLED, data, len(data) + OVERHEAD_BYTES


def pickle_of_simple(event: object) -> bytes | None:
    """The payload of a `PICKLED` event, where it is small and the C pickler alone can write it; else None."""
    try:
        # What is smaller than a large buffer has none: no callback has to look for them, which is 110 of 360 ns.
        data = _dumps(event, 5)
    except Exception:
        return None
    if len(data) >= MIN_BUFFER_BYTES or (_GLOBAL in data and _needs_by_value(data)):
        return None
    return data


def _pickle_of_short(event: Any) -> bytes | None:
    # Of bytes and texts, which name no class, and of which no long one is pickled for nothing.
    return _dumps(event, 5) if len(event) < MIN_BUFFER_BYTES else None


def _pickle_of_scalar(event: Any) -> bytes:
    return _dumps(event, 5)


# Of these classes a pickle is nearly always small and names no class. For each: the kind, what writes it where it is
# simple, and what one is accounted for, which varies.
SIMPLE_WRITERS: Final[dict[type, tuple[int, Callable[[Any], bytes | None], int]]] = {
    **dict.fromkeys((dict, list, tuple, set, frozenset), (PICKLED, pickle_of_simple, 0)),
    **dict.fromkeys((bytes, str), (PICKLED, _pickle_of_short, 0)),
    **dict.fromkeys(_SCALARS - {str}, (PICKLED, _pickle_of_scalar, 0)),
}


def size_of(payloads: list[Any], has_wide: bool = True) -> int:
    """What to account for `PLAIN` events, of which a text may be not ASCII where it `has_wide` ones: then
    `UnicodeEncodeError` where UTF-8 has no place for one.
    """
    count = len(payloads)
    try:
        if not has_wide:
            return sum(map(len, payloads)) + OVERHEAD_BYTES * count
    except TypeError:  # there are numbers among them
        pass
    if _WITH_LENGTHS.isdisjoint(map(type, payloads)):
        return _SCALAR_SIZE * count
    texts = "".join([each for each in payloads if type(each) is str])
    others = [len(each) if type(each) is bytes else _SCALAR_BYTES for each in payloads if type(each) is not str]
    return len(texts.encode()) + sum(others) + OVERHEAD_BYTES * count


def decode(kind: int, payload: Any) -> Any:
    """The event that `encode` got. A `BUFFERS` payload is contiguous, and large arrays are read-only views of it."""
    if kind == PICKLED:
        return _loads(payload)
    if kind in (PLAIN, GAP):
        return payload
    if kind == BUFFERS:
        data, views = buffers.split(payload)
        return _loads(data, buffers=views)
    if kind == DATA:
        return plain.decode(payload)
    if kind == NOTICE:
        return Notice(payload)
    raise ValueError(f"there is no kind {kind} of event")


def _scalar_size(event: Any) -> int:
    """What to account for a scalar that msgspec gives back unchanged; 0 for one that pickle must carry."""
    if type(event) is str:
        if event.isascii():
            return len(event) + OVERHEAD_BYTES
        try:
            return len(event.encode()) + OVERHEAD_BYTES
        except UnicodeEncodeError:  # a lone surrogate, which UTF-8 has no place for
            return 0
    if type(event) is int and not MIN_INT <= event <= MAX_INT:
        return 0
    return _SCALAR_SIZE


def _in_band_if_small(buffer: pickle.PickleBuffer) -> bool:
    if buffer.raw().nbytes < MIN_BUFFER_BYTES:
        return True
    raise _LargeBuffer  # a new one each time: one that is raised again keeps the frames of all earlier times alive


def _encode_buffers(event: object, keep: Keep) -> tuple[int, Any, int]:
    """The event as bytes, by a second pass that takes large buffers out of the pickle."""
    views: list[memoryview] = []
    try:
        data = _dumps(event, 5, buffer_callback=_collector(views))
    except Exception as error:
        return _encode_by_value(event, error, keep)
    if _needs_by_value(data):
        return _encode_by_value(event, None, keep)
    return _lay_out(data, views, keep)


def _encode_by_value(event: object, error: Exception | None, keep: Keep) -> tuple[int, Any, int]:
    """The slow way, for what the C pickler refused (`error`) or may have pickled wrongly."""
    if isinstance(error, RecursionError):
        raise refusal(event, error) from error
    views: list[memoryview] = []
    try:
        data = by_value.dumps(event, _collector(views))
    except Exception as second:
        raise refusal(event, second) from second
    return _lay_out(data, views, keep)


def _needs_by_value(data: bytes) -> bool:
    """Whether a pickle of the C pickler may name what another process can't find, or an ObjectRef."""
    if len(data) < _UNFRAMED_BYTES:
        return data.find(_MAIN) >= 0 or data.find(_OBJECT_REF) >= 0
    # An image in a dict: going through its bytes would take longer than pickling them (454 against 390 µs per MB).
    at = 2  # after the protocol's number
    while at < len(data):
        opcode = data[at]
        if opcode in _BINUNICODE_OR_BINBYTES:
            at += 5 + int.from_bytes(data[at + 1 : at + 5], "little")
        elif opcode in _LONG_FORMS:
            at += 9 + int.from_bytes(data[at + 1 : at + 9], "little")
        else:
            # Frames of less than four bytes have no header: then all of the rest is gone through.
            end = at + 9 + int.from_bytes(data[at + 1 : at + 9], "little") if opcode == _FRAME else len(data)
            if data.find(_MAIN, at, end) >= 0 or data.find(_OBJECT_REF, at, end) >= 0:
                return True
            at = end
    return False


def _collector(views: list[memoryview]) -> Callable[[pickle.PickleBuffer], bool]:
    def in_band(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < MIN_BUFFER_BYTES:
            return True
        views.append(view)
        return False

    return in_band


def _lay_out(data: bytes, views: list[memoryview], keep: Keep) -> tuple[int, Any, int]:
    if not views:
        return PICKLED, data, len(data) + OVERHEAD_BYTES
    pieces = keep(buffers.pieces_of(data, views))
    return BUFFERS, pieces, sum(map(len, pieces)) + OVERHEAD_BYTES
