"""The body of a pack: one msgspec call for all its events.

A body is the array `[control, streams, firsts, counts, marks, kinds, delivery, stamp, events]`, with the tokens of the
runs' formats behind it where events are typed. What came from a socket is checked here, completely: whoever gets a
`PackBody` from `decode_body` need not look at its shape again.

Typed events stay as they are here: into what they are decoded depends on who subscribed (`records.reader`).
"""

from __future__ import annotations

import pickle
import struct
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol

import msgspec

from echannel_ray.core.frames import Buffer
from echannel_ray.core.gather import PackColumns
from echannel_ray.core.kinds import BLOCK, BUFFERS, DATA, GAP, IN_SEGMENT, NOTICE, PICKLED, PLAIN, RECORD, TOKEN_BYTES
from echannel_ray.core.segments import Lent
from echannel_ray.formats.events import decode

if TYPE_CHECKING:
    from echannel_ray.core.mixtures import MixedColumns

NOT_NEGATIVE = Annotated[int, msgspec.Meta(ge=0)]
_POSITIVE = Annotated[int, msgspec.Meta(ge=1)]
_LENT: Final = tuple(kind | IN_SEGMENT for kind in (PLAIN, PICKLED, BUFFERS, RECORD, BLOCK))
_ALL_KINDS: Final = bytes((PLAIN, PICKLED, BUFFERS, GAP, DATA, NOTICE, RECORD, BLOCK, *_LENT))
_TYPED: Final = frozenset({RECORD, BLOCK, RECORD | IN_SEGMENT, BLOCK | IN_SEGMENT})
_BLOCKS: Final = frozenset({BLOCK, BLOCK | IN_SEGMENT})
_BIN_HEAD: Final = struct.Struct(">BI")
_BYTES: Final = frozenset({bytes, memoryview})
_MIN_PIECE_BYTES: Final = 4096  # below, to copy is cheaper than to have one more piece
# Packs of events that are larger than this on average are not put together: they are kept, and written, in pieces.
_IN_PIECES_BYTES: Final = 8 << 10


class MalformedPack(ValueError):
    """What came is not the body of a pack: the peer is broken, or is no peer of ours."""


class Undecodable(msgspec.Struct, frozen=True):
    """Stands in the place of an event that could not be decoded here, such as one whose class can't be imported."""

    error: Exception
    payload: Any


