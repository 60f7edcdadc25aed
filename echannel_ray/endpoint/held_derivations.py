"""The derived channels that this process consumes or has handles of: what it says of them when a manager is new."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from echannel_ray.core.messages import MAX_SHIPPED_BYTES, Derived, Release

if TYPE_CHECKING:
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint


class HeldDerivations:
    """The derived channels that one endpoint uses; under its lock, but for `released`."""

    def __init__(self, endpoint: ProcessEndpoint) -> None:
        self._endpoint = endpoint
        self._derived: dict[tuple[str, str], Derived] = {}  # by channel and key, with their code
        self._handles: dict[int, tuple[str, str]] = {}  # handle: channel and key

    def learned(self, channel: str, derived: Derived) -> None:
        """Note a derived channel that this process asked for."""
        self._derived[channel, derived.key] = derived

    def handle_made(self, handle: int, channel: str, key: str) -> None:
        """Note a handle of a derived channel."""
        self._handles[handle] = (channel, key)

    def released(self, handle: int) -> None:
        """A handle is garbage. Called by the garbage collector, in whatever any thread does: nothing may wait."""
        place = self._handles.pop(handle, None)
        if place is not None and not self._endpoint.closed:
            self._endpoint.released_handles.append(Release(place[0], handle))

    def held(self, channel: str) -> tuple[tuple[Derived, ...], tuple[tuple[int, str], ...]]:
        """What a manager is told again of this channel: what is derived, parents first, and by which handles."""
        handles = tuple((handle, key) for handle, (on, key) in [*self._handles.items()] if on == channel)
        used = {key for _, key in handles}
        used.update(inbox.derived for inbox in self._endpoint.inboxes.on(channel))
        used.update(publisher.derived for publisher in self._endpoint.publishers.on(channel))
        ordered: dict[str, Derived] = {}
        for key in used:
            self._with_parents(channel, key, ordered)
        for place in [place for place in self._derived if place[0] == channel and place[1] not in ordered]:
            del self._derived[place]
        left_bytes = MAX_SHIPPED_BYTES
        for key, derived in ordered.items():
            left_bytes -= len(derived.shipment.code)
            if left_bytes < 0:  # a frame has to hold this; producers have the code too
                ordered[key] = replace(derived, shipment=replace(derived.shipment, code=b""))
        return tuple(ordered.values()), handles

    def _with_parents(self, channel: str, key: str, ordered: dict[str, Derived]) -> None:
        derived = self._derived.get((channel, key))
        if derived is not None and key not in ordered:
            self._with_parents(channel, derived.parent, ordered)
            ordered[key] = derived
