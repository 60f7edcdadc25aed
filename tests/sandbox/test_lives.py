"""How sandboxes, zygotes and producers begin and end."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from echannel_ray.formats import plain
from echannel_ray.sandbox import lockdown, seccomp
from echannel_ray.sandbox.nursery import RESERVE
from echannel_ray.sandbox.owner import SandboxFailed, SandboxUnavailable
from tests.sandbox.arena import LIMITS, Arena, Attacker, Passing, is_alive, wait_for_the_end_of, wait_until


def run(program, prefix=()):
    """In a process of its own: what it prints."""
    head = "import os, sys, time\nfrom tests.sandbox.arena import *\nfrom tests.sandbox.arena import Passing\n"
    done = subprocess.run(
        [*prefix, sys.executable, "-c", head + textwrap.dedent(program)],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.stdout.split()


def test_the_mandatory_layers_are_there(arena):
    assert arena.guest().sandbox.layers[-2:] == ("resource limits", "seccomp")


def test_the_kernel_says_so_too(arena):
    with open(f"/proc/{arena.guest().pid}/status") as file:
        status = {name: value.strip() for name, _, value in (line.partition(":") for line in file)}
    assert status["Seccomp"] == "2"
    assert status["NoNewPrivs"] == "1"
    assert int(status["CapEff"], 16) == 0


def test_a_spare_is_made_again(arena):
    pids = set()
    for _ in range(5):
        guest = arena.guest(Passing())
        guest.work([1])
        pids.add(guest.pid)
        guest.sandbox.close()
    assert len(pids) == 5


def seccomp_mode(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(line.split()[1] for line in file if line.startswith("Seccomp:"))


def address_space(pid):
    with open(f"/proc/{pid}/limits") as file:
        return next(int(line.split()[3]) for line in file if line.startswith("Max address space"))


def reserve(arena, limits):
    """The spares of a warden, when all are there that it keeps, and shut in for these limits."""
    (nursery,) = arena.warden._nurseries.values()
    wait_until(lambda: [each.max_memory_bytes for each in nursery._spares] == [limits.max_memory_bytes] * RESERVE)
    wait_until(lambda: all(seccomp_mode(each.pid) == "2" for each in nursery._spares))
    return [each.pid for each in nursery._spares]


def test_spares_are_shut_in_before_they_are_wanted():
    arena = Arena()
    try:
        arena.guest(Passing())
        ready = reserve(arena, LIMITS)
        guests = [arena.guest(Passing()) for _ in range(RESERVE)]
        assert [guest.pid for guest in guests] == ready
        assert all(guest.sandbox.layers[-1] == "seccomp" and guest.work([1]) == [1] for guest in guests)
    finally:
        arena.close()


def test_a_spare_with_another_limit_is_let_go():
    larger = replace(LIMITS, max_memory_bytes=2 * LIMITS.max_memory_bytes)
    arena = Arena()
    try:
        arena.guest(Passing())
        former = reserve(arena, LIMITS)
        guest = arena.guest(Passing(), limits=larger)
        assert guest.pid not in former
        assert guest.work([1]) == [1]
        for pid in former:
            wait_for_the_end_of(pid)
        assert address_space(guest.pid) - address_space(arena.guests[0].pid) > LIMITS.max_memory_bytes // 2
        reserve(arena, larger)
    finally:
        arena.close()


def draw():
    import random

    import numpy

    return random.random(), numpy.random.random()


def test_sandboxes_draw_different_random_numbers(arena):
    drawn = [arena.attack(draw) for _ in range(6)]
    assert all(each.startswith("DONE (") for each in drawn)
    for column in zip(*(each[len("DONE (") : -1].split(", ") for each in drawn), strict=True):
        assert len({*column}) == 6


def test_many_at_once_with_different_limits(arena):
    limits = [replace(LIMITS, max_memory_bytes=(n % 3 + 1) * LIMITS.max_memory_bytes) for n in range(9)]
    with ThreadPoolExecutor(len(limits)) as pool:
        guests = [*pool.map(lambda each: arena.guest(Passing(), each), limits)]
    for guest, each in zip(guests, limits, strict=True):
        assert guest.work([1]) == [1]
        assert address_space(guest.pid) % (1 << 40) > each.max_memory_bytes
    sizes = {each.max_memory_bytes: address_space(guest.pid) for guest, each in zip(guests, limits, strict=True)}
    assert len(set(sizes.values())) == 3


def test_a_spare_that_died_is_not_taken():
    arena = Arena()
    try:
        arena.guest(Passing())
        for pid in reserve(arena, LIMITS):
            os.kill(pid, signal.SIGKILL)
            wait_for_the_end_of(pid)
        assert arena.guest(Passing()).work([1]) == [1]
    finally:
        arena.close()


def test_many_at_once(arena):
    guests = []

    def start():
        guests.append(arena.guest(Passing()))

    threads = [threading.Thread(target=start) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({guest.pid for guest in guests}) == 12
    for guest in guests:
        guest.send([b"x"])
    assert all(guest.owner.next()[0] == "emitted" for guest in guests)


def sleep(seconds):
    time.sleep(seconds)


def test_closing_ends_the_process_and_tells_nobody(arena):
    guest = arena.guest(Attacker(sleep, {"seconds": 60}))
    guest.send([b"x"])
    guest.sandbox.close()
    guest.sandbox.close()
    wait_until(lambda: not is_alive(guest.pid))
    arena.guest(Passing()).work([b"the warden has seen the end by now"])
    assert guest.owner.calls.empty()


def test_one_that_can_not_be_made_leaves_no_descriptors():
    program = """
        from echannel_ray.sandbox.owner import SandboxUnavailable
        warden = Warden()
        warden.close()
        before = os.listdir("/proc/self/fd")
        try:
            Sandbox(Recorder(), warden, LIMITS, "guest")
        except SandboxUnavailable:
            print(os.listdir("/proc/self/fd") == before)
    """
    assert run(program) == ["True"]


def test_one_batch_at_a_time(arena):
    guest = arena.guest(Attacker(sleep, {"seconds": 60}))
    guest.send([b"x"])
    assert guest.sandbox.is_busy
    with pytest.raises(RuntimeError, match="has not answered"):
        guest.send([b"y"])


def test_a_killed_sandbox_is_told(arena):
    guest = arena.guest(Passing())
    os.kill(guest.pid, signal.SIGKILL)
    assert guest.owner.next()[0] == "ended"


def test_a_killed_zygote_takes_its_sandboxes_along_and_the_next_start_makes_another():
    arena = Arena()
    try:
        guests = [arena.guest(Passing()) for _ in range(3)]
        (nursery,) = arena.warden._nurseries.values()
        os.kill(nursery._zygote.pid, signal.SIGKILL)
        for guest in guests:
            assert guest.owner.next()[0] == "ended"
            wait_for_the_end_of(guest.pid)
        wait_until(lambda: nursery.is_over)
        assert arena.guest(Passing()).work([1]) == [1]
    finally:
        arena.close()


def test_a_warden_that_was_closed_starts_none():
    arena = Arena()
    arena.close()
    with pytest.raises(SandboxUnavailable):
        arena.guest()


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os._exit(0)", "sys.exit(0)", "arena.warden.close()"])
def test_the_producer_takes_all_along_however_it_ends(end):
    pids = run(
        f"""
        arena = Arena()
        guest = arena.guest(Passing())
        print(guest.pid, *(nursery._zygote.pid for nursery in arena.warden._nurseries.values()), flush=True)
        {end}
        """
    )
    assert len(pids) == 2
    for pid in map(int, pids):
        wait_for_the_end_of(pid)


def test_a_fork_of_the_producer_leaves_the_sandboxes_to_it():
    said = run(
        """
        arena = Arena()
        guest = arena.guest(Passing())
        child = os.fork()
        if child == 0:
            arena.warden.forget()
            mine = Arena()
            print(*mine.guest(Passing()).work(["child"]), flush=True)
            mine.close()
            os._exit(0)
        os.waitpid(child, 0)
        print(*guest.work(["parent"]), flush=True)
        arena.close()
        """
    )
    assert said == ["child", "parent"]


def test_without_privileges():
    """As a user of no privileges in a namespace of its own, as far as this host lets one be made."""
    prefix = ["unshare", "--user", "--map-user=1000"] if os.geteuid() == 0 else []
    if prefix and subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no user namespaces here")
    said = run(
        """
        arena = Arena()
        guest = arena.guest(Passing())
        assert os.geteuid() != 0
        assert guest.work([b"x"]) == [b"x"]
        print("/".join(guest.sandbox.layers).replace(" ", "-"))
        print(arena.attack(open, file="/etc/passwd")[:7])
        arena.close()
        """,
        prefix,
    )
    assert "seccomp" in said[0]
    assert said[1] == "refused"


NO_FILTERS = """
    import ctypes, struct
    libc = ctypes.CDLL(None, use_errno=True)
    code = [(0x20, 0, 0, 0), (0x15, 0, 1, {number}), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
    from echannel_ray.sandbox.seccomp import _Program
    packed = b"".join(struct.pack("<HBBI", *each) for each in code)
    libc.prctl(38, 1, 0, 0, 0)
    assert libc.prctl(22, 2, ctypes.byref(_Program(len(code), packed))) == 0
    arena = Arena()
    try:
        arena.guest()
    except Exception as error:
        print(type(error).__name__, error)
    arena.close()
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are x86-64's")
@pytest.mark.parametrize(("number", "what"), [(317, "seccomp"), (160, "limits"), (302, "limits")])
def test_where_the_kernel_refuses_there_is_no_sandbox(number, what):
    said = run(NO_FILTERS.format(number=number))
    if number == 317 or "SandboxUnavailable" in said:
        assert said[0] == "SandboxUnavailable"
        assert what in " ".join(said)
    else:
        assert said == []  # this C library sets limits by the other of the two calls


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_is_well_formed(machine):
    assert len(seccomp.program(machine)) % 8 == 0
    assert set(seccomp._NUMBERS["aarch64"]) <= set(seccomp._NUMBERS["x86_64"])


def test_an_unknown_machine_has_no_list(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "vax")
    with pytest.raises(OSError, match="vax"):
        seccomp.install(lockdown.libc)


def test_installing_twice_in_time_is_impossible(arena):
    guest = arena.guest()
    with pytest.raises(SandboxFailed):
        guest.sandbox.install(b"garbage", {}, (), False, 60)


def test_canonical_bytes_do_not_depend_on_order():
    assert plain.canonical({"a": {1, 2, 3}, "b": [{"y": 1, "x": 2}]}) == plain.canonical(
        {"b": [{"x": 2, "y": 1}], "a": {3, 2, 1}}
    )
    assert plain.canonical([1, 2]) != plain.canonical((1, 2))
    assert plain.decode(plain.canonical({(1, 2): frozenset("ab")})) == {(1, 2): frozenset("ab")}


def test_limits_are_the_producers(arena):
    assert arena.guest().sandbox.limits is LIMITS
