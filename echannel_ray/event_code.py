"""E-code as the user writes it: text, or a function whose text is taken."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

from typing_extensions import override

from echannel_ray.core.messages import Shipment
from echannel_ray.programs.code import Code
from echannel_ray.programs.program import TYPES_OF_VALUES, Type
from echannel_ray.programs.source import ProgramSource, name_of, source_of
from echannel_ray.schemas import types
from echannel_ray.schemas.schema import RecordType, as_bytes
from echannel_ray.shared_object import SharedObject


class Ecode:
    """A program for `EventChannel.derive`; made by `ecode`."""

    def __init__(self, source: ProgramSource, output: Any) -> None:
        self.source = source
        self.output = output

    @override
    def __repr__(self) -> str:
        return f"<E-code {name_of(self.source)!r}>"


def ecode(source: str | Callable[..., Any], output: Any = None) -> Ecode:
    """E-code from its text, or from a function (of an event, an output and a parameter block: its text is taken, and it
    is never called). With an `output` type it makes events of that type; without one it is a filter.
    """
    return Ecode(source_of(source), output)


def as_ecode(modulator: Any) -> Ecode | None:
    """The program that was given for a modulator, itself or as text; None where a modulator was given."""
    if isinstance(modulator, Ecode):
        return modulator
    return ecode(modulator) if isinstance(modulator, str) else None


def shipped(program: Ecode, record: RecordType, params: Any) -> tuple[Shipment, bytes | None]:
    """The verified shipment that producers of a channel with these records get, and the schema of its output."""
    if params is not None and not isinstance(params, SharedObject):
        raise TypeError(
            f"params is a shared object, not {type(params).__name__}: derive its class from "
            "echannel_ray.SharedObject, with the fields that the program reads"
        )
    output = types.schema_of(program.output) if program.output is not None else None
    named = tuple(_params(type(params)).items()) if params is not None else ()
    code = Code(program.source, record, output, tuple((name, kind.value) for name, kind in named))
    code.check()
    data = code.as_bytes()
    shared = (params._echannel_ref(),) if params is not None else ()
    shipment = Shipment(name_of(program.source), "ecode", data, (), shared)
    return shipment, None if output is None else as_bytes(output)


def _params(cls: type[SharedObject]) -> dict[str, Type]:
    kinds = {}
    for name, field in cls.model_fields.items():
        annotation = field.annotation
        if typing.get_origin(annotation) is typing.Annotated:
            annotation = typing.get_args(annotation)[0]
        if annotation in TYPES_OF_VALUES:
            kinds[name] = TYPES_OF_VALUES[annotation]
    return kinds
