"""Handlers that are methods of the actor that subscribes: called as the user has written them."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from functools import partial
from types import FrameType
from typing import Any

import pytest
import ray

import echannel_ray as ec
from tests.api.parties import AsyncParty, Inbox, Party, ask, publish_all
from tests.api.scripts import run

WRAPPER = "_resume_span"  # Ray's


def callers() -> list[str]:
    """The functions that have called the one that asks, from the inside out."""
    found: list[str] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        found.append(frame.f_code.co_name)
        frame = frame.f_back
    return found


def checked(method: Any) -> Any:
    """A decorator of the user's: the handler is not to see events below ten."""

    @functools.wraps(method)
    def only_large(self: Any, event: int) -> Any:
        return method(self, event) if event >= 10 else None

    @functools.wraps(method)
    async def only_large_later(self: Any, event: int) -> Any:
        return await method(self, event) if event >= 10 else None

    return only_large_later if inspect.iscoroutinefunction(method) else only_large


class Handlers:
    """What there is in an actor of each kind."""

    def begin(self) -> None:
        self.seen, self.errors = Inbox(), Inbox()

    def plain(self, event: int) -> None:
        self.seen((event, WRAPPER in callers()))

    @checked
    def decorated(self, event: int) -> None:
        self.seen((event, WRAPPER in callers()))

    def of_two(self, first: int, event: int) -> None:
        self.seen((first + event, WRAPPER in callers()))

    async def coroutine(self, event: int) -> None:
        self.seen((event, WRAPPER in callers()))

    @checked
    async def decorated_coroutine(self, event: int) -> None:
        self.seen((event, WRAPPER in callers()))

    def receive(self, event: int) -> list[int]:
        assert WRAPPER not in callers()
        return [event, event]

    def fail(self, event: int) -> None:
        raise ValueError(event)

    def complain(self, error: Exception) -> None:
        self.errors((str(error), WRAPPER in callers()))


class HandlerParty(Handlers, Party):
    pass


class AsyncHandlerParty(Handlers, AsyncParty):
    pass


KINDS: dict[str, Any] = {"one thread": HandlerParty, "threads": HandlerParty, "a loop": AsyncHandlerParty}
ARE = [*range(5), *range(10, 15)]
LARGE = [*range(10, 15)]


@pytest.fixture(scope="module", params=[*KINDS])
def actor(request, nodes):
    options: dict[str, Any] = {"num_cpus": 0, "max_concurrency": 1 if request.param == "one thread" else 8}
    made = ray.remote(**options)(KINDS[request.param]).remote()
    yield made
    ray.kill(made)


def begin(party: Any, channel: ec.EventChannel, name: str) -> None:
    party.begin()
    handler = partial(party.of_two, 100) if name == "of_two" else getattr(party, name)
    party.kept["subscription"] = channel.subscribe(handler, on_error=party.complain)


def seen(party: Any, count: int) -> Any:
    return party.seen.wait(count)


def errors(party: Any, count: int) -> Any:
    return party.errors.wait(count)


async def in_thread(party: Any, function: Any, count: int) -> Any:
    return await asyncio.to_thread(function, party, count)


def answer(actor: Any, request: pytest.FixtureRequest, function: Any, count: int) -> Any:
    """What the function waits for in the actor, whose loop goes on meanwhile where it has one."""
    kind = request.node.callspec.params["actor"]
    return ask(actor, in_thread, function, count) if kind == "a loop" else ask(actor, function, count)


@pytest.mark.parametrize("source", ["here", "beside it"])
@pytest.mark.parametrize("name", ["plain", "decorated", "of_two", "coroutine", "decorated_coroutine"])
def test_methods_are_called_without_the_wrapper(actor, request, channel, name, source):
    ask(actor, begin, channel, name)
    if source == "here":
        publish_all(None, channel, ARE)
    else:
        ask(actor, publish_all, channel, ARE)
    wanted = LARGE if "decorated" in name else [100 + n for n in ARE] if name == "of_two" else ARE
    assert answer(actor, request, seen, len(wanted)) == [(event, False) for event in wanted]
    ray.get(actor.leave.remote())


@pytest.mark.parametrize("name", ["plain", "coroutine"])
def test_an_actor_that_is_its_own_demodulator(actor, request, channel, name):
    ask(actor, begin, channel, name)
    ask(actor, lambda party: party.kept["subscription"].reset(demodulator=party))
    publish_all(None, channel, ARE)
    assert answer(actor, request, seen, 20) == [(event, False) for event in ARE for _ in range(2)]
    ray.get(actor.leave.remote())


def test_on_error_is_called_without_the_wrapper(actor, request, channel):
    ask(actor, begin, channel, "fail")
    publish_all(None, channel, [1, 2])
    assert answer(actor, request, errors, 2) == [("1", False), ("2", False)]
    ray.get(actor.leave.remote())


def test_while_ray_traces_the_wrapper_stays():
    ended = run(
        """
        from ray.util.tracing import tracing_helper
        from tests.api import test_actor_methods as handlers

        # Any function that can be called without arguments: nobody looks at the spans.
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _tracing_startup_hook="builtins:dict")
        assert tracing_helper._is_tracing_enabled()
        channel = ec.channel("traced")
        kinds = {"plain": handlers.HandlerParty, "coroutine": handlers.AsyncHandlerParty}
        for name, kind in kinds.items():
            actor = ray.remote(num_cpus=0, max_concurrency=2)(kind).remote()
            ask(actor, handlers.begin, channel, name)
            with channel.producer() as producer:
                for event in range(3):
                    producer.deliver(event).result(20)
            print(name, ask(actor, handlers.seen, 3))
            ray.kill(actor)
        ec.shutdown()
        ray.shutdown()
        print("done")
        """,
        finds_no_ray=True,
    )
    assert ended.code == 0, ended.output
    for name in ("plain", "coroutine"):
        assert f"{name} [(0, True), (1, True), (2, True)]" in ended.output
