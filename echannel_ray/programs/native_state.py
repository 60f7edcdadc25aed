"""The block of memory that native code works on beside the records: parameters, static variables, how it ended.

* at 0, the address of the Python object that is called where an event is run alone and something is wrong;
* at 8, what was wrong: 0 for an argument that is no such event, else the number of a trap, plus 2;
* at 16, the number that was wrong: an index, say;
* at 24, the parameters, 16 bytes each: the value, or the address and length of a text in UTF-32;
* then the static variables, 8 bytes for each value and item.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Sequence
from itertools import islice
from typing import Final

from echannel_ray.programs.program import Program, StaticVariable, Type

ASIDE_AT: Final = 0
STATUS_AT: Final = 8
DETAIL_AT: Final = 16
_PARAMS_AT: Final = 24
# Where the content of a `bytes` object begins: a header of a fixed size, and one NUL at the end that counts.
BYTES_CONTENT_AT: Final = bytes.__basicsize__ - 1

_UTF_32: Final = f"utf-32-{'le' if sys.byteorder == 'little' else 'be'}"

Value = bool | int | float | str


def param_at(slot: int) -> int:
    """The offset of a parameter in the state."""
    return _PARAMS_AT + 16 * slot


def static_at(program: Program, slot: int) -> int:
    """The offset at which a static variable begins in the state."""
    return param_at(len(program.params)) + 8 * sum(max(each.length, 1) for each in program.statics[:slot])


class NativeState:
    """The block. It is the content of a `bytes` object that nobody else sees, since such an object can stand for the
    block as the first argument of a function of Python's: there it costs one addition to find.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._statics_at = static_at(program, 0)
        size = static_at(program, len(program.statics))
        self.owner = bytes(size)
        self.address = id(self.owner) + BYTES_CONTENT_AT
        self._texts: list[bytes] = []
        self._statics = struct.Struct("=" + "".join(map(_codes, program.statics)))

    def set_address(self, at: int, address: int) -> None:
        """Put an address into the state."""
        ctypes.memmove(self.address + at, struct.pack("=Q", address), 8)

    @property
    def status(self) -> int:
        """The status of the event that was run alone last."""
        return int(struct.unpack("=q", ctypes.string_at(self.address + STATUS_AT, 8))[0])

    @property
    def detail(self) -> bytes:
        """The number that was wrong in the last trap."""
        return ctypes.string_at(self.address + DETAIL_AT, 8)

    def set_params(self, values: Sequence[Value]) -> None:
        """Set the parameters, in the program's order."""
        texts: list[bytes] = []
        packed = b""
        for parameter, value in zip(self._program.params, values, strict=True):
            if parameter.type is Type.TEXT:
                texts.append(str(value).encode(_UTF_32, "surrogatepass"))
                packed += struct.pack("=QQ", id(texts[-1]) + BYTES_CONTENT_AT, len(texts[-1]) // 4)
            else:
                packed += struct.pack("=d8x" if parameter.type is Type.FLOAT else "=q8x", value)
        ctypes.memmove(self.address + _PARAMS_AT, packed, len(packed))
        self._texts = texts

    @property
    def statics(self) -> list[Value | list[Value]]:
        """The static variables, in the program's order; lists for arrays."""
        flat = iter(self._statics.unpack(ctypes.string_at(self.address + self._statics_at, self._statics.size)))
        values: list[Value | list[Value]] = []
        for each in self._program.statics:
            read = [bool(item) if each.type is Type.BOOL else item for item in islice(flat, max(each.length, 1))]
            values.append(read if each.length else read[0])
        return values

    @statics.setter
    def statics(self, values: list[Value | list[Value]]) -> None:
        flat = [each for value in values for each in (value if isinstance(value, list) else [value])]
        ctypes.memmove(self.address + self._statics_at, self._statics.pack(*flat), self._statics.size)


def _codes(variable: StaticVariable) -> str:
    return ("d" if variable.type is Type.FLOAT else "q") * max(variable.length, 1)
