"""Assignments: to locals, whose first one says their type; to static variables; to fields of the output."""

from __future__ import annotations

import ast
from typing import Final

from echannel_ray.programs import operations, tree
from echannel_ray.programs.checker import Checker
from echannel_ray.programs.functions import NAMES
from echannel_ray.programs.outputs import program_outputs
from echannel_ray.programs.program import StaticVariable, Type, Where
from echannel_ray.programs.program_refusals import Refused, shown_name
from echannel_ray.programs.scope import FieldPlace, Scope
from echannel_ray.programs.tree import Expression, Statement

_TYPES: Final = {"int": Type.INT, "float": Type.FLOAT, "bool": Type.BOOL}
_MAX_STATIC_ITEMS: Final = 65_536
_STATIC: Final = "a static variable is `name: static = 0`, `name: static[float] = 0` or `name: static = [0.0] * 16`"


class Assignments:
    """Makes the statements that give values to variables."""

    def __init__(self, scope: Scope, checker: Checker, once: frozenset[str]) -> None:
        self._scope = scope
        self._checker = checker
        self._once = once
        self.turning: set[str] = set()  # the variables of the loops around

    def plain(self, target: ast.expr, node: ast.expr) -> list[Statement]:
        """`target = value` for variables."""
        where = self._checker.where(target)
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            return [self._item(target, self._checker.of(node))]
        if not isinstance(target, ast.Name):
            self._checker.of(target)  # says what is wrong with its names, if they are wrong
            raise Refused("this can't be assigned to", where)
        if target.id not in self._scope.slots and target.id not in self._scope.statics:
            self.check_free(target.id, where)
        return [self.to_name(target.id, self._checker.of(node), where)]

    def augmented(self, node: ast.AugAssign) -> list[Statement]:
        """`target += value` and its like."""
        checker, target = self._checker, node.target
        where = checker.where(target)
        if not isinstance(target, ast.Name):
            place = checker.place(target)
            if place is not None and place.is_output:
                raise Refused("the output can't be read: add up in a variable, and set the output to that", where)
            if place is not None:
                raise Refused("the event can't be changed: put the value into a variable, or into the output", where)
        # The same node reads the variable, as the parser would have it on the right.
        current = ast.copy_location(ast.Name(target.id, ast.Load()), target) if isinstance(target, ast.Name) else target
        value = checker.of(ast.copy_location(ast.BinOp(current, node.op, node.value), node))
        if isinstance(target, ast.Name):
            return [self.to_name(target.id, value, where)]
        if isinstance(target, ast.Subscript):
            return [self._item(target, value)]
        raise Refused("this can't be assigned to", where)

    def annotated(self, node: ast.AnnAssign, is_top: bool) -> list[Statement]:
        """`name: static = …`, or a local whose type is given."""
        checker, target, annotation = self._checker, node.target, node.annotation
        where = checker.where(node)
        if not isinstance(target, ast.Name) or node.value is None:
            raise Refused(f"{_STATIC}; a local variable is `name: float = 0`", where)
        type_: Type | None = None
        is_static = False
        match annotation:
            case ast.Name("static"):
                is_static = True
            case ast.Subscript(ast.Name("static"), ast.Name(name)) if name in _TYPES:
                is_static, type_ = True, _TYPES[name]
            case ast.Name(name) if name in _TYPES:
                type_ = _TYPES[name]
            case _:
                raise Refused(f"a type is int, float or bool; {_STATIC}", checker.where(annotation))
        if is_static:
            self._static(target.id, type_, node.value, is_top, where)
            return []
        assert type_ is not None
        if target.id in self._scope.slots:
            raise Refused(f"{target.id} has a type already: only its first assignment may say one", where)
        return [self.to_name(target.id, self._fitting(checker.of(node.value), type_, target.id, where), where)]

    def to_name(self, name: str, value: Expression, where: Where) -> Statement:
        """`name = value`"""
        scope = self._scope
        if name in scope.statics:
            slot, variable = scope.statics[name]
            if variable.length:
                raise Refused(f"{name} is an array: set its items, {name}[i] = …", where)
            return tree.SetStatic(slot, None, self._fitting(value, variable.type, name, where), where)
        if name in self.turning:
            raise Refused(f"{name} counts the turns of this loop, and can't be set in it: take another name", where)
        slot = self.local(name, value, where)
        value = self._fitting(value, scope.locals[slot], name, where)
        if name in self._once and value.type is Type.INT:
            scope.bounds.known[slot] = scope.bounds.of(value)
        scope.give_value(slot)
        return tree.SetLocal(slot, value)

    def local(self, name: str, value: Expression, where: Where) -> int:
        """The slot of a local variable, which is new if the name is."""
        if name in self._scope.slots:
            return self._scope.slots[name]
        self.check_free(name, where)
        if value.type not in _TYPES.values():
            kind = operations.named(value.type)
            advice = "write int(…) or float(…)" if value.type is Type.UNSIGNED else "write the field where it is needed"
            raise Refused(f"{kind} can't be kept in a variable: {advice}", where)
        return self._scope.new_local(name, value.type)

    def check_free(self, name: str, where: Where) -> None:
        """Whether a new variable can have this name."""
        scope, names = self._scope, self._scope.names
        if name == names.output and scope.output is not None:
            raise Refused(f"set the fields of the output one by one, `{name}.field = …`", where)
        if name in ("input", "output", "param", "static", "math", "range", names.event, names.output, names.param):
            raise Refused(f"{name} can't be a variable: take another name", where)
        if scope.root(name) is not None:
            raise Refused(f"{name} is a field of the event: take another name for the variable", where)
        if name in NAMES:
            raise Refused(f"{name} is a function: take another name for the variable", where)

    def output(self, place: FieldPlace, node: ast.expr, where: Where) -> Statement:
        """`output.field = value`"""
        if not place.path:
            raise Refused("set the fields of the output one by one, `output.field = …`", where)
        source = self._checker.place(node)
        assert self._scope.output is not None
        leaf = None if place.pending else place.leaf
        if leaf is None or leaf not in program_outputs(self._scope.output) or (source is not None and source.pending):
            return self._copy(place, source, where)
        value = self._checker.of(node)
        return tree.StoreItem(leaf, place.indices, self._stored(value, leaf.type, place.name, where), where)

    def _copy(self, place: FieldPlace, source: FieldPlace | None, where: Where) -> Statement:
        if place.indices or len(place.shape) != len(place.pending):
            raise Refused(f"an item of output.{place.name} is set number by number", where)
        if source is None or source.is_output:
            if place.pending:
                raise Refused(
                    f"output.{place.name} is an array: set its items, or copy a field of the same type", where
                )
            raise Refused(f"output.{place.name} can only be copied from a field of the same type", where)
        if source.indices or not source.path:
            raise Refused("only a whole field that is in no array can be copied", where)
        if (source.shape, source.type) != (place.shape, place.type):
            raise Refused(
                f"{source.name} and output.{place.name} are of different types: only equal ones can be copied", where
            )
        return tree.Copy(place.path, source.path)

    def _stored(self, value: Expression, type_: Type, name: str, where: Where) -> Expression:
        if type_ is Type.UNSIGNED:
            if value.type is Type.UNSIGNED:
                return operations.converted(value, Type.INT, where)  # wraps around, and back when it is stored
            type_ = Type.INT
        return self._fitting(value, type_, f"output.{name}", where)

    def _fitting(self, value: Expression, type_: Type, name: str, where: Where) -> Expression:
        value = operations.number(value, where)
        if value.type is type_:
            return value
        if type_ is Type.FLOAT or (type_ is Type.INT and value.type is Type.BOOL):
            return operations.converted(value, type_, where)
        function = "int" if type_ is Type.INT else "bool"
        raise Refused(
            f"{shown_name(name)} is {operations.named(type_)}, and this is {operations.named(value.type)}: "
            f"write {function}(…) around it" + (", or begin with 0.0" if function == "int" and "." not in name else ""),
            where,
        )

    def _item(self, target: ast.Subscript, value: Expression) -> Statement:
        where, name = self._checker.where(target), target.value
        if not isinstance(name, ast.Name) or name.id not in self._scope.statics:
            raise Refused("only items of static arrays and of the output can be set", where)
        slot, index, type_ = self._checker.static_item(name.id, target.slice, where)
        return tree.SetStatic(slot, index, self._fitting(value, type_, name.id, where), where)

    def _static(self, name: str, type_: Type | None, node: ast.expr, is_top: bool, where: Where) -> None:
        if not is_top:
            raise Refused("a static variable is declared outside of `if` and loops", where)
        if name in self._scope.statics or name in self._scope.slots:
            raise Refused(f"{name} is there already", where)
        self.check_free(name, where)
        length = 0
        match node:
            case ast.BinOp(ast.List([item]), ast.Mult(), count):
                length = self._count(count)
            case ast.List([item, *others]):
                length = 1 + len(others)
                if any(ast.dump(each) != ast.dump(item) for each in others):
                    raise Refused(f"the items of a static array begin all equal: {_STATIC}", where)
            case item:
                pass
        value = self._checker.of(item)
        if not isinstance(value, tree.Const) or value.type not in _TYPES.values():
            raise Refused(f"a static variable begins with a constant number or truth value: {_STATIC}", where)
        if type_ is not None:
            value = self._fitting(value, type_, name, where)
        assert isinstance(value, tree.Const)
        assert not isinstance(value.value, str | bytes)
        total = length + sum(each.length for _, each in self._scope.statics.values() if length)
        if total > _MAX_STATIC_ITEMS:
            raise Refused(f"static arrays have at most {_MAX_STATIC_ITEMS} items together: these are {total}", where)
        variable = StaticVariable(name, value.type, value.value, length)
        self._scope.statics[name] = (len(self._scope.statics), variable)

    def _count(self, node: ast.expr) -> int:
        value = self._checker.of(node)
        if isinstance(value, tree.Const) and value.type is Type.INT and 1 <= int(value.value) <= _MAX_STATIC_ITEMS:
            return int(value.value)
        where = self._checker.where(node)
        raise Refused(f"a static array has a constant number of items, from 1 to {_MAX_STATIC_ITEMS}", where)
