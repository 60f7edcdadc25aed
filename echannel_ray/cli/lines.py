"""What a tap is asked for, and events and gaps as its lines: got by a process of the cluster, or a gateway's client."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from echannel_ray.cli.documents import as_json
from echannel_ray.cli.terminal_text import safe, safe_json

if TYPE_CHECKING:
    from echannel_ray.consumers.message import Gap, Message
    from echannel_ray.gateway.event_client import EventGap, EventMessage


@dataclass(frozen=True)
class TapRequest:
    """What a tap shows, and how long."""

    count: int | None = None  # it ends after so many events
    timeout: float | None = None  # and after so many seconds
    where: str | None = None  # E-code: only what passes it leaves the producers
    rate: float | None = None  # and of that so many in a second
    as_lines: bool = False  # of JSON

    def check(self, channel: str, seen: int) -> None:
        """TimeoutError where fewer events came than were to come."""
        if self.count is not None and seen < self.count:
            raise TimeoutError(f"{seen} of {self.count} events came on channel {channel!r} within {self.timeout:g} s")


def event_line(message: Message | EventMessage, as_document: bool) -> str:
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


def gap_line(gap: Gap | EventGap, as_document: bool) -> str:
    """The line for a gap: for people, or a document of JSON."""
    if not as_document:
        return safe(f"{gap.producer} #{gap.first}-{gap.last}  (dropped by the producer's overflow policy)")
    return json.dumps({"gap": {"producer": gap.producer, "first": gap.first, "last": gap.last}})
