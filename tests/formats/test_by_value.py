"""What only this process has goes along by value, and is one and the same class at the other end."""

from __future__ import annotations

import dataclasses
import gc
import io
import logging
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from echannel_ray.core.kinds import PICKLED
from echannel_ray.errors import NotSerialisable
from echannel_ray.formats import by_value
from echannel_ray.formats.events import decode, encode

ROOT = Path(__file__).parents[2]


def run(*arguments):
    """A Python process of its own; its output, or a failure that shows what it wrote."""
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_classes_of_main_arrive_in_a_ray_worker_and_come_back():
    assert run("-m", "tests.formats.driver").endswith("all is well")


def test_bytes_and_dicts_never_import_ray():
    imports = "import sys; from echannel_ray.formats import events, packs; from echannel_ray.schemas import types"
    code = f"{imports}; events.encode({{'a': (1, 2)}})"
    assert run("-c", code + "; print([m for m in ('ray', 'numpy', 'pandas', 'pydantic') if m in sys.modules])") == "[]"


def test_the_public_api_does_not_import_what_only_some_need():
    code = "import sys; import echannel_ray.event_channel, echannel_ray.endpoint.process_endpoint"
    heavy = "('numpy', 'pandas', 'pyarrow', 'pydantic', 'llvmlite', 'echannel_ray.programs')"
    assert run("-c", f"{code}; print([m for m in {heavy} if m in sys.modules])") == "[]"


def local_class():
    @dataclasses.dataclass
    class Local:
        value: object

    return Local


def test_a_class_is_one_class_for_all_events():
    Local = local_class()  # noqa: N806
    first, second = encode(Local(1)), encode([Local(2)])
    assert type(decode(*first[:2])) is Local
    assert type(decode(*second[:2])[0]) is Local


def test_a_class_is_made_once_where_it_is_new():
    """Elsewhere the identity is unknown: forget it here, which is what another process amounts to."""
    kind, payload, _ = encode(local_class()(1))
    gc.collect()
    by_value._recent.clear()
    gc.collect()
    first, second = decode(kind, payload), decode(kind, payload)
    assert type(first) is type(second)
    assert first == second
    # Published from there, it has the identity that it came with.
    assert type(decode(*encode(first)[:2])) is type(first)


def test_classes_made_for_one_event_do_not_pile_up():
    for number in range(300):
        encode(local_class()(number))
    gc.collect()
    assert len(by_value._definitions) <= 300
    assert len(by_value._recent) <= 256


def test_functions_and_classes_as_events():
    offset = 5
    there = decode(*encode([lambda x: x + offset, local_class(), len, int])[:2])
    assert there[0](1) == 6
    assert there[1](3).value == 3
    assert there[2:] == [len, int]


class InMain:
    """Looks as if the program's own file had defined it."""


InMain.__module__ = "__main__"


@pytest.mark.parametrize("bulk", [b"", bytes(100), bytes(range(256)) * 400, "x" * 100_000, bytearray(100_000)])
@pytest.mark.parametrize("first", [True, False])
def test_main_is_found_beside_bulk(monkeypatch, bulk, first):
    """The search skips long strings of bytes, and nothing else."""
    monkeypatch.setattr(sys.modules["__main__"], "InMain", InMain, raising=False)
    for many in (1, 20_000):
        event = [InMain(), bulk, list(range(many))] if first else [list(range(many)), bulk, bulk, InMain()]
        kind, payload, _ = encode(event)
        assert kind == PICKLED
        assert b"class_from" in payload
        names = [part for part in decode(kind, payload) if isinstance(part, InMain)]
        assert len(names) == 1


@pytest.mark.parametrize(
    "view",
    [memoryview(b"abc"), memoryview(b""), memoryview(bytearray(16)).cast("i"), memoryview(bytes(8)).cast("B", (2, 4))],
)
def test_a_memoryview_stays_one(view):
    there = decode(*encode({"view": view})[:2])["view"]
    assert type(there) is memoryview
    assert (there.tobytes(), there.format, there.shape) == (view.tobytes(), view.format, view.shape)


def test_an_open_file_is_refused(tmp_path):
    with open(tmp_path / "f", "w+") as file, pytest.raises(NotSerialisable, match="open file") as raised:
        encode({"file": file})
    assert raised.value.path == "event['file']"


def test_types_that_only_cloudpickle_knows():
    logger = logging.getLogger("some.logger")
    there = decode(*encode([logger, {1: 2}.keys(), io, type(None)])[:2])
    assert there[0] is logger
    assert list(there[1]) == [1]
    assert there[2] is io
    assert there[3] is type(None)


def test_a_definition_that_can_not_be_made_again_fails_alone():
    with pytest.raises(pickle.UnpicklingError):
        by_value.class_from("unheard of", b"\x80\x05junk")
