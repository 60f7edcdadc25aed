"""Entries of a log as what a subscription gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from echannel_ray.consumers.trouble import PECULIAR, undecodable
from echannel_ray.core.kinds import BLOCK, PLAIN, RECORD, Block, typed
from echannel_ray.formats.packs import MalformedPack, PackBody
from echannel_ray.formats.sealed_events import ORDINARY, Decoding
from echannel_ray.logs.entries import FILE, Entry

if TYPE_CHECKING:
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint

_payloads: Final = msgspec.msgpack.Decoder(list[Any]).decode


class EntryPart(NamedTuple):
    """Events `start` to `stop - 1` of an entry, as an inbox takes them."""

    entry: Entry
    start: int
    stop: int
    kind: int
    events: Any


def decoded(entry: Entry, start: int, stop: int, endpoint: ProcessEndpoint) -> EntryPart:
    """Those of an entry's events that lie between two offsets. What can't be read is `Undecodable`."""
    try:
        kind, events = events_of(entry, start, stop, endpoint.decoding)
    except Exception as error:  # an entry is checked by nobody before it is logged
        kind, events = PLAIN, undecodable(error, stop - start)
    if kind == PLAIN and not PECULIAR.isdisjoint(map(type, events)):
        endpoint.peculiar_seen = True
    return EntryPart(entry, start, stop, kind, events)


def events_of(entry: Entry, start: int, stop: int, decoding: Decoding = ORDINARY) -> tuple[int, Any]:
    """Those of an entry's events that lie between two offsets: their kind, and the events."""
    begin, end = max(0, start - entry.first), min(entry.count, stop - entry.first)
    if entry.kind == BLOCK:
        return typed(BLOCK, entry.token), Block(entry.data, entry.count, begin, end)
    payloads = _payloads(entry.data)[begin:end]
    if len(payloads) != end - begin:
        raise MalformedPack(f"an entry of {entry.count} events has {begin + len(payloads)}")
    if entry.kind == RECORD:
        return typed(RECORD, entry.token), payloads
    if entry.kind == PLAIN:
        return PLAIN, payloads
    body = PackBody([], [], [], [], [], bytes((entry.kind,)), 0, 0.0, payloads)
    return PLAIN, decoding.events(body)


def unfolded(entry: Entry, as_bytes: bool = False) -> Iterator[Entry]:
    """The entry itself; where it stands for a file, those that this holds (see `entries_of_file`)."""
    if entry.kind != FILE:
        yield entry
        return
    # Imported by the first file: it needs pyarrow.
    from echannel_ray.logs.files import entries_of_file

    yield from entries_of_file(entry, as_bytes)


def size_of(entry: Entry) -> int:
    """How many bytes its data take, as they are."""
    data: Any = entry.data
    return len(data) if isinstance(data, bytes) else int(data.nbytes)
