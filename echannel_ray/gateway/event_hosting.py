"""What a gateway's port for events asks of the concentrator that it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from echannel_ray.runtime.message import Gap, Message


@dataclass(frozen=True)
class EventChannelInfo:
    """A channel as clients see it."""

    channel: str
    fields: dict[str, str] | None  # names and types; None: it is untyped
    is_retained: bool


class FeedEnded(Exception):
    """Nothing more comes of a subscription."""


class Feed(Protocol):
    """The events of one subscription."""

    def take(self) -> Message | Gap | None:
        """The next one, if there is one. What is told in the place of events is raised; and `FeedEnded` at the end."""

    def settle(self, events: int) -> None:
        """A member of a group has handled so many more; what it has not when this is closed goes to another."""

    def close(self) -> None:
        """End it; it may wait."""


class Derived(Protocol):
    """A derived channel, for as long as it is held."""

    @property
    def name(self) -> str:
        """As `EventChannel.name`."""

    @property
    def parent(self) -> str:
        """The channel that it is derived from."""

    @property
    def fields(self) -> dict[str, str] | None:
        """Of its events."""

    def close(self) -> None:
        """Hold it no more; it may wait."""


class EventHost(Protocol):
    """All of it may be called from any thread, and may wait. Errors: our own, `LookupError`, `ValueError`."""

    def open(self, name: str, fields: Mapping[str, str] | None) -> EventChannelInfo:
        """A channel; with fields it is made where there is none, with these (or untyped, where there are none).
        `LookupError` where there is no such channel, `TypeMismatch` where it is another one.
        """

    def publish_events(self, name: str, events: Sequence[Any]) -> None:
        """Publish plain data; waits while there is no room. `NotSerialisable` where one is no event of the channel:
        those before it are published.
        """

    def drain(self, name: str) -> None:
        """Wait until what was published here is acknowledged (on a retained channel: logged)."""

    def subscribe(
        self, name: str, derived: Derived | None, group: str | None, start: str | None, wake: Callable[[], None]
    ) -> Feed:
        """Consume a channel, or what is derived from it. `wake` is called, by any thread, when there is something to
        take; it does not wait.
        """

    def derive(
        self, name: str, source: str, params: Mapping[str, bool | int | float], output: Mapping[str, str] | None
    ) -> Derived:
        """A derived channel by the text of an E-code program; `ModulatorRefused` says what is wrong with it."""
