"""Whether two shipped modulators are the same: a digest of what a pickle would make, worked out without making it.

Who ships code must not be able to state its identity, or one consumer's code could answer for another's. So the
manager reads the pickle itself: as a program whose instructions build a graph of values, names and calls. Nothing is
imported or called. Everything in the graph counts, but for what differs between pickles of one thing: whether equal
strings were one object, and the order of sets. (What else differs between processes, such as file names,
`derived.shipments` leaves out of what is shipped.)
"""

from __future__ import annotations

import hashlib
import pickletools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from echannel_ray.errors import ModulatorRefused

_MAX_DEPTH: Final = 400

_DIGEST_BYTES: Final = 20
_MAX_KNOWN_LENGTH: Final = 64
_MAX_KNOWN_NUMBER: Final = 1 << 63


@dataclass(slots=True, eq=False)
class GraphNode:
    """A value that is no atom: what made it, and of what."""

    op: str
    children: list[Any]
    number: int = 0  # in the order of the first visit
    digest: bytes | None = None


_MARK: Final = object()


def identity_of(code: bytes, key: bytes | None, masters: Sequence[tuple[int, ...]]) -> str:
    """What a pickle of (class, modulator) is, as hex digits; `ModulatorRefused` where it is no such pickle.

    `key` is what an overridden `key()` returns; then the state does not count, but for the code that is in it.
    `masters` are the shared objects, by their places in the pickle.
    """
    try:
        reader = _GraphReader()
        root = reader.read(code)
        if not isinstance(root, GraphNode) or root.op != "tuple" or len(root.children) != 2:
            raise ValueError("not a class and its modulator")
        digests = _Digests(masters)
        # Calls whose results are thrown away, and that are none of cloudpickle's own, are there for what they do.
        effects = b"".join(digests.of(each) for each in reader.effects)
        of_class = effects + digests.of(root.children[0])
        if key is None:
            return hashlib.sha256(b"state" + of_class + digests.of(root.children[1])).hexdigest()
        digests.code.clear()
        digests.of(root.children[1])
        return hashlib.sha256(b"key" + of_class + b"".join(sorted(set(digests.code))) + key).hexdigest()
    except ModulatorRefused:
        raise
    except Exception as error:  # of reading what anybody may have made
        reason = f"what was shipped can't be read: {error}"
        raise ModulatorRefused(f"this modulator was refused: {reason}", reason=reason) from None


# ---- reading -------------------------------------------------------------------------------------------------------


