"""Counters of several parts, added up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def add_up(sums: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add counters to others, those in dicts by name; of what is no number the latest stays."""
    for name, value in more.items():
        if isinstance(value, dict):
            add_up(sums.setdefault(name, {}), value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            sums[name] = sums.get(name, 0) + value
        else:
            sums[name] = value
