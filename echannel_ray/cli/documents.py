"""Events as JSON, as far as they can be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TextIO

import msgspec


class NoDocument(ValueError):
    """A text that is no JSON."""


def as_json(value: Any) -> str:
    """The value as JSON: bytes in base 64, tables and arrays as lists, and what JSON has no form for as its `repr`."""
    try:
        return msgspec.json.encode(value, enc_hook=_plain).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        # A list that contains itself, a lone surrogate, a method that wants arguments.
        return json.dumps(repr(value))


def _plain(value: Any) -> Any:
    for method in ("model_dump", "tolist", "to_pylist", "to_dict"):  # of pydantic, NumPy, pyarrow, pandas
        convert = getattr(value, method, None)
        if callable(convert) and not isinstance(value, type):
            return convert()
    return repr(value)


def document(text: str, where: str) -> Any:
    """What a text of JSON means."""
    try:
        return json.loads(text)
    except ValueError as error:
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        raise NoDocument(f"{where} is no JSON: {shown!r} ({error}). A string needs its quotes: '\"text\"'") from None


def documents(lines: TextIO) -> Iterator[Any]:
    """JSON lines: one document on each; empty lines are passed over."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield document(line.strip(), f"line {number} of standard input")
