"""Statements of a text as those of a program: variables have one type, are set before they are read, and loops end."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from echannel_ray.programs import operations, tree
from echannel_ray.programs.assignments import Assignments
from echannel_ray.programs.checker import Checker
from echannel_ray.programs.loop_statements import Loops
from echannel_ray.programs.outputs import MISSING, zero_of
from echannel_ray.programs.program import Where
from echannel_ray.programs.program_refusals import Refused
from echannel_ray.programs.scope import Scope, SetVariables
from echannel_ray.programs.tree import Block, Expression, Statement
from echannel_ray.schemas.schema import RecordType

_MAX_BLOCKS: Final = 60
_NOT_HERE: Final = {
    "FunctionDef": "programs have no functions of their own",
    "Match": "there is no `match`: write `if`, `elif` and `else`",
    "TypeAlias": "there are no types to name",
}


class Checked:
    """Makes statements, block by block, and keeps what each block knows of the variables."""

    def __init__(self, scope: Scope, checker: Checker, once: frozenset[str]) -> None:
        self.scope = scope
        self.checker = checker
        self.depth = 0
        self.assignments = Assignments(scope, checker, once)
        self.loops = Loops(self, once)
        self.stored: dict[tuple[str, ...], bool] = {}  # fields of the output by path: whether they are copied
        self._checks: dict[type[ast.stmt], Callable[[Any], list[Statement]]] = {
            ast.Assign: self._assign,
            ast.AnnAssign: lambda node: self.assignments.annotated(node, is_top=self.depth == 1),
            ast.AugAssign: self.assignments.augmented,
            ast.If: self._if,
            ast.For: self.loops.of,
            ast.Break: self.loops.left,
            ast.Continue: self.loops.left,
            ast.Return: self._return,
            ast.Pass: lambda node: [],
            ast.Expr: self._bare,
        }

    def program(self, nodes: list[ast.stmt]) -> Block:
        """The statements of a whole text, each path of which ends in a `Return`."""
        if len(nodes) == 1 and isinstance(nodes[0], ast.Expr) and not is_docstring(nodes[0]):
            nodes = [ast.copy_location(ast.Return(nodes[0].value), nodes[0])]
        body = self.block(nodes)
        if self.scope.set_here is None:
            return body
        passes = self.scope.output is not None
        where = self.checker.where(nodes[-1]) if nodes else Where(1, 1)
        return (*body, *self._returned(operations.TRUE if passes else operations.FALSE, where))

    def block(self, nodes: list[ast.stmt]) -> Block:
        """Some statements; those that nothing gets to are checked, and left out."""
        self.depth += 1
        if self.depth > _MAX_BLOCKS:
            raise Refused(f"blocks nest at most {_MAX_BLOCKS} deep", self.checker.where(nodes[0]))
        found: list[Statement] = []
        for node in nodes:
            is_reached = self.scope.set_here is not None
            check = self._checks.get(type(node))
            if check is None:
                kind = type(node).__name__
                raise Refused(_NOT_HERE.get(kind, f"this ({kind}) means nothing here"), self.checker.where(node))
            statements = check(node)
            prelude, self.checker.prelude = self.checker.prelude, []
            if is_reached:
                found += [*prelude, *statements]
        self.depth -= 1
        return tuple(found)

    def _assign(self, node: ast.Assign) -> list[Statement]:
        if len(node.targets) > 1:
            raise Refused("one variable at a time: write an assignment for each", self.checker.where(node.targets[1]))
        target = node.targets[0]
        where = self.checker.where(target)
        if isinstance(target, ast.Tuple | ast.List | ast.Starred):
            raise Refused("one variable at a time: write an assignment for each", where)
        place = self.checker.place(target) if isinstance(target, ast.Attribute | ast.Subscript) else None
        if place is None:
            return self.assignments.plain(target, node.value)
        if not place.is_output:
            raise Refused("the event can't be changed: put the value into a variable, or into the output", where)
        statement = self.assignments.output(place, node.value, where)
        self._note(statement, place.path, where)
        return [statement]

    def _note(self, statement: Statement, path: tuple[str, ...], where: Where) -> None:
        """A field of the output is either copied as a whole, or set item by item."""
        is_copied = isinstance(statement, tree.Copy)
        if is_copied and self.loops.depth:
            raise Refused("a field is copied as a whole outside of loops only", where)
        for other, was_copied in self.stored.items():
            common = min(len(other), len(path))
            is_both = is_copied and was_copied and other == path
            if (is_copied or was_copied) and other[:common] == path[:common] and not is_both:
                raise Refused(f"output.{'.'.join(other)} is set too: copy a field as a whole, or set its parts", where)
        self.stored[path] = is_copied
        if is_copied:
            self.scope.give_value(path)

    def _if(self, node: ast.If) -> list[Statement]:
        condition = self.checker.truth(node.test)
        prelude, self.checker.prelude = self.checker.prelude, []
        before = self.scope.set_here
        then = self.block(node.body)
        after_then, self.scope.set_here = self.scope.set_here, before
        otherwise = self.block(node.orelse)
        self.scope.set_here = both(after_then, self.scope.set_here)
        return [*prelude, tree.If(condition, then, otherwise)]

    def _return(self, node: ast.Return) -> list[Statement]:
        passes: Expression = operations.FALSE
        if node.value is not None:
            passes = self.checker.truth(node.value)
        return self._returned(passes, self.checker.where(node))

    def _returned(self, passes: Expression, where: Where) -> list[Statement]:
        output = self.scope.output
        if output is not None and passes != operations.FALSE:
            self._require(output, (), where)
        self.scope.set_here = None
        return [tree.Return(passes)]

    def _require(self, record: RecordType, path: tuple[str, ...], where: Where) -> None:
        """Refuse where a field has no value here and none that it has of itself."""
        for field in record.fields:
            here = (*path, field.name)
            if field.is_optional or zero_of(field) is not MISSING or self.scope.has_value(here):
                continue
            if isinstance(field.type, RecordType):
                self._require(field.type, here, where)
                continue
            name = ".".join(here)
            raise Refused(f"output.{name} has no value here, and no default: copy a field, `output.{name} = …`", where)

    def _bare(self, node: ast.Expr) -> list[Statement]:
        if is_docstring(node):
            return []
        raise Refused(
            "this value goes nowhere: write `return` in front of it, or a variable and `=`", self.checker.where(node)
        )


def both(one: SetVariables | None, other: SetVariables | None) -> SetVariables | None:
    """What has a value where two paths meet; None is one that doesn't get there."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def is_docstring(node: ast.Expr) -> bool:
    """A text that stands by itself."""
    return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
