"""Methods of Ray actors as their class has them, without the wrapper that Ray puts around each.

`ray.remote` wraps every method of an actor's class in a function that goes on with the trace of its caller, where there
is one. A handler is not called by Ray, so nothing of that happens there, and it costs half of what a consumer does for
an event.

Rules:

* Only Ray's own wrapper is taken off, and only the outermost: its code is one of those within the function of Ray that
  makes them. Where another Ray makes them in another way, none is found and nothing is taken off. A name, or the mark
  that Ray leaves at its wrappers, would not do: a decorator of the user's that is put around one copies both.
* Only of a method that is bound, by itself or in a `functools.partial`.
* Only while Ray traces nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

_RAYS_MODULE: Final = "ray.util.tracing.tracing_helper"
_RAYS_WRAPPER: Final = "_resume_span"


def bare(function: Callable[..., Any]) -> Callable[..., Any]:
    """What to call in the place of a function that the user gave: the same, or what Ray has wrapped there."""
    if type(function) is partial:
        within = bare(function.func)
        return function if within is function.func else partial(within, *function.args, **function.keywords)
    if type(function) is not MethodType or type(function.__func__) is not FunctionType:
        return function
    wrapper = function.__func__
    wrapped = getattr(wrapper, "__wrapped__", None)
    # As it was imported, with `ray`: without it there is no wrapper.
    maker = sys.modules.get(_RAYS_MODULE)
    if wrapped is None or maker is None or wrapper.__code__ not in _wrappers_of(maker) or _traces(maker):
        return function
    return MethodType(wrapped, function.__self__)


def _traces(maker: ModuleType) -> bool:
    """Whether Ray traces calls now; where it does not tell, it might."""
    asked = getattr(maker, "_is_tracing_enabled", None)
    return asked is None or bool(asked())


@cache
def _wrappers_of(maker: ModuleType) -> frozenset[CodeType]:
    """The code of Ray's wrappers: one is for plain methods, one for coroutines."""
    within = getattr(getattr(maker, "_inject_tracing_into_class", None), "__code__", None)
    return frozenset(code for code in _codes_in(within) if code.co_name == _RAYS_WRAPPER)


def _codes_in(code: CodeType | None) -> Iterator[CodeType]:
    for constant in code.co_consts if code is not None else ():
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes_in(constant)
