"""What happens to an array between `publish_many` and the socket, and to a block behind it: without Ray or a link."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from echannel_ray.core.endpoint import EndpointCore
from echannel_ray.core.gather import PackColumns
from echannel_ray.core.kinds import BLOCK, as_wire, typed
from echannel_ray.core.messages import Consumer, Definition
from echannel_ray.endpoint.record_codec import RecordEncoder
from echannel_ray.formats.packs import decode_body, encode_pack
from echannel_ray.records import known
from echannel_ray.records.reader import Reader
from echannel_ray.records.writer import format_of
from echannel_ray.schemas import types
from echannel_ray.schemas.schema import Format

HERE, ELSEWHERE = 1, 2
STALLED_SECONDS = 10.0


class Sending:
    """A producer's own parts, put together without its locks and threads; what is to be written is thrown away."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        definition = Definition("records", types.describe(dtype), {}, formats=known.listed(format_of(dtype)))
        self._core = EndpointCore(HERE, HERE, encode_pack)
        self._stream = self._core.open_stream("records", "block", 1 << 62)
        self._core.members_changed(self._stream, (1, 1), [Consumer(ELSEWHERE, ELSEWHERE, 1, None)])
        endpoint: Any = SimpleNamespace(id=HERE, node=HERE, core=self._core)
        self._encoder = RecordEncoder(endpoint, definition, dtype, validate=False)
        self.encode = self._encoder.encode  # of one record: what a pack is filled with

    def seconds(self, array: Any, count: int) -> float:
        """Of publishing the array, so often."""
        stream, core, blocks = self._stream, self._core, self._encoder.blocks
        route: Any = stream.route
        began = time.perf_counter()
        for _ in range(count):
            for kind, data, records in blocks(array) or ():
                now = time.monotonic()
                core.publish_block(stream, kind, data, records, len(data), now)
                core.left(time.monotonic(), 0.0, 0.0)
        seconds = (time.perf_counter() - began) / count
        core.out.clear()
        route.flow.acknowledged(ELSEWHERE, core.packs_sent, time.monotonic())
        return seconds


class Receiving:
    """Packs of one block each that come over a socket and become arrays."""

    def __init__(self, reader: Reader, came: Format, block: bytes, records: int) -> None:
        kinds, tokens = as_wire([typed(BLOCK, came.token)], [records])
        columns = PackColumns([], [1], [1], [records], [len(block)], kinds, 0, [block], tokens=tokens)
        (self._body,) = encode_pack(columns, 0, time.time())
        self._reader, self._format, self._records = reader, came, records
        self._near, self._far = socket.socketpair()
        for end in (self._near, self._far):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            end.settimeout(STALLED_SECONDS)
        self._buffer = memoryview(bytearray(1 << 19))

    def seconds(self, count: int) -> float:
        """Of receiving so many: writing them is not counted."""
        seconds = 0.0
        body, buffer = self._body, self._buffer
        for _ in range(count):
            self._near.sendall(body)
            began = time.perf_counter()
            have = 0
            while have < len(body):
                have += self._far.recv_into(buffer[have:])
            (block,) = decode_body(buffer[:have]).events
            self._reader.batch_of_block(self._format, block, self._records)
            seconds += time.perf_counter() - began
        return seconds / count
