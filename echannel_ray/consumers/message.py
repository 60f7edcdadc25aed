"""What a subscription hands out: messages, and gaps in the places of what was dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Message:
    """An event, with its producer, its number there, and the time when it was published."""

    event: Any
    producer: str
    sequence: int
    published_at: float
    redelivered: bool = False
    position: Any = None
    trace: Mapping[str, str] | None = None  # where tracing is on: headers for OpenTelemetry's `propagate.extract`


@dataclass(frozen=True)
class Gap:
    """Events `first` to `last` of a producer were dropped for this consumer, by the producer's overflow policy."""

    producer: str
    first: int
    last: int
