"""Which events of which logs: offsets as Spark keeps them, and ranges as its tasks read them.

An offset of a stream is `{"group": name, "logs": {log: the offset of its next event}}`. Spark writes it into the
checkpoint, so the group's name, made up where nobody gave one, is the query's own from its first start on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypedDict

from pyspark.sql.datasource import InputPartition

Marks = Mapping[str, int]  # the offset of the next event of each log
Bounds = Mapping[str, tuple[int, int]]  # that of the first event of each log, and that behind its last one


class StreamOffset(TypedDict):
    """An offset of a stream: the group of its query, and the offset of the next event of each log."""

    group: str
    logs: dict[str, int]


def stream_offset(group: str, marks: Marks) -> StreamOffset:
    """The offset, equal as text for equal marks: Spark compares texts."""
    return {"group": group, "logs": dict(sorted(marks.items()))}


@dataclass
class Range(InputPartition):
    """What a task reads: events `start` to `stop - 1` of a log."""

    log: str
    start: int
    stop: int


def ends(marks: Marks, bounds: Bounds) -> dict[str, int]:
    """The ends of all logs that there are; none is before where we are."""
    return {log: max(next_, marks.get(log, 0)) for log, (_, next_) in bounds.items()}


def capped(marks: Marks, caps: Marks) -> dict[str, int]:
    """The same, but not behind these ends, and without logs that aren't among them."""
    return {log: min(mark, caps[log]) for log, mark in marks.items() if log in caps}


def within(start: Marks, stop: Marks, max_rows: int) -> dict[str, int]:
    """As far from `start` towards `stop` as so many rows go, in equal parts of what waits in each log."""
    waiting = {log: mark - start.get(log, 0) for log, mark in stop.items()}
    total = sum(waiting.values())
    if total <= max_rows:
        return dict(stop)
    reached = {}
    for log, rows in sorted(waiting.items()):
        # Of what is left for this log and those behind it, which may be nothing.
        part = max_rows * rows // total if total else 0
        reached[log] = start.get(log, 0) + part
        max_rows, total = max_rows - part, total - rows
    return reached


def split(start: Marks, stop: Marks, rows_per_partition: int) -> Iterator[Range]:
    """The events between as ranges of about equal length. A log that has come since is read from its beginning."""
    for log, end in sorted(stop.items()):
        begin = start.get(log, 0)
        count = -(-(end - begin) // rows_per_partition)
        for i in range(count):
            yield Range(log, begin + (end - begin) * i // count, begin + (end - begin) * (i + 1) // count)
