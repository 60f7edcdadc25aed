"""E-code that fails for an event, is replaced by machine code, or waits for its consumers."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import echannel_ray as ec
from tests.api.parties import SOON, Inbox, Valve, ask
from tests.api.ticks import (
    SOURCES,
    Doubled,
    Tick,
    array,
    at,
    dataclass_of,
    ecode,
    numbers,
    produce,
    publish,
    ticks,
)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("where", ["near", "here"])
@pytest.mark.parametrize("program", ["filter", "transformation"])
def test_traps_are_told_and_end_it_at_last(parties, here, name, source, where, program):
    """Each event that traps is lost to the consumers of the program, and to nobody else."""
    channel = ec.channel(name, Tick)
    there = at(parties, where, here)
    there(produce, channel)
    inbox, failures, others, everything = Inbox(), Inbox(), Inbox(), Inbox()
    text = "output.number = 1000 // (number % 10)\noutput.double = price * 2\nreturn True"
    trapping = ecode(text, output=Doubled) if program == "transformation" else "1000 // (number % 10) > 0"
    with (
        channel.derive(trapping).subscribe(inbox, on_error=failures) as subscription,
        channel.derive("number > 0").subscribe(others) as other,
        channel.subscribe(everything) as every,
    ):
        there(publish, SOURCES[source](1, 60))
        for each in (subscription, other, every):
            each.drain(SOON)
        told = failures.items
        assert [type(each) for each in told] == [ec.ModulatorFailed] * 3 + [ec.ModulatorQuarantined]
        for failure, number in zip(told, (10, 20, 30), strict=False):
            assert "divided by 0 (line 1, column" in failure.reason
            assert f"number={number}," in failure.event
        passed = [number for number in range(1, 40) if number % 10]
        if program == "filter":
            assert numbers(inbox.items) == passed
        else:
            assert inbox.items == [Doubled(1000 // (number % 10), float(number)) for number in passed]
        assert numbers(others.items) == numbers(everything.items) == [*range(1, 61)]


def test_a_trap_begins_anew(near, name):
    channel = ec.channel(name, Tick)
    ask(near, produce, channel)
    inbox, failures = Inbox(), Inbox()
    text = "n: static = 0\nn += 1\nreturn n % 3 == 0 and 10 // (number - 7) < 100"
    with channel.derive(text).subscribe(inbox, on_error=failures) as subscription:
        for events in (ticks(1, 6), array(8, 9), ticks(7, 7), array(10, 15)):
            ask(near, publish, events)
        subscription.drain(SOON)
        assert [type(each) for each in failures.items] == [ec.ModulatorFailed]
        assert numbers(inbox.items) == [3, 6, 12, 15]


def test_a_pull_subscription_is_told_when_it_asks(near, name):
    channel = ec.channel(name, Tick)
    ask(near, lambda party: produce(party, channel, admission=ec.Admission(max_restarts=0)))
    with channel.derive("1 // (number - 2) > -9").subscribe() as subscription:
        ask(near, publish, ticks(1, 4))
        assert subscription.get(SOON) == Tick(1, 0.5)
        with pytest.raises(ec.ModulatorQuarantined, match="divided by 0"):
            subscription.get(SOON)


def native(party: Any, timeout_seconds: float = SOON) -> list[str]:
    """The forms of the programs in the producer, as soon as they are compiled or never will be."""
    branches = party.kept["producer"]._publisher.sink.branches
    engines = [engine for branch in branches for engine in branch.host._engines.values()]
    for engine in engines:
        engine.wait_native(timeout_seconds)
    return [engine.form for engine in engines]


STATEFUL = """
total: static = 0.0
last: static = [0] * 4
n: static = 0
total += price * 0.1
last[n % 4] = number
n += 1
output.number = last[0] - last[3]
output.double = total / 3
return n % 2 == 0 or price // 7 > 3
"""


def reference(first: int, last: int) -> list[Doubled]:
    """The same in Python."""
    total, kept, made = 0.0, [0] * 4, []
    for n, number in enumerate(range(first, last + 1)):
        total += number / 2 * 0.1
        kept[n % 4] = number
        if (n + 1) % 2 == 0 or number / 2 // 7 > 3:
            made.append(Doubled(kept[0] - kept[3], total / 3))
    return made


@pytest.mark.parametrize("source", SOURCES)
def test_machine_code_takes_over_amid_the_stream(new_party, name, source):
    if source != "batches":  # whose columns are read event by event
        pytest.importorskip("llvmlite")
    channel = ec.channel(name, Tick)
    party = new_party()
    ask(party, produce, channel)
    inbox = Inbox()
    with channel.derive(ecode(STATEFUL, output=Doubled)).subscribe(inbox) as subscription:
        for first in range(1, 2001, 100):
            ask(party, publish, SOURCES[source](first, first + 99))
            if first == 1001:
                forms = ask(party, native)
                assert source == "batches" or forms == ["native"]
        subscription.drain(SOON)
        assert inbox.items == reference(1, 2000)


def test_without_llvmlite_it_is_interpreted(new_party, name):
    channel = ec.channel(name, Tick)
    party = new_party()
    ask(party, lambda party: sys.modules.update({"llvmlite": None, "llvmlite.binding": None}))  # type: ignore[dict-item]
    ask(party, produce, channel)
    inbox, filtered = Inbox(), Inbox()
    with (
        channel.derive(ecode(STATEFUL, output=Doubled)).subscribe(inbox) as subscription,
        channel.derive("price > 10").subscribe(filtered) as other,
    ):
        ask(party, publish, array(1, 50))
        assert sorted(ask(party, native)) == ["columnar", "interpreted"]
        ask(party, publish, ticks(51, 100))
        subscription.drain(SOON)
        other.drain(SOON)
        assert inbox.items == reference(1, 100)
        assert numbers(filtered.items) == [*range(21, 101)]


@pytest.mark.parametrize("overflow", ["drop_newest", "drop_oldest"])
@pytest.mark.parametrize("source", ["singles", "arrays"])
def test_policies_drop_what_has_passed(here, name, overflow, source):
    channel = ec.channel(name, Tick)
    valve, gaps = Valve(), Inbox()
    produce(here, channel, overflow=overflow)
    derived = channel.derive("number % 2 == 0")
    with derived.subscribe(valve, on_error=gaps) as subscription:
        here.kept["producer"].publish_many(SOURCES[source](1, 40_000))
        valve.opened.set()
        here.kept["producer"].drain(SOON)
        subscription.drain(SOON)
        got = numbers(valve.inbox.items)
        lost = sum(gap.last - gap.first + 1 for gap in gaps.items)
    assert got == sorted(set(got))
    assert not any(number % 2 for number in got)
    assert lost > 0
    assert len(got) + lost == 20_000


def test_the_average_of_a_large_array(near, name):
    dtype = np.dtype([("wind", "<f8", (300, 40))])
    channel = ec.channel(name, dtype)
    ask(near, produce, channel)
    text = """
        total = 0.0
        for i in range(300):
            for j in range(40):
                total += wind[i][j]
        output.average = total / (300 * 40)
        return True
    """
    average = dataclass_of(average=float)
    inbox = Inbox()
    block = np.zeros(3, dtype)
    block["wind"] = np.arange(3)[:, None, None] + 0.5
    with channel.derive(ecode(text, output=average)).subscribe(inbox) as subscription:
        ask(near, publish, block)
        subscription.drain(SOON)
        assert [event.average for event in inbox.items] == [0.5, 1.5, 2.5]


def publish_until_full(party: Any) -> int:
    """How many events it takes until a consumer that does not handle them holds up the producer."""
    for number in range(1_000_000):
        try:
            party.kept["producer"].publish(Tick(number, 1.0), timeout=1)
        except TimeoutError:
            return number
    return 1_000_000


@pytest.mark.parametrize("text", ["number >= 0", "number % 30 != 0"])
def test_singles_fill_no_more_than_the_consumers_window(near, far, name, text):
    channel = ec.channel(name, Tick)
    ask(near, produce, channel)

    def hold(party: Any) -> None:
        party.kept["valve"] = Valve()
        party.kept["subscription"] = ec.channel(name).derive(text).subscribe(party.kept["valve"])

    ask(far, hold)
    published = ask(near, publish_until_full)
    window_bytes = 8 << 20
    assert published < 3 * window_bytes // 64  # 16 bytes each, and what each is accounted for besides
    ask(far, lambda party: (party.kept["valve"].opened.set(), party.kept.pop("subscription").close()))
    ask(near, lambda party: party.kept.pop("producer").close())
