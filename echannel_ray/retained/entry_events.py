"""Entries of a log as what a subscription gets, and parts of entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from echannel_ray.consumers.trouble import PECULIAR, undecodable
from echannel_ray.core.kinds import BLOCK, PLAIN, RECORD, Block, typed
from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
from echannel_ray.formats.packs import MalformedPack, PackBody
from echannel_ray.formats.sealed_events import ORDINARY, Decoding
from echannel_ray.logs.entries import FILE, Entry
from echannel_ray.records.known import known
from echannel_ray.records.sources import travelling_part
from echannel_ray.schemas.schema import LAYOUT

_payloads: Final = msgspec.msgpack.Decoder(list[Any]).decode
_raw_payloads: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_encode: Final = msgspec.msgpack.Encoder().encode


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
        endpoint.peculiar_seen = True
    if kind == PLAIN and entry.kind != PLAIN and not PECULIAR.isdisjoint(map(type, events)):
        endpoint.peculiar_seen = True
    return EntryPart(entry, start, stop, kind, events)


def events_of(entry: Entry, start: int, stop: int, decoding: Decoding = ORDINARY) -> tuple[int, Any]:
    """Those of an entry's events that lie between two offsets: their kind, and the events."""
    begin, end = max(0, start - entry.first), min(entry.count, stop - entry.first)
    if entry.kind == BLOCK:
        return typed(BLOCK, entry.token), Block(entry.data, entry.count, begin, end)
    payloads = _payloads(entry.data)
    if (begin, end) != (0, len(payloads)):
        payloads = payloads[begin:end]
    if len(payloads) != end - begin:
        raise MalformedPack(f"an entry of {entry.count} events has {begin + len(payloads)}")
    if entry.kind == RECORD:
        return typed(RECORD, entry.token), payloads
    if entry.kind == PLAIN:
        return PLAIN, payloads
    body = PackBody([], [], [], [], [], bytes((entry.kind,)), 0, 0.0, payloads)
    return PLAIN, decoding.events(body)


def cut(entry: Entry, start: int, stop: int) -> Entry:
    """Those of its events that lie between two offsets, as an entry: a member of a group who is given ten of a thousand
    gets the bytes of ten. All of them where they can't be told apart here: a file, columns of Arrow, a block of a
    format that this process does not know, and what is malformed.
    """
    begin, end = max(0, start - entry.first), min(entry.count, stop - entry.first)
    if (begin, end) == (0, entry.count) or entry.kind == FILE:
        return entry
    if entry.kind == BLOCK:
        format = known(entry.token)  # noqa: A001
        if format is None or format.encoding != LAYOUT:
            return entry
        try:
            data = travelling_part(format, entry.data, entry.count, begin, end)
        except ValueError:
            return entry
    else:
        try:
            payloads = _raw_payloads(entry.data)
        except msgspec.DecodeError:
            return entry  # whoever reads it says so
        if len(payloads) != entry.count:
            return entry
        data = _encode(payloads[begin:end])
    return msgspec.structs.replace(
        entry, first=entry.first + begin, count=end - begin, data=data, sequence=entry.sequence + begin
    )


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
