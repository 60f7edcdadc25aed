"""Producers or mailboxes of a process, by their numbers and by their channels: a process may have thousands."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, ValuesView
from typing import Protocol, TypeVar


class OfChannel(Protocol):
    """What belongs to a channel."""

    channel: str


T = TypeVar("T", bound=OfChannel)


class ByChannel(MutableMapping[int, T]):
    """A dict that also knows which of its values are on a channel."""

    def __init__(self) -> None:
        self._items: dict[int, T] = {}
        self._on: dict[str, dict[int, T]] = {}

    def on(self, channel: str) -> list[T]:
        """Those of one channel."""
        return [*self._on.get(channel, {}).values()]

    def __getitem__(self, number: int) -> T:
        return self._items[number]

    def __setitem__(self, number: int, item: T) -> None:
        self._items[number] = item
        self._on.setdefault(item.channel, {})[number] = item

    def __delitem__(self, number: int) -> None:
        item = self._items.pop(number)
        on = self._on[item.channel]
        del on[number]
        if not on:
            del self._on[item.channel]

    def __iter__(self) -> Iterator[int]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    # The mixins' own go through `__getitem__` for each.
    def get(self, number: int, default: T | None = None) -> T | None:  # type: ignore[override]
        """See `dict`."""
        return self._items.get(number, default)

    def values(self) -> ValuesView[T]:
        """See `dict`."""
        return self._items.values()
