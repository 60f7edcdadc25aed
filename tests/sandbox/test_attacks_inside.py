"""Attacks on what a sandbox has: its time, its memory, its life, its socket, what it unpickles and what it emits."""

from __future__ import annotations

import array
import ctypes
import dataclasses
import os
import pickle
import re
import signal
import struct
import sys
import time

import pytest

from echannel_ray.formats import plain
from echannel_ray.modulation.modulator import Modulator
from echannel_ray.sandbox.messages import (
    CallService,
    InstallDone,
    InstallFailed,
    Outcome,
    PublishShared,
    Pull,
    Ready,
    Unavailable,
    Updated,
    frame,
)  # fmt: skip
from echannel_ray.sandbox.owner import SandboxFailed
from tests.sandbox.arena import LIMITS, Attacker, Passing, is_alive, limits_of, reply, wait_until

QUICK = dataclasses.replace(LIMITS, max_seconds_per_event=0.05)


def still_works(arena):
    assert arena.guest(Passing()).work([b"next"]) == [b"next"]


# ---- time ----------------------------------------------------------------------------------------------------------


def loop():
    while True:
        pass


def loop_against_exceptions():
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


def loop_ignoring_signals():
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    while True:
        pass


def compute_in_c():
    return 10**10**8


def match_forever():
    return re.match(r"(a+)+$", "a" * 40 + "b")


def sort_forever():
    return sum(range(10**12))


def loop_and_lie():
    import gc

    from echannel_ray.sandbox.inmate import Inmate

    (inmate,) = (each for each in gc.get_objects() if isinstance(each, Inmate))
    while True:
        inmate._progress[0] = (inmate._progress[0] + 1) & 0xFFFF


@pytest.mark.parametrize(
    "attack",
    [loop, loop_against_exceptions, loop_ignoring_signals, compute_in_c, match_forever, sort_forever, loop_and_lie],
    ids=lambda attack: attack.__name__,
)
def test_cpu_time(arena, attack):
    guest = arena.guest(Attacker(attack, {}), QUICK)
    told = guest.outcome([b"go"])
    assert told[0] == "ended"
    assert told[1:3] == (1, told[2])
    assert "CPU" in told[3]
    assert told[4] is True
    wait_until(lambda: not is_alive(guest.pid))
    still_works(arena)


def test_which_event_it_was(arena):
    def slow_at_five(self, event):
        while event == 5:
            pass
        self.emit(event)

    told = arena.guest(type("Slow", (Modulator,), {"enqueue": slow_at_five})(), QUICK).outcome(list(range(10)))
    assert told[:3] == ("ended", 1, 5)


def test_many_events_each_within_its_time_may_take_longer_together(arena):
    def work(self, event):
        end = time.process_time() + 0.03
        while time.process_time() < end:
            pass
        self.emit(event)

    guest = arena.guest(
        type("Slow", (Modulator,), {"enqueue": work})(), dataclasses.replace(QUICK, max_seconds_per_event=0.1)
    )
    assert guest.work(list(range(20))) == list(range(20))


def sleep():
    time.sleep(10**6)


def block_on_lock():
    import threading

    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def wait_for_the_socket():
    while True:
        os.read(3, 1)


def test_a_loop_after_the_answer(arena):
    def answer_and_loop():
        reply(frame(Outcome(1, -1, True, b"", [], [], b"", [], 0, None)))
        while True:
            pass

    guest = arena.guest(Attacker(answer_and_loop, {}), QUICK)
    assert guest.outcome([b"go"])[0] == "emitted"
    assert guest.owner.next()[0] == "ended"


def test_a_loop_in_a_period(arena):
    class Looping(Modulator):
        period_seconds = 0.01

        def period(self):
            while True:
                pass

    assert arena.guest(Looping(), QUICK).owner.next()[0] == "ended"


def test_a_share_of_the_cpu(arena):
    class Busy(Modulator):
        period_seconds = 0.001

        def period(self):
            end = time.process_time() + 0.02
            while time.process_time() < end:
                pass

    guest = arena.guest(Busy(), dataclasses.replace(LIMITS, max_cpu_fraction=0.1))
    while (told := guest.owner.next())[0] == "emitted":
        pass
    assert told[0] == "ended"
    assert "max_cpu_fraction" in told[3]


