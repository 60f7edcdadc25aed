"""Records as JSON text on our own untyped channels: what the paper's XML was.

As msgspec recommends: one encoder and one decoder for all, bytes and no str. Only the format differs from a typed
channel, not the transport; a record ends as what it was, and not as a tree of objects.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

import echannel_ray as ec
from echannel_ray.consumers.bare_methods import bare

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class JsonRecords:
    """Records of a dtype as JSON objects, and back."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._names = dtype.names or ()

    def encode(self, record: Any) -> bytes:
        """The text of a record."""
        values = (value.tolist() if isinstance(value, np.ndarray) else value for value in record.item())
        return _encode(dict(zip(self._names, values, strict=True)))

    def decode(self, text: bytes) -> Any:
        """The record of a text."""
        fields = _decode(text)
        return np.array(tuple([fields[name] for name in self._names]), self._dtype)[()]


class JsonChannel:
    """What an `EventChannel` of such records is used for, by an untyped channel."""

    def __init__(self, name: str, records: JsonRecords) -> None:
        self.name = name
        self._channel = ec.channel(name)
        self._records = records

    def producer(self) -> JsonProducer:
        """Publishes records as text."""
        return JsonProducer(self._channel.producer(), self._records)

    def subscribe(self, handler: Any = None, batches: None = None) -> JsonSubscription | None:
        """Give the handler records; without one they are pulled."""
        decode = self._records.decode
        if handler is None:
            return JsonSubscription(self._channel.subscribe(), self._records)
        handle = bare(handler)  # as a typed channel calls it
        self._channel.subscribe(lambda text: handle(decode(text)))
        return None


class JsonProducer:
    """Publishes records as JSON text."""

    def __init__(self, producer: Any, records: JsonRecords) -> None:
        self.drain = producer.drain
        self._publish, self._encode = producer.publish, records.encode

    def publish(self, record: Any) -> None:
        """The record, as text."""
        self._publish(self._encode(record))


class JsonSubscription:
    """Gives records that came as JSON text, one by one."""

    def __init__(self, subscription: Any, records: JsonRecords) -> None:
        self._get, self._decode = subscription.get, records.decode

    def get(self, timeout: float) -> Any:
        """The next record."""
        return self._decode(self._get(timeout=timeout))
