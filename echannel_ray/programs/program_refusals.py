"""How a text is refused: what is wrong at which place, and what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from echannel_ray.errors import ModulatorRefused
from echannel_ray.programs.program import Where

_SHOWN: Final = 100
_KEPT: Final = 64 * 1024


class Refused(Exception):
    """Raised where a text is no program; `reason` says why, and what to do."""

    def __init__(self, reason: str, where: Where) -> None:
        super().__init__(reason, where)
        self.reason = reason
        self.where = where


def as_error(refused: Refused, text: str) -> ModulatorRefused:
    """What the caller gets: with the line, and a mark under the place."""
    line, column = refused.where
    lines = text.split("\n")
    shown, mark = _shown(lines[line - 1] if 0 < line <= len(lines) else "", column)
    message = f"line {line}, column {column}: {refused.reason}\n    {shown}\n    {mark}^"
    return ModulatorRefused(message, reason=refused.reason, line=line, column=column, source=text[:_KEPT])


def closest(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, if one of the names is much like this one."""
    others = [each for each in known if each != name]  # a field that is hidden by `output`, say
    found = difflib.get_close_matches(name, others, 1) if len(name) <= _SHOWN else []
    return f"; did you mean {found[0]}?" if found else ""


def shown_name(name: str) -> str:
    """A name as it is, but for letters that look like others."""
    short = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
    return short if name.isascii() else f"{short} ({ascii(short)[1:-1]})"


def _shown(line: str, column: int) -> tuple[str, str]:
    """The part of a line around a column, with nothing in it that a terminal would obey, and as many blanks."""
    start = max(0, column - 1 - _SHOWN // 2)
    part = "".join(each if each.isprintable() else " " for each in line[start : start + _SHOWN])
    return part, " " * (column - 1 - start)
