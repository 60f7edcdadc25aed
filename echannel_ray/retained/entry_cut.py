"""Parts of entries, for members of groups: who is given ten of a thousand events gets the bytes of ten."""

from __future__ import annotations

from typing import Final

import msgspec

from echannel_ray.core.kinds import BLOCK
from echannel_ray.logs.entries import FILE, Entry
from echannel_ray.records.known import known
from echannel_ray.records.sources import travelling_part
from echannel_ray.schemas.schema import LAYOUT

_payloads: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_encode: Final = msgspec.msgpack.Encoder().encode


def cut(entry: Entry, start: int, stop: int) -> Entry:
    """Those of its events that lie between two offsets, as an entry. All of them where they can't be told apart here: a
    file, columns of Arrow, a block of a format that this process does not know, and what is malformed.
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
            payloads = _payloads(entry.data)
        except msgspec.DecodeError:
            return entry  # whoever reads it says so
        if len(payloads) != entry.count:
            return entry
        data = _encode(payloads[begin:end])
    return msgspec.structs.replace(
        entry, first=entry.first + begin, count=end - begin, data=data, sequence=entry.sequence + begin
    )