@pytest.mark.parametrize("method", ["flush", "dequeue"])
def test_loops_elsewhere(arena, method):
    def forever(self, *args):
        while True:
            pass

    guest = arena.guest(
        type("Looping", (Modulator,), {"enqueue": lambda self, e: self.emit(e), method: forever})(), QUICK
    )
    guest.outcome([1])
    guest.sandbox.flush(2) if method == "flush" else guest.sandbox.dequeue(2, 1)
    assert guest.owner.next()[:2] == ("ended", 2)


class LoopsInKey(Modulator):
    def key(self):
        while True:
            pass


class LoopsWhenUnpickled(Modulator):
    def __setstate__(self, state):
        while True:
            pass

    def __getstate__(self):
        return {"a": 1}


@pytest.mark.parametrize("modulator", [LoopsInKey(), LoopsWhenUnpickled()])
def test_loops_while_installing(arena, modulator):
    with pytest.raises(SandboxFailed) as failed:
        arena.guest(modulator, QUICK, wants_key=True)
    assert failed.value.overran
    still_works(arena)


# ---- memory --------------------------------------------------------------------------------------------------------


def allocate():
    return bytearray(1 << 32)


def allocate_bit_by_bit():
    kept = []
    while True:
        kept.append(bytearray(1 << 20))


def map_much():
    import mmap

    return mmap.mmap(-1, 1 << 40)


@pytest.mark.parametrize("attack", [allocate, map_much], ids=lambda attack: attack.__name__)
def test_memory(arena, attack):
    assert arena.attack(attack).startswith("refused: ")


def test_memory_bit_by_bit(arena):
    said = arena.attack(allocate_bit_by_bit, limits_of(5.0, 32 << 20))
    assert not said.startswith("DONE")
    still_works(arena)


def overwrite_the_area():
    import gc

    from echannel_ray.sandbox.inmate import Inmate

    (inmate,) = (each for each in gc.get_objects() if isinstance(each, Inmate))
    inmate._area[0] = 1


def make_the_area_writable():
    import gc

    import numpy

    from echannel_ray.sandbox.inmate import Inmate

    (inmate,) = (each for each in gc.get_objects() if isinstance(each, Inmate))
    address = numpy.frombuffer(inmate._area, numpy.uint8).ctypes.data
    library = ctypes.CDLL(None, use_errno=True)
    if library.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(4096), 3):
        raise OSError(ctypes.get_errno(), "refused")
    ctypes.memset(address, 0, 16)


@pytest.mark.parametrize("attack", [overwrite_the_area, make_the_area_writable], ids=lambda attack: attack.__name__)
def test_the_memory_of_batches_is_read_only(arena, attack):
    if attack is make_the_area_writable:
        pytest.importorskip("numpy")
    assert arena.attack(attack).startswith("refused: ")


def test_what_modulators_emit_is_bounded(arena):
    def much(self, event):
        for _ in range(2_000_000):
            self.emit(event)

    guest = arena.guest(type("Much", (Modulator,), {"enqueue": much})(), limits_of(10.0, 256 << 20, ()))
    told = guest.outcome([b"x"])
    assert told[0] in ("failed", "ended")
    assert len(told[3]) <= 1 << 20


# ---- its life ------------------------------------------------------------------------------------------------------


def exit_at_once():
    os._exit(0)


def crash():
    ctypes.string_at(0)


def abort():
    os.abort()


def overflow_the_stack():
    nested = iter(())
    for _ in range(300_000):
        nested = filter(None, nested)  # C code that calls itself, and that no version of Python counts
    return list(nested)


def close_the_socket():
    os.close(3)
    time.sleep(60)


def corrupt_memory():
    for value in (None, True, 0, "", b"", ()):
        ctypes.memset(id(value), 0, 64)


