"""States that change by a table of legal transitions, and the error of a change that the table does not have."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from typing_extensions import override

Transitions = Mapping[tuple[str, str], str]  # (state, event): the state after it

_MAX_STORY: Final = 20


class IllegalTransition(RuntimeError):
    """Something happened that can't in this state: a mistake in this package, with what led to it."""

    def __init__(self, what: str, state: str, event: str, story: Iterable[str] = ()) -> None:
        self.what, self.state, self.event, self.story = what, state, event, [*story]
        super().__init__(what, state, event, self.story)

    @override
    def __str__(self) -> str:
        led = f"; before: {', '.join(self.story)}" if self.story else ""
        return f"{self.what} is {self.state}, and can't be told {self.event!r}{led}"


def next_state(transitions: Transitions, what: str, state: str, event: str) -> str:
    """The state of something after an event; raises where the table has none."""
    following = transitions.get((state, event))
    if following is None:
        raise IllegalTransition(what, state, event)
    return following


class Life:
    """The state of one thing, and its story: how it came there."""

    def __init__(self, what: str, transitions: Transitions, state: str) -> None:
        self.what = what
        self.state = state
        self._transitions = transitions
        self._story: deque[str] = deque(maxlen=_MAX_STORY)

    def become(self, event: str) -> None:
        """Change the state by an event; `IllegalTransition` where the table has none."""
        following = self._transitions.get((self.state, event))
        if following is None:
            raise IllegalTransition(self.what, self.state, event, self._story)
        self._story.append(f"{event} ({self.state} to {following})")
        self.state = following
