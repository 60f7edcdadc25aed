"""What a producer makes of a shipped modulator that runs in its own process."""

from __future__ import annotations

import gc
import weakref

from echannel_ray.derived.shipments import ship
from echannel_ray.modulation.modulator import Modulator
from echannel_ray.shared.copies import unpickled


class Window:
    """Travels by value, as the modulator does."""


class Keeping(Modulator):
    def __init__(self):
        self.window = Window()

    def enqueue(self, event):
        self.emit(event)


def test_nothing_stays_of_a_modulator_that_is_gone():
    cls, modulator = unpickled(ship(Keeping(), "inline"), [])
    assert cls is not Keeping
    made = weakref.ref(modulator)
    del cls, modulator
    gc.collect()
    assert made() is None
