"""A text as a tree of Python's own parser, of a size that is harmless to walk through."""

from __future__ import annotations

import ast
import textwrap
from typing import Final

from echannel_ray.programs.program import Where
from echannel_ray.programs.program_refusals import Refused
from echannel_ray.programs.scanner import MAX_TEXT_BYTES, scan

_START: Final = Where(1, 1)


def tidied(text: str) -> str:
    """The text as errors show it: without the indentation that all its lines have, and with one kind of line ends."""
    if len(text) > MAX_TEXT_BYTES:
        return text
    return textwrap.dedent(text.replace("\r\n", "\n"))


def parse(text: str) -> list[ast.stmt]:
    """The statements of a tidied text; `Refused` where it is none, or is more than the parser can take."""
    scan(text)
    try:
        return ast.parse(text).body
    except SyntaxError as error:
        where = Where(error.lineno or 1, max(1, error.offset or 1))
        raise Refused(f"this is not as Python has it: {error.msg}", where) from None
    except (ValueError, OverflowError, MemoryError, RecursionError) as error:
        raise Refused(f"this is not as Python has it: {error}", _START) from None


class Places:
    """Where the nodes of a text's tree stand: the parser counts columns in bytes."""

    def __init__(self, text: str) -> None:
        self._lines = None if text.isascii() else text.split("\n")

    def of(self, node: ast.expr | ast.stmt | ast.keyword) -> Where:
        """The place where a node begins."""
        column = node.col_offset
        if self._lines is not None:
            column = len(self._lines[node.lineno - 1].encode()[:column].decode(errors="replace"))
        return Where(node.lineno, column + 1)
