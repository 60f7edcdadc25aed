"""Who takes part in the tests of the public API: actors that do what a test asks of them, and handlers that collect."""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable
from typing import Any

import ray

import echannel_ray as ec

SOON = 20.0  # seconds: far more than anything here takes, also on a busy machine


class Inbox:
    """A handler that collects what it gets, and can be waited for."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._changed = threading.Condition()

    def __call__(self, item: Any) -> None:
        with self._changed:
            self.items.append(item)
            self._changed.notify_all()

    def wait(self, count: int, timeout: float = SOON) -> list[Any]:
        """What has come, as soon as it is so much."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.items) >= count, timeout):
                raise TimeoutError(f"{len(self.items)} of {count} came within {timeout} s: {self.items[:10]!r}…")
            return [*self.items]


class Valve:
    """A handler that waits until it is opened, and then collects."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.inbox = Inbox()

    def __call__(self, event: Any) -> None:
        self.entered.set()
        assert self.opened.wait(SOON)
        self.inbox(event)


class Party:
    """An actor: consumes, and does what it is told; `kept` holds what has to outlive one call."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def where(self) -> tuple[str, int]:
        """The node, and the process."""
        return ray.get_runtime_context().get_node_id(), os.getpid()

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function with this actor and the arguments, in its process."""
        return function(self, *arguments)

    def consume(self, channel: ec.EventChannel, **options: Any) -> int:
        """Collect the events of a channel."""
        inbox = self.kept["inbox"] = Inbox()
        self.kept["subscription"] = channel.subscribe(inbox, **options)
        return os.getpid()

    def received(self, count: int) -> list[Any]:
        """The events, as soon as there are so many."""
        inbox: Inbox = self.kept["inbox"]
        return inbox.wait(count)

    def leave(self) -> None:
        """Close whatever was left open."""
        for each in self.kept.values():
            if isinstance(each, ec.Subscription | ec.Producer):
                each.close()
        self.kept.clear()


class AsyncParty:
    """The same on an event loop."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call (and await) the function with this actor and the arguments, in its process, on its loop."""
        result = function(self, *arguments)
        return await result if inspect.isawaitable(result) else result

    async def leave(self) -> None:
        """Close whatever was left open."""
        for each in self.kept.values():
            if isinstance(each, ec.Subscription | ec.Producer):
                await each.aclose()
        self.kept.clear()


_remote: Any = ray.remote  # whose annotations know few of its options
PartyActor = _remote(num_cpus=0)(Party)
ThreadedPartyActor = _remote(num_cpus=0, max_concurrency=8)(Party)
AsyncPartyActor = _remote(num_cpus=0, max_concurrency=8)(AsyncParty)


def ask(actor: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns in the process of the actor."""
    return ray.get(actor.run.remote(function, *arguments), timeout=60)


def publish_all(party: Any, channel: ec.EventChannel, events: list[Any]) -> str:
    """Publish from the process of a party: the producer's name."""
    with channel.producer() as producer:
        for event in events:
            assert producer.publish(event)
        return producer.name
