"""The formats that this process knows, by their tokens: packs carry the token, and a format is asked for once."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from echannel_ray.records.writer import rows_format
from echannel_ray.schemas.schema import ARROW, Format, as_bytes, format_from

_formats: dict[int, Format] = {}  # a token stands for one format for good, so nothing is ever taken out


def learn(format: Format) -> int:  # noqa: A002
    """Keep this format at hand; its token."""
    token = format.token
    _formats.setdefault(token, format)
    return token


def learn_all(formats: Mapping[int, bytes]) -> None:
    """Know what a channel's definition lists. A format whose token is another one is left out."""
    for token, data in formats.items():
        if token not in _formats:
            try:
                made = format_from(data)
            except msgspec.DecodeError:
                continue
            if made.token == token:
                _formats[token] = made


def known(token: int) -> Format | None:
    """The format that this token stands for, where this process knows it."""
    return _formats.get(token)


def listed(*formats: Format) -> dict[int, bytes]:
    """Formats as a definition lists them; with that of columns that of their rows, of which some may travel alone."""
    rows = [rows_format(each.record) for each in formats if each.encoding == ARROW]
    return {learn(each): as_bytes(each) for each in (*formats, *rows)}
