"""Records of the classes that consumers have, made of their fields' values.

Nothing of the class runs: no `__init__`, no validator, no `__post_init__`. What was published is what arrives, as with
pickles. For each class and each schema that comes, the function that does it is made once.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from echannel_ray.formats import plain
from echannel_ray.records import class_hints, wire_types
from echannel_ray.records.class_hints import GENERIC
from echannel_ray.records.converters import Convert, converter_of
from echannel_ray.records.encoders import WIRE_ENCODE, encoder_of, record_encoder
from echannel_ray.records.generic import Record
from echannel_ray.schemas import schema
from echannel_ray.schemas.extension import lossless
from echannel_ray.schemas.members import is_missing, kind_of, members_of

Default: TypeAlias = Callable[[], Any]
_put: Final = object.__setattr__


def maker_of(source: schema.RecordType, target: schema.RecordType, cls: Any) -> Convert:
    """What makes a record of class `cls` (a `Record` for `GENERIC`) of the tuple of a source's values.

    `ValueError` where a field that the target requires does not come, or is of a type that does not fit.
    """
    names: dict[str, Any] = {}
    values: dict[str, str] = {}  # an expression for each field
    hints = class_hints.hints_of(cls)
    given_names: list[str] = []  # those that are not the class's own defaults
    for field in target.fields:
        given = source.field(field.name)
        if given is None:
            if cls is GENERIC and field.is_optional and field.default is None:
                continue  # not every record has it, and nobody can say what it would be
            is_own, names[f"d{len(values)}"] = _default(cls, field, hints.get(field.name, GENERIC))
            values[field.name] = f"d{len(values)}()"
            if not is_own:
                given_names.append(field.name)
            continue
        misfit = lossless(given.type, field.type)
        if misfit is not None:
            raise ValueError(f"field {field.name!r} can't be read: {misfit}")
        given_names.append(field.name)
        place = f"v{source.names.index(field.name)}"
        convert = converter_of(given.type, field.type, hints.get(field.name, GENERIC), maker_of)
        names[f"c{len(values)}"] = convert
        values[field.name] = place if convert is None else f"c{len(values)}({place})"
    lines = _MAKERS[kind_of(cls)](cls, values, names, given_names)
    taken = "".join(f"v{i}, " for i in range(len(source.fields)))
    body = "\n ".join([f"{taken[:-1]} = values" if taken else "", *lines])
    exec(f"def make(values):\n {body}", names)
    return names["make"]  # type: ignore[no-any-return]


_Lines: TypeAlias = list[str]


def _dict_text(values: dict[str, str]) -> str:
    return f"{{{', '.join(f'{name!r}: {value}' for name, value in values.items())}}}"


def _generic(cls: Any, values: dict[str, str], names: dict[str, Any], given: list[str]) -> _Lines:
    names["Record"] = Record
    return [f"return Record({_dict_text(values)})"]


def _typed_dict(cls: Any, values: dict[str, str], names: dict[str, Any], given: list[str]) -> _Lines:
    return [f"return {_dict_text(values)}"]


def _named_tuple(cls: Any, values: dict[str, str], names: dict[str, Any], given: list[str]) -> _Lines:
    names.update(cls=cls, new=tuple.__new__)
    return [f"return new(cls, ({''.join(f'{value}, ' for value in values.values())}))"]


def _dataclass(cls: Any, values: dict[str, str], names: dict[str, Any], given: list[str]) -> _Lines:
    names.update(cls=cls, new=cls.__new__)
    lines = ["made = new(cls)"]
    in_dict = []
    for name, value in values.items():
        slot = inspect.getattr_static(cls, name, None)
        if isinstance(slot, types.MemberDescriptorType):
            names[f"set_{name}"] = slot.__set__
            lines.append(f"set_{name}(made, {value})")
        else:
            in_dict.append(f"state[{name!r}] = {value}")  # past `__setattr__`, which may refuse
    if in_dict:
        lines += ["state = made.__dict__", *in_dict]
    return [*lines, "return made"]


def _pydantic(cls: Any, values: dict[str, str], names: dict[str, Any], given: list[str]) -> _Lines:
    from echannel_ray.formats.fields import bare

    names.update(cls=cls, put=_put, bare=bare, given=frozenset(given))
    if cls.__private_attributes__ or cls.model_config.get("extra") == "allow":
        lines = [f"made = bare(cls, {_dict_text(values)})"]
    else:
        names["new"] = cls.__new__
        lines = [
            "made = new(cls)",
            f"put(made, '__dict__', {_dict_text(values)})",
            "put(made, '__pydantic_extra__', None)",
            "put(made, '__pydantic_private__', None)",
        ]
    return [*lines, "put(made, '__pydantic_fields_set__', set(given))", "return made"]


def _struct(cls: Any, values: dict[str, str], names: dict[str, Any], given: list[str]) -> _Lines:
    # Not as keywords: a field may be called `from`.
    arguments = f"**{_dict_text({name: values[name] for name in given})}"
    if not hasattr(cls, "__post_init__"):
        names["cls"] = cls
        return [f"return cls({arguments})"]
    # A Struct can't be made without `__post_init__`, but one of a subclass whose own does nothing can change its class.
    twin = msgspec.defstruct(cls.__name__, [], bases=(cls,), namespace={"__post_init__": lambda self: None})
    names.update(cls=cls, twin=twin, force=msgspec.structs.force_setattr)
    return [f"made = twin({arguments})", "force(made, '__class__', cls)", "return made"]


_MAKERS: Final[dict[Any, Callable[[Any, dict[str, str], dict[str, Any], list[str]], _Lines]]] = {
    None: _generic,
    "typed dict": _typed_dict,
    "named tuple": _named_tuple,
    "dataclass": _dataclass,
    "pydantic": _pydantic,
    "struct": _struct,
}


def _default(cls: Any, field: schema.Field, annotation: Any) -> tuple[bool, Default]:
    """What makes the default of a field that does not come: its class's own (True), else what the schema has."""
    if not field.is_optional:
        raise ValueError(f"field {field.name!r} is missing, and has no default")
    kind = kind_of(cls)
    if kind is None or kind == "typed dict" or not _has_default(cls, field.name):
        return False, _written_default(field, annotation)
    if kind == "struct":
        return True, lambda: None  # the class fills it in
    if kind == "pydantic":
        declared = cls.__pydantic_fields__[field.name]
        return True, lambda: declared.get_default(call_default_factory=True)
    if kind == "named tuple":
        value = cls._field_defaults[field.name]
        return True, lambda: value
    return True, _of_dataclass(cls, field.name)


def _has_default(cls: Any, name: str) -> bool:
    return any(member.name == name and member.is_optional for member in members_of(cls))


def _of_dataclass(cls: Any, name: str) -> Default:
    (declared,) = (each for each in dataclasses.fields(cls) if each.name == name)
    if not is_missing(declared.default_factory):
        return declared.default_factory  # type: ignore[return-value]
    value: Any = declared.default
    if type(value).__name__ == "FieldInfo":  # a dataclass of pydantic's
        return lambda: value.get_default(call_default_factory=True)
    return lambda: value


def _written_default(field: schema.Field, annotation: Any) -> Default:
    """What makes the default that a schema has for a field."""
    assert field.default is not None
    value = encoder_of(field.type, GENERIC, record_encoder)(plain.decode(field.default))
    payload = WIRE_ENCODE(value)
    decode = wire_types.decoder_of(field.type)
    convert = converter_of(field.type, field.type, annotation, maker_of)
    # Each time another: it may be a list.
    return lambda: decode(payload) if convert is None else convert(decode(payload))
