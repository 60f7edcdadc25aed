"""Length-prefixed frames over a blocking socket: all the protocol that the bare programs have."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

HEADER = struct.Struct("<IB")  # length of the body, kind
CHUNK_BYTES = 1 << 16  # below malloc's threshold of 128 KB, above which each `recv` maps and unmaps memory

ECHO, LAST, RAW, READ, BYTES, CALLS, PICKLE, DICT = range(8)


def frame(kind: int, body: bytes) -> bytes:
    """A frame in one piece, so that it goes out in one call."""
    return HEADER.pack(len(body), kind) + body


def send_large(connection: socket.socket, kind: int, body: bytes) -> None:
    """Send a frame whose body is too large to be copied behind its header."""
    connection.sendall(HEADER.pack(len(body), kind))
    connection.sendall(body)


def frames(connection: socket.socket) -> Iterator[tuple[int, bytes | bytearray]]:
    """The frames that arrive, until end of file."""
    rest = b""
    unpack, header_bytes = HEADER.unpack_from, HEADER.size
    while chunk := connection.recv(CHUNK_BYTES):
        data = rest + chunk if rest else chunk
        offset, end = 0, len(data)
        rest = b""
        while offset < end:
            if end - offset < header_bytes:
                rest = data[offset:]
                break
            length, kind = unpack(data, offset)
            body, offset = offset + header_bytes, offset + header_bytes + length
            if offset <= end:
                yield kind, data[body:offset]
            elif length <= CHUNK_BYTES:
                rest = data[body - header_bytes :]
                break
            else:
                yield kind, _rest_of_large(connection, data[body:], length)


def _rest_of_large(connection: socket.socket, begun: bytes, length: int) -> bytearray:
    """A body larger than a chunk, read into its place: a new object each time, as what is handed out must be."""
    whole = bytearray(length)
    whole[: len(begun)] = begun
    view, filled = memoryview(whole), len(begun)
    while filled < length:
        count = connection.recv_into(view[filled:])
        if not count:
            raise EOFError("the link ended inside a frame")
        filled += count
    return whole
