"""A verified program: what the frontend makes of a text, and what every form of it runs.

The meaning is the same in all forms, bit for bit:

* Values are of three types: truth values, whole numbers of 64 bits with a sign (arithmetic wraps around), and floating
  point numbers of 64 bits (IEEE 754: a division by 0.0 gives an infinity or NaN; every NaN that is stored is the same
  one). Fields are converted to their leaf's type when they are read, whatever a producer stores them as. Mixed
  arithmetic and comparisons convert to floating point first.
* `/` always gives a floating point number; `//` and `%` round as in Python, for whole numbers and floating point ones.
  Of floating point numbers that is, with `r = fmod(a, b)` (exact, as C has it): `a % b` is NaN if b is 0.0; a zero
  with the sign of b if r is zero; r + b if r and b differ in sign; else r. `a // b` is a / b if b is 0.0; else, with
  `q = (a - r) / b`, less 1.0 if r is not zero and differs from b in sign: floor(q), plus 1.0 if q - floor(q) > 0.5; a
  zero with the sign of a / b if q is zero. (floor(a / b) would be another number for 1.0 and 0.1.)
* Operands are worked out from left to right; an assignment works out its value first, then the index. NULs at the end
  of a text don't count in comparisons.
* A program *traps* where whole numbers are divided by zero, an index or a shift is out of range, or a floating point
  number that is none, or too large, is made a whole one. It then has no result, its static variables are as they were
  at first, and whoever runs it reports `Trap`.
* Unsigned fields of 64 bits above 2**63 - 1 can be compared exactly, and do nothing else: see `Type.UNSIGNED`.

Everything here is plain data: programs are compared, and printed in tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from typing_extensions import override

from echannel_ray.schemas.schema import RecordType

if TYPE_CHECKING:
    from echannel_ray.programs.tree import Block


class Type(Enum):
    """What an expression is."""

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    UNSIGNED = "uint"  # a field of 64 bits without a sign: it can be compared, and converted by `int()` and `float()`
    TEXT = "str"  # a field or constant: it can be compared for equality
    BYTES = "bytes"


ZEROS: dict[Type, Any] = {
    Type.BOOL: False,
    Type.INT: 0,
    Type.FLOAT: 0.0,
    Type.UNSIGNED: 0,
    Type.TEXT: "",
    Type.BYTES: b"",
}
TYPES_OF_VALUES = {bool: Type.BOOL, int: Type.INT, float: Type.FLOAT, str: Type.TEXT}


class Where(NamedTuple):
    """A place in the text: lines count from 1, columns from 1."""

    line: int
    column: int


class Trap(Exception):
    """A program could not come to a result for an event."""

    def __init__(self, reason: str, where: Where) -> None:
        super().__init__(reason, where)
        self.reason = reason
        self.where = where

    @override
    def __str__(self) -> str:
        return f"{self.reason} (line {self.where.line}, column {self.where.column})"

    @classmethod
    def raised_by(cls, call: Callable[[], object]) -> Trap:
        """The trap that a call ends in."""
        try:
            call()
        except Trap as trap:
            return trap
        raise AssertionError("a trap without a reason")


class Leaf(NamedTuple):
    """Scalars of one field of the event or the output: `path` are the names that lead to it, `shape` the lengths of all
    arrays on the way, outermost first. None is an array of any length, whose indices are compared with the length that
    it has; such a leaf is not of fixed layout.
    """

    path: tuple[str, ...]
    shape: tuple[int | None, ...]
    type: Type
    bits: int  # as declared, and what values of the output are narrowed to: 8 to 64; 1 is a truth value, 0 text
    signed: bool = True

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest whole number of so many bits."""
        low = -(2 ** (self.bits - 1)) if self.signed else 0
        return low, low + 2**self.bits - 1


class Function(NamedTuple):
    """A function that programs can call."""

    arguments: tuple[Type, ...]
    result: Type
    cost: int
    is_exact: bool  # IEEE 754 says what it gives; of the others each C library has its own, and all forms call that


_F, _I, _B = Type.FLOAT, Type.INT, Type.BOOL
# `min` and `max` of two: b if b < a else a, b if b > a else a, as in Python. abs(INT_MIN) is INT_MIN. What Python's
# functions refuse gives what C gives: sqrt(-1.0) is NaN, log(0.0) is -inf, exp(1e9) is inf.
FUNCTIONS: dict[str, Function] = {
    "abs_int": Function((_I,), _I, 1, True),
    "abs_float": Function((_F,), _F, 1, True),
    "min_int": Function((_I, _I), _I, 1, True),
    "max_int": Function((_I, _I), _I, 1, True),
    "min_float": Function((_F, _F), _F, 1, True),
    "max_float": Function((_F, _F), _F, 1, True),
    "sqrt": Function((_F,), _F, 5, True),
    "floor": Function((_F,), _F, 1, True),  # to a floating point number; `int(floor(x))` makes it a whole one
    "ceil": Function((_F,), _F, 1, True),
    "trunc": Function((_F,), _F, 1, True),
    "isnan": Function((_F,), _B, 1, True),
    "isinf": Function((_F,), _B, 1, True),
    "isfinite": Function((_F,), _B, 1, True),
    "exp": Function((_F,), _F, 20, False),
    "log": Function((_F,), _F, 20, False),
    "log2": Function((_F,), _F, 20, False),
    "log10": Function((_F,), _F, 20, False),
    "sin": Function((_F,), _F, 20, False),
    "cos": Function((_F,), _F, 20, False),
    "tan": Function((_F,), _F, 30, False),
    "asin": Function((_F,), _F, 30, False),
    "acos": Function((_F,), _F, 30, False),
    "atan": Function((_F,), _F, 30, False),
    "atan2": Function((_F, _F), _F, 30, False),
    "pow": Function((_F, _F), _F, 40, False),
    "hypot": Function((_F, _F), _F, 20, False),
    "fmod": Function((_F, _F), _F, 20, False),
}


class StaticVariable(NamedTuple):
    """A static variable of each replica; an array of `length` items, or (0) a single value."""

    name: str
    type: Type  # BOOL, INT or FLOAT
    initial: bool | int | float
    length: int = 0


class Parameter(NamedTuple):
    """A field of the shared object that steers the program: BOOL, INT, FLOAT or TEXT."""

    name: str
    type: Type


@dataclass(frozen=True)
class Program:
    """A text that was found to be safe for records of a schema, and the steps that it takes at most."""

    body: Block  # every path ends in a Return
    locals: tuple[Type, ...]  # of variables that begin anew with each event: BOOL, INT or FLOAT
    statics: tuple[StaticVariable, ...]
    params: tuple[Parameter, ...]  # those that it reads
    leaves: tuple[Leaf, ...]  # of the event, those that it loads, each once
    input: RecordType
    output: RecordType | None  # None: a filter
    cost: int

    @property
    def is_fixed(self) -> bool:
        """Whether all that it loads lies at fixed places, so that it can run over packs of bytes."""
        return all(None not in leaf.shape for leaf in self.leaves)

    def initial_statics(self) -> list[Any]:
        """The values of its static variables at first; arrays are lists."""
        return [[each.initial] * each.length if each.length else each.initial for each in self.statics]


class Result(NamedTuple):
    """What an event's run came to: whether it passes, and the output (values by field names, nested ones too)."""

    passes: bool
    output: dict[str, Any] | None = None
