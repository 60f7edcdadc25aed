"""What a program is written as: a text, or a Python function or lambda whose source is taken."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, NamedTuple

from echannel_ray.errors import ModulatorRefused

_NAME_LENGTH: Final = 60
_AS_TEXT: Final = "give it as a text instead"


class SourceNames(NamedTuple):
    """What a text calls the event, the output and the parameters; whether fields may stand without the event's name."""

    event: str = "input"
    output: str = "output"
    param: str = "param"
    has_bare_fields: bool = True


class ProgramSource(NamedTuple):
    """A text and the names in it."""

    text: str
    names: SourceNames = SourceNames()


def name_of(source: ProgramSource) -> str:
    """The name by which people know a program: the beginning of its text."""
    text = " ".join(source.text.split())
    return text if len(text) <= _NAME_LENGTH else f"{text[: _NAME_LENGTH - 1]}…"


def source_of(program: str | ProgramSource | Callable[..., Any]) -> ProgramSource:
    """The source of a program; of a function its body, whose lines count from its first one."""
    if isinstance(program, ProgramSource):
        return program
    if isinstance(program, str):
        return ProgramSource(program)
    if not isinstance(program, FunctionType):
        raise TypeError(f"{program!r} can't be a program: give a text, a function or a lambda")
    text, node = _definition(program)
    names = _names(program.__name__, node.args)
    if isinstance(node, ast.Lambda):
        # Brackets, since it may go on over several lines.
        return ProgramSource(_from(program, node.body, f"({ast.get_source_segment(text, node.body)})"), names)
    return ProgramSource(_from(program, node.body[0], _block(text, node.body)), names)


def _definition(program: FunctionType) -> tuple[str, ast.FunctionDef | ast.Lambda]:
    """The text of the whole file, and the function in it. (What `inspect.getsource` takes for a lambda ends with its
    first line, wherever the lambda ends.)
    """
    name, code = program.__name__, program.__code__
    try:
        text = "".join(inspect.findsource(program)[0])
        tree = ast.parse(text)
    except (OSError, TypeError, SyntaxError, ValueError):
        raise _refused(name, "its source can't be found") from None
    given = list(code.co_varnames[: code.co_argcount])
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Lambda if name == "<lambda>" else ast.FunctionDef)
        and _first_line(node) == code.co_firstlineno
        and [each.arg for each in (*node.args.posonlyargs, *node.args.args)] == given
    ]
    if not found:
        raise _refused(name, "its source can't be found where Python says that it is")
    if len(found) > 1:
        raise _refused(name, "there are several like it in its line: put it into a line of its own")
    return text, found[0]


def _first_line(node: ast.FunctionDef | ast.Lambda) -> int:
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min(each.lineno for each in (node, *decorators))


def _names(name: str, arguments: ast.arguments) -> SourceNames:
    """The names of the parameters: by place the event, the output and the parameter block."""
    given = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults:
        raise _refused(name, "its parameters are an event, an output and parameters, without defaults and stars")
    if not 1 <= len(given) <= 3:
        raise _refused(name, f"it has {len(given)} parameters: an event, an output and parameters are 1 to 3")
    if len(given) == 2 and given[1] == "param":  # a filter has no output
        return SourceNames(given[0], "", "param", False)
    event, output, param = (*given, "", "")[:3]
    return SourceNames(event, output, param, False)


def _from(program: FunctionType, first: ast.expr | ast.stmt, body: str) -> str:
    """The body of a function, at the line where it begins."""
    return "\n" * (first.lineno - program.__code__.co_firstlineno) + body


def _block(text: str, nodes: list[ast.stmt]) -> str:
    """The statements without the indentation that they have in common."""
    first, last = nodes[0], nodes[-1]
    assert last.end_lineno is not None
    lines = text.split("\n")[first.lineno - 1 : last.end_lineno]
    indent = len(lines[0].encode()[: first.col_offset].decode())
    lines[-1] = lines[-1].encode()[: last.end_col_offset].decode()
    return "\n".join([lines[0][indent:], *(_without(line, indent) for line in lines[1:])])


def _without(line: str, width: int) -> str:
    blank = len(line) - len(line.lstrip())
    return line[min(width, blank) :]


def _refused(name: str, reason: str) -> ModulatorRefused:
    message = f"{name} can't be a program: {reason}, or {_AS_TEXT}"
    return ModulatorRefused(message, reason=reason, line=1, column=1, source="")
