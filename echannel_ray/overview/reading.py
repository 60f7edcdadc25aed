"""The parts and the channels of a namespace, asked of its actors, without joining it or starting anything."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from echannel_ray.actors import bootstrap
from echannel_ray.errors import ChannelDeleted
from echannel_ray.models import ChannelStats, Node, Part, Status, status_of
from echannel_ray.protocol.messages import Definition, GetChannelStats

_ANSWER_SECONDS = 15.0
_AT_ONCE = 16


class ChannelLine(ChannelStats):
    """A channel, its type, and its counters."""

    event_type: str | None = None  # None is untyped


def read_status(namespace: str) -> Status:
    """All parts of the namespace; where nobody has joined it, that is what the name server's `error` says."""
    name = bootstrap.name_server_name(namespace)
    try:
        return status_of(ask_part(name, "status"))
    except LookupError:
        nodes = [
            Node(node_id=node["NodeID"], alive=node["Alive"], joined=False, suspected=False)
            for node in bootstrap.ray_nodes()
        ]
        missing = Part(name=name, error="not started: no process has joined this namespace yet")
        return Status(namespace=namespace, name_server=missing, managers=[], concentrators=[], channels=[], nodes=nodes)


def read_channels(namespace: str) -> list[ChannelLine]:
    """All channels of the namespace by name; those that are being deleted are left out."""
    managers = [manager.name for manager in read_status(namespace).managers]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        kept = pool.map(lambda name: (name, ask_part(name, "definitions")), managers)
        asked = [(name, definition) for name, definitions in kept for definition in definitions]
        lines = [line for line in pool.map(lambda pair: read_line(*pair), asked) if line is not None]
    return sorted(lines, key=lambda line: line.channel)


def read_line(manager: str, definition: Definition) -> ChannelLine | None:
    """One channel of a manager; None where it is being deleted."""
    wanted = GetChannelStats(definition.channel, definition.incarnation)
    try:
        counters: dict[str, Any] = ask_part(manager, "request", 0, 0, wanted)  # of no endpoint
    except ChannelDeleted:
        return None
    name = definition.channel
    # As `EventChannel.stats` names them. What a process counts and the manager knows no more, has no name yet.
    derived = {
        f"{name}~{key[:12]}": {"channel": f"{name}~{key[:12]}", **each}
        for key, each in counters.get("derived", {}).items()
    }
    event_type = definition.type_schema["name"] if definition.type_schema else None
    return ChannelLine.model_validate({**counters, "channel": name, "derived": derived, "event_type": event_type})


def ask_part(name: str, method: str, *arguments: Any) -> Any:
    """What a part answers; LookupError where there is none of this name."""
    bootstrap.find(name)  # LookupError at once where it does not exist: `call` would wait for it
    return bootstrap.call(partial(bootstrap.find, name), method, *arguments, timeout=_ANSWER_SECONDS)
