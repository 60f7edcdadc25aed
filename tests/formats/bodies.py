"""Bodies of packs of given contents, in the order in which the wire has them."""

from typing import Any

from echannel_ray.core.gather import PackColumns
from echannel_ray.formats.packs import encode_pack


def encode_body(
    control: Any, streams: Any, firsts: Any, counts: Any, marks: Any, kinds: bytes, delivery: int, stamp: float,
    events: Any, tokens: bytes = b"", *, gathered_bytes: int = 0,
) -> bytes:  # fmt: skip
    """The body as one piece; where much was gathered, made of several."""
    columns = PackColumns(control, streams, firsts, counts, marks, kinds, delivery, events, tokens=tokens)
    return b"".join(encode_pack(columns, gathered_bytes, stamp))


def encode_in_segments(*parts: Any) -> bytes:
    """The same, made of the pieces that large events are sent in."""
    return encode_body(*parts, gathered_bytes=1 << 40)
