"""Who has still to handle what was delivered into a log, and what became of it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from echannel_ray.core.deliveries import RELEASED
from echannel_ray.endpoint.calls import Answer
from echannel_ray.retained import log_calls

Member: TypeAlias = tuple[int, int]  # (endpoint, subscription)
DERIVED: Final = "\0derived"  # as a consumer: all who consume the event behind modulators (no group has such a name)
_KEPT_SECONDS: Final = 10.0  # for which an outcome is kept for who asks again


def consumer(member: Member, group: str | None) -> Member | str:
    """Who has to answer for an event: a group counts as one."""
    return member if group is None else group


@dataclass
class _Delivered:
    """An event whose producer waits for its readers."""

    offset: int
    waiting: set[Member | str]
    handled: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    asked: Answer | None = None
    ended_at: float = 0.0


class Outcomes:
    """Of one log; on its thread."""

    def __init__(self) -> None:
        self._delivered: dict[tuple[str, int], _Delivered] = {}  # by producers and their numbers
        self._awaited: dict[int, _Delivered] = {}  # of these, those that some have not handled yet; by their offsets

    def expect(self, producer: str, last: int, offset: int, consumers: Iterable[Member | str]) -> None:
        """The event at this offset was delivered, and these have to handle it."""
        delivered = _Delivered(offset, {*consumers})
        self._delivered[producer, last] = self._awaited[offset] = delivered
        self._tell(delivered)

    def asked(self, producer: str, last: int, answer: Answer) -> None:
        """The producer wants to know, as soon as all have."""
        delivered = self._delivered.get((producer, last))
        if delivered is None:  # a predecessor logged it, and knew who would have to answer
            failure = ("the log", "its keeper was restarted, and does not know who has handled it")
            answer(log_calls.DeliveryOutcomes(0, [failure]))
            return
        delivered.asked = answer
        self._tell(delivered)

    def _tell(self, delivered: _Delivered) -> None:
        if delivered.waiting:
            return
        self._awaited.pop(delivered.offset, None)
        delivered.ended_at = delivered.ended_at or time.time()
        if delivered.asked is not None:
            delivered.asked(log_calls.DeliveryOutcomes(delivered.handled, delivered.failures))
            delivered.asked = None

    def awaited(self, start: int, stop: int) -> list[int]:
        """The offsets between these two that somebody waits for."""
        return [offset for offset in self._awaited if start <= offset < stop]

    def resolve(self, member: Member, group: str | None, outcome: bytes, start: int, stop: int) -> None:
        """A member, for itself or its group, has done with the events between two offsets, one way or another."""
        who = consumer(member, group)
        for offset in self.awaited(start, stop):
            delivered = self._awaited[offset]
            if who in delivered.waiting:
                delivered.waiting.discard(who)
                if not outcome:
                    delivered.handled += 1
                elif outcome != RELEASED:
                    name = f"{member[0]:016x}.{member[1]}"
                    delivered.failures.append((name, outcome.decode("utf-8", "replace")))
                self._tell(delivered)

    def resolve_derived(self, producer: str, last: int, handled: int, failures: Iterable[tuple[str, str]]) -> None:
        """What modulators have made of an event was handled."""
        delivered = self._delivered.get((producer, last))
        if delivered is not None and DERIVED in delivered.waiting:
            delivered.waiting.discard(DERIVED)
            delivered.handled += handled
            delivered.failures += failures
            self._tell(delivered)

    def forget(self, now: float) -> None:
        """Those that ended long ago."""
        for key in [key for key, each in self._delivered.items() if 0 < each.ended_at < now - _KEPT_SECONDS]:
            del self._delivered[key]

    def unanswered(self) -> list[Answer]:
        """Who waits for one."""
        return [each.asked for each in self._delivered.values() if each.asked is not None]