class PackBody(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """A decoded body. `streams`, `firsts`, `counts` and `marks` are parallel, a run each; `stamp` is its time."""

    control: list[Any]
    streams: list[NOT_NEGATIVE]
    firsts: list[_POSITIVE]
    counts: list[_POSITIVE]
    marks: list[NOT_NEGATIVE]
    kinds: bytes
    delivery: NOT_NEGATIVE
    stamp: float
    events: list[Any]
    tokens: bytes = b""


class Decoded(Protocol):
    """The body of any pack: its kinds as `PackBody` has them, and an entry for each event."""

    @property
    def kinds(self) -> bytes:
        """One byte for all entries, or for each; nothing: all are PLAIN."""

    @property
    def events(self) -> list[Any]:
        """The entries."""


class _BytesBody(PackBody, array_like=True, forbid_unknown_fields=True, gc=False):
    # All but str: msgspec takes no union of str and bytes. It checks types at no cost; here that would double the cost.
    events: list[bool | int | float | bytes | None]


class _StrBody(PackBody, array_like=True, forbid_unknown_fields=True, gc=False):
    events: list[bool | int | float | str | None]


def refuse_extension(code: int, data: memoryview) -> Any:
    """Raise: no pack has an extension of msgpack."""
    raise MalformedPack(f"a pack has a msgpack extension ({code})")


_PLAIN_TYPES: Final = frozenset({type(None), bool, int, float, str, bytes})

_encode = msgspec.msgpack.Encoder().encode
_decode_bytes = msgspec.msgpack.Decoder(_BytesBody, ext_hook=refuse_extension).decode
_decode_str = msgspec.msgpack.Decoder(_StrBody, ext_hook=refuse_extension).decode
_decode_any = msgspec.msgpack.Decoder(PackBody, ext_hook=refuse_extension).decode


def encode_pack(columns: PackColumns | MixedColumns, gathered_bytes: int, stamp: float) -> list[Buffer]:
    """What was gathered, as the pieces of a body: one, or several where the events are large on average."""
    if not isinstance(columns, PackColumns):
        from echannel_ray.formats.mixed_packs import encode_mixed

        return encode_mixed(columns, stamp)
    parts = (
        columns.control, columns.streams, columns.firsts, columns.counts, columns.marks, columns.kinds,
        columns.delivery, stamp, columns.events, columns.tokens,
    )  # fmt: skip
    if gathered_bytes > _IN_PIECES_BYTES * len(columns.events) or (columns.kinds and max(columns.kinds) >= IN_SEGMENT):
        return _in_pieces(parts)
    return [_encode(parts if columns.tokens else parts[:-1])]


def _in_pieces(parts: tuple[Any, ...]) -> list[Buffer]:
    """The body in pieces, with large events uncopied among them, and each that is lent: it is kept with its lease."""
    start, events, tokens = parts[:-2], parts[-2], parts[-1]
    if tokens:  # behind the events, as the last of ten
        whole = _encode((*start, (), tokens))
        end = len(whole) - _bin_head_bytes(len(tokens)) - len(tokens)
    else:
        whole = _encode((*start, ()))
        end = len(whole)
    head = whole[: end - 1] + _array_head(len(events))  # in the place of the empty array
    pieces: list[Buffer] = []
    for event in events:
        if type(event) is Lent or (type(event) in _BYTES and len(event) >= _MIN_PIECE_BYTES):
            pieces += head + _BIN_HEAD.pack(0xC6, len(event)), event
            head = b""
        else:
            head += _encode(event)
    if tokens or head:
        pieces.append(head + whole[end:])
    return pieces


def _bin_head_bytes(count: int) -> int:
    return 2 if count < 1 << 8 else 3 if count < 1 << 16 else 5


def _array_head(count: int) -> bytes:
    return bytes((0x90 | count,)) if count < 16 else b"\xdd" + count.to_bytes(4, "big")


def decode_body(buffer: bytes | bytearray | memoryview) -> PackBody:
    """The body in `buffer`, or `MalformedPack`; its events are still to be decoded by their kinds."""
    try:
        body: PackBody = _decode_bytes(buffer)
    except msgspec.ValidationError:
        body = _decode_other(buffer)
    except (ValueError, RecursionError, MemoryError) as error:
        raise MalformedPack(f"not the body of a pack: {error}") from error
    counts = body.counts
    events = body.events
    if body.tokens or not _TYPED.isdisjoint(body.kinds):
        _check_typed(body)
        return body
    if len(counts) == 1:  # by far the most common, and worth 200 ns
        if not (len(body.streams) == 1 == len(body.firsts) == len(body.marks) and counts[0] == len(events)):
            raise MalformedPack("the one run of a pack does not match its events")
    elif not len(body.streams) == len(body.firsts) == len(body.marks) == len(counts) or sum(counts) != len(events):
        raise MalformedPack(f"the runs of a pack count {sum(counts)} events, and it has {len(events)}")
    if body.kinds:
        _check_kinds(body.kinds, events)
    return body


def decode_events(body: Decoded) -> list[Any]:
    """The events themselves, with an `Undecodable` in the place of each that can't be decoded in this process."""
    kinds = body.kinds
    events = body.events
    if not kinds:
        return events
    if len(kinds) == 1:
        if kinds[0] == PICKLED:
            return _unpickle_all(events)
        if kinds[0] in _TYPED:
            return events
        kinds *= len(events)
    decoded: list[Any] = []
    for kind, payload in zip(kinds, events, strict=True):
        try:
            decoded.append(payload if kind in _TYPED else decode(kind, payload))
        except Exception as error:
            decoded.append(Undecodable(error, payload))
    return decoded


def _unpickle_all(payloads: list[bytes]) -> list[Any]:
    """The usual pack of an untyped channel: nothing but `loads` in the loop."""
    decoded: list[Any] = []
    add = decoded.append
    loads = pickle.loads
    for payload in payloads:
        try:
            add(loads(payload))
        except Exception as error:
            add(Undecodable(error, payload))
    return decoded


def _decode_other(buffer: bytes | bytearray | memoryview) -> PackBody:
    """A body whose events are not all bytes and numbers: strings, then a mixture."""
    try:
        try:
            return _decode_str(buffer)
        except msgspec.ValidationError:
            body: PackBody = _decode_any(buffer)
    except (ValueError, RecursionError, MemoryError) as error:
        raise MalformedPack(f"not the body of a pack: {error}") from error
    if not _PLAIN_TYPES.issuperset(map(type, body.events)):
        raise MalformedPack("a pack has an event that is neither a scalar nor bytes")
    return body


def _check_typed(body: PackBody) -> None:
    """A pack with records: those of a block have one entry together, and each run of records says of which format."""
    counts, kinds, entries = body.counts, body.kinds, len(body.events)
    if not len(body.streams) == len(body.firsts) == len(body.marks) == len(counts):
        raise MalformedPack("the runs of a pack don't match")
    _check_kinds(kinds, body.events)
    if len(body.tokens) != TOKEN_BYTES * len(counts):
        raise MalformedPack("a pack has typed events, and not as many tokens of formats as runs")
    kinds = kinds * entries if len(kinds) == 1 else kinds
    at = 0
    for i, count in enumerate(counts):
        if at >= entries:
            raise MalformedPack("a pack has runs without events")
        has_token = any(body.tokens[i * TOKEN_BYTES : (i + 1) * TOKEN_BYTES])
        step = 1 if kinds[at] in _BLOCKS else count
        if has_token != (kinds[at] in _TYPED) or len(set(kinds[at : at + step])) != 1:
            raise MalformedPack("a run of a pack has events of several kinds, or a format that doesn't match them")
        at += step
    if at != entries:
        raise MalformedPack(f"the runs of a pack have {at} entries, and it has {entries}")


def _check_kinds(kinds: bytes, events: list[Any]) -> None:
    if kinds.translate(None, _ALL_KINDS):
        raise MalformedPack("a pack has events of unknown kinds")
    if len(kinds) == 1:
        if kinds[0] == PLAIN:
            return
        if kinds[0] != GAP:  # by far the most common: the check per event stays in C
            if not {bytes}.issuperset(map(type, events)):
                raise MalformedPack("a pack has a pickled event that is not bytes")
            return
        kinds *= len(events)
    elif len(kinds) != len(events):
        raise MalformedPack(f"a pack has {len(events)} events, and kinds for {len(kinds)}")
    for kind, event in zip(kinds, events, strict=True):
        if kind == GAP:
            if type(event) is not int or event < 1:
                raise MalformedPack("a pack has a gap that ends in no sequence number")
        elif kind and type(event) is not bytes:
            raise MalformedPack("a pack has a pickled event that is not bytes")
