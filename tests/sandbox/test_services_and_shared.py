"""What modulators in sandboxes ask of their producer: services, and the masters of shared objects."""

from __future__ import annotations

import io
import sys
from typing import Any

import cloudpickle
import pytest

from echannel_ray.errors import MasterLost, StaleVersion
from echannel_ray.modulation.modulator import Modulator
from echannel_ray.sandbox.owner import SandboxFailed
from tests.sandbox.arena import Recorder, decoded


class Copy:
    """A shared object as far as a sandbox knows it."""

    def __init__(self, version: int, fields: dict[str, Any], link: Any) -> None:
        self.version = version
        self.fields = fields
        self.link = link

    @classmethod
    def _echannel_copy(cls, version, fields, link):
        return cls(version, fields, link)

    def _echannel_update(self, version, fields):
        if fields.get("bad"):
            raise ValueError("bad")
        self.version, self.fields = version, fields


class Master:
    """Stands for a shared object at its consumer, in the place of a copy."""

    def __init__(self, index):
        self.index = index


class Steered(Modulator):
    def __init__(self, copies):
        self.copies = copies

    def enqueue(self, event):
        copy = self.copies[0]
        if event == "publish":
            copy._echannel_update(*copy.link.publish({"low": 7}, 3))
        elif event == "pull":
            copy._echannel_update(*copy.link.pull())
        self.emit([copy.version, copy.fields, self.copies[0] is self.copies[-1]])


class Asking(Modulator):
    def enqueue(self, event):
        try:
            self.emit(self.services["Directory"].lookup(event, default=("x", 1)))
        except Exception as error:
            self.emit([type(error).__name__, str(error)])


def ship(modulator):
    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def persistent_id(self, obj):
            return ("shared", obj.index, Copy) if isinstance(obj, Master) else None

    modules = [module for name, module in sys.modules.items() if name.startswith("tests.sandbox")]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    file = io.BytesIO()
    Pickler(file).dump((type(modulator), modulator))
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)
    return file.getvalue()


@pytest.fixture
def steered(arena):
    guest = arena.guest()
    code = ship(Steered([Master(0), Master(1), Master(0)]))
    guest.sandbox.install(code, {}, [(3, {"low": 1}), (1, {})], False, 60)
    return guest


def test_copies_begin_with_what_they_are_given(steered):
    assert steered.work([1]) == [[3, {"low": 1}, True]]


def test_an_update_comes_between_batches(steered):
    steered.sandbox.update_shared(0, 4, {"low": 2})
    assert steered.owner.next() == ("shared_updated", 0, 4)
    assert steered.work([1]) == [[4, {"low": 2}, True]]


def test_a_restart_begins_with_the_newest(steered):
    steered.sandbox.update_shared(0, 5, {"low": 9})
    steered.sandbox.restart()
    assert steered.owner.next() == ("shared_updated", 0, 5)
    assert steered.work([1]) == [[5, {"low": 9}, True]]


def test_an_update_that_fails_is_a_failure(steered):
    steered.sandbox.update_shared(0, 4, {"bad": True})
    assert steered.owner.next()[0] == "failed"
    assert steered.owner.next() == ("shared_updated", 0, 4)


def test_publishing_and_pulling(steered):
    steered.send(["publish"])
    call = steered.owner.next()
    assert call[0] == "shared_published"
    assert call[2:] == (0, {"low": 7}, 3)
    steered.sandbox.answer(call[1], (4, {"low": 7, "high": 8}))
    assert decoded(steered.owner.next())[2] == [[4, {"low": 7, "high": 8}, True]]
    steered.send(["pull"])
    call = steered.owner.next()
    assert (call[0], call[2]) == ("shared_pulled", 0)
    steered.sandbox.answer(call[1], (5, {}))
    assert decoded(steered.owner.next())[2] == [[5, {}, True]]


@pytest.mark.parametrize("error", [StaleVersion("too late", expected=3, current=4), MasterLost("gone")])
def test_errors_of_masters_are_raised_as_they_are(steered, error):
    steered.send(["publish"])
    steered.sandbox.refuse(steered.owner.next()[1], error)
    told = steered.owner.next()
    assert told[0] == "failed"
    assert type(error).__name__ in told[5]


def test_an_update_that_comes_during_a_call_waits_for_the_end_of_the_batch(steered):
    steered.send(["pull"])
    call = steered.owner.next()
    steered.sandbox.update_shared(0, 9, {"low": 9})
    steered.sandbox.answer(call[1], (5, {"low": 5}))
    assert decoded(steered.owner.next())[2] == [[5, {"low": 5}, True]]
    assert steered.owner.next() == ("shared_updated", 0, 9)


def test_an_object_that_is_not_shared_is_no_pickle(arena):
    with pytest.raises(SandboxFailed):
        arena.guest().sandbox.install(ship(Steered([Master(3)])), {}, [], False, 60)


def test_a_service_is_called_by_name(arena):
    guest = arena.guest(Asking(), services={"Directory": frozenset({"lookup"})})
    guest.send(["a", "b"])
    call = guest.owner.next()
    assert call[0] == "called"
    assert call[2:] == ("Directory", "lookup", ("a",), {"default": ("x", 1)})
    guest.sandbox.answer(call[1], {"found": (1, 2)})
    call = guest.owner.next()
    guest.sandbox.refuse(call[1], LookupError("not there"))
    assert decoded(guest.owner.next())[2] == [{"found": (1, 2)}, ["ServiceFailed", "LookupError: not there"]]


def test_a_service_that_was_not_asked_for_is_not_there(arena):
    guest = arena.guest(Asking(), services={"Other": frozenset()})
    assert guest.work(["a"])[0][0] == "KeyError"


def test_a_result_that_is_no_plain_data_is_an_error(arena):
    guest = arena.guest(Asking(), services={"Directory": frozenset({"lookup"})})
    guest.send(["a"])
    guest.sandbox.answer(guest.owner.next()[1], Recorder())
    assert decoded(guest.owner.next())[2][0][0] == "ServiceFailed"
