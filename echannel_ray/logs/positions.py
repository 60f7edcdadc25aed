"""Where a reader is in the logs of a channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from typing_extensions import override


@dataclass(frozen=True)
class Position:
    """Where to go on: for each log the offset of the next event. `str` makes a text of it, `parse` reads that again."""

    marks: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, marks: Mapping[str, int]) -> Position:
        """The position with these offsets."""
        return cls(tuple(sorted(marks.items())))

    @classmethod
    def parse(cls, text: str) -> Position:
        """The position that this text is of."""
        try:
            return cls.of(msgspec.json.decode(text, type=dict[str, int]))
        except msgspec.DecodeError as error:
            raise ValueError(f"{text[:80]!r} is no position: {error}") from None

    @override
    def __str__(self) -> str:
        return msgspec.json.encode(dict(self.marks)).decode()
