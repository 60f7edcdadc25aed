"""What producers have said to a log and can't be logged yet: parts of large events, and what came too early."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from echannel_ray.endpoint.calls import Answer
from echannel_ray.logs.entries import NewEntry
from echannel_ray.retained import log_calls

# For which it waits for what belongs to it: then its producer has died, or will say all again.
_KEPT_SECONDS: Final = 60.0


@dataclass
class _Parts:
    came_at: float = 0.0
    data: dict[int, bytes] = field(default_factory=dict)


class Early(NamedTuple):
    """What has to wait for what its producer said before it."""

    came_at: float
    message: log_calls.Append
    answer: Answer


class EarlyEntries:
    """Of one log; on its thread."""

    def __init__(self) -> None:
        self._early: dict[tuple[str, int], list[Early]] = {}  # by producers and what has to come before
        self._parts: dict[tuple[str, int], _Parts] = {}

    def slice_came(self, message: log_calls.Slice, now: float) -> None:
        """A part of a large event, ahead of its `Append`."""
        parts = self._parts.setdefault((message.producer, message.last), _Parts())
        parts.came_at = now
        parts.data[message.number] = message.data

    def whole(self, message: log_calls.Append) -> list[NewEntry] | None:
        """The entries that are meant; None where a part is missing."""
        if not message.slices:
            return message.entries
        parts = self._parts.pop((message.producer, message.last), _Parts()).data
        if len(parts) < message.slices:
            return None
        data = b"".join(parts[number] for number in range(message.slices))
        return [message.entries[0]._replace(data=data)]

    def came_early(self, message: log_calls.Append, answer: Answer, now: float) -> None:
        """Something before it is missing."""
        self._early.setdefault((message.producer, message.after), []).append(Early(now, message, answer))

    def following(self, producer: str, last: int) -> list[Early]:
        """What has waited for this."""
        return self._early.pop((producer, last), [])

    def forget(self, now: float) -> None:
        """What has waited for too long."""
        before = now - _KEPT_SECONDS
        for place in [place for place, parts in self._parts.items() if parts.came_at < before]:
            del self._parts[place]
        for key in [key for key, several in self._early.items() if several[0].came_at < before]:
            for each in self._early.pop(key):
                each.answer(log_calls.Unlogged("what its producer had said before it never came"))

    def unanswered(self) -> list[Answer]:
        """Who waits for one."""
        return [each.answer for several in self._early.values() for each in several]
