"""Delivered events and who has to answer for them: at the endpoint that publishes, and at those that consume.

Rules:

* A delivery waits for one answer of each subscription in another process that its event was sent to: handled (nothing),
  let go of (a zero) or failed (a text).
* An answer may be lost with a link. Whoever waits for longer than `PATIENCE_SECONDS` asks for it, again and again; so
  answers are kept for a while. A subscription that is not there any more has let go of everything.
* The death of a consumer's process is its answer.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from echannel_ray.core import frames

if TYPE_CHECKING:
    from echannel_ray.core.streams import Recipient

PATIENCE_SECONDS = 0.5
MAX_KEPT_ANSWERS = 16384

RELEASED = b"\0"  # the answer of who will not handle the event


class Answered(NamedTuple):
    """An instruction: a consumer has answered for a delivered event. The outcome is None where its process died."""

    delivery: int
    endpoint: int
    subscription: int
    outcome: bytes | None


@dataclass(slots=True, eq=False)
class Awaited:
    """A delivered event, and who of other processes has not answered for it."""

    number: int
    waiting: dict[tuple[int, int], int] = field(default_factory=dict)  # (endpoint, subscription): its node
    asked_at: float = 0.0


class Deliveries:
    """The deliveries of one endpoint that wait for answers, and the answers that it gave itself."""

    def __init__(self, node: int, endpoint: int) -> None:
        self._node = node
        self._endpoint = endpoint
        self._next = 0
        self.awaited: dict[int, Awaited] = {}  # of which somebody has to answer still
        self._answers: dict[tuple[int, int, int], bytes] = {}  # (endpoint, delivery, subscription)

    # ---- at the endpoint that publishes ----

    def begin(self) -> Awaited:
        """Begin a delivery: a list of who has to answer it, which is nobody yet."""
        self._next += 1
        return Awaited(self._next)

    def expect(self, awaited: Awaited, recipients: Iterable[Recipient], now: float) -> None:
        """Add subscriptions that have to answer for a delivery."""
        for recipient in recipients:
            awaited.waiting[recipient.endpoint, recipient.subscription] = recipient.node
        if awaited.waiting:
            awaited.asked_at = now
            self.awaited[awaited.number] = awaited

    def answered(self, number: int, endpoint: int, subscription: int, outcome: bytes) -> Answered | None:
        """An answer has come; None where nobody waits for it, or it was known."""
        awaited = self.awaited.get(number)
        if awaited is None or awaited.waiting.pop((endpoint, subscription), None) is None:
            return None
        if not awaited.waiting:
            del self.awaited[number]
        return Answered(number, endpoint, subscription, outcome)

    def endpoint_gone(self, endpoint: int) -> list[Answered]:
        """A process has died: that is the answer of all of its consumers, and nobody will ask for ours."""
        for key in [key for key in self._answers if key[0] == endpoint]:
            del self._answers[key]
        died = [(number, who) for number, each in self.awaited.items() for who in each.waiting if who[0] == endpoint]
        return [self._died(number, *who) for number, who in died]

    def _died(self, number: int, endpoint: int, subscription: int) -> Answered:
        awaited = self.awaited[number]
        del awaited.waiting[endpoint, subscription]
        if not awaited.waiting:
            del self.awaited[number]
        return Answered(number, endpoint, subscription, None)

    def awaited_endpoints(self) -> set[int]:
        """The processes that have to answer for something."""
        return {endpoint for awaited in self.awaited.values() for endpoint, _ in awaited.waiting}

    def overdue(self, now: float) -> Iterator[bytes]:
        """The frames that ask for answers which are late."""
        for awaited in self.awaited.values():
            if now - awaited.asked_at > PATIENCE_SECONDS:
                awaited.asked_at = now
                for (endpoint, subscription), node in awaited.waiting.items():
                    fixed = frames.RESULT_WANTED_FIXED.pack(
                        node, endpoint, awaited.number, self._node, self._endpoint, subscription
                    )
                    yield frames.frame(frames.RESULT_WANTED, fixed)

    # ---- at those that consume ----

    def answer(self, node: int, endpoint: int, number: int, subscription: int, outcome: bytes) -> bytes:
        """A delivered event was handled, failed or let go of: the frame that says so."""
        self._answers[endpoint, number, subscription] = outcome
        if len(self._answers) > MAX_KEPT_ANSWERS:
            del self._answers[next(iter(self._answers))]
        fixed = frames.RESULT_FIXED.pack(node, endpoint, number, self._endpoint, subscription)
        return frames.frame(frames.RESULT, fixed + outcome)

    def answer_again(
        self, node: int, endpoint: int, number: int, subscription: int, open_ones: Container[int]
    ) -> bytes | None:
        """A producer has waited long: our answer was lost, or the subscription was closed before the event came."""
        outcome = self._answers.get((endpoint, number, subscription))
        if outcome is None:
            if subscription in open_ones:
                return None  # its handler is at work
            outcome = RELEASED
        return self.answer(node, endpoint, number, subscription, outcome)
