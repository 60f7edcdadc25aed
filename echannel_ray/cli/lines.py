"""Events and gaps as lines, whoever got them: a process of the cluster, or a client of a gateway."""

from __future__ import annotations

import json
from typing import Any, Protocol

from echannel_ray.cli.documents import as_json
from echannel_ray.cli.terminal_text import safe, safe_json


class Event(Protocol):
    """An event with what is known about it."""

    @property
    def event(self) -> Any: ...  # noqa: D102
    @property
    def producer(self) -> str: ...  # noqa: D102
    @property
    def sequence(self) -> int: ...  # noqa: D102
    @property
    def published_at(self) -> float: ...  # noqa: D102
    @property
    def redelivered(self) -> bool: ...  # noqa: D102


class Dropped(Protocol):
    """Events that a policy dropped."""

    @property
    def producer(self) -> str: ...  # noqa: D102
    @property
    def first(self) -> int: ...  # noqa: D102
    @property
    def last(self) -> int: ...  # noqa: D102


def event_line(message: Event, as_document: bool) -> str:
    """The line for an event: for people, or a document of JSON."""
    if not as_document:
        again = "  (redelivered)" if message.redelivered else ""
        return safe(f"{message.producer} #{message.sequence}  {message.event!r}{again}")
    facts = {
        "producer": message.producer,
        "sequence": message.sequence,
        "published_at": message.published_at,
        "redelivered": message.redelivered,
    }
    return f'{json.dumps(facts)[:-1]}, "event": {safe_json(as_json(message.event))}}}'


def gap_line(gap: Dropped, as_document: bool) -> str:
    """The line for a gap: for people, or a document of JSON."""
    if not as_document:
        return safe(f"{gap.producer} #{gap.first}-{gap.last}  (dropped by the producer's overflow policy)")
    return json.dumps({"gap": {"producer": gap.producer, "first": gap.first, "last": gap.last}})
