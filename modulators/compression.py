"""Compression: each event as fewer bytes, and back as it was.

Each event is compressed by itself. A stream's history would compress better, but a consumer that joins later, or one
to which something was dropped, could not read on.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

from typing_extensions import override

from echannel_ray.formats import plain
from echannel_ray.modulation.modulator import Demodulator, Modulator
from echannel_ray.modulators._checks import count
from echannel_ray.modulators._fields import as_made, as_plain, checked_make

# The first byte of what travels: so Decompress needs no settings, and what does not shrink goes as it is.
_AS_IT_IS: Final = b"\0"
_MARKS: Final = {"zlib": b"\1", "lzma": b"\2", "bz2": b"\3"}
_COMPRESS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "zlib": zlib.compress,
    "lzma": lambda data, level: lzma.compress(data, preset=level),
    "bz2": bz2.compress,
}
_LEVELS: Final = {"zlib": (0, 9), "lzma": (0, 9), "bz2": (1, 9)}
_USUAL_LEVEL: Final = {"zlib": 6, "lzma": 1, "bz2": 9}  # from lzma's level 6 on it takes 94 MB and more
_MAX_LZMA_BYTES: Final = 128 << 20  # level 9 needs 65 MB; what was made to, any amount
_DECOMPRESSORS: Final[dict[bytes, Callable[[], Any]]] = {
    b"\1": zlib.decompressobj,
    b"\2": lambda: lzma.LZMADecompressor(memlimit=_MAX_LZMA_BYTES),
    b"\3": bz2.BZ2Decompressor,
}


class Compress(Modulator):
    """Compresses each event without loss: text, bytes, arrays, any plain data, type for type. For `Decompress`.

    "zlib" is fast, "lzma" small and slow, "bz2" between them. An object of a class travels as the dict of its fields.

    >>> try_out(Compress(), ["to and fro, " * 100], Decompress()) == ["to and fro, " * 100]
    True
    """

    def __init__(self, method: Literal["zlib", "lzma", "bz2"] = "zlib", level: int | None = None) -> None:
        if method not in _COMPRESS:
            raise ValueError(f"the method is one of {', '.join(_COMPRESS)}, not {method!r}")
        lowest, highest = _LEVELS[method]
        self.method = method
        self.level = _USUAL_LEVEL[method] if level is None else count("level", level, at_least=lowest, at_most=highest)

    @override
    def enqueue(self, event: Any) -> None:
        data = plain.encode(as_plain(event))
        compressed = _COMPRESS[self.method](data, self.level)
        self.emit(_MARKS[self.method] + compressed if len(compressed) < len(data) else _AS_IT_IS + data)


class Decompress(Demodulator):
    """Undoes `Compress`. `make` is the class of the events, where they are objects: `make(**fields)` is called.

    What would need more than `max_bytes` is refused: a few bytes can be made to decompress to any amount.

    >>> try_out(Compress("lzma"), [("a tuple", {"of": b"things"})], Decompress())
    [('a tuple', {'of': b'things'})]
    """

    def __init__(self, make: Callable[..., Any] | None = None, max_bytes: int = 256 << 20) -> None:
        self.make = checked_make(make)
        self.max_bytes = count("max_bytes", max_bytes)

    @override
    def receive(self, event: Any) -> Iterable[Any]:
        if not isinstance(event, bytes):
            raise TypeError(f"Decompress reads what Compress has sent, not a {type(event).__qualname__}")
        return (as_made(self.make, plain.decode(self._decompressed(event[:1], event[1:]))),)

    def _decompressed(self, mark: bytes, data: bytes) -> bytes:
        if mark == _AS_IT_IS:
            return data
        if mark not in _DECOMPRESSORS:
            raise ValueError("Decompress reads what Compress has sent: these bytes were made by something else")
        decompressor = _DECOMPRESSORS[mark]()
        try:
            result: bytes = decompressor.decompress(data, self.max_bytes + 1)
        except (zlib.error, lzma.LZMAError, OSError) as error:
            raise ValueError(f"a compressed event is damaged: {error}") from None
        if len(result) > self.max_bytes:
            raise ValueError(
                f"a compressed event has more than {self.max_bytes:,} bytes: raise max_bytes of Decompress"
            )
        if not decompressor.eof or decompressor.unused_data:
            raise ValueError("a compressed event is damaged: it does not end where its bytes do")
        return result
