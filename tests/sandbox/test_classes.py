"""Events in a sandbox are of the classes that came with its modulator."""

from __future__ import annotations

import dataclasses
import enum
from types import FunctionType, SimpleNamespace
from typing import Any

import pydantic
import pytest

from echannel_ray.derived import shipments
from echannel_ray.modulation.modulator import Modulator
from tests.sandbox.arena import LIMITS, PATIENCE_SECONDS, Arena, Guest


@dataclasses.dataclass
class Trade:
    price: int


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Model(pydantic.BaseModel):
    price: int


class Plain:
    def __init__(self, price):
        self.price = price


class Outer:
    @dataclasses.dataclass
    class Inner:
        price: int

    class Bare:
        pass


class Special(Trade):
    pass


def made_here() -> Any:
    """The same as classes that have no place in a module: events take them along by value."""

    @dataclasses.dataclass
    class Trade:
        price: int

    class Color(enum.Enum):
        RED = 1
        BLUE = 2

    class Model(pydantic.BaseModel):
        price: int

    class Plain:
        def __init__(self, price):
            self.price = price

    class Outer:
        @dataclasses.dataclass
        class Inner:
            price: int

        class Bare:
            pass

    class Special(Trade):
        pass

    return SimpleNamespace(Trade=Trade, Color=Color, Model=Model, Plain=Plain, Outer=Outer, Special=Special)


BY_NAME: Any = SimpleNamespace(Trade=Trade, Color=Color, Model=Model, Plain=Plain, Outer=Outer, Special=Special)
LOCAL = made_here()


def of_main() -> Any:
    """The same as a script's."""
    made = made_here()
    for cls in [*vars(made).values(), made.Outer.Inner, made.Outer.Bare]:
        cls.__module__ = "__main__"
        cls.__qualname__ = cls.__qualname__.rpartition("<locals>.")[2]
        for value in vars(cls).values():
            if isinstance(value, FunctionType):
                value.__qualname__ = value.__qualname__.rpartition("<locals>.")[2]
    return made


MAIN = of_main()


class Asking(Modulator):
    """Emits what it thinks of each event."""

    def __init__(self, known: Any, samples: list[Any]):
        self.known = known
        self.samples = samples  # an equal one of each event that comes

    def enqueue(self, event):
        if event is None:
            raise ValueError("begin anew")
        sample = self.samples[self.seen]
        self.seen += 1
        self.emit([type(event) is type(sample), isinstance(event, self.known), event == sample, event is sample])

    seen = 0


def install(arena: Arena, modulator: Modulator) -> Guest:
    guest = arena.guest(limits=dataclasses.replace(LIMITS, max_seconds_per_event=2.0))
    code = shipments.ship(modulator, "isolated").code
    guest.sandbox.install(code, {}, (), False, PATIENCE_SECONDS)
    return guest


WAYS = pytest.mark.parametrize("classes", [BY_NAME, LOCAL, MAIN], ids=["by name", "local", "main"])


@WAYS
def test_events_are_of_the_classes_of_the_modulator(arena, classes):
    made: list[Any] = [classes.Trade(1), classes.Model(price=1), classes.Outer.Inner(3)]
    equal, identity = [True, True, True, False], [True, True, False, False]
    modulator = Asking((classes.Trade, classes.Model, classes.Outer.Inner, classes.Plain, classes.Color), made)
    modulator.samples += [classes.Color.RED, classes.Plain(2)]
    guest = install(arena, modulator)
    events = [classes.Trade(1), classes.Model(price=1), classes.Outer.Inner(3), classes.Color.RED, classes.Plain(2)]
    expected = [equal, equal, equal, [True] * 4, identity]
    assert guest.work(events) == expected
    assert guest.outcome([None])[0] == "failed"
    guest.sandbox.restart()
    assert guest.work(events) == expected


@WAYS
def test_nested_ones_come_alone_too(arena, classes):
    inner = classes.Outer.Inner
    assert install(arena, Asking(inner, [inner(1)])).work([inner(1)]) == [[True, True, True, False]]


@WAYS
def test_nested_ones_without_methods_come_with_the_outer_one(arena, classes):
    class Looking(Modulator):
        def enqueue(self, event):
            self.emit(isinstance(event, classes.Outer.Bare))

    assert install(arena, Looking()).work([classes.Outer.Bare()]) == [True]


def test_a_class_that_the_modulator_does_not_have_may_be_derived_from_one_that_it_has(arena):
    trade, special = LOCAL.Trade, LOCAL.Special

    class Looking(Modulator):
        def enqueue(self, event):
            self.emit([isinstance(event, trade), event.price])
            if event.price < 0:
                raise ValueError("begin anew")

    guest = install(arena, Looking())
    assert guest.work([special(1), special(2)]) == [[True, 1], [True, 2]]
    assert guest.outcome([special(-1)])[0] == "failed"
    guest.sandbox.restart()
    assert guest.work([special(1), trade(2)]) == [[True, 1], [True, 2]]


def test_classes_of_one_name_are_not_taken_for_each_other(arena):
    def make(field):
        return dataclasses.make_dataclass("Same", [field])

    one, other = make("x"), make("y")

    class Looking(Modulator):
        def enqueue(self, event):
            self.emit([isinstance(event, one), isinstance(event, other), vars(event)])

    assert install(arena, Looking()).work([one(1), other(2)]) == [[False, False, {"x": 1}], [False, False, {"y": 2}]]


def test_a_module_that_is_not_there_is_still_said_to_be_missing(arena):
    class Looking(Modulator):
        def enqueue(self, event):
            from tests.sandbox.test_classes import LOCAL  # noqa: F401

            self.emit(Trade(1).price)

    told = install(arena, Looking()).outcome([1])
    assert told[0] == "failed"
    assert "tests.sandbox.test_classes" in told[5]
    assert "modules" in told[5]
