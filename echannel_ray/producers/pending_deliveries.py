"""Synchronous delivery: who has still to answer for an event, and what came back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from echannel_ray.compilation import mypyc_attr
from echannel_ray.core.deliveries import RELEASED, Answered, Awaited
from echannel_ray.endpoint.crew import Waiter
from echannel_ray.endpoint.deadlines import GivenTimeout, deadline_of
from echannel_ray.endpoint.offload import wake
from echannel_ray.errors import DeliveryFailed, EChannelError

if TYPE_CHECKING:
    from echannel_ray.consumers.inbox import Inbox
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint


@mypyc_attr(native_class=False)
@dataclass(frozen=True)
class Failure:
    """A consumer that did not handle a delivered event, and why."""

    consumer: str
    error: str


@mypyc_attr(native_class=False)
@dataclass(frozen=True)
class Receipt:
    """A delivered event was handled by so many consumers."""

    consumers: int


class PendingDelivery(Waiter):
    """A delivered event, what came back for it, and who waits for that; `Delivery` is what a program sees of it."""

    __slots__ = (
        "_callbacks",
        "_endpoint",
        "_error",
        "_failures",
        "_handled",
        "_inboxes",
        "_local",
        "awaited",
        "number",
        "task",
    )

    def __init__(self, endpoint: ProcessEndpoint, awaited: Awaited) -> None:
        super().__init__()
        self._endpoint = endpoint
        self.awaited = awaited  # who of other processes has to answer, as the core knows it
        self.number = awaited.number
        self._local = 0
        self._handled = 0
        self._failures: list[Failure] = []
        self._callbacks: list[Callable[[], Any]] = []
        self._inboxes: Sequence[Inbox] = ()  # of this process, that have to answer
        self._error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None  # that waits for room on behalf of a coroutine

    # ---- the endpoint's side; under its lock ----

    def expect(self, local: int, inboxes: Sequence[Inbox] = ()) -> None:
        """Besides those in other processes, so many of this one have to answer."""
        self._inboxes = inboxes
        self._local += local
        self._check()

    def remote_result(self, answered: Answered) -> None:
        """A consumer in another process has handled it, let go of it, or failed; or its process has died."""
        outcome = answered.outcome
        if outcome == b"":
            self._handled += 1
        elif outcome != RELEASED:
            what = "its process died, or its node did" if outcome is None else outcome.decode("utf-8", "replace")
            self._failures.append(Failure(f"{answered.endpoint:016x}.{answered.subscription}", what))
        self._check()

    def local_result(self, failure: str | None, counts: bool) -> None:
        """A consumer of this process has handled it, failed, or (not `counts`) was closed."""
        with self._endpoint.lock:
            self._local -= 1
            if failure is not None:
                self._failures.append(Failure("this process", failure))
            elif counts:
                self._handled += 1
            self._check()

    def answered(self, handled: int, failures: Sequence[Failure]) -> None:
        """Add how all readers of a log have handled the event."""
        with self._endpoint.lock:
            self._local -= 1
            self._handled += handled
            self._failures += failures
            self._check()

    def outcomes(self) -> tuple[int, list[tuple[str, str]]]:
        """When it is done: how many have handled it, and who has not, and why."""
        return self._handled, [(each.consumer, each.error) for each in self._failures]

    def hold(self) -> Emission:
        """Modulators work on the event: who gets what they emit will have to answer too."""
        self._local += 1
        return Emission(self)

    def emitted(self, parts: Sequence[PendingDelivery]) -> None:
        """Add what became of all that a modulator emitted: handled, or failed."""
        self._local -= 1
        # Each part has the same consumers.
        self._handled += max((part._handled for part in parts), default=0)
        for part in parts:
            self._failures += part._failures
        self._check()

    def when_done(self, call: Callable[[], Any]) -> None:
        """Call this when everybody has answered, or now."""
        if self.done:
            call()
        else:
            self._callbacks.append(call)

    def begin_late(self) -> None:
        """Wait for room for the event: another delivery is made when there is, and its outcome is passed on."""
        self._local = 1

    def pass_on_to(self, earlier: PendingDelivery) -> None:
        """Give the outcome to an earlier delivery: this is the one that was made when there was room."""
        with self._endpoint.lock:
            if self.done:
                earlier._take(self)
            else:
                self._callbacks.append(lambda: earlier._take(self))

    def _take(self, later: PendingDelivery) -> None:
        self._failures, self._handled, self._error = later._failures, later._handled, later._error
        self._local = 0
        self._check()

    def fail(self, error: BaseException) -> None:
        """End the delivery: the event could not be published after all."""
        with self._endpoint.lock:
            self._error = error
            self._local = 0
            self._check()

    def abandon(self, reason: str) -> None:
        """End the delivery: this process leaves, and nobody will answer any more."""
        for endpoint, subscription in self.awaited.waiting:
            self._failures.append(Failure(f"{endpoint:016x}.{subscription}", reason))
        self.awaited.waiting.clear()
        self._local = 0
        self._check()

    def _check(self) -> None:
        if not self.awaited.waiting and self._local <= 0 and not self.done:
            self._endpoint.deliveries.pop(self.number, None)
            self.set()
            for callback in self._callbacks:
                callback()

    # ---- the caller's side ----

    def result(self, timeout: GivenTimeout = None) -> Receipt:
        """Wait until every consumer's handler has returned; `DeliveryFailed` where one raised or died."""
        deadline = deadline_of(timeout)  # which raises where it is none
        if not self.done:
            self._refuse_to_wait_for_itself()
            if not self._endpoint.crew.wait(self, deadline):
                raise TimeoutError(
                    f"{len(self.awaited.waiting) + self._local} consumers have not answered within {timeout} s"
                )
        return self._outcome()

    def _refuse_to_wait_for_itself(self) -> None:
        if self._inboxes and any(inbox.driver.is_current_thread() for inbox in self._inboxes):
            raise EChannelError(
                "this handler waits for itself: it is one of the consumers that have to handle the event, and it does "
                "so after it has returned. Publish the event, or deliver it and look at the result later"
            )

    def _outcome(self) -> Receipt:
        if self._error is not None:
            raise self._error
        if self._failures:
            failures = tuple(self._failures)
            first = failures[0]
            raise DeliveryFailed(
                f"{len(failures)} of {len(failures) + self._handled} consumers did not handle the event; "
                f"the first: {first.consumer}: {first.error}",
                failures=failures,
                handled=self._handled,
            )
        return Receipt(self._handled)

    def __await__(self) -> Generator[Any, None, Receipt]:
        if not self.done:
            self._refuse_to_wait_for_itself()
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            with self._endpoint.lock:
                self._callbacks.append(lambda: wake(future))
            if not self.done:
                yield from future
        return self._outcome()


class Emission:
    """What one modulator emits during a delivered event's `enqueue`: a delivery each. Under the endpoint's lock.

    Whoever made it calls `complete` when the event was handed on.
    """

    def __init__(self, whole: PendingDelivery) -> None:
        self._whole = whole
        self._parts: list[PendingDelivery] = []
        self._open = 1

    def part(self) -> PendingDelivery:
        """The delivery of one more event that was emitted."""
        part = self._whole._endpoint.new_delivery()
        self._parts.append(part)
        self._open += 1
        return part

    def sent(self, part: PendingDelivery) -> None:
        """Who has to answer for it is known."""
        part.when_done(self.complete)

    def of_child(self) -> Emission:
        """What a modulator behind this one emits."""
        return self._whole.hold()

    def begin(self) -> None:
        """The modulator gets (a part of) the event."""
        self._open += 1

    def complete(self) -> None:
        """The event was handed on, the modulator has done with it, or a part was answered for."""
        self._open -= 1
        if not self._open:
            self._whole.emitted(self._parts)
