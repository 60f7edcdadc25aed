"""The frames of a link: how each is laid out, and the checks that it passes before anybody believes it.

Rules:

* A frame is a header (length of what follows, type, flags, magic with the wire version) and a body of that length.
* Whatever does not parse raises `MalformedFrame`; the link that carried it is then closed, since its stream of bytes
  has lost its place (`framing` is what reads).
* A relay reads the fixed part of a pack (its flow, number and scope) and never looks into what follows.
* Types from ANSWER to RETURNED are *addressed*: they begin with the node and endpoint that they go to, and relays pass
  them on unread. A CALL to somebody who is gone is answered by the relay that knows it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from echannel_ray.ids import WIRE_VERSION

Buffer = bytes | bytearray | memoryview

MAGIC = 0xEC00 | WIRE_VERSION
# Longer ones are refused before a byte of them is kept. The longest legitimate frame is a pack (see `MAX_PACK_BYTES`)
# or a membership.
MAX_FRAME_BYTES = 8 << 20
# Until a peer has said who it is, it may send only a short greeting.
MAX_GREETING_BYTES = 64 << 10
# A pack is closed at this size: larger ones bring no throughput, and make everybody behind them wait.
MAX_PACK_BYTES = 128 << 10
# Events above this travel as chunks of this size, between which other packs may pass.
CHUNK_BYTES = 256 << 10

# Frame types.
HELLO, WELCOME, REFUSED, HEARTBEAT, GOODBYE = 1, 2, 3, 4, 5
FLOW, PACK, PROBE, ACK, UNKNOWN_FLOW, FLOW_ENDED, GONE, PATH_RESTORED = 16, 17, 18, 19, 20, 21, 22, 23
ANSWER, CREDIT, RESULT, RESULT_WANTED, CREDIT_WANTED, CALL, RETURNED = 32, 33, 34, 35, 36, 37, 38
REQUEST, REPLY, PUSH, PUSHED = 48, 49, 50, 51
# By direct links alone: memory is handed over (with descriptors beside the frame), and what became of that.
ARENA, ARENA_MAPPED, ARENA_DECLINED, ARENA_WITHDRAWN = 64, 65, 66, 67
FIRST_ADDRESSED, LAST_ADDRESSED = ANSWER, RETURNED

# Flags of a pack.
IS_CHUNK = 1
IS_RESENT = 2
IS_MIXED = 4
# Flag of a credit: the subscription was closed; what it has not handled is to go to other members of its group.
IS_FINAL = 1
# Flag of what a call returned: nobody is there to answer it, and nobody will be.
IS_NOBODY = 1

HEADER = struct.Struct("<IBBH")
HEADER_BYTES = HEADER.size
KEY = struct.Struct("<QI")  # endpoint, flow
KEY_BYTES = KEY.size
# endpoint, flow, number, scope: the node that it is meant for; 0 is all nodes of the flow
PACK_FIXED = struct.Struct("<QIQQ")
PACK_SCOPE_AT = PACK_FIXED.size - 8
PACK_HEAD = struct.Struct("<IBBHQIQQ")
# wire stream, sequence, mark, kind, delivery, total bytes, offset, token of the format
CHUNK_FIXED = struct.Struct("<IQQBQQQQ")
ACK_FIXED = struct.Struct("<QIQQ")  # endpoint, flow, number, node
FLOW_FIXED = struct.Struct("<QIQ")  # endpoint, flow, producer's node; then pairs of destination node and endpoint
ADDRESS = struct.Struct("<QQ")  # node, endpoint
ANSWER_FIXED = struct.Struct("<QQIQQQQ")  # address, flow, node, endpoint, received, probed
CREDIT_FIXED = struct.Struct("<QQIQIQ")  # address, stream, endpoint, subscription, mark
RESULT_FIXED = struct.Struct("<QQQQI")  # address, delivery, endpoint, subscription; then the failure, if any
RESULT_WANTED_FIXED = struct.Struct("<QQQQQI")  # address, delivery, producer's node and endpoint, subscription
CREDIT_WANTED_FIXED = struct.Struct("<QQQQIIQ")  # address, producer's node and endpoint, stream, subscription, mark
CALL_FIXED = struct.Struct("<QQQQQ")  # address, caller's node and endpoint, number; then what is asked
RETURNED_FIXED = struct.Struct("<QQQQ")  # address, endpoint that was called, number; then the answer
NUMBER = struct.Struct("<Q")
REQUEST_ID = struct.Struct("<Q")
ARENA_FIXED = struct.Struct("<IQ")  # arena, and how much of it and the producer's others may be held at a time
ARENA_NUMBER = struct.Struct("<I")

# The least length of each type's body: a shorter one is malformed.
_LEAST: dict[int, int] = {
    HELLO: 1,
    WELCOME: 1,
    REFUSED: 1,
    HEARTBEAT: 0,
    GOODBYE: 0,
    FLOW: FLOW_FIXED.size,
    PACK: PACK_FIXED.size,
    PROBE: PACK_FIXED.size,
    ACK: ACK_FIXED.size,
    UNKNOWN_FLOW: KEY.size,
    FLOW_ENDED: KEY.size,
    GONE: NUMBER.size,
    PATH_RESTORED: NUMBER.size,
    ANSWER: ANSWER_FIXED.size,
    CREDIT: CREDIT_FIXED.size,
    RESULT: RESULT_FIXED.size,
    RESULT_WANTED: RESULT_WANTED_FIXED.size,
    CREDIT_WANTED: CREDIT_WANTED_FIXED.size,
    CALL: CALL_FIXED.size,
    RETURNED: RETURNED_FIXED.size,
    REQUEST: REQUEST_ID.size,
    REPLY: REQUEST_ID.size,
    PUSH: REQUEST_ID.size,
    PUSHED: REQUEST_ID.size,
    ARENA: ARENA_FIXED.size,
    ARENA_MAPPED: ARENA_NUMBER.size,
    ARENA_DECLINED: ARENA_NUMBER.size,
    ARENA_WITHDRAWN: ARENA_NUMBER.size,
}
_EXACT = frozenset({
    HEARTBEAT, GOODBYE, PROBE, ACK, UNKNOWN_FLOW, FLOW_ENDED, GONE, PATH_RESTORED, ANSWER, CREDIT, RESULT_WANTED,
    CREDIT_WANTED, ARENA, ARENA_MAPPED, ARENA_DECLINED, ARENA_WITHDRAWN,
})  # fmt: skip
# By types: the lengths that a body may have. Those of an unknown type contradict each other.
LEAST_BODY = tuple(_LEAST.get(kind, MAX_FRAME_BYTES + 1) for kind in range(256))
MOST_BODY = tuple(_LEAST[kind] if kind in _EXACT else MAX_FRAME_BYTES for kind in range(256))


class MalformedFrame(ValueError):
    """Bytes that are no frame: the link that carried them can't be read any further."""

    def __init__(self, message: str, magic: int = MAGIC) -> None:
        super().__init__(message)
        self.magic = magic

    @property
    def wire_version(self) -> int | None:
        """The version that the peer speaks, where it is one of ours that speaks another."""
        return self.magic & 0xFF if self.magic >> 8 == MAGIC >> 8 and self.magic != MAGIC else None


