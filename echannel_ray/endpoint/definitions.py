"""What channels are, as managers say it: asked for, and kept, since the concentrator tells it to managers anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from echannel_ray.core.messages import Definition, OpenChannel
from echannel_ray.records import known

if TYPE_CHECKING:
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint


def open_channel(
    endpoint: ProcessEndpoint,
    name: str,
    *,
    declared: dict[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    formats: Mapping[int, bytes] | None = None,
    incarnation: int = 0,
) -> Definition:
    """Open a channel, and add to its fields and formats. Without an incarnation it is made where there is none, with
    these options; with one it has to be there still (`ChannelDeleted`).
    """
    request = OpenChannel(name, declared, dict(options or {}), dict(formats or {}), incarnation)
    return keep_definition(endpoint, endpoint.requests.ask(request))


def keep_definition(endpoint: ProcessEndpoint, definition: Definition) -> Definition:
    """Keep a definition at hand for registrations, and its formats for events."""
    endpoint.definitions[definition.channel] = definition
    known.learn_all(definition.formats)
    return definition
