"""What comes from anywhere, made fit for a terminal: names and events may have been made up to move its cursor, to
change its colours, or to look like something else.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text
from typing_extensions import override

# Of a file or a pipe nobody knows the width: lines must not be folded there.
_WIDE = 1000
UNKNOWN = "\N{EN DASH}"  # as on the live page


def safe(text: str) -> str:
    """The text with all that is not printable escaped, as `repr` does: control characters, marks of direction."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def cell(text: str, style: str = "") -> Text:
    """The text for Rich: printable, and no markup."""
    return Text(safe(text), style)


def safe_json(document: str) -> str:
    """A document of JSON with what is not printable escaped in its strings: it means the same."""
    return document if document.isprintable() else _UNPRINTABLE.sub(_escaped, document)


def print_json(value: Any) -> None:
    """Plain data as a document of JSON, in ASCII."""
    print(json.dumps(value, indent=2), flush=True)


def console(to: TextIO | None = None) -> Console:
    """Where answers go: to standard output as it is now, or to what that was before."""
    to = to or sys.stdout
    return _Console(file=to, highlight=False, markup=False, emoji=False, width=None if to.isatty() else _WIDE)


def plain_table(*headings: str, title: str | None = None) -> Table:
    """A table without lines. Names fold where there is no room; a heading that begins with `>` is that of numbers,
    which don't.
    """
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for heading in headings:
        is_number = heading.startswith(">")
        table.add_column(
            Text(heading.lstrip(">")), justify="right" if is_number else "left", no_wrap=is_number, overflow="fold"
        )
    return table


class _Console(Console):
    """A console that leaves it to `exit_codes` that nobody reads any more: Rich would end the process with 1."""

    @override
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


_UNPRINTABLE = re.compile(r"[^\x20-\x7e\n]")


def _escaped(found: re.Match[str]) -> str:
    character = found.group()
    return character if character.isprintable() else json.dumps(character)[1:-1]
