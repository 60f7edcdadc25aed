"""E-code as it is shipped: its text and the types that it was written for, as plain data."""

from __future__ import annotations

from typing import Final

import msgspec

from echannel_ray.errors import ModulatorRefused
from echannel_ray.programs import frontend
from echannel_ray.programs.program import Program, Type
from echannel_ray.programs.source import ProgramSource
from echannel_ray.schemas.schema import RecordType


class Code(msgspec.Struct, frozen=True, array_like=True):
    """What every producer verifies anew; nobody's word is taken for it."""

    source: ProgramSource
    record: RecordType  # what its events are
    output: RecordType | None  # what it makes of them; None: it only filters
    params: tuple[tuple[str, str], ...]  # fields of its shared object: name and `Type`

    @classmethod
    def of(cls, data: bytes) -> Code:
        """The code that was shipped; `ModulatorRefused` where it is no E-code."""
        try:
            return _decode(data)
        except msgspec.DecodeError as error:
            raise ModulatorRefused(f"what was shipped is no E-code: {error}", reason="malformed") from None

    def as_bytes(self) -> bytes:
        """The code as the bytes that `of` reads."""
        return _encode(self)

    def check(self) -> Program:
        """The verified program; `ModulatorRefused` says where it can't be one, and why."""
        try:
            params = {name: Type(kind) for name, kind in self.params}
        except ValueError as error:
            raise ModulatorRefused(f"what was shipped is no E-code: {error}", reason="malformed") from None
        return frontend.check(self.source, self.record, self.output, params)


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Code).decode
