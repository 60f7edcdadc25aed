"""How the context of a trace travels with an event: as a pickle that makes the event, or both.

Where tracing is on, what is published is a `Traced`. Its pickle is a call of `arrived`, so on its way it looks like any
event: in a process without tracing, a modulator's sandbox included, the event itself comes out, and nothing has to ask.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import override


class Switch:
    """Whether this process traces: once on, for as long as it lives."""

    is_on = False


switch = Switch()


class Traced:
    """An event, and the headers of its trace as OpenTelemetry's propagator wrote them."""

    __slots__ = ("event", "headers")

    def __init__(self, event: Any, headers: dict[str, str]) -> None:
        self.event = event
        self.headers = headers

    @override
    def __reduce__(self) -> Any:
        return arrived, (self.event, self.headers)

    @override
    def __repr__(self) -> str:
        return repr(self.event)  # errors of modulators show it


def arrived(event: Any, headers: dict[str, str]) -> Any:
    """What a traced event is in this process. Pickles of events call it."""
    return Traced(event, headers) if switch.is_on else event
