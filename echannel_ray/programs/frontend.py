"""From a text to a program: read, checked in full, and never run as what it is."""

from __future__ import annotations

import ast
import textwrap
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from echannel_ray.programs.checker import Checker
from echannel_ray.programs.costs import MAX_COST, cost_of
from echannel_ray.programs.outputs import check_output
from echannel_ray.programs.partial_sums import in_parts
from echannel_ray.programs.program import Parameter, Program, Type, Where
from echannel_ray.programs.program_refusals import Refused, as_error
from echannel_ray.programs.scanner import MAX_TEXT_BYTES, scan
from echannel_ray.programs.scope import Scope
from echannel_ray.programs.source import ProgramSource, SourceNames
from echannel_ray.programs.statements import Checked, is_docstring
from echannel_ray.schemas.schema import RecordType

_NO_PARAMS: Mapping[str, Type] = {}
_START: Final = Where(1, 1)


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
    text = _tidied(source.text)
    try:
        return _checked(text, source.names, record, output, params)
    except Refused as refused:
        raise as_error(refused, text) from None
    except RecursionError:
        raise as_error(Refused("this nests too deep: put parts of it into variables", _START), text) from None


def _tidied(text: str) -> str:
    """The text as errors show it: without the indentation that all its lines have, and with one kind of line ends."""
    if len(text) > MAX_TEXT_BYTES:
        return text
    return textwrap.dedent(text.replace("\r\n", "\n"))


def _checked(
    text: str, names: SourceNames, record: RecordType, output: RecordType | None, params: Mapping[str, Type]
) -> Program:
    nodes = _parsed(text)
    wrong = None if output is None else check_output(output)
    if wrong:
        raise Refused(wrong, _START)
    if all(isinstance(node, ast.Expr) and is_docstring(node) for node in nodes):
        raise Refused("there is nothing here: write a condition, or statements", _START)
    counts = _assignments(nodes)
    scope = Scope(record, output, params, names, frozenset(counts))
    checker = Checker(scope, text)
    once = frozenset(name for name, count in counts.items() if count == 1)
    body = Checked(scope, checker, once).program(nodes)
    program = Program(
        body=body,
        locals=tuple(scope.locals),
        statics=tuple(variable for _, variable in scope.statics.values()),
        params=tuple(Parameter(name, param.type) for name, param in scope.params.items()),
        leaves=tuple(scope.leaves),
        input=record,
        output=output,
        cost=0,
    )
    program = in_parts(program)
    cost = cost_of(program.body)
    if cost > MAX_COST:
        where = checker.where(nodes[0])
        raise Refused(f"this takes up to {cost:.2g} steps for an event: at most {MAX_COST:.0e} are allowed", where)
    return replace(program, cost=cost)


def _parsed(text: str) -> list[ast.stmt]:
    """The statements of a text; `Refused` where it is none, or is more than the parser can take."""
    scan(text)
    try:
        return ast.parse(text).body
    except SyntaxError as error:
        where = Where(error.lineno or 1, max(1, error.offset or 1))
        raise Refused(f"this is not as Python has it: {error.msg}", where) from None
    except (ValueError, OverflowError, MemoryError, RecursionError) as error:
        raise Refused(f"this is not as Python has it: {error}", _START) from None


def _assignments(nodes: list[ast.stmt]) -> Counter[str]:
    """How often the text assigns to each name."""
    every = (node for statement in nodes for node in ast.walk(statement))
    return Counter(node.id for node in every if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
