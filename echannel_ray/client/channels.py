"""Channels as those who use them see them: opened by a type, looked up, read."""

from __future__ import annotations

from typing import Any

from echannel_ray.core.messages import Definition, LookUpChannel
from echannel_ray.endpoint.definitions import open_channel
from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
from echannel_ray.endpoint.record_codec import RecordEncoder
from echannel_ray.options import Packing, Retention, as_dict
from echannel_ray.records import known
from echannel_ray.records.writer import format_of
from echannel_ray.schemas import types


def open_typed(
    endpoint: ProcessEndpoint,
    name: str,
    event_type: Any,
    packing: Packing | None = None,
    retain: Retention | None = None,
    *,
    declares: bool = True,
) -> Definition:
    """Create a channel for events of this type (None: for all that can be serialised), or open it. Its manager learns
    the format of such events; where it `declares` nothing, a channel that is untyped remains so.
    """
    formats = known.listed(format_of(event_type)) if event_type is not None else {}
    declared = types.describe(event_type) if declares else None
    return open_channel(endpoint, name, declared=declared, options=as_dict(packing, retain), formats=formats)


def look_up(endpoint: ProcessEndpoint, name: str, timeout: float | None = None) -> Definition | None:
    """The channel of this name, if there is one."""
    found: Definition | None = endpoint.requests.ask(LookUpChannel(name), timeout)
    return found


def fields_of(definition: Definition) -> dict[str, str] | None:
    """Names and types of its events' fields; None: it is untyped."""
    return dict(definition.type_schema["fields"]) if definition.type_schema else None


def retains(definition: Definition) -> bool:
    """Whether what is published goes to logs, and consumers read these."""
    return "retain" in definition.options


def encoder_of(
    endpoint: ProcessEndpoint,
    definition: Definition,
    event_type: Any = None,
    validate: bool = False,
    output: dict[str, Any] | None = None,
) -> RecordEncoder | None:
    """What makes records of events of this type; None on an untyped channel. `output`: a derived channel's own type."""
    return RecordEncoder(endpoint, definition, event_type, validate, output) if definition.type_schema else None