@pytest.mark.parametrize(
    "attack",
    [exit_at_once, crash, abort, overflow_the_stack, close_the_socket, corrupt_memory],
    ids=lambda attack: attack.__name__,
)
def test_crashes(arena, attack):
    limits = limits_of(5.0, 64 << 20)
    guest = arena.guest(Attacker(attack, {}), limits)
    assert guest.outcome([b"go"])[0] == "ended"
    wait_until(lambda: not is_alive(guest.pid))
    still_works(arena)


def stop_itself():
    os.kill(os.getpid(), signal.SIGSTOP)


def leave():
    sys.exit(3)


@pytest.mark.parametrize("attack", [stop_itself, leave], ids=lambda attack: attack.__name__)
def test_it_can_not_leave_so(arena, attack):
    assert arena.attack(attack).startswith("refused: ")


# ---- the protocol --------------------------------------------------------------------------------------------------


def outcome(
    number=1, index=-1, passed=False, picks=b"", values=(), held=(), keeps=b"", drops=(), waiting=0, failure=None
):
    return frame(Outcome(number, index, passed, picks, list(values), list(held), keeps, list(drops), waiting, failure))


def numbers(*each):
    return array.array("I", each).tobytes()


FORGED = {
    "wrong batch": outcome(number=7),
    "an event that was not given": outcome(picks=numbers(1)),
    "an event that was not held": outcome(picks=numbers(1), held=[0]),
    "half a number": outcome(picks=b"abc"),
    "a failure at no event": outcome(index=9, failure="x"),
    "holding what was not given": outcome(keeps=numbers(5)),
    "holding more than was given": outcome(keeps=numbers(*[0] * 50)),
    "a giant length": struct.pack("<I", 0xFFFFFFFF) + b"x",
    "no message": struct.pack("<I", 4) + b"\xc1\xc1\xc1\xc1",
    "an empty message": struct.pack("<I", 0),
    "a pickle": struct.pack("<I", 64) + pickle.dumps(os.getcwd).ljust(64, b"."),
    "an unknown message": struct.pack("<I", 2) + b"\x91\x63",
    "a message of the producer's": struct.pack("<I", 2) + b"\x91\x05",
    "deep nesting": struct.pack("<I", 100_000) + b"\x91" * 100_000,
    "a length of many items": struct.pack("<I", 5) + b"\xdd\xff\xff\xff\xff",
    "an extension": struct.pack("<I", 7) + b"\x92\x16\xd6\x01abc",
    "ready again": frame(Ready([])),
    "unavailable": frame(Unavailable("x")),
    "installed again": frame(InstallDone(False, False, None, None)),
    "failed to install": frame(InstallFailed("x")),
    "periods without one": outcome(number=0) * 100,
    "a service that was not granted": frame(CallService(1, "os", "system", b"\x92\x90\x80")),
    "a shared object that it has not": frame(Pull(1, 0)),
    "publishing what it has not": frame(PublishShared(1, 3, b"\x80", None)),
    "an update of what it has not": frame(Updated(0, 1)),
    "two calls at once": frame(CallService(1, "granted", "call", b"\x92\x90\x80")) * 2,
    "malformed arguments": frame(CallService(1, "granted", "call", b"\xc1")),
    "arguments that are none": frame(CallService(1, "granted", "call", b"\x90")),
    "keywords that are none": frame(CallService(1, "granted", "call", b"\x92\x90\x81\x01\x01")),
    "a bomb of arguments": frame(CallService(1, "granted", "call", bytes(70_000))),
    "nested arguments": frame(CallService(1, "granted", "call", b"\x91" * 60_000)),
    "two answers": outcome() * 2,
}  # fmt: skip


def forge(data):
    reply(data)
    while True:
        time.sleep(0.01)


@pytest.mark.parametrize("name", FORGED)
def test_forged_messages_end_it(arena, name):
    guest = arena.guest(Attacker(forge, {"data": FORGED[name]}), services={"granted": frozenset({"call"})})
    guest.send([b"go"])
    while (told := guest.owner.next())[0] in ("emitted", "called"):
        pass
    assert told[0] == "ended"
    assert "protocol" in told[3]
    wait_until(lambda: not is_alive(guest.pid))
    still_works(arena)


