"""All there is to say of one channel: its definition, its counters, and who is there."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, Field

from echannel_ray.core.messages import GetMembership, Membership
from echannel_ray.options import packing_of, retention_of
from echannel_ray.overview.readings import ChannelLine, ask_part, find_channel, read_line


class ConsumerGroup(BaseModel):
    """Consumers that share a channel's events."""

    name: str
    channel: str  # which may be a derived one
    members: dict[str, int] = Field(default_factory=dict)  # by node


class ChannelDetails(ChannelLine):
    """A channel in all detail."""

    namespace: str
    fields: dict[str, str] | None = None  # names and types; None is untyped
    packing: dict[str, Any] = Field(default_factory=dict)
    retention: dict[str, Any] | None = None  # None keeps nothing
    logs: dict[str, int] = Field(default_factory=dict)  # of a retained channel, by node
    groups: list[ConsumerGroup] = Field(default_factory=list)


def read_details(namespace: str, channel: str) -> ChannelDetails:
    """The channel; an error that names others where there is none of that name."""
    manager, definition = find_channel(namespace, channel)
    membership: Membership = ask_part(manager, "request", 0, 0, GetMembership(channel, definition.incarnation))
    line = read_line(manager, definition)
    retention = retention_of(definition.options)
    logs = Counter(f"{log.node:016x}" for log in membership.logs)
    return ChannelDetails.model_validate(
        {
            **line.model_dump(),
            "namespace": namespace,
            "fields": dict(definition.type_schema["fields"]) if definition.type_schema else None,
            "packing": asdict(packing_of(definition.options)),
            "retention": None if retention is None else asdict(retention),
            "logs": dict(sorted(logs.items())),
            "groups": groups_of(channel, membership),
        }
    )


def groups_of(channel: str, membership: Membership) -> list[ConsumerGroup]:
    """The groups of a channel and of what is derived from it, by name."""
    groups: dict[tuple[str, str], ConsumerGroup] = {}
    for each in membership.consumers:
        if each.group is not None:
            consumed = f"{channel}~{each.derived[:12]}" if each.derived else channel
            group = groups.setdefault((each.group, consumed), ConsumerGroup(name=each.group, channel=consumed))
            node = f"{each.node:016x}"
            group.members[node] = group.members.get(node, 0) + 1
    return [groups[key] for key in sorted(groups)]
