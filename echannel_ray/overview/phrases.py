"""Words that commands and the live page have in common."""

from __future__ import annotations


def counted(number: int, what: str, plural: str = "s") -> str:
    """A number of things in words: `1 channel`, `2 channels`."""
    return f"{number:,} {what}{'' if number == 1 else plural}"