def flood():
    data = frame(Outcome(0, -1, False, b"", [b"x" * 1000], [], b"", [], 0, None)) * 100
    while True:
        reply(data)


def talk_for_ever():
    reply(struct.pack("<I", 60 << 20))
    while True:
        reply(bytes(100_000))


def say_half():
    reply(struct.pack("<I", 100) + b"half")
    time.sleep(10**6)


@pytest.mark.parametrize("attack", [flood, talk_for_ever], ids=lambda attack: attack.__name__)
def test_floods(arena, attack):
    other = arena.guest(Passing())
    guest = arena.guest(Attacker(attack, {}), QUICK)
    guest.send([b"go"])
    assert other.work([b"meanwhile"]) == [b"meanwhile"]
    while (told := guest.owner.next())[0] != "ended":
        assert told[0] == "emitted"
    still_works(arena)


def test_forged_plain_data_is_for_who_reads_it(arena):
    """The producer passes values on, unread; whoever reads them gets an error, and runs no code."""
    from echannel_ray.formats import events

    data = pickle.dumps(os.getcwd)
    guest = arena.guest(Attacker(forge, {"data": outcome(picks=numbers(1), values=[data])}))
    guest.send([b"go"])
    ((kind, payload),) = guest.owner.next()[2]
    assert (kind, payload) == (events.DATA, data)
    with pytest.raises(plain.NotPlain):
        plain.decode(payload)


def call_with_colliding_keys(data):
    while True:
        reply(data)
        os.read(3, 1000)


def test_arguments_that_are_slow_to_read_are_charged_to_who_sends_them(arena):
    """Ints of one hash: a set of them takes time in the square of their number."""
    colliding = {(i + 1) * sys.hash_info.modulus for i in range(4500)}
    data = frame(CallService(1, "granted", "call", plain.encode([[colliding], {}])))
    services = {"granted": frozenset({"call"})}
    guest = arena.guest(Attacker(call_with_colliding_keys, {"data": data}), QUICK, services=services)
    guest.send([b"go"])
    calls = 0
    while (told := guest.owner.next())[0] == "called":
        calls += 1
        guest.sandbox.answer(told[1], None)
    assert told[0] == "ended"
    assert told[4] is True
    assert calls < 50


def test_private_methods_of_services_are_refused(arena):
    def call(self, event):
        try:
            self.services["granted"]._call("granted", "__reduce__", (), {})
        except Exception as error:
            self.emit(repr(error))

    guest = arena.guest(type("Prying", (Modulator,), {"enqueue": call})(), services={"granted": frozenset({"call"})})
    assert "no public method" in guest.work([1])[0]


def send_descriptors():
    import socket

    with socket.socket(fileno=os.dup(3)) as own:
        socket.send_fds(own, [b"x"], [0] * 8)


def test_descriptors_are_not_sent(arena):
    before = len(os.listdir("/proc/self/fd"))
    guest = arena.guest()
    opened = len(os.listdir("/proc/self/fd"))
    guest.install(Attacker(send_descriptors, {}))
    assert guest.work([1])[0].startswith("refused: ")
    assert len(os.listdir("/proc/self/fd")) <= max(opened, before + 10)


# ---- unpickling, and what is emitted -------------------------------------------------------------------------------


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


class EvilState(Modulator):
    def __init__(self, path):
        self.evil = Evil(path)

    def enqueue(self, event):
        self.emit(self.evil if isinstance(self.evil, int) else Evil("x"))


class EvilKey(Modulator):
    def __init__(self, value):
        self.value = value

    def key(self):
        return Passing() if self.value == "object" else [1] * 100_000


def test_a_pickle_runs_in_the_sandbox_only(arena, tmp_path):
    path = tmp_path / "touched"
    guest = arena.guest(EvilState(str(path)))
    (status,) = guest.work([1])
    assert status != 0
    assert not path.exists()


def test_an_event_that_is_a_pickle_of_code(arena, tmp_path):
    path = tmp_path / "touched"
    data = pickle.dumps(Evil(str(path)))
    guest = arena.guest(Passing())
    guest.sandbox.submit(1, b"\1", [data])
    told = guest.owner.next()
    assert told[0] in ("emitted", "failed")
    assert not path.exists()


