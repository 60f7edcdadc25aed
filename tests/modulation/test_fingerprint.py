"""Which shipped modulators are the same: the same code at two places, in two processes; and nothing else."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from echannel_ray.derived.shipments import ship
from echannel_ray.errors import ModulatorRefused
from echannel_ray.modulation.fingerprint import identity_of
from echannel_ray.modulation.modulator import FIFOModulator, Modulator

BODY = """
import math

LIMIT = {limit}

def helper(value):
    return math.floor(value) + {shift}

class Filter(Base):
    '''Its own doc.'''
    names = frozenset({{"a", "b", "c", "d"}})

    def __init__(self, low):
        self.low = low
        self.seen = {{"x", "y", "z", low}}

    def enqueue(self, event):
        if event in {{"x", "y", "z"}} or any(helper(each) > LIMIT for each in [1, 2, 3]):
            return
        self.emit(event)
"""
PROGRAM = """
import sys
from echannel_ray.modulation.modulator import FIFOModulator as Base
from echannel_ray.modulation.fingerprint import identity_of
from echannel_ray.derived.shipments import ship
{body}
shipment = ship(Filter({low}), "isolated")
print(identity_of(shipment.code, shipment.key, []))
"""


def in_a_process(folder: Path, lines_above: int = 0, low: int = 5, limit: int = 3, shift: int = 0) -> str:
    """The identity of the filter, as a program of its own ships it."""
    script = folder / f"program_{lines_above}.py"
    body = "\n" * lines_above + BODY.format(limit=limit, shift=shift)
    script.write_text(PROGRAM.format(body=body, low=low))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def test_the_same_in_each_process_and_at_each_place(tmp_path):
    (tmp_path / "other").mkdir()
    same = {in_a_process(tmp_path), in_a_process(tmp_path, 7), in_a_process(tmp_path / "other")}
    assert len(same) == 1


def test_what_differs_is_another(tmp_path):
    found = [
        in_a_process(tmp_path),
        in_a_process(tmp_path, low=6),
        in_a_process(tmp_path, limit=4),
        in_a_process(tmp_path, shift=1),
    ]
    assert len(set(found)) == 4


def identity(modulator: Modulator) -> str:
    shipment = ship(modulator, "isolated")
    return identity_of(shipment.code, shipment.key, [(s.node, s.endpoint, s.number) for s in shipment.shared])


def make(source: str, name: str = "Made") -> Any:
    """A class defined by this source."""
    names: dict[str, Any] = {"Base": FIFOModulator, "__name__": "__main__"}
    exec(compile(textwrap.dedent(source), "<made>", "exec"), names)
    return names[name]


PAIRS = [
    ("a constant", "return 1", "return 2"),
    ("a name", "return len(event)", "return abs(event)"),
    ("an attribute", "return self.a", "return self.b"),
    ("a default", "return (lambda x=1: x)()", "return (lambda x=2: x)()"),
    ("an operator", "return event + 1", "return event - 1"),
    ("a type of constant", "return 1", "return 1.0"),
    ("true and one", "return True", "return 1"),
    ("text and bytes", "return 'a'", "return b'a'"),
    ("order", "return (1, 2)", "return (2, 1)"),
    ("an exception's handler", "try:\n            f()\n        except ValueError: pass", "f()"),
]


@pytest.mark.parametrize(("one", "other"), [pair[1:] for pair in PAIRS], ids=[pair[0] for pair in PAIRS])
def test_other_code_is_another(one, other):
    classes = [
        make(f"class Made(Base):\n    def enqueue(self, event):\n        {body}\n") for body in (one, other, one)
    ]
    found = [identity(cls()) for cls in classes]
    assert found[0] == found[2] != found[1]


def test_state_counts_unless_there_is_a_key():
    cls = make(
        """
        class Made(Base):
            def __init__(self, low, noise): self.low, self.noise = low, noise
        """
    )
    keyed = make(
        """
        class Made(Base):
            def __init__(self, low, noise): self.low, self.noise = low, noise
            def enqueue(self, event): pass
            def key(self): return self.low
        """
    )
    assert identity(cls(1, 2)) != identity(cls(1, 3))
    assert identity(cls(1, 2)) == identity(cls(1, 2))
    assert identity(keyed(1, 2)) == identity(keyed(1, 3)) != identity(keyed(2, 2))


def test_code_in_the_state_counts_in_spite_of_a_key():
    cls = make(
        """
        class Made(Base):
            def __init__(self, test): self.test = test
            def enqueue(self, event): pass
            def key(self): return "the same"
        """
    )
    assert identity(cls(lambda event: event > 1)) != identity(cls(lambda event: event > 2))
    assert identity(cls(lambda event: event > 1)) == identity(cls(lambda event: event > 1))


def test_it_counts_what_is_the_same_object():
    cls = make("class Made(Base):\n    def enqueue(self, event):\n        pass\n")
    for once, twice in (([], list), ({}, dict), (set(), set)):
        aliased, apart, in_tuples, in_tuples_apart = cls(), cls(), cls(), cls()
        aliased.state, apart.state = [once, once], [twice(), twice()]
        in_tuples.state, in_tuples_apart.state = [(once,), (once,)], [(twice(),), (twice(),)]
        assert len({identity(each) for each in (aliased, apart, in_tuples, in_tuples_apart)}) == 4


def test_equality_cannot_be_claimed():
    """What the class says of itself does not matter: names, `__eq__`, `__hash__`, `__reduce__`."""
    honest = make("class Made(Base):\n    def enqueue(self, event):\n        self.emit(event)\n")
    forged = make(
        """
        class Made(Base):
            def enqueue(self, event): self.emit("forged")
            def __eq__(self, other): return True
            def __hash__(self): return 1
            def __reduce__(self): return (Honest, ())
        """
    )
    forged.enqueue.__globals__["Honest"] = honest
    assert identity(honest()) != identity(forged())


def test_a_call_for_its_effect_counts():
    """The same class and modulator, after something else was run."""
    plain = cloudpickle.dumps((FIFOModulator, FIFOModulator()))
    start = plain.index(b"\x95") + 9 if b"\x95" in plain[:4] else 2
    extra = b"cbuiltins\nprint\n)R0"
    changed = plain[:2] + extra + plain[2:start].replace(plain[2:start], b"") + plain[start:]
    assert pickle.loads(changed)[0] is FIFOModulator
    for key in (None, b"key"):
        assert identity_of(changed, key, []) != identity_of(plain, key, [])


def test_tracebacks_of_what_was_shipped_can_be_shown():
    cls = make("class Made(Base):\n    def enqueue(self, event):\n        return [each / 0 for each in event]\n")
    _, shipped = pickle.loads(ship(cls(), "isolated").code)
    with pytest.raises(ZeroDivisionError) as caught:
        shipped.enqueue([1])
    shown = "".join(traceback.format_exception(caught.value))
    assert "in enqueue" in shown


def test_keys_are_plain_data():
    class Odd:
        def __eq__(self, other):
            return True

        def __hash__(self):
            return 1

    cls = make("class Made(Base):\n    def enqueue(self, e): pass\n    def key(self): return self.odd\n")
    modulator = cls()
    modulator.odd = Odd()
    with pytest.raises(ModulatorRefused, match="plain"):
        ship(modulator, "isolated")


@pytest.mark.parametrize(
    "code",
    [
        b"",
        b"junk",
        pickle.dumps(1),
        pickle.dumps((1, 2, 3)),
        pickle.dumps((1, 2))[:-1],
        pickle.dumps((Modulator, Modulator()), 0),
        b"\x80\x05(((((((.",
        b"\x80\x05h\x05.",
        b"\x80\x05N0000.",
        b"\x80\x05" + b"]" + b"\x94h\x00\x85" * 2000 + b".",
    ],
)
def test_what_is_no_such_pickle_is_refused(code):
    with pytest.raises(ModulatorRefused):
        identity_of(code, None, [])


def test_nothing_is_run_to_compare(tmp_path):
    witness = tmp_path / "ran"

    class Trap:
        def __reduce__(self):
            return (open, (str(witness), "w"))

    assert identity_of(cloudpickle.dumps((Trap, Trap())), None, [])
    assert not witness.exists()


def test_growing_without_end_is_no_danger():
    """Two hundred pairs of the one before, twice: a tree of 2 ** 200 leaves."""
    code = b"\x80\x05N" + b"\x94" + b"".join(b"h" + bytes((i,)) + b"h" + bytes((i,)) + b"\x86\x94" for i in range(200))
    assert identity_of(code + b".", None, [])
