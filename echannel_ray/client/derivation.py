"""Derived channels: installed at all producers, and held."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from echannel_ray.core.messages import REPLAY, Definition, Derive, Derived, Release, Shipment
from echannel_ray.endpoint.process_endpoint import ProcessEndpoint


def derive(endpoint: ProcessEndpoint, definition: Definition, parent: str, shipment: Shipment) -> tuple[Derived, int]:
    """Have what is derived by this modulator from a channel (or from what is derived from it, the `parent`) installed
    at all producers: what it is, and the handle that holds it.
    """
    channel = definition.channel
    handle = endpoint.new_subscription()
    request = Derive(channel, handle, parent, shipment, definition.incarnation)
    try:
        derived: Derived = endpoint.requests.ask(request, None, f"deriving from channel {channel!r}")
    except BaseException:
        endpoint.requests.tell(Release(channel, handle))
        raise
    with endpoint.lock:
        endpoint.derivations.learned(channel, replace(derived, shipment=shipment))
        endpoint.derivations.handle_made(handle, channel, derived.key)
    return derived, handle


@contextmanager
def derived_meanwhile(endpoint: ProcessEndpoint, definition: Definition, *shipments: Shipment) -> Iterator[str]:
    """The key of what these derive, one behind another. This holds it until its end, then whoever subscribed to it."""
    key = ""
    handles: list[int] = []
    try:
        for shipment in shipments:
            derived, handle = derive(endpoint, definition, key, shipment)
            handles.append(handle)
            key = derived.key
        yield key
    finally:
        for handle in handles:
            endpoint.derivations.released(handle)


def name_of_derived(channel: str, key: str) -> str:
    """A derived channel's name, which says from which it is derived, and by what code."""
    return f"{channel}~{key[:12]}"


def replay_from(start: str, group: str | None) -> Shipment:
    """What a replay is derived by. Members of a group share one; all others have their own."""
    whose = secrets.token_hex(8) if group is None else group
    return Shipment("replay", REPLAY, f"{start}\n{whose}".encode(), start=start)
