"""The small tree that a text becomes: expressions and statements, each with the types and bounds that were found.

What they mean is said in `program`. Nothing of the text is left in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from echannel_ray.programs.program import Leaf, Type, Where

# ---- expressions ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Const:
    """A constant."""

    type: Type
    value: bool | int | float | str | bytes


@dataclass(frozen=True)
class Load:
    """An item of a leaf of the event, widened: as many indices as its shape has lengths. Those that are not known to be
    in range are checked; negative ones are out of range.
    """

    type: Type
    leaf: Leaf
    indices: tuple[Expression, ...]
    where: Where


@dataclass(frozen=True)
class Length:
    """How many items a field of any length has."""

    type: Type
    leaf: Leaf
    where: Where


@dataclass(frozen=True)
class Local:
    """A local variable; it has a value wherever it is read."""

    type: Type
    slot: int


@dataclass(frozen=True)
class Static:
    """A static variable, or an item of a static array (`index`)."""

    type: Type
    slot: int
    index: Expression | None
    where: Where


@dataclass(frozen=True)
class Param:
    """A field of the parameter block."""

    type: Type
    slot: int


@dataclass(frozen=True)
class Convert:
    """`bool(x)`, `int(x)`, `float(x)`, and what mixed arithmetic converts. Floating point to whole numbers truncates,
    or traps; unsigned to whole wraps around.
    """

    type: Type
    value: Expression
    where: Where


@dataclass(frozen=True)
class Unary:
    """`-`, `~` (whole numbers) or `not`."""

    type: Type
    operator: str
    value: Expression


@dataclass(frozen=True)
class Binary:
    """Two operands of the type of the result: `+ - *` and `// %`; `/` (floating point); `& | ^ << >>` (whole)."""

    type: Type
    operator: str
    left: Expression
    right: Expression
    where: Where


@dataclass(frozen=True)
class Compare:
    """`== != < <= > >=` of two operands of one type, or of UNSIGNED and INT in either order (exactly); texts are equal
    or not. With NaN all but `!=` are false.
    """

    type: Type
    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Logic:
    """`and` or `or` of truth values: what decides ends it, so what stands behind may rely on what stands before."""

    type: Type
    operator: str
    values: tuple[Expression, ...]


@dataclass(frozen=True)
class Choice:
    """`a if condition else b`: only one of them is worked out."""

    type: Type
    condition: Expression
    then: Expression
    otherwise: Expression


@dataclass(frozen=True)
class FunctionCall:
    """A function of numbers, from `FUNCTIONS`; arguments are of the types that it takes."""

    type: Type
    function: str
    arguments: tuple[Expression, ...]
    where: Where


Expression = (
    Const | Load | Length | Local | Static | Param | Convert | Unary | Binary | Compare | Logic | Choice | FunctionCall
)


def operands(expression: Expression) -> Iterator[Expression]:
    """The expressions that an expression is made of, from left to right."""
    for part in vars(expression).values():
        if isinstance(part, Expression):
            yield part
        elif type(part) is tuple:  # a leaf and a place are tuples with names
            yield from part


# ---- statements ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SetLocal:
    """A local variable gets a value of its type."""

    slot: int
    value: Expression


@dataclass(frozen=True)
class SetStatic:
    """A static variable, or an item of a static array, gets a value of its type."""

    slot: int
    index: Expression | None
    value: Expression
    where: Where


@dataclass(frozen=True)
class StoreItem:
    """An item of a leaf of the output gets a value: BOOL, INT or FLOAT, narrowed to what the leaf has (whole numbers
    wrap around; floating point ones are rounded).
    """

    leaf: Leaf
    indices: tuple[Expression, ...]
    value: Expression
    where: Where


@dataclass(frozen=True)
class Copy:
    """A whole field of the output (text, array, nested record, or anything else) gets that of the event, whose type is
    the same. Both are named by paths without arrays on the way. It stands in no loop, and what is copied anywhere is
    stored to nowhere, neither the field itself nor a part of it.
    """

    target: tuple[str, ...]
    source: tuple[str, ...]


@dataclass(frozen=True)
class If:
    """A condition, and the block for each outcome."""

    condition: Expression
    then: Block
    otherwise: Block


@dataclass(frozen=True)
class For:
    """`for slot in range(start, stop, step)`: the bounds are worked out once, `step` is a constant that is not 0.
    `most` is how often it runs at most. Its body does not assign to `slot`, which keeps the last turn's number.
    """

    slot: int
    start: Expression
    stop: Expression
    step: int
    body: Block
    most: int


@dataclass(frozen=True)
class Break:
    """Leave the innermost loop."""


@dataclass(frozen=True)
class Continue:
    """Begin the next turn of the innermost loop."""


@dataclass(frozen=True)
class Return:
    """The end: whether the event (or the output) passes."""

    passes: Expression


Statement = SetLocal | SetStatic | StoreItem | Copy | If | For | Break | Continue | Return
Block = tuple[Statement, ...]


def copies(block: Block) -> Iterator[Copy]:
    """The copies that stand in these statements."""
    for statement in block:
        match statement:
            case Copy():
                yield statement
            case If(_, then, otherwise):
                yield from copies(then)
                yield from copies(otherwise)
