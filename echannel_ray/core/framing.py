"""The frames of one link, found in the bytes that it brings. Endpoints and concentrators have no other reader.

Rules:

* Bytes come in whatever pieces the transport gives. What is cut short at the end of a piece waits for the next one.
* A header is judged before a byte of the body is waited for: another magic, an unknown type, and a length that the type
  can't have raise `MalformedFrame`. The link's bytes have lost their place then, and the link is to be closed.
* Until the peer has greeted, `max_bytes` is small: a stranger can't make anybody keep much.

The bytes themselves lie in a buffer of the caller's, which many framers may take turns to use.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap

from echannel_ray.core.frames import (
    HEADER,
    HEADER_BYTES,
    LEAST_BODY,
    MAGIC,
    MAX_FRAME_BYTES,
    MOST_BODY,
    check_header,
)

_HEADER_FROM = HEADER.unpack_from
Found = tuple[int, int, int, int]  # type, flags, and where the body starts and stops


class Framer:
    """What one link has brought of a frame that is not whole yet."""

    __slots__ = ("max_bytes", "needed_bytes", "rest")

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self.max_bytes = max_bytes
        self.rest: bytes | bytearray = b""
        self.needed_bytes = HEADER_BYTES  # that the buffer must hold for the next frame, as far as is known

    def begin(self, buffer: bytearray | mmap) -> int:
        """Put what waits at the front of the buffer; how many bytes it is. The next ones go behind it."""
        have = len(self.rest)
        if have:
            buffer[:have] = self.rest
        return have

    def frames(self, buffer: bytes | bytearray | mmap, end: int) -> Iterator[Found]:
        """The whole frames in `buffer[:end]`, in order."""
        position = 0
        self.needed_bytes = HEADER_BYTES
        while end - position >= HEADER_BYTES:
            length, kind, flags, magic = _HEADER_FROM(buffer, position)
            # One that is too long for its type is refused like one that is too short.
            if magic != MAGIC or not LEAST_BODY[kind] <= length <= MOST_BODY[kind] or length > self.max_bytes:
                check_header(length, kind, magic, self.max_bytes)
            body = position + HEADER_BYTES
            following = body + length
            if following > end:
                self.needed_bytes = HEADER_BYTES + length
                break
            yield kind, flags, body, following
            position = following
        self.rest = buffer[position:end] if position < end else b""
