"""The parts and the channels of a namespace, asked of its actors, without joining it or starting anything."""

from __future__ import annotations

import difflib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import Any

from pydantic import BaseModel, Field

from echannel_ray.actors import startup
from echannel_ray.core.messages import Definition, Directory, GetChannelStats, GetMembership, LookUpChannel, Membership
from echannel_ray.core.name_book import slot_of
from echannel_ray.errors import ChannelDeleted, NoSuchChannel
from echannel_ray.models import ChannelStats, Node, Part, Status, status_of
from echannel_ray.options import packing_of, retention_of

_ANSWER_SECONDS = 15.0
_AT_ONCE = 16
_NAMED = 10  # channels, where one was asked for that is not there


class ChannelLine(ChannelStats):
    """A channel, its type, and its counters."""

    event_type: str | None = None  # None is untyped


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


def read_status(namespace: str) -> Status:
    """The parts of the namespace; where nobody has joined it, that is what the name server's `error` says."""
    name = startup.name_server_name(namespace)
    try:
        return status_of(ask_part(name, "status"))
    except LookupError:
        nodes = [
            Node(node_id=node["NodeID"], alive=node["Alive"], joined=False, suspected=False)
            for node in startup.ray_nodes()
        ]
        missing = Part(name=name, error="not started: no process has joined this namespace yet")
        return Status(namespace=namespace, name_server=missing, managers=[], concentrators=[], channels=[], nodes=nodes)


def read_channels(namespace: str) -> list[ChannelLine]:
    """All channels of the namespace by name; those that are being deleted are left out."""
    managers = [manager.name for manager in read_status(namespace).managers]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        kept = pool.map(lambda name: (name, ask_part(name, "definitions")), managers)
        asked = [(name, definition) for name, definitions in kept for definition in definitions]
        lines = [line for line in pool.map(lambda pair: _line_of(*pair), asked) if line is not None]
    return sorted(lines, key=lambda line: line.channel)


def find_channel(namespace: str, channel: str) -> tuple[str, Definition]:
    """A channel's manager and its definition; an error that names others where there is none of this name."""
    server = startup.name_server_name(namespace)
    try:
        directory: Directory = ask_part(server, "directory")
    except LookupError:
        raise NoSuchChannel(
            f"no process has joined namespace {namespace!r} yet, so it has no channels: is another one meant?",
            channel=channel, namespace=namespace,
        ) from None  # fmt: skip
    manager = directory.managers[slot_of(channel, len(directory.managers))]
    definition: Definition | None = ask_part(manager, "request", 0, 0, LookUpChannel(channel))
    if definition is not None:
        return manager, definition
    others = ask_part(server, "status")["channels"]
    near = difflib.get_close_matches(channel, others, 3)
    meant = f"did you mean {' or '.join(map(repr, near))}?" if near else _listed(others)
    raise NoSuchChannel(
        f"there is no channel {channel!r} in namespace {namespace!r}: {meant}", channel=channel, namespace=namespace
    )


def _listed(channels: list[str]) -> str:
    if not channels:
        return "it has none yet"
    rest = f" and {len(channels) - _NAMED:,} others" if len(channels) > _NAMED else ""
    return f"it has {', '.join(map(repr, channels[:_NAMED]))}{rest}"


def read_line(manager: str, definition: Definition) -> ChannelLine:
    """The channel as one line, from its manager; `ChannelDeleted` where there was one a moment ago."""
    wanted = GetChannelStats(definition.channel, definition.incarnation)
    counters: dict[str, Any] = ask_part(manager, "request", 0, 0, wanted)  # of no endpoint
    event_type = definition.type_schema["name"] if definition.type_schema else None
    return ChannelLine.of(definition.channel, counters, event_type=event_type)


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


def _line_of(manager: str, definition: Definition) -> ChannelLine | None:
    try:
        return read_line(manager, definition)
    except ChannelDeleted:
        return None


def ask_part(name: str, method: str, *arguments: Any) -> Any:
    """What a part answers; LookupError where there is none of this name."""
    startup.find(name)  # LookupError at once where it does not exist: `call` would wait for it
    return startup.call(partial(startup.find, name), method, *arguments, timeout=_ANSWER_SECONDS)