@pytest.mark.parametrize("value", ["object", "much"])
def test_keys_that_are_none(arena, value):
    with pytest.raises(SandboxFailed):
        arena.guest(EvilKey(value), wants_key=True)


class Text(str):
    def __reduce__(self):
        return os.getcwd, ()

    def encode(self, *args):
        return b"other"


class Always:
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1


@pytest.mark.parametrize(
    "make",
    [lambda: Text("x"), Always, lambda: {Text("k"): 1}, lambda: ValueError("x"), lambda: print, lambda: [Always()]],
)
def test_only_plain_data_is_emitted(arena, make):
    def emit_it(self, event):
        self.emit(self.make())

    guest = arena.guest(type("Emitting", (Modulator,), {"enqueue": emit_it, "make": staticmethod(make)})())
    told = guest.outcome([b"x"])
    assert told[0] == "failed"
    assert told[3] == []
    assert "plain data" in told[5]


class Raising(Exception):
    def __str__(self):
        raise SystemExit


class Large(Exception):
    def __str__(self):
        return "x" * 10_000_000


@pytest.mark.parametrize(
    "error", [Raising(), Large(), KeyboardInterrupt(), GeneratorExit(), MemoryError(), SystemExit()]
)
def test_strange_errors(arena, error):
    def fail(self, event):
        raise self.error

    modulator = type("Failing", (Modulator,), {"enqueue": fail})()
    modulator.error = error
    guest = arena.guest(modulator)
    told = guest.outcome([1, 2])
    assert told[:3] == ("failed", 1, 0)
    assert len(told[5]) < 9000
    guest.sandbox.restart()
    assert guest.outcome([1])[:3] == ("failed", 2, 0)


class ForgesItsInstallation(Modulator):
    def __init__(self, data):
        self.data = data

    def __reduce__(self):
        return forge, (self.data,)


@pytest.mark.parametrize("period", [float("nan"), float("inf"), 1e-300, -1.0, 0.0])
def test_forged_periods(arena, period):
    """They divide times, and must not switch off what is worked out of that."""
    with pytest.raises(SandboxFailed, match="protocol"):
        arena.guest(ForgesItsInstallation(frame(InstallDone(False, False, period, None))))
    still_works(arena)


@pytest.mark.parametrize("key", [b"\xc1", b"\x82\xa1b\x01\xa1a\x01", b"", pickle.dumps(os.getcwd)])
def test_forged_keys(arena, key):
    with pytest.raises(SandboxFailed, match="protocol"):
        arena.guest(ForgesItsInstallation(frame(InstallDone(False, False, None, key))), wants_key=True)


def test_sleep_and_silence(arena):
    """All at once: each has 5 s. A forged installation gains nothing: nobody answers then."""
    other = arena.guest(Passing())
    attackers = [Attacker(attack, {}) for attack in (sleep, block_on_lock, wait_for_the_socket, say_half)]
    forger = ForgesItsInstallation(frame(InstallDone(False, False, None, None)))
    guests = [arena.guest(each, QUICK) for each in (*attackers, forger)]
    for guest in guests:
        guest.send([b"go"])
    assert other.work([b"meanwhile"]) == [b"meanwhile"]
    for guest in guests:
        told = guest.owner.next()
        assert (told[0], told[4]) == ("ended", True)
    still_works(arena)


@pytest.mark.parametrize("period", [float("nan"), float("inf"), -5, 1e-9, True])
def test_strange_periods_are_made_possible(arena, period):
    modulator = Passing()
    modulator.period_seconds = period
    assert arena.guest(modulator).work([1]) == [1]


def test_time_in_batches_is_no_idle_time(arena):
    """Whoever looks now and then may find it idle each time; what it used in between was for its batches."""

    def work(self, event):
        end = time.process_time() + 0.01
        while time.process_time() < end:
            pass
        self.emit(event)

    guest = arena.guest(type("Working", (Modulator,), {"enqueue": work})(), QUICK)
    for i in range(60):
        assert guest.work([i]) == [i]
        time.sleep(0.02)
