"""The body of a mixed pack: the columns of a mixture's events, as they lie in memory, and the events.

A body is the array `[control, mixture, kind, stamp, lanes, sequences, marks, events]`; the columns are bytes, with the
lowest byte of each number first. What came from a socket is checked here, completely, but for which lanes there are.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from echannel_ray.core.frames import Buffer
from echannel_ray.core.kinds import PICKLED, PLAIN, RECORD
from echannel_ray.core.mixtures import LANE_BYTES, MixedColumns
from echannel_ray.formats.packs import NOT_NEGATIVE, MalformedPack, refuse_extension

_KINDS: Final = frozenset({PLAIN, PICKLED, RECORD})
_NUMBER_BYTES: Final = 8


class MixedBody(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """A decoded body of a mixed pack: an entry of each column for each event."""

    control: list[Any]
    mixture: NOT_NEGATIVE
    kind: NOT_NEGATIVE
    stamp: float
    lanes: Any
    sequences: Any
    marks: Any
    events: list[Any]

    @property
    def kinds(self) -> bytes:
        """The kind as other packs have it: nothing where it is PLAIN."""
        return bytes((self.kind,)) if self.kind else b""


class _MixedBytes(MixedBody, array_like=True, forbid_unknown_fields=True, gc=False):
    # Not views: what was read is overwritten by what is read next.
    lanes: bytes
    sequences: bytes
    marks: bytes
    events: list[bytes]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_MixedBytes, ext_hook=refuse_extension).decode


def encode_mixed(columns: MixedColumns, stamp: float) -> list[Buffer]:
    """The body of a mixed pack: lanes, numbers and marks are columns of integers, as they lie in memory."""
    mixture = columns.mixture
    lanes = columns.lanes.astype("<u2", copy=False).tobytes()
    sequences = columns.sequences.astype("<i8", copy=False).tobytes()
    marks = columns.marks.astype("<i8", copy=False).tobytes()
    parts = columns.control, mixture.number, mixture.kind, stamp, lanes, sequences, marks, columns.events
    return [_encode(parts)]


def decode_mixed(buffer: bytes | bytearray | memoryview) -> MixedBody:
    """The body of a mixed pack in `buffer`, or `MalformedPack`; its events are still to be decoded by their kind."""
    try:
        body: MixedBody = _decode(buffer)
    except (ValueError, RecursionError, MemoryError) as error:
        raise MalformedPack(f"not the body of a mixed pack: {error}") from error
    count = len(body.events)
    if not count or body.kind not in _KINDS:
        raise MalformedPack(f"a mixed pack of {count} events of kind {body.kind}")
    if len(body.lanes) != LANE_BYTES * count or not len(body.sequences) == len(body.marks) == _NUMBER_BYTES * count:
        raise MalformedPack("the columns of a mixed pack don't match")
    body.lanes = np.frombuffer(body.lanes, "<u2")
    body.sequences = np.frombuffer(body.sequences, "<i8")
    body.marks = np.frombuffer(body.marks, "<i8")
    if body.sequences.min() < 1 or body.marks.min() < 0:
        raise MalformedPack("a mixed pack has events without numbers")
    return body
