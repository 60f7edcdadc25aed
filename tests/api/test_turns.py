"""Many producers publish a few events each, in turn: what travels in mixed packs arrives like everything else."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import ray

import echannel_ray as ec
from tests.api.parties import SOON, Inbox, Valve, ask
from tests.clusters import wait_until

CHANNELS = 40
ROUNDS = 150
MOST_ROUNDS = 3000
PACKING = ec.Packing(degree=64)  # which gathers whatever the load is


@dataclass
class Reading:
    number: int
    weight: float


@pytest.fixture
def channels(nodes: Any, name: str) -> list[ec.EventChannel]:
    return [ec.channel(f"{name}-{i}", packing=PACKING) for i in range(CHANNELS)]


# ---- what parties do, in their own processes ----


def collect(party: Any, channels: list[ec.EventChannel], **options: Any) -> None:
    """Have the events of each channel in a list of its own."""
    party.kept["inboxes"] = inboxes = [Inbox() for _ in channels]
    for i, (channel, inbox) in enumerate(zip(channels, inboxes, strict=True)):
        party.kept[f"subscription {i}"] = channel.subscribe(inbox, **options)


def subscriptions_of(party: Any) -> list[ec.Subscription]:
    return [each for each in party.kept.values() if isinstance(each, ec.Subscription)]


def collected(party: Any, counts: list[int]) -> list[list[Any]]:
    """The events of each channel, as soon as there are so many."""
    return [inbox.wait(count) for inbox, count in zip(party.kept["inboxes"], counts, strict=True)]


def counted(party: Any) -> list[tuple[int, int, int, int]]:
    """What each subscription has counted, when nothing is under way."""
    found = []
    for each in subscriptions_of(party):
        each.drain(SOON)
        stats = each.stats()
        found.append((stats.received, stats.handled, stats.failed, stats.pending))
    return found


def number(i: int) -> bytes:
    return i.to_bytes(4, "little")


def publish_in_turn(
    party: Any, channels: list[ec.EventChannel], rounds: int, make: Callable[[int], Any] = number
) -> int:
    """Publish an event on each channel, and so on, for so many rounds and until they are mixed. How many it were."""
    producers = [channel.producer() for channel in channels]
    party.kept["producers"] = producers
    done = most_mixed = 0
    while done < rounds or (2 * most_mixed < len(channels) and done < MOST_ROUNDS):
        for producer in producers:
            producer.publish(make(done))
        done += 1
        most_mixed = max(most_mixed, sum(each._publisher.stream.mixture is not None for each in producers))
    assert 2 * most_mixed >= len(channels), f"only {most_mixed} of {len(channels)} were mixed: this tests nothing"
    for producer in producers:
        producer.drain(SOON)
    return done


def published(party: Any) -> list[int]:
    """What the channels' statistics say of each."""
    return [each._publisher.stream.next_sequence - 1 for each in party.kept["producers"]]


def close_all(party: Any) -> None:
    for producer in party.kept.pop("producers"):
        producer.close()


def expected(count: int, make: Callable[[int], Any] = number) -> list[Any]:
    return [make(i) for i in range(count)]


def small_dict(i: int) -> dict[str, Any]:
    return {"number": i, "pair": (i, str(i))}


def scalar(i: int) -> Any:
    """Kinds take turns, none of them bytes."""
    return [None, i, f"text {i}", i / 2, True, 2**70 + i][i % 6]


def either(i: int) -> Any:
    """Some are too large to be mixed, so that a stream leaves its mixture again and again."""
    return number(i) * 400 if i // 8 % 2 else small_dict(i)


# ---- what arrives ----


@pytest.mark.parametrize("make", [number, small_dict, scalar, either], ids=["bytes", "dicts", "scalars", "both"])
@pytest.mark.parametrize("where", ["threaded", "far"])
def test_each_channel_gets_its_events_once_and_in_order(channels, parties, make, where):
    ask(parties[where], collect, channels)
    if make is either:
        return_count = ask(parties["near"], partial(publish_in_turn_of_both, make=make), channels)
    else:
        return_count = ask(parties["near"], partial(publish_in_turn, make=make), channels, ROUNDS)
    got = ask(parties[where], collected, [return_count] * CHANNELS)
    assert got == [expected(return_count, make)] * CHANNELS
    assert ask(parties[where], counted) == [(return_count, return_count, 0, 0)] * CHANNELS
    assert ask(parties["near"], published) == [return_count] * CHANNELS
    stats = channels[0].stats()
    assert (stats.events_published, stats.events_delivered) == (return_count, return_count)
    ask(parties["near"], close_all)


