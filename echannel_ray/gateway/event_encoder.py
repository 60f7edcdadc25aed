"""Events of a gateway's clients as producers and logs take them; none of them becomes a pickle."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from echannel_ray import errors
from echannel_ray.core.kinds import DATA, token_of, wire_kind
from echannel_ray.endpoint.record_codec import Encoded, RecordEncoder
from echannel_ray.formats import plain
from echannel_ray.formats.events import OVERHEAD_BYTES, encode
from echannel_ray.gateway.inward import inward
from echannel_ray.logs.entries import NewEntry

_SCALARS: Final = frozenset({bool, int, float, str, bytes, type(None)})
_payloads: Final = msgspec.msgpack.Encoder().encode


def plainly_encoded(event: Any) -> Encoded:
    """Plain data of an untyped channel as (kind, payload, size to account for)."""
    if type(event) in _SCALARS:
        return encode(event)
    try:
        data = plain.encode(event)
    except plain.NotPlain as error:
        raise errors.NotSerialisable(f"this can't be an event: {error}", path=error.path or None) from None
    return DATA, data, len(data) + OVERHEAD_BYTES


class EventEncoder:
    """Encodes events of one typed channel: each is a map of its fields."""

    def __init__(self, records: RecordEncoder) -> None:
        self._records = records
        self._make = inward(records.record)

    def encode(self, event: Any) -> Encoded:
        """The record; `TypeMismatch` or `NotSerialisable` where it is none."""
        if not isinstance(event, dict):
            channel = self._records.definition.channel
            raise errors.TypeMismatch(
                f"channel {channel!r} is typed, and {type(event).__name__} is no record: publish a map of its fields "
                f"({', '.join(self._records.record.names)})",
                channel=channel,
                field=None,
                got=type(event).__name__,
            )
        return self._records.encode(event if self._make is None else self._make(event))


def entries_of(encoded: Sequence[Encoded], now: float) -> list[NewEntry]:
    """Encoded events as entries of a log."""
    entries = []
    for kind, alike in itertools.groupby(encoded, lambda each: each[0]):
        payloads = [payload for _, payload, _ in alike]
        entries.append(NewEntry(len(payloads), wire_kind(kind), token_of(kind), _payloads(payloads), "", 0, now))
    return entries