class Flow(NamedTuple):
    """The body of a FLOW frame: who sends, and to whom."""

    endpoint: int
    flow: int
    node: int
    destinations: tuple[tuple[int, int], ...]


def frame(kind: int, body: Buffer = b"", flags: int = 0) -> bytes:
    """A whole frame as bytes."""
    return HEADER.pack(len(body), kind, flags, MAGIC) + body


def pack_head(endpoint: int, flow: int, number: int, scope: int, flags: int, body_bytes: int) -> bytes:
    """The head of a PACK frame whose body of `body_bytes` follows."""
    return PACK_HEAD.pack(PACK_FIXED.size + body_bytes, PACK, flags, MAGIC, endpoint, flow, number, scope)


def probe(endpoint: int, flow: int, number: int, scope: int) -> bytes:
    """A PROBE frame: `number` is the last pack sent before it."""
    return PACK_HEAD.pack(PACK_FIXED.size, PROBE, 0, MAGIC, endpoint, flow, number, scope)


def ack(endpoint: int, flow: int, number: int, node: int) -> bytes:
    """An ACK frame: all packs of the flow up to `number` have arrived at the node."""
    return frame(ACK, ACK_FIXED.pack(endpoint, flow, number, node))


def flow_declaration(endpoint: int, flow: int, node: int, destinations: Iterable[tuple[int, int]]) -> bytes:
    """A FLOW frame: the flow's packs go to these (node, endpoint) pairs."""
    pairs = b"".join(ADDRESS.pack(*pair) for pair in destinations)
    return frame(FLOW, FLOW_FIXED.pack(endpoint, flow, node) + pairs)


def parse_flow(body: Buffer) -> Flow:
    """The contents of a FLOW frame."""
    pairs = memoryview(body)[FLOW_FIXED.size :]
    if len(pairs) % ADDRESS.size:
        raise MalformedFrame("the destinations of a flow are cut short")
    endpoint, flow, node = FLOW_FIXED.unpack_from(body)
    return Flow(endpoint, flow, node, tuple(ADDRESS.iter_unpack(pairs)))


def check_header(length: int, kind: int, magic: int, max_bytes: int = MAX_FRAME_BYTES) -> None:
    """Raise `MalformedFrame` unless a frame of this header may follow."""
    if magic != MAGIC:
        raise MalformedFrame(f"magic {magic:#06x}, not {MAGIC:#06x}: another protocol, or another wire version", magic)
    if length > max_bytes:
        raise MalformedFrame(f"a frame of {length} bytes; the limit is {max_bytes}")
    if length < LEAST_BODY[kind]:
        raise MalformedFrame(f"{length} bytes are too short for a frame of type {kind}, or there is no such type")
    if length > MOST_BODY[kind]:
        raise MalformedFrame(f"{length} bytes are too long for a frame of type {kind}")
