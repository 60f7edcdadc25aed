"""Entries of a log as what a subscription gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from echannel_ray.formats.events import PLAIN, RECORD
from echannel_ray.formats.packs import PackBody, decode_events
from echannel_ray.logs.entries import FILE, Entry
from echannel_ray.protocol.kinds import BLOCK, Block, typed

_payloads: Final = msgspec.msgpack.Decoder(list[Any]).decode


def events_of(entry: Entry, start: int, stop: int) -> tuple[int, Any]:
    """Those of an entry's events that lie between two offsets, as a mailbox takes them: their kind, and the events."""
    begin, end = max(0, start - entry.first), min(entry.count, stop - entry.first)
    if entry.kind == BLOCK:
        return typed(BLOCK, entry.token), Block(entry.data, entry.count, begin, end)
    payloads = _payloads(entry.data)[begin:end]
    if entry.kind == RECORD:
        return typed(RECORD, entry.token), payloads
    if entry.kind == PLAIN:
        return PLAIN, payloads
    body = PackBody([], [], [], [], [], bytes((entry.kind,)), 0, 0.0, payloads)
    return PLAIN, decode_events(body)


def unfolded(entry: Entry) -> Iterator[Entry]:
    """The entry itself; where it stands for a file, those that this holds."""
    if entry.kind != FILE:
        yield entry
        return
    # Imported by the first file: it needs pyarrow.
    from echannel_ray.logs.files import entries_of_file

    yield from entries_of_file(entry)
