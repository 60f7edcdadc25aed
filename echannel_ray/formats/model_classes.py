"""Classes of pydantic models by value, as their authors wrote them.

What pydantic makes of a class holds numbers that differ from process to process, and is most of what cloudpickle would
take. So a class goes as its definition and is made anew, which reads no file: also where it arrives in a sandbox.
"""

from __future__ import annotations

import copy
import types
from typing import Any, ClassVar, Final

from pydantic import BaseModel
from typing_extensions import Format, get_annotations

from echannel_ray.errors import NotSerialisable

_DECORATORS: Final = "__echannel_decorators__"
_OF_PYDANTIC: Final = frozenset(
    {"__annotations__", "__annotate_func__", "__annotations_cache__", "__conditional_annotations__",
     "__class_vars__", "__dict__", "__module__", "__qualname__", "__private_attributes__", "__signature__",
     "__weakref__", "__abstractmethods__", "_abc_impl", "__firstlineno__", "__static_attributes__", "__parameters__",
     "__hash__", "model_post_init"}
)  # fmt: skip


def definition_of(cls: type[BaseModel]) -> tuple[str, str, str, tuple[type, ...], dict[str, Any]]:
    """What `rebuild_class` makes the class again of. All parts can be pickled where the author's own can."""
    namespace: dict[str, Any] = {}
    annotations: dict[str, Any] = {}
    decorators = _own_decorators(cls)
    for name, value in vars(cls).items():
        is_made = name.startswith("__pydantic_") or name in _OF_PYDANTIC
        is_made = is_made or isinstance(value, types.MemberDescriptorType)
        if not is_made:
            namespace[name] = value
            if name in cls.__class_vars__:
                annotations[name] = ClassVar[Any]
    for name in get_annotations(cls, format=Format.FORWARDREF):
        field = cls.__pydantic_fields__.get(name)
        if field is not None:
            annotations[name] = field.annotation
            namespace.update(_default_of(name, field))
    inherited = [getattr(base, "__private_attributes__", {}) for base in cls.__mro__[1:]]
    private = cls.__private_attributes__.items()
    namespace.update({n: each for n, each in private if not any(each is other.get(n) for other in inherited)})
    original = _own_post_init(cls)
    if original is not None:
        namespace["model_post_init"] = original
    namespace["__annotations__"] = annotations
    if decorators:
        namespace[_DECORATORS] = decorators
    return cls.__name__, cls.__module__, cls.__qualname__, cls.__bases__, namespace


def rebuild_class(
    name: str, module: str, qualname: str, bases: tuple[type, ...], namespace: dict[str, Any]
) -> type[BaseModel]:
    """The class again, from what `definition_of` has said; pickles call it."""
    from pydantic._internal._decorators import PydanticDescriptorProxy

    body = dict(namespace)
    for attribute, info in body.pop(_DECORATORS, {}).items():
        body[attribute] = PydanticDescriptorProxy(body[attribute], info)
    body.update(__module__=module, __qualname__=qualname)
    made: type[BaseModel] = types.new_class(name, bases, {}, lambda ns: ns.update(body))
    return made


def _default_of(name: str, field: Any) -> dict[str, Any]:
    """What stands behind an annotation in the class, by the field's name; empty where nothing does."""
    if not field.metadata and not field._attributes_set.keys() - {"annotation", "default"}:
        return {} if field.is_required() else {name: field.default}
    field = copy.copy(field)
    for slot, neutral in (("_original_annotation", field.annotation), ("_original_assignment", field.default)):
        if hasattr(field, slot):
            setattr(field, slot, neutral)
    return {name: field}


def _own_decorators(cls: type[BaseModel]) -> dict[str, Any]:
    """What validators and serialisers of this class are, by their attributes."""
    infos = cls.__pydantic_decorators__
    kinds: tuple[dict[str, Any], ...] = (
        infos.field_validators, infos.model_validators, infos.field_serializers, infos.model_serializers,
        infos.computed_fields,
    )  # fmt: skip
    if any(name in vars(cls) for name in {*infos.validators, *infos.root_validators}):
        raise NotSerialisable(
            f"{cls.__qualname__} has validators of pydantic 1: write them as field_validator and model_validator",
            path=cls.__qualname__,
        )
    return {name: each.info for kind in kinds for name, each in kind.items() if name in vars(cls)}


def _own_post_init(cls: type[BaseModel]) -> Any:
    """What the author wrote as `model_post_init`, where pydantic has wrapped it to set private attributes first."""
    original = vars(cls).get("model_post_init")
    names = original.__code__.co_freevars if original is not None else ()
    if original is not None and "original_model_post_init" in names:
        original = original.__closure__[names.index("original_model_post_init")].cell_contents
    is_made = getattr(original, "__module__", None) == "pydantic._internal._model_construction"
    is_made = is_made or any(vars(base).get("model_post_init") is original for base in cls.__mro__[1:])
    return None if is_made else original
