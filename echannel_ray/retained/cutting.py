"""Parts of entries, for members of groups: who is given ten of a thousand events gets the bytes of ten."""

from __future__ import annotations

from typing import Final

import msgspec

from echannel_ray.logs.entries import FILE, Entry
from echannel_ray.protocol.kinds import BLOCK

_payloads: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_encode: Final = msgspec.msgpack.Encoder().encode


def cut(entry: Entry, start: int, stop: int) -> Entry:
    """Those of its events that lie between two offsets, as an entry; all of what stands for a file, or is malformed."""
    begin, end = max(0, start - entry.first), min(entry.count, stop - entry.first)
    if (begin, end) == (0, entry.count) or entry.kind == FILE:
        return entry
    if entry.kind == BLOCK:
        record_bytes = len(entry.data) // entry.count
        data = entry.data[begin * record_bytes : end * record_bytes]
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
