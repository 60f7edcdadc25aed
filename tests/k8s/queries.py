"""What can be said of an expression in PromQL without a Prometheus: its parentheses, metrics and labels."""

from __future__ import annotations

import re
from collections.abc import Iterator

from echannel_ray.actors.metrics import HISTOGRAM, METRICS, RESTARTS

_PREFIX = "ray_"  # Ray's agent puts it before each name
# Each restart is a series of its own, with its worker's id, that begins at 1 and stays there.
_BEGINS_ANEW = _PREFIX + RESTARTS.name
_OF_SCRAPES = {"namespace", "pod"}
# Metrics of others that alerts look at, and the labels of them that are used.
_THEIRS = {
    "kube_pod_status_ready": {"condition", "pod"},
    "kubelet_volume_stats_available_bytes": {"persistentvolumeclaim"},
    "kubelet_volume_stats_capacity_bytes": {"persistentvolumeclaim"},
    "certmanager_certificate_expiration_timestamp_seconds": {"name"},
}
_FUNCTIONS = {"absent", "avg", "count", "histogram_quantile", "increase", "max", "rate", "sum", "time"}
_WORDS = {"and", "by", "or", "unless"} | _FUNCTIONS


def exported() -> dict[str, set[str]]:
    """The names by which Prometheus gets our figures, and their labels."""
    names: dict[str, set[str]] = {}
    for metric in METRICS:
        labels = {*metric.labels, *_OF_SCRAPES}
        if metric.kind == HISTOGRAM:
            names[f"{_PREFIX}{metric.name}_bucket"] = {*labels, "le"}
            names |= {f"{_PREFIX}{metric.name}_{each}": labels for each in ("sum", "count")}
        else:
            names[_PREFIX + metric.name] = labels
    return names


def metrics_in(expression: str) -> set[str]:
    """The names of the metrics in it."""
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\bby \([^)]*\)|\boffset \w+", " ", bare)
    return set(re.findall(r"\b[a-zA-Z_:][a-zA-Z0-9_:]*\b(?!\s*\()", bare)) - _WORDS


def faults(expression: str) -> Iterator[str]:
    """What is wrong with it."""
    known = exported() | _THEIRS
    depth = 0
    for character in re.sub(r'"[^"]*"', "", expression):
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            break
    if depth:
        yield "its parentheses don't match"
    found = metrics_in(expression)
    if not found:
        yield "it asks for no metric"
    for name in found - known.keys():
        yield f"there is no metric {name}"
    labels = set().union(*(known.get(name, set()) for name in found))
    for name in re.findall(r"[{,]\s*([a-z_]+)\s*(?:=~|!=|=)", expression):
        if name not in labels:
            yield f"there is no label {name}"
    for group in re.findall(r"\bby \(([^)]*)\)", expression):
        for name in group.replace(" ", "").split(","):
            if name not in labels:
                yield f"there is no label {name}"
    for function in re.findall(r"([a-z_]+)\s*\(", expression):
        if function not in _WORDS:
            yield f"there is no function {function} that this knows"
    for name in found:
        counts = name.endswith(("_total", "_bucket")) and name != _BEGINS_ANEW
        if counts and not re.search(rf"(rate|increase)\({name}(\{{[^}}]*\}})?\[", expression):
            yield f"{name} only grows: take its rate"
        if not counts and re.search(rf"(rate|increase)\({name}\b", expression):
            yield f"{name} is no counter that grows"