class _GraphReader:
    """Makes the graph that a pickle describes: atoms as they are, everything else as nodes."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.effects: list[Any] = []

    def read(self, data: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(data):
            name = opcode.name
            if name == "STOP":
                return self.stack.pop()
            if name in _ATOMS:
                self.stack.append(argument)
            elif name in _CONSTANTS:
                self.stack.append(_CONSTANTS[name])
            elif name not in _IGNORED:
                step = _STEPS.get(name)
                if step is None:
                    raise ValueError(f"an instruction that no pickle of a modulator needs: {name}")
                step(self, argument)
        raise ValueError("it does not end")

    def pop(self, count: int) -> list[Any]:
        taken = self.stack[-count:]
        del self.stack[-count:]
        if len(taken) != count or any(each is _MARK for each in taken):
            raise ValueError("it takes more than there is")
        return taken

    def to_mark(self) -> list[Any]:
        at = max(i for i, each in enumerate(self.stack) if each is _MARK)
        taken = self.stack[at + 1 :]
        del self.stack[at:]
        return taken

    def drop(self, dropped: list[Any]) -> None:
        """Nothing is made of these: they were called for what they do, to the object that is their first argument."""
        for node in dropped:
            target = _changed_by(node)
            if target is not None:
                target.children.append(GraphNode("changed", node.children[1].children[1:]))
            elif node is not _MARK:
                self.effects.append(node)

    def push(self, op: str, children: list[Any]) -> None:
        self.stack.append(GraphNode(op, children))


_ATOMS: Final = frozenset(
    {
        "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8",
        "SHORT_BINBYTES", "BINBYTES", "BINBYTES8",
    }
)  # fmt: skip
_CONSTANTS: Final = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_IGNORED: Final = frozenset({"PROTO", "FRAME"})


def _memoize(reader: _GraphReader, argument: Any) -> None:
    reader.memo[len(reader.memo) if argument is None else argument] = reader.stack[-1]


# `additems` and the like mark where a part begins: `[1] + [2, 3]` is `[1, 2, 3]`, since children only grow.
_STEPS: Final[dict[str, Callable[[_GraphReader, Any], None]]] = {
    "MARK": lambda r, a: r.stack.append(_MARK),
    "POP": lambda r, a: r.drop([r.stack.pop()]),
    "POP_MARK": lambda r, a: r.drop(r.to_mark()),
    "DUP": lambda r, a: r.stack.append(r.stack[-1]),
    "MEMOIZE": _memoize,
    "BINPUT": _memoize,
    "LONG_BINPUT": _memoize,
    "BINGET": lambda r, a: r.stack.append(r.memo[a]),
    "LONG_BINGET": lambda r, a: r.stack.append(r.memo[a]),
    "EMPTY_LIST": lambda r, a: r.push("list", []),
    "EMPTY_DICT": lambda r, a: r.push("dict", []),
    "EMPTY_SET": lambda r, a: r.push("set", []),
    "EMPTY_TUPLE": lambda r, a: r.push("tuple", []),
    "TUPLE1": lambda r, a: r.push("tuple", r.pop(1)),
    "TUPLE2": lambda r, a: r.push("tuple", r.pop(2)),
    "TUPLE3": lambda r, a: r.push("tuple", r.pop(3)),
    "TUPLE": lambda r, a: r.push("tuple", r.to_mark()),
    "FROZENSET": lambda r, a: r.push("frozenset", r.to_mark()),
    "BYTEARRAY8": lambda r, a: r.push("bytearray", [bytes(a)]),
    "APPEND": lambda r, a: _extend(r, r.pop(1), "append"),
    "APPENDS": lambda r, a: _extend(r, r.to_mark(), "append"),
    "SETITEM": lambda r, a: _extend(r, r.pop(2), "setitem"),
    "SETITEMS": lambda r, a: _extend(r, r.to_mark(), "setitem"),
    "ADDITEMS": lambda r, a: _extend(r, r.to_mark(), "add"),
    "GLOBAL": lambda r, a: r.push("global", str(a).split(" ", 1)),
    "STACK_GLOBAL": lambda r, a: r.push("global", r.pop(2)),
    "REDUCE": lambda r, a: r.push("reduce", r.pop(2)),
    "NEWOBJ": lambda r, a: r.push("newobj", r.pop(2)),
    "NEWOBJ_EX": lambda r, a: r.push("newobj_ex", r.pop(3)),
    "BUILD": lambda r, a: _extend(r, r.pop(1), "build"),
    "BINPERSID": lambda r, a: r.push("persistent", r.pop(1)),
}

_PLAIN_OF: Final = {"append": "list", "setitem": "dict", "add": "set"}


_SETTERS: Final = frozenset({"_class_setstate", "_function_setstate"})


def _changed_by(node: Any) -> GraphNode | None:
    """What cloudpickle changes by this call: it makes classes and functions empty, and fills them later."""
    if not isinstance(node, GraphNode) or node.op != "reduce":
        return None
    function, arguments = node.children
    if not isinstance(function, GraphNode) or not isinstance(arguments, GraphNode) or arguments.op != "tuple":
        return None
    if function.op != "global" or function.children[0] != "cloudpickle.cloudpickle":
        return None
    target = arguments.children[0] if function.children[1] in _SETTERS and arguments.children else None
    return target if isinstance(target, GraphNode) else None


def _extend(reader: _GraphReader, more: list[Any], how: str) -> None:
    node = reader.stack[-1]
    if not isinstance(node, GraphNode):
        raise ValueError(f"it changes what is none of {how}")
    if node.op == _PLAIN_OF.get(how):
        node.children.extend(more)
    else:
        node.children.append(GraphNode(how, more))  # of an object that some call made


# ---- digests -------------------------------------------------------------------------------------------------------


# Whether two of these are one object can't be told by what is done with them (and differs from process to process).
_UNCHANGING: Final = frozenset({"tuple", "frozenset", "global", "persistent"})


class _Digests:
    """One traversal, from the root: nodes that can change are numbered as they are met, so that cycles end."""

    def __init__(self, masters: Sequence[tuple[int, ...]]) -> None:
        self._masters = masters
        self._met = 0
        self.code: list[bytes] = []  # digests of code objects, and of names

    def of(self, value: Any, depth: int = 0) -> bytes:
        if not isinstance(value, GraphNode):
            return _digest_of_atom(value)
        if value.op in _UNCHANGING and value.digest is not None:
            return value.digest
        if value.number:
            return _hash(b"again", str(value.number).encode())  # the same once more, or it is inside itself
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deep")
        if value.op not in _UNCHANGING:
            self._met += 1
            value.number = self._met
        if value.op == "persistent":
            parts = [self._shared(value, depth)]
        else:
            parts = [self.of(child, depth + 1) for child in value.children]
        if value.op in ("set", "frozenset", "add"):
            parts.sort()
        # Of what can change it matters which others are the very same: by its number each is another one.
        number = b"" if value.op in _UNCHANGING else str(value.number).encode()
        value.digest = _hash(value.op.encode(), number, *parts)
        if value.op == "global" or (value.op == "reduce" and _is_code(value)):
            self.code.append(value.digest)
        return value.digest

    def _shared(self, node: GraphNode, depth: int) -> bytes:
        reference = node.children[0]
        if not isinstance(reference, GraphNode) or reference.op != "tuple" or len(reference.children) != 3:
            raise ValueError("a persistent id that is no shared object's")
        kind, index, cls = reference.children
        if kind != "shared" or type(index) is not int or not 0 <= index < len(self._masters):
            raise ValueError("a shared object that was not named")
        return _hash(repr(tuple(self._masters[index])).encode(), self.of(cls, depth + 1))


def _is_code(node: GraphNode) -> bool:
    function = node.children[0]
    if not isinstance(function, GraphNode) or function.op != "reduce":
        return False
    arguments = function.children[1]
    return isinstance(arguments, GraphNode) and arguments.children == ["CodeType"]


def _digest_of_atom(value: Any) -> bytes:
    # Most are numbers and names that come again and again. Of others some are equal and not alike, as 0.0 and -0.0.
    kind = type(value)
    if kind is int:
        is_known = -_MAX_KNOWN_NUMBER <= value <= _MAX_KNOWN_NUMBER
    else:
        is_known = kind in (str, bytes) and len(value) <= _MAX_KNOWN_LENGTH
    return _known_digest(value) if is_known else _new_digest(value)


@lru_cache(maxsize=4096, typed=True)
def _known_digest(value: int | str | bytes) -> bytes:
    return _new_digest(value)


def _new_digest(value: Any) -> bytes:
    if isinstance(value, str):
        return _hash(b"str", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes):
        return _hash(b"bytes", value)
    return _hash(type(value).__name__.encode(), repr(value).encode())


def _hash(*parts: bytes) -> bytes:
    measured = [each for part in parts for each in (len(part).to_bytes(8, "little"), part)]
    return hashlib.blake2b(b"".join(measured), digest_size=_DIGEST_BYTES).digest()


def identity_of_text(code: bytes, masters: Sequence[tuple[int, ...]]) -> str:
    """What E-code is, as it was shipped: its text, its types, and the shared object that steers it."""
    return hashlib.sha256(b"ecode" + _hash(code, repr([*masters]).encode())).hexdigest()
