"""Pickles of plain data, read as data: for gateways, which unpickle nothing.

What Python programs publish on untyped channels are pickles, mostly of dicts of numbers and text. A pickle is a
program; this knows those of its instructions that make such values, and none that names a class, calls something, or
asks somebody. Where another one comes, what was made so far is thrown away.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any, Final

from echannel_ray.formats.plain import NotPlain

_LONGEST_REPEATED: Final = 64
_MARK: Final = object()
_ATOMS: Final = frozenset({
    "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8",
    "SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8",
})  # fmt: skip
_CONSTANTS: Final[dict[str, Any]] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: Final[dict[str, Callable[[], Any]]] = {
    "EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple, "EMPTY_SET": set,
}  # fmt: skip
_TUPLES: Final = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_IGNORED: Final = frozenset({"PROTO", "FRAME"})


def read(data: bytes) -> Any:
    """The value; `NotPlain` where the pickle is of anything else, or is none."""
    try:
        return _PickleReader().read(data)
    except NotPlain:
        raise
    except (ValueError, TypeError, IndexError, KeyError, OverflowError) as error:
        raise NotPlain(f"this is no pickle of plain data: {error}") from None


class _PickleReader:
    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: list[Any] = []

    def read(self, data: bytes) -> Any:
        stack = self._stack
        for opcode, argument, _ in pickletools.genops(data):
            name = opcode.name
            if name in _ATOMS:
                stack.append(argument)
            elif name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            elif name == "MEMOIZE":
                self._memo.append(stack[-1])
            elif name in _EMPTY:
                stack.append(_EMPTY[name]())
            elif name == "MARK":
                stack.append(_MARK)
            elif name == "STOP":
                (value,) = stack
                return value
            elif name not in _IGNORED:
                self._do(name, argument)
        raise NotPlain("a pickle that does not end")

    def _do(self, name: str, argument: Any) -> None:
        stack = self._stack
        match name:
            case "BINGET" | "LONG_BINGET":
                value = self._memo[argument]
                # A container that is part of itself would have no end, and what is many times part of another value be
                # as large as its maker likes. What is repeated are field names, and short words.
                if not isinstance(value, str | bytes) or len(value) > _LONGEST_REPEATED:
                    raise NotPlain("what is not small is in several places")
                stack.append(value)
            case "APPEND" | "APPENDS":
                items = self._taken(1 if name == "APPEND" else None)
                _as(list, stack[-1]).extend(items)
            case "SETITEM" | "SETITEMS":
                items = self._taken(2 if name == "SETITEM" else None)
                _as(dict, stack[-1]).update(zip(items[::2], items[1::2], strict=True))
            case "ADDITEMS":
                items = self._taken(None)
                _as(set, stack[-1]).update(items)
            case "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(self._taken(_TUPLES.get(name))))
            case "FROZENSET":
                stack.append(frozenset(self._taken(None)))
            case _:
                raise NotPlain(f"a pickle with the instruction {name}")

    def _taken(self, count: int | None) -> list[Any]:
        """So many values from the top, or all above the mark."""
        stack = self._stack
        at = len(stack) - count if count is not None else _last_mark(stack)
        items = stack[at if count is not None else at + 1 :]
        if at < 0 or any(item is _MARK for item in items):
            raise NotPlain("a pickle that takes more than there is")
        del stack[at:]
        return items


def _last_mark(stack: list[Any]) -> int:
    return next((at for at in range(len(stack) - 1, -1, -1) if stack[at] is _MARK), -1)


def _as(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise NotPlain("a pickle that adds to what it has not made")
    return value
