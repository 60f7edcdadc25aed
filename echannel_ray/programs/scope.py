"""What the names of a program stand for: fields of the event and the output, parameters, variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from echannel_ray.programs import tree
from echannel_ray.programs.bounds import Bounds
from echannel_ray.programs.outputs import leaf_of
from echannel_ray.programs.program import TYPES_OF_VALUES, Leaf, StaticVariable, Type, Where
from echannel_ray.programs.program_refusals import Refused, closest, shown_name
from echannel_ray.programs.source import SourceNames
from echannel_ray.programs.tree import Expression
from echannel_ray.schemas.schema import Array, Bytes, Enum, List, RecordType, Text

# The variables that surely have a value at some place, and the fields of the output that were copied before it.
SetVariables = frozenset[int | tuple[str, ...]]
_BITS: Final = {Type.BOOL: 1, Type.INT: 64, Type.FLOAT: 64, Type.TEXT: 0}


class FieldPlace(NamedTuple):
    """A field, or a part of one, of the event or the output."""

    path: tuple[str, ...]
    type: Any  # of the schema: what it is behind all of `pending`
    is_output: bool
    shape: tuple[int | None, ...] = ()  # all arrays on the way
    indices: tuple[Expression, ...] = ()  # one for each of them that has one

    @property
    def pending(self) -> tuple[int | None, ...]:
        """The lengths of the arrays that have no index yet."""
        return self.shape[len(self.indices) :]

    @property
    def leaf(self) -> Leaf | None:
        """The leaf that it belongs to; None where programs can't read one."""
        match self.type:
            case Text():
                return Leaf(self.path, self.shape, Type.TEXT, 0)
            case Bytes():
                return Leaf(self.path, self.shape, Type.BYTES, 0)
            case Enum(members):
                kinds = {type(value) for _, value in members}
                values = TYPES_OF_VALUES.get(next(iter(kinds))) if len(kinds) == 1 else None
                return None if values is None else Leaf(self.path, self.shape, values, _BITS[values])
        return leaf_of(self.path, self.shape, self.type)

    @property
    def name(self) -> str:
        """The name of the place, as errors have it."""
        return ".".join(self.path) or ("the output" if self.is_output else "the event")


def entered(place: FieldPlace, type_: Any) -> FieldPlace:
    """The place where a field's own type is not looked into yet: arrays of it are pending."""
    shape = place.shape
    while isinstance(type_, Array | List):
        shape += type_.shape if isinstance(type_, Array) else (None,)
        type_ = type_.item
    return place._replace(type=type_, shape=shape)


@dataclass
class Scope:
    """Everything that a program has named so far."""

    record: RecordType
    output: RecordType | None
    given_params: Mapping[str, Type]
    names: SourceNames
    assigned_names: frozenset[str]  # all that the text assigns to: locals, whatever else is called so
    bounds: Bounds = field(default_factory=Bounds)
    locals: list[Type] = field(default_factory=list)
    slots: dict[str, int] = field(default_factory=dict)
    statics: dict[str, tuple[int, StaticVariable]] = field(default_factory=dict)
    leaves: dict[Leaf, None] = field(default_factory=dict)
    params: dict[str, tree.Param] = field(default_factory=dict)
    set_here: SetVariables | None = frozenset()  # None: nothing gets here

    def new_local(self, name: str, type_: Type) -> int:
        """A slot for a variable; without a name it is one that no text can mention."""
        self.locals.append(type_)
        slot = len(self.locals) - 1
        if name:
            self.slots[name] = slot
        return slot

    def has_value(self, slot: int | tuple[str, ...]) -> bool:
        """Whether a variable surely has a value here."""
        return self.set_here is None or slot in self.set_here

    def give_value(self, slot: int | tuple[str, ...]) -> None:
        """Note that a variable has a value from here on."""
        if self.set_here is not None:
            self.set_here |= {slot}

    def root(self, name: str) -> FieldPlace | None:
        """What a name stands for, if it is the event, the output or a field."""
        names = self.names
        if name == names.event:
            return FieldPlace((), self.record, False)
        if name == names.output and self.output is not None:
            return FieldPlace((), self.output, True)
        found = self.record.field(name) if names.has_bare_fields and name not in (names.output, names.param) else None
        return None if found is None else entered(FieldPlace((name,), found.type, False), found.type)

    def part(self, place: FieldPlace, name: str, where: Where) -> FieldPlace:
        """A field of a record."""
        if place.pending:
            raise Refused(f"{place.name} is an array: {place.name}[i].{shown_name(name)} is a field of one item", where)
        if not isinstance(place.type, RecordType):
            raise Refused(f"{place.name} has no fields: it is no record", where)
        found = place.type.field(name)
        if found is None:
            hint = closest(name, place.type.names)
            raise Refused(f"{place.name} has no field {shown_name(name)}{hint}", where)
        return entered(place._replace(path=(*place.path, name)), found.type)

    def param(self, name: str, where: Where) -> tree.Param:
        """A parameter, which is read from now on."""
        type_ = self.given_params.get(name)
        if type_ is None:
            hint = closest(name, self.given_params) or (
                "" if self.given_params else ": this program was given no parameters"
            )
            raise Refused(f"there is no parameter {shown_name(name)}{hint}", where)
        return self.params.setdefault(name, tree.Param(type_, len(self.params)))

    def unknown(self, name: str, where: Where) -> Refused:
        """The error for a name that stands for nothing."""
        known = [*self.slots, *self.statics]
        known += self.record.names if self.names.has_bare_fields else [self.names.event, self.names.output]
        hint = closest(name, filter(None, known))
        if not hint and name == "output":
            hint = ": this program is a filter, whose output is the event itself"
        elif not hint and not self.names.has_bare_fields:
            hint = ": what is outside of the function can't be had, but as a parameter"
        elif not hint:
            fields = self.record.names
            hint = f": the event's fields are {', '.join(fields[:8])}{', …' if len(fields) > 8 else ''}"
        return Refused(f"{shown_name(name)} is not known here{hint}", where)
