"""Ray's wrapper is taken off the methods of actors, and nothing else is."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Callable
from functools import partial
from types import MethodType, ModuleType
from typing import Any

import pytest
import ray
from ray import cloudpickle
from ray.util.tracing import tracing_helper

from echannel_ray.consumers.bare_methods import bare

WRAPPER = "_resume_span"


def caller() -> str:
    """Who has called the function that asks."""
    return sys._getframe(2).f_code.co_name


def doubled(method: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator of a user's, well behaved."""

    @functools.wraps(method)
    def twice(*arguments: Any) -> Any:
        return 2 * method(*arguments)

    return twice


class Handlers:
    factor = 10

    def plain(self, event: int) -> tuple[int, str]:
        return event * self.factor, caller()

    @doubled
    def decorated(self, event: int) -> int:
        return event * self.factor

    def of_two(self, first: int, event: int) -> tuple[int, str]:
        return first + event * self.factor, caller()

    async def coroutine(self, event: int) -> tuple[int, str]:
        return event * self.factor, caller()

    def generator(self, event: int) -> Any:
        yield event

    @staticmethod
    def static(event: int) -> int:
        return event

    @classmethod
    def of_class(cls, event: int) -> int:
        return event * cls.factor


def remote_class() -> type[Any]:
    """As Ray has it in the process that declares the actor."""
    actor_class: Any = ray.remote(Handlers)
    modified: type[Any] = actor_class.__ray_metadata__.modified_class
    return modified


def travelled_class() -> type[Any]:
    """As Ray has it in the actor's process."""
    travelled: type[Any] = cloudpickle.loads(cloudpickle.dumps(remote_class()))
    return travelled


@pytest.fixture(params=[remote_class, travelled_class])
def actor(request: pytest.FixtureRequest) -> Any:
    return request.param()()


def test_the_wrapper_is_taken_off(actor):
    assert actor.plain(1) == (10, WRAPPER)  # else there would be nothing to take off
    assert bare(actor.plain)(1) == (10, "test_the_wrapper_is_taken_off")


def test_what_is_bare_stays_as_it_is(actor):
    once = bare(actor.plain)
    assert bare(once) is once


def test_a_decorator_of_the_user_stays(actor):
    handler = bare(actor.decorated)
    assert handler(1) == 20
    assert handler.__func__.__code__.co_name == "twice"


def test_a_decorator_around_the_wrapper_stays(actor):
    # It has copied Ray's mark and name, and has `__wrapped__` as Ray's wrapper has.
    around = MethodType(doubled(type(actor).plain), actor)
    assert bare(around) is around
    assert around(1) == (10, WRAPPER, 10, WRAPPER)


def test_only_the_outermost_is_taken_off(actor):
    tracing_helper._inject_tracing_into_class(type(actor))  # which later versions of Ray leave at that
    handler, wrapped = bare(actor.plain), type(actor).plain.__wrapped__
    assert handler.__func__ is wrapped


def test_a_coroutine_function_stays_one(actor):
    assert asyncio.run(actor.coroutine(1)) == (10, WRAPPER)
    handler = bare(actor.coroutine)
    assert asyncio.iscoroutinefunction(handler)
    assert asyncio.run(handler(1))[1] != WRAPPER


def test_within_a_partial(actor):
    handler = bare(partial(actor.of_two, 5))
    assert handler(1) == (15, "test_within_a_partial")
    by_name = bare(partial(actor.of_two, event=1))
    assert by_name(5)[0] == 15


def test_what_ray_has_not_wrapped(actor):
    plain = Handlers()
    unwrapped = [
        actor.generator, actor.static, actor.of_class, plain.plain, plain.decorated, partial(plain.of_two, 1),
        len, [].append, print, Handlers, lambda event: event, type(actor).plain,
    ]  # fmt: skip
    for function in unwrapped:
        assert bare(function) is function


def test_while_ray_traces_it_stays(actor, monkeypatch):
    monkeypatch.setattr(tracing_helper, "_global_is_tracing_enabled", True)
    handler = actor.plain
    assert bare(handler) is handler
    monkeypatch.undo()
    assert bare(handler) is not handler


@pytest.mark.parametrize("changed", ["_inject_tracing_into_class", "_is_tracing_enabled"])
def test_where_ray_is_another_one_it_stays(actor, monkeypatch, changed):
    other = ModuleType(tracing_helper.__name__)
    vars(other).update({name: value for name, value in vars(tracing_helper).items() if name != changed})
    monkeypatch.setitem(sys.modules, tracing_helper.__name__, other)
    handler = actor.plain
    assert bare(handler) is handler


def test_without_ray_it_stays(actor, monkeypatch):
    handler = actor.plain
    monkeypatch.delitem(sys.modules, tracing_helper.__name__)
    assert bare(handler) is handler
