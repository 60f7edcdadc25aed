"""Counters of several parts, added up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

# What of a channel's counters is also told by nodes: see `models.NodeShare`.
_SHARED: Final = (
    "events_published", "events_delivered", "events_dropped", "bytes_published", "queue_depth", "blocked_producers",
)  # fmt: skip


def add_up(sums: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add counters to others, those in dicts by name; of what is no number the latest stays."""
    for name, value in more.items():
        if isinstance(value, dict):
            # Not `setdefault`: compiled, that would take the 0 that a `Counter` has for what it has not.
            if name not in sums:
                sums[name] = {}
            add_up(sums[name], value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            sums[name] = sums.get(name, 0) + value
        else:
            sums[name] = value


def growth(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """What counters have grown by, those in dicts by name; without those that have not."""
    grown: dict[str, Any] = {}
    for name, value in now.items():
        if isinstance(value, dict):
            more = growth(before.get(name, {}), value)
            if more:
                grown[name] = more
        elif isinstance(value, int | float) and value > before.get(name, 0):
            grown[name] = value - before.get(name, 0)
    return grown


def node_key(node: int) -> str:
    """A node, as statistics name it: the first 16 digits of Ray's id."""
    return f"{node:016x}"


def sums_by_node(answers: Mapping[int, Iterable[Mapping[str, Any]]]) -> dict[str, Any]:
    """The counters of a channel's endpoints, which come by nodes, added up; under "nodes" the share of each."""
    sums: dict[str, Any] = {}
    for node, replies in answers.items():
        here: dict[str, Any] = {}
        for counters in replies:
            add_up(here, counters)
        for each in (here, *here.get("derived", {}).values()):
            each["nodes"] = {node_key(node): {name: each[name] for name in _SHARED if name in each}}
        add_up(sums, here)
    return sums
