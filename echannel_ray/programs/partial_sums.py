"""Sums in four parts: what a loop adds to a floating point variable, turn by turn, would wait for each addition.

A loop that does nothing but `total += x`, over a range of constants of 16 turns and more, adds each fourth turn to a
part of its own; at the end the parts are added as `total + ((a + b) + (c + d))`. It is a change of the program, so all
forms run it alike. The last digits may differ from those of one sum, as NumPy's do; the error is smaller.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from echannel_ray.programs import tree
from echannel_ray.programs.program import Program, Type, Where
from echannel_ray.programs.tree import Block, Expression, Statement, operands

_PARTS: Final = 4
_MIN_TURNS: Final = 16
_MAX_PARTED: Final = 64  # loops of one program: the text must not grow without limit
_SEEN_DEPTH: Final = 39


def in_parts(program: Program) -> Program:
    """The program with its sums in parts."""
    parted = _Parted(program)
    body = parted.block(program.body)
    return replace(program, body=body, locals=tuple(parted.locals))


class _Parted:
    def __init__(self, program: Program) -> None:
        self.locals = [*program.locals]
        self._count = 0

    def block(self, block: Block) -> Block:
        """The statements, with the sums in them in parts."""
        made: list[Statement] = []
        for statement in block:
            if isinstance(statement, tree.If):
                then, otherwise = self.block(statement.then), self.block(statement.otherwise)
                made.append(replace(statement, then=then, otherwise=otherwise))
            elif isinstance(statement, tree.For):
                made += self._loop(statement)
            else:
                made.append(statement)
        return tuple(made)

    def _loop(self, loop: tree.For) -> list[Statement]:
        added = _added(loop)
        turns = _turns(loop)
        if added is None or len(turns) < _MIN_TURNS or self._count == _MAX_PARTED:
            return [replace(loop, body=self.block(loop.body))]
        self._count += 1
        total, term, where = added
        parts = range(len(self.locals), len(self.locals) + _PARTS)
        self.locals += [Type.FLOAT] * _PARTS
        whole = len(turns) // _PARTS
        body = tuple(
            _add(part, _moved(term, loop.slot, number * loop.step), where) for number, part in enumerate(parts)
        )
        start, step = turns[0], loop.step * _PARTS
        made: list[Statement] = [tree.SetLocal(part, tree.Const(Type.FLOAT, 0.0)) for part in parts]
        made.append(tree.For(loop.slot, _int(start), _int(start + whole * step), step, body, whole))
        for turn in turns[whole * _PARTS :]:
            made += tree.SetLocal(loop.slot, _int(turn)), _add(parts[0], term, where)
        a, b, c, d = (tree.Local(Type.FLOAT, part) for part in parts)
        one, other = tree.Binary(Type.FLOAT, "+", a, b, where), tree.Binary(Type.FLOAT, "+", c, d, where)
        all_parts = tree.Binary(Type.FLOAT, "+", one, other, where)
        made += tree.SetLocal(loop.slot, _int(turns[-1])), _add(total, all_parts, where)
        return made


def _added(loop: tree.For) -> tuple[int, Any, Where] | None:
    """The variable, what is added to it, and where, if that is all that a loop does."""
    match loop.body:
        case (tree.SetLocal(slot, tree.Binary(Type.FLOAT, "+", tree.Local(_, left), term, where)),):
            if left == slot and not _reads(term, slot, _SEEN_DEPTH):
                return slot, term, where
    return None


def _turns(loop: tree.For) -> range:
    match loop:
        case tree.For(start=tree.Const(value=int(start)), stop=tree.Const(value=int(stop))):
            return range(start, stop, loop.step)
    return range(0)


def _reads(term: Expression, slot: int, depth: int) -> bool:
    """Whether an expression reads a local variable; of one that is very deep, it is taken for granted."""
    if not depth or (isinstance(term, tree.Local) and term.slot == slot):
        return True
    return any(_reads(each, slot, depth - 1) for each in operands(term))


def _moved(part: Any, slot: int, distance: int) -> Any:
    """An expression as it is so far behind the loop's variable."""
    if not distance:
        return part
    if isinstance(part, tree.Local):
        if part.slot != slot:
            return part
        return tree.Binary(Type.INT, "+", part, _int(distance), Where(1, 1))
    if type(part) is tuple:
        return tuple(_moved(each, slot, distance) for each in part)
    if is_dataclass(part) and not isinstance(part, type):
        return replace(part, **{each.name: _moved(getattr(part, each.name), slot, distance) for each in fields(part)})
    return part


def _add(slot: int, term: Any, where: Where) -> tree.SetLocal:
    return tree.SetLocal(slot, tree.Binary(Type.FLOAT, "+", tree.Local(Type.FLOAT, slot), term, where))


def _int(value: int) -> tree.Const:
    return tree.Const(Type.INT, value)
