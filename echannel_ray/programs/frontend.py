"""From a text to a program: read, checked in full, and never run as what it is."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from echannel_ray.programs.checker import Checker
from echannel_ray.programs.costs import MAX_COST, cost_of
from echannel_ray.programs.outputs import check_output
from echannel_ray.programs.parser import Places, parse, tidied
from echannel_ray.programs.partial_sums import in_parts
from echannel_ray.programs.program import Program, Type, Where
from echannel_ray.programs.program_refusals import Refused, as_error
from echannel_ray.programs.scope import Scope
from echannel_ray.programs.source import ProgramSource, SourceNames
from echannel_ray.programs.statements import Checked, is_docstring
from echannel_ray.schemas.schema import RecordType

_NO_PARAMS: Mapping[str, Type] = {}


def check(
    source: ProgramSource | str,
    record: RecordType,
    output: RecordType | None = None,
    params: Mapping[str, Type] = _NO_PARAMS,
) -> Program:
    """The program that a text is, for events of a record; a filter where there is no output. `ModulatorRefused` says
    what in the text is wrong, with its line and column.
    """
    source = ProgramSource(source) if isinstance(source, str) else source
    text = tidied(source.text)
    try:
        return _checked(text, source.names, record, output, params)
    except Refused as refused:
        raise as_error(refused, text) from None
    except RecursionError:
        raise as_error(Refused("this nests too deep: put parts of it into variables", Where(1, 1)), text) from None


def _checked(
    text: str, names: SourceNames, record: RecordType, output: RecordType | None, params: Mapping[str, Type]
) -> Program:
    nodes = parse(text)
    wrong = None if output is None else check_output(output)
    if wrong:
        raise Refused(wrong, Where(1, 1))
    if all(isinstance(node, ast.Expr) and is_docstring(node) for node in nodes):
        raise Refused("there is nothing here: write a condition, or statements", Where(1, 1))
    counts = _assignments(nodes)
    scope = Scope(record, output, params, names, frozenset(counts))
    checker = Checker(scope, Places(text))
    once = frozenset(name for name, count in counts.items() if count == 1)
    body = Checked(scope, checker, once).program(nodes)
    program = Program(
        body=body,
        locals=tuple(scope.locals),
        statics=tuple(variable for _, variable in scope.statics.values()),
        params=scope.parameters,
        leaves=tuple(scope.leaves),
        input=record,
        output=output,
        cost=0,
    )
    program = in_parts(program)
    cost = cost_of(program)
    if cost > MAX_COST:
        where = checker.where(nodes[0])
        raise Refused(f"this takes up to {cost:.2g} steps for an event: at most {MAX_COST:.0e} are allowed", where)
    return replace(program, cost=cost)


def _assignments(nodes: list[ast.stmt]) -> Counter[str]:
    """How often the text assigns to each name."""
    every = (node for statement in nodes for node in ast.walk(statement))
    return Counter(node.id for node in every if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
