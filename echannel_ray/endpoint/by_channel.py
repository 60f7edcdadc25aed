"""Producers or inboxes of a process, by their numbers and by their channels: a process may have thousands."""

from __future__ import annotations

from typing import Protocol, TypeVar

from typing_extensions import override


class OfChannel(Protocol):
    """A thing that belongs to a channel."""

    channel: str


T = TypeVar("T", bound=OfChannel)


class ByChannel(dict[int, T]):
    """A dict that also knows which of its values are on a channel. They come and go one by one."""

    def __init__(self) -> None:
        super().__init__()
        self._on: dict[str, dict[int, T]] = {}

    def on(self, channel: str) -> list[T]:
        """The values on one channel."""
        return [*self._on.get(channel, {}).values()]

    @override
    def __setitem__(self, number: int, item: T) -> None:
        super().__setitem__(number, item)
        self._on.setdefault(item.channel, {})[number] = item

    @override
    def __delitem__(self, number: int) -> None:
        item = self[number]
        super().__delitem__(number)
        on = self._on[item.channel]
        del on[number]
        if not on:
            del self._on[item.channel]

    @override
    def pop(self, number: int, default: T | None = None) -> T | None:  # type: ignore[override]
        item = self.get(number, default)
        if number in self:
            del self[number]
        return item