def publish_in_turn_of_both(party: Any, channels: list[ec.EventChannel], make: Callable[[int], Any]) -> int:
    producers = party.kept["producers"] = [channel.producer() for channel in channels]
    for i in range(ROUNDS):
        for producer in producers:
            producer.publish(make(i))
    for producer in producers:
        producer.drain(SOON)
    return ROUNDS


def test_typed_records_arrive_as_what_they_were(nodes, parties, name):
    channels = [ec.channel(f"{name}-{i}", Reading, packing=PACKING) for i in range(CHANNELS)]
    make = partial(_reading)
    ask(parties["far"], collect, channels)
    count = ask(parties["near"], partial(publish_in_turn, make=make), channels, ROUNDS)
    assert ask(parties["far"], collected, [count] * CHANNELS) == [expected(count, make)] * CHANNELS
    ask(parties["near"], close_all)


def _reading(i: int) -> Reading:
    return Reading(i, i / 2)


def test_threads_that_publish_at_once_lose_nothing(channels, near, far):
    ask(far, collect, channels)

    def publish(party: Any) -> int:
        producers = party.kept["producers"] = [channel.producer() for channel in channels]

        def some(first: int) -> None:
            for i in range(first, 4 * ROUNDS, 4):
                for producer in producers:
                    producer.publish(number(i))

        threads = [threading.Thread(target=some, args=[first]) for first in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        for producer in producers:
            producer.drain(SOON)
        return 4 * ROUNDS

    count = ask(near, publish)
    for events in ask(far, collected, [count] * CHANNELS):
        assert sorted(events, key=lambda each: int.from_bytes(each, "little")) == expected(count)
        for first in range(4):  # each thread's own in order
            own = [each for each in events if int.from_bytes(each, "little") % 4 == first]
            assert own == expected(count)[first::4]
    ask(near, close_all)


def test_kinds_of_consumers_that_take_no_mixed_packs(channels, near, far):
    """Who pulls, who shares as a group, and who waits on a loop, beside plain functions; each gets all."""

    def consume(party: Any) -> None:
        inboxes = party.kept["inboxes"] = [Inbox() for _ in channels]

        async def wait_for(inbox: Inbox, event: Any) -> None:
            inbox(event)

        for i, (channel, inbox) in enumerate(zip(channels, inboxes, strict=True)):
            if i % 4 == 0:
                party.kept[f"subscription {i}"] = channel.subscribe(partial(wait_for, inbox))
            elif i % 4 == 1:
                party.kept[f"subscription {i}"] = channel.subscribe(inbox, group="g")
            elif i % 4 == 2:
                party.kept[f"subscription {i}"] = pulled = channel.subscribe()
                threading.Thread(target=_pull, args=[pulled, inbox], daemon=True).start()
            else:
                party.kept[f"subscription {i}"] = channel.subscribe(inbox)

    ask(far, consume)

    def publish(party: Any) -> int:
        producers = party.kept["producers"] = [channel.producer() for channel in channels]
        for i in range(ROUNDS):
            for producer in producers:
                producer.publish(number(i))
        for producer in producers:
            producer.drain(SOON)
        return ROUNDS

    count = ask(near, publish)
    assert ask(far, collected, [count] * CHANNELS) == [expected(count)] * CHANNELS
    ask(near, close_all)


def _pull(subscription: ec.Subscription, inbox: Inbox) -> None:
    for event in subscription:
        inbox(event)


# ---- handlers that misbehave ----


def test_a_handler_that_waits_holds_up_no_other(channels, near, far):
    def consume(party: Any) -> None:
        collect(party, channels[1:])
        valve = party.kept["valve"] = Valve()
        party.kept["inboxes"].insert(0, valve.inbox)
        party.kept["slow"] = channels[0].subscribe(valve)

    ask(far, consume)
    count = ask(near, lambda party: publish_in_turn(party, channels, ROUNDS))
    others = ask(far, lambda party: [inbox.wait(count) for inbox in party.kept["inboxes"][1:]])
    assert others == [expected(count)] * (CHANNELS - 1)
    assert ask(far, lambda party: len(party.kept["valve"].inbox.items)) == 0
    ask(far, lambda party: party.kept["valve"].opened.set())
    assert ask(far, lambda party: party.kept["inboxes"][0].wait(count)) == expected(count)
    ask(near, close_all)


def test_a_handler_that_delivers_and_publishes_may_wait(channels, near, far, name):
    """In the handler of a mixed event: for an answer, for room, for what comes by the same link."""
    answers = ec.channel(f"{name}-answers")
    ask(near, lambda party: party.consume(answers))

    def consume(party: Any) -> None:
        collect(party, channels[1:])
        asking = party.kept["asking"] = answers.producer()

        def handle(event: bytes) -> None:
            assert asking.deliver(event).result(SOON).consumers == 1

        party.kept["delivering"] = channels[0].subscribe(handle)

    ask(far, consume)
    count = ask(near, lambda party: publish_in_turn(party, channels, ROUNDS))
    assert ask(far, collected, [count] * (CHANNELS - 1)) == [expected(count)] * (CHANNELS - 1)
    assert ray.get(near.received.remote(count)) == expected(count)
    ask(near, close_all)


def test_a_handler_that_raises_loses_no_other_event(channels, near, far):
    def consume(party: Any) -> None:
        inboxes = party.kept["inboxes"] = [Inbox() for _ in channels]
        failures = party.kept["failures"] = Inbox()

        def handle(inbox: Inbox, event: bytes) -> None:
            if event[0] % 7 == 3:
                raise ValueError(event)
            inbox(event)

        for i, (channel, inbox) in enumerate(zip(channels, inboxes, strict=True)):
            party.kept[f"subscription {i}"] = channel.subscribe(partial(handle, inbox), on_error=failures)

    ask(far, consume)
    count = ask(near, lambda party: publish_in_turn(party, channels, ROUNDS))
    fine = [each for each in expected(count) if each[0] % 7 != 3]
    assert ask(far, collected, [len(fine)] * CHANNELS) == [fine] * CHANNELS
    failed = count - len(fine)
    assert ask(far, counted) == [(count, len(fine), failed, 0)] * CHANNELS
    assert len(ask(far, lambda party: party.kept["failures"].wait(failed * CHANNELS))) == failed * CHANNELS
    ask(near, close_all)


def test_a_handler_may_close_itself_and_others(channels, near, far):
    def consume(party: Any) -> None:
        inboxes = party.kept["inboxes"] = [Inbox() for _ in channels]
        closed_at: dict[int, int] = {}
        party.kept["closed_at"] = closed_at
        subscriptions: list[ec.Subscription] = []

        def handle(i: int, event: bytes) -> None:
            inboxes[i](event)
            if event == number(ROUNDS // 2) and i % 2 == 0:
                subscriptions[i].close()  # itself
                subscriptions[i + 1].close()  # the next in turn, whose event may be in the same pack
                closed_at[i + 1] = len(inboxes[i + 1].items)

        for i, channel in enumerate(channels):
            subscriptions.append(channel.subscribe(partial(handle, i)))
            party.kept[f"subscription {i}"] = subscriptions[-1]

    ask(far, consume)
    count = ask(near, lambda party: publish_in_turn(party, channels, ROUNDS))
    wait_until(lambda: ask(far, lambda party: len(party.kept["closed_at"])) == CHANNELS // 2, SOON)
    closed_at, got = ask(far, lambda party: (party.kept["closed_at"], [inbox.items for inbox in party.kept["inboxes"]]))
    for i, events in enumerate(got):
        assert events == expected(count)[: len(events)]
        assert len(events) == ROUNDS // 2 + 1 if i % 2 == 0 else len(events) - closed_at[i] in (0, 1)
    ask(near, close_all)


# ---- consumers that come, go over, and die; concentrators that die ----


def test_who_comes_while_it_goes_on_gets_an_unbroken_rest(channels, near, far):
    ask(far, collect, channels)
    going = near.run.remote(lambda party: publish_in_turn(party, channels, 20 * ROUNDS))
    late = [Inbox() for _ in channels]
    subscriptions = [channel.subscribe(inbox) for channel, inbox in zip(channels, late, strict=True)]
    count = ray.get(going, timeout=60)
    assert ask(far, collected, [count] * CHANNELS) == [expected(count)] * CHANNELS
    for inbox, subscription in zip(late, subscriptions, strict=True):
        subscription.drain(SOON)
        assert inbox.items == expected(count)[count - len(inbox.items) :]
        subscription.close()
    ask(near, close_all)


def test_reset_cuts_each_stream_once(channels, near, far):
    class Tagged:
        def __init__(self, tag: str) -> None:
            self.tag = tag

        def receive(self, event: Any) -> list[Any]:
            return [(self.tag, event)]

    ask(far, lambda party: collect(party, channels, demodulator=Tagged("before")))
    going = near.run.remote(lambda party: publish_in_turn(party, channels, 20 * ROUNDS))

    def reset(party: Any) -> None:
        for each in subscriptions_of(party):
            each.reset(demodulator=Tagged("after"))

    ask(far, reset)
    count = ray.get(going, timeout=60)
    for events in ask(far, collected, [count] * CHANNELS):
        assert [event for _, event in events] == expected(count)
        tags = [tag for tag, _ in events]
        assert tags == sorted(tags, reverse=True)  # "before", then "after"
    ask(near, close_all)


def test_the_death_of_a_consumer_holds_up_nobody(channels, near, far, new_party):
    ask(far, collect, channels)
    dies = new_party()
    ask(dies, collect, channels)
    pid = ray.get(dies.where.remote())[1]
    going = near.run.remote(lambda party: publish_in_turn(party, channels, 20 * ROUNDS))
    wait_until(lambda: ask(dies, lambda party: len(party.kept["inboxes"][-1].items)) > 0, SOON)
    os.kill(pid, signal.SIGKILL)
    count = ray.get(going, timeout=60)
    assert ask(far, collected, [count] * CHANNELS) == [expected(count)] * CHANNELS
    ask(near, close_all)


def test_the_death_of_a_concentrator_loses_and_doubles_nothing(nodes, near, far, name):
    elsewhere = "turns-elsewhere"  # whose concentrators no other test looks at
    channels = [ec.channel(f"{name}-{i}", packing=PACKING, namespace=elsewhere) for i in range(CHANNELS)]
    ask(far, collect, channels)
    going = near.run.remote(lambda party: publish_in_turn(party, channels, 20 * ROUNDS))
    wait_until(lambda: ask(far, lambda party: len(party.kept["inboxes"][-1].items)) > 0, SOON)
    for concentrator in ec.status(elsewhere).concentrators:
        os.kill(concentrator.pid, signal.SIGKILL)
    count = ray.get(going, timeout=60)
    assert ask(far, collected, [count] * CHANNELS) == [expected(count)] * CHANNELS
    ask(near, close_all)
    for party in (near, far):
        ray.get(party.leave.remote())
    ec.shutdown(elsewhere)


def test_what_is_dropped_is_told_in_its_place(channels, near, far):
    """Handlers that stand still: windows fill, and who publishes in turn goes on."""

    def consume(party: Any) -> None:
        valve = party.kept["valve"] = Valve()
        party.kept["inboxes"] = [valve.inbox]
        party.kept["gaps"] = Inbox()
        party.kept["slow"] = channels[0].subscribe(valve, on_error=party.kept["gaps"])

    ask(far, consume)

    def publish(party: Any) -> int:
        large = bytes(1000)
        producers = party.kept["producers"] = [channel.producer(overflow="drop_newest") for channel in channels]
        for i in range(12_000):
            producers[0].publish(number(i) + large)
            producers[i % CHANNELS].publish(number(i) + large) if i % CHANNELS else None
        return 12_000

    count = ask(near, publish)
    ask(far, lambda party: party.kept["valve"].opened.set())
    ask(near, close_all)

    def told(party: Any) -> int:
        gaps: list[ec.Gap] = party.kept["gaps"].items
        return len(party.kept["valve"].inbox.items) + sum(gap.last - gap.first + 1 for gap in gaps)

    wait_until(lambda: ask(far, told) == count, SOON)
    events = [int.from_bytes(each[:4], "little") for each in ask(far, lambda party: party.kept["valve"].inbox.items)]
    assert events == sorted(events)
    assert len({*events}) == len(events)
    assert len(events) < count
