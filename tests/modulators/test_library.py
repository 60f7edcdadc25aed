"""What holds for all of the library: examples run, sandboxes can use it, and equal modulators are equal."""

from __future__ import annotations

import doctest
import importlib
import pickle
import pkgutil
import re
import secrets
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import pytest

from echannel_ray import modulators
from echannel_ray.modulation.modulator import FIFOModulator, Modulator
from echannel_ray.modulators import (
    AtMostRate,
    Cluster,
    Compress,
    Difference,
    Encrypt,
    EveryNth,
    Matching,
    MovingAverage,
    NewestOnly,
    Priority,
    Project,
    Quantise,
    Range,
    SlidingWindow,
    Throttle,
    TopK,
    Where,
    Within,
    WithProbability,
    try_out,
)
from tests.modulators.events import Trade, at_work, prices

PAGE = (Path(__file__).parents[2] / "docs" / "modulators.md").read_text()
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SUBMODULES = [info.name for info in pkgutil.iter_modules(modulators.__path__)]
BY_PRICE = SimpleNamespace(low=0, high=9)

MAKERS = {
    Range: lambda: Range("price", 0, 9),
    Within: lambda: Within(BY_PRICE, "price"),
    Where: lambda: Where(bool),
    Matching: lambda: Matching(symbol="RAY"),
    Project: lambda: Project("symbol", "price"),
    EveryNth: lambda: EveryNth(2),
    AtMostRate: lambda: AtMostRate(100),
    WithProbability: lambda: WithProbability(0.5, seed=3),
    Throttle: lambda: Throttle(0.1, by="symbol"),
    Difference: lambda: Difference("price", 0.5, by=["symbol"]),
    SlidingWindow: lambda: SlidingWindow(3),
    MovingAverage: lambda: MovingAverage("price", 3),
    NewestOnly: lambda: NewestOnly(by="symbol"),
    Priority: lambda: Priority("price"),
    TopK: lambda: TopK(3, "price"),
    Compress: lambda: Compress("bz2"),
    Quantise: lambda: Quantise(step=0.5, fields="price"),
    Encrypt: lambda: Encrypt(bytes(32)),
    Cluster: lambda: Cluster(by="symbol", size=2),
}


@pytest.mark.parametrize("name", SUBMODULES)
def test_the_examples_of_docstrings_run(name):
    module = importlib.import_module(f"echannel_ray.modulators.{name}")
    names = {name: getattr(modulators, name) for name in modulators.__all__}
    names |= {"secrets": secrets, "SimpleNamespace": SimpleNamespace, "FIFOModulator": FIFOModulator}
    assert doctest.testmod(module, extraglobs=names).failed == 0


def test_every_class_has_an_example_and_a_line_in_the_table():
    for name in modulators.__all__:
        assert ">>> " in getattr(modulators, name).__doc__
        assert f"`{name}" in PAGE
    assert dir(modulators) == modulators.__all__
    with pytest.raises(AttributeError, match="no attribute 'Missing'"):
        modulators.Missing  # noqa: B018


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_the_snippets_of_the_documentation_run(number):
    exec(compile(SNIPPETS[number], f"docs/modulators.md, snippet {number + 1}", "exec"), {"__name__": "__main__"})


def test_all_modulators_are_among_those_tested_here():
    public = [getattr(modulators, name) for name in modulators.__all__ if name != "try_out"]
    assert {each for each in public if issubclass(each, Modulator)} == set(MAKERS)


@pytest.mark.parametrize("make", MAKERS.values(), ids=[cls.__name__ for cls in MAKERS])
def test_equal_modulators_are_equal_when_shipped_and_hold_nothing_but_settings(make):
    one, other = make(), make()
    assert cloudpickle.dumps(one) == cloudpickle.dumps(other)
    assert vars(one) == vars(other)
    assert one.key() == other.key()
    # What it needs while it works is made where it works.
    settings = set(vars(one))
    at_work(one).enqueue(prices(1, 2, 3))
    assert settings <= set(vars(one))
    assert vars(pickle.loads(pickle.dumps(other))).keys() == settings


@pytest.mark.parametrize("make", MAKERS.values(), ids=[cls.__name__ for cls in MAKERS])
@pytest.mark.parametrize("kind", [lambda price: {"symbol": "RAY", "price": price}, lambda price: Trade("RAY", price)])
def test_what_they_emit_is_what_an_isolated_modulator_may_emit(make, kind):
    modulator = make()
    events = [kind(price) for price in (1.0, 3.0, 2.0, 5.0)]
    try_out(modulator, events)  # raises where it is neither an event that was given nor plain data
    assert "emit" not in vars(modulator), "the one that was tried out has been used itself"


def test_the_order_of_names_makes_no_other_filter():
    assert cloudpickle.dumps(Matching(a=1, b=2)) == cloudpickle.dumps(Matching(b=2, a=1))


def test_a_subclass_of_a_program_is_shipped_with_its_code():
    class Dear(Range):
        def __init__(self):
            super().__init__("price", low=100)

    assert try_out(Dear(), prices(99, 100)) == prices(100)


def test_one_that_emits_what_it_may_not_is_found_out():
    class Forbidden(Modulator):
        def enqueue(self, event):
            self.emit(Trade("made here", 1.0))

    with pytest.raises(ValueError, match="Trade is no plain data"):
        try_out(Forbidden(), [1])


def test_services_are_not_there_when_tried_out():
    class Asking(Modulator):
        def enqueue(self, event):
            self.services["clock"].time()

    with pytest.raises(Exception, match="clock"):
        try_out(Asking(), [1])


IN_A_LOCKED_PROCESS = """
import importlib, pkgutil, resource, sys
import echannel_ray.modulators as library
assert not {"ray", "numpy", "pydantic", "cryptography"} & sys.modules.keys(), "a light import"
for info in pkgutil.iter_modules(library.__path__):
    if info.name != "shared":  # whose objects are pydantic's
        importlib.import_module(f"echannel_ray.modulators.{info.name}")
assert not {"ray", "numpy", "pydantic"} & sys.modules.keys(), "what sandboxes don't have, or don't need"
import numpy
import echannel_ray.modulators.shared
assert "ray" not in sys.modules
loaded = set(sys.modules)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
array = numpy.arange(1000.0)
t = library.try_out
for method in ("zlib", "lzma", "bz2"):
    assert (t(library.Compress(method), [array], library.Decompress())[0] == array).all()
key = bytes(32)
assert (t(library.Encrypt(key), [array], library.Decrypt(key))[0] == array).all()
assert abs(t(library.Quantise(bits=16), [array], library.Dequantise())[0] - array).max() < 0.01
assert len(t(library.Difference(None, 1), [array, array, array + 1])) == 2
assert (t(library.MovingAverage(None, 2), [array, array])[1] == array).all()
assert t(library.WithProbability(1), [1]) == [1]
for modulator in (library.Throttle(1), library.Cluster(size=2), library.TopK(1, None), library.SlidingWindow(2)):
    assert t(modulator, [1, 2])
assert set(sys.modules) == loaded, "a module was loaded late"
print("done")
"""


def test_a_process_that_can_open_no_files_can_use_all_of_it():
    done = subprocess.run([sys.executable, "-c", IN_A_LOCKED_PROCESS], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
