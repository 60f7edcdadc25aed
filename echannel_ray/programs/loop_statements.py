"""Loops: over ranges whose number of turns has a limit, and over the items of arrays."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from echannel_ray.programs import operations, tree
from echannel_ray.programs.bounds import MAX_INT, of_turns
from echannel_ray.programs.program import Leaf, Type, Where
from echannel_ray.programs.program_refusals import Refused
from echannel_ray.programs.scope import FieldPlace, SetVariables
from echannel_ray.programs.tree import Block, Expression, Statement

if TYPE_CHECKING:
    from echannel_ray.programs.statements import Checked

_MAX_LOOPS: Final = 16  # around each other: Python has 20 in the function that a program becomes
_MAX_TURNS: Final = 2**53
_RANGE: Final = "a loop is `for i in range(…)` or `for x in field`"
_LIMITS: Final = "use constants, len() of an array of fixed length, variables of loops around, or min(…, 100)"


class Loops:
    """Makes loops, and keeps what has a value where they are left."""

    def __init__(self, checked: Checked, once: frozenset[str]) -> None:
        self._checked = checked
        self._once = once
        # What has a value at each `break` and `continue`, loop by loop.
        self._left: list[list[SetVariables | None]] = []

    @property
    def depth(self) -> int:
        """How many loops are around."""
        return len(self._left)

    def left(self, node: ast.Break | ast.Continue) -> list[Statement]:
        """The statement that a `break` or `continue` stands for: nothing gets to what follows."""
        if not self._left:
            raise Refused(f"`{type(node).__name__.lower()}` stands in loops only", self._checked.checker.where(node))
        self._left[-1].append(self._checked.scope.set_here)
        self._checked.scope.set_here = None
        return [tree.Break() if isinstance(node, ast.Break) else tree.Continue()]

    def of(self, node: ast.For) -> list[Statement]:
        """The statement that a loop of the text stands for."""
        checker = self._checked.checker
        if node.orelse:
            raise Refused(
                "a loop has no `else` here: set a variable in front of `break`", checker.where(node.orelse[0])
            )
        if not isinstance(node.target, ast.Name):
            raise Refused("a loop has one variable", checker.where(node.target))
        if self.depth >= _MAX_LOOPS:
            raise Refused(f"loops nest at most {_MAX_LOOPS} deep", checker.where(node))
        match node.iter:
            case ast.Call(ast.Name("range")):
                start, stop, step = self._range(node.iter)
                slot = self._variable(node.target.id, checker.where(node.target))
                return self._loop(node, slot, node.target.id, (start, stop, step), [])
        return self._items(node)

    def _range(self, node: ast.Call) -> tuple[Expression, Expression, int]:
        checker, where = self._checked.checker, self._checked.checker.where(node)
        if node.keywords or not 1 <= len(node.args) <= 3:
            raise Refused("range takes 1 to 3 arguments: range(start, stop, step)", where)
        values = []
        for each in node.args:
            value = checker.of(each)
            if value.type is not Type.INT:
                kind = operations.named(value.type)
                raise Refused(f"range takes whole numbers, and this is {kind}", checker.where(each))
            values.append(value)
        step = values[2] if len(values) == 3 else tree.Const(Type.INT, 1)
        if not isinstance(step, tree.Const) or not step.value:
            raise Refused("the step of a range is a constant that is not 0", checker.where(node.args[2]))
        start, stop = (tree.Const(Type.INT, 0), values[0]) if len(values) == 1 else (values[0], values[1])
        return start, stop, int(step.value)

    def _variable(self, name: str, where: Where) -> int:
        checked = self._checked
        if name in checked.scope.statics:
            raise Refused(f"{name} is static, and can't count turns: take another name", where)
        if name in checked.assignments.turning:
            raise Refused(f"{name} counts the turns of a loop around this one: take another name", where)
        slot = checked.assignments.local(name, tree.Const(Type.INT, 0), where)
        if checked.scope.locals[slot] is not Type.INT:
            kind = operations.named(checked.scope.locals[slot])
            raise Refused(f"{name} is {kind}, and can't count turns: take another name", where)
        return slot

    def _loop(
        self,
        node: ast.For,
        slot: int,
        name: str,
        turns: tuple[Expression, Expression, int],
        first: list[Statement],
    ) -> list[Statement]:
        checked, scope, (start, stop, step) = self._checked, self._checked.scope, turns
        prelude, checked.checker.prelude = checked.checker.prelude, []
        from_, to = scope.bounds.of(start), scope.bounds.of(stop)
        turning, most = of_turns(from_, to, step)
        if most > _MAX_TURNS or (to.high == MAX_INT and step > 0) or (to.low == -MAX_INT - 1 and step < 0):
            raise Refused(f"how often this loop runs has no known limit: {_LIMITS}", checked.checker.where(node.iter))
        runs = from_.high < to.low if step > 0 else from_.low > to.high
        scope.bounds.known[slot] = turning
        body, after = self._body(node.body, slot, name, first, runs)
        scope.set_here = after
        if name not in self._once:
            scope.bounds.known.pop(slot, None)
        return [*prelude, tree.For(slot, start, stop, step, body, most)]

    def _body(
        self, nodes: list[ast.stmt], slot: int, name: str, first: list[Statement], runs: bool
    ) -> tuple[Block, SetVariables | None]:
        """The statements of a loop, and what has a value behind it."""
        checked, scope = self._checked, self._checked.scope
        before = scope.set_here
        scope.give_value(slot)
        for statement in first:
            if isinstance(statement, tree.SetLocal):
                scope.give_value(statement.slot)
        self._left.append([])
        checked.assignments.turning.add(name)
        body = checked.block(nodes)
        checked.assignments.turning.discard(name)
        ends = [scope.set_here, *self._left.pop()]
        reached = [end for end in ends if end is not None]
        if not runs or before is None or not reached:
            return (*first, *body), before
        return (*first, *body), frozenset.intersection(*reached)

    def _items(self, node: ast.For) -> list[Statement]:
        """`for x in field`: each item in turn is what a hidden variable counts."""
        checked, where = self._checked, self._checked.checker.where(node.iter)
        match node.iter:
            case ast.Subscript(array, ast.Slice() as part):
                count, item = self._array(array, self._limit(part, where), where)
            case array:
                count, item = self._array(array, None, where)
        slot = checked.scope.new_local("", Type.INT)
        value = item(tree.Local(Type.INT, slot))
        assert isinstance(node.target, ast.Name)
        name, target = node.target.id, checked.checker.where(node.target)
        if name in checked.scope.statics or name in checked.assignments.turning:
            raise Refused(f"{name} is used already: take another name", target)
        local = checked.assignments.local(name, value, target)
        if checked.scope.locals[local] is not value.type:
            kind, other = operations.named(checked.scope.locals[local]), operations.named(value.type)
            raise Refused(f"{name} is {kind}, and the items are {other}: take another name", target)
        if name in self._once and value.type is Type.INT:
            checked.scope.bounds.known[local] = checked.scope.bounds.of(value)
        return self._loop(node, slot, name, (tree.Const(Type.INT, 0), count, 1), [tree.SetLocal(local, value)])

    def _limit(self, node: ast.Slice, where: Where) -> int:
        limit = None if node.upper is None else self._checked.checker.of(node.upper)
        if (
            node.lower is not None
            or node.step is not None
            or not isinstance(limit, tree.Const)
            or limit.type is not Type.INT
        ):
            raise Refused("a loop takes the first so many items: `values[:100]`, with a constant", where)
        if int(limit.value) < 0:
            raise Refused("a loop takes the first so many items, which is no negative number", where)
        return int(limit.value)

    def _array(
        self, node: ast.expr, limit: int | None, where: Where
    ) -> tuple[Expression, Callable[[Expression], Expression]]:
        """How many items there are to loop over, and what is the item at an index."""
        checker, scope = self._checked.checker, self._checked.scope
        if isinstance(node, ast.Name) and node.id in scope.statics and scope.statics[node.id][1].length:
            static, variable = scope.statics[node.id]
            length = variable.length if limit is None else min(limit, variable.length)
            return tree.Const(Type.INT, length), lambda index: tree.Static(variable.type, static, index, where)
        place = checker.place(node)
        if place is None or place.is_output or not place.pending:
            raise Refused(f"{_RANGE}, an array of the event", where)
        leaf = place.leaf
        if len(place.pending) > 1 or leaf is None or leaf.type not in (Type.BOOL, Type.INT, Type.FLOAT):
            advice = f"`for i in range(len({place.name}))`, and {place.name}[i]"
            raise Refused(f"a loop takes the items of an array of numbers of one dimension; write {advice}", where)
        scope.leaves[leaf] = None
        count = _count(place, leaf, limit, where)
        # Worked out once: the body may change what an index in front is made of.
        indices = tuple(checker.reusable(index, where) for index in place.indices)
        return count, lambda index: tree.Load(leaf.type, leaf, (*indices, index), where)


def _count(place: FieldPlace, leaf: Leaf, limit: int | None, where: Where) -> Expression:
    length = place.pending[0]
    if length is not None:
        return tree.Const(Type.INT, length if limit is None else min(limit, length))
    if limit is None:
        raise Refused("this array has any length: say how many items at most, `values[:100]`", where)
    if place.indices:
        raise Refused("the length of an array in an array can't be had", where)
    lengths = (tree.Length(Type.INT, leaf, where), tree.Const(Type.INT, limit))
    return tree.FunctionCall(Type.INT, "min_int", lengths, where)
