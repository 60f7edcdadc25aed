"""What is retained, for consumers behind modulators: from the earliest event or a position on, and then live."""

from __future__ import annotations

import os
import signal
import time

import pyarrow as pa
import pytest

import echannel_ray as ec
from tests.api import modulators
from tests.api.parties import SOON, Inbox, ask, publish_all
from tests.api.quotes import NUMBERED, Numbered, numbered
from tests.clusters import wait_until


@pytest.fixture
def channel(nodes, name):
    return ec.channel(name, retain=ec.Retention())


def position_behind(channel, count):
    with channel.subscribe(start="earliest") as subscription:
        messages = subscription.messages()
        return [next(messages) for _ in range(count)][-1].position


def test_a_modulator_sees_what_is_retained_and_then_what_comes(parties, channel):
    publish_all(None, channel, [*range(50)])
    ask(parties["far"], publish_all, channel, [*range(100, 150)])
    inbox = Inbox()
    with channel.subscribe(inbox, modulator=modulators.Above(9), start="earliest"):
        for number in range(50, 100):
            publish_all(None, channel, [number])
        came = inbox.wait(140)
    assert [number for number in came if number < 100] == [*range(10, 100)]
    assert [number for number in came if number >= 100] == [*range(100, 150)]


def test_each_replay_is_its_consumers_own(parties, channel):
    """The one that comes later does not get more than it asked for, and the one before nothing twice."""
    publish_all(None, channel, [*range(20)])
    behind = position_behind(channel, 15)
    all_of_it, rest, live = Inbox(), Inbox(), Inbox()
    with (
        channel.subscribe(all_of_it, modulator=ec.FIFOModulator(), start="earliest"),
        channel.subscribe(rest, modulator=ec.FIFOModulator(), start=behind),
        channel.subscribe(live, modulator=ec.FIFOModulator()),
    ):
        publish_all(None, channel, [*range(20, 30)])
        assert all_of_it.wait(30) == [*range(30)]
        assert rest.wait(15) == [*range(15, 30)]
        assert live.wait(10) == [*range(20, 30)]


def test_a_derived_channel_is_read_from_the_start(parties, name):
    channel = ec.channel(name, Numbered, retain=ec.Retention())
    with channel.producer() as producer:
        producer.publish(Numbered(1))
        producer.publish_many(numbered(2, 3000))
        producer.publish(Numbered(3001))
    high = channel.derive("number > 2990")
    odd = high.derive("number % 2 == 1")
    with high.subscribe(start="earliest") as subscription, odd.subscribe(start="earliest") as of_odd:
        assert [subscription.get(timeout=SOON).number for _ in range(11)] == [*range(2991, 3002)]
        assert [of_odd.get(timeout=SOON).number for _ in range(6)] == [*range(2991, 3002, 2)]


@pytest.mark.parametrize("published", ["array", "record batch"])
def test_a_position_inside_a_block_of_records(parties, name, published):
    channel = ec.channel(name, NUMBERED, retain=ec.Retention())
    array = numbered(0, 1000)
    columns = pa.record_batch({field: array[field] for field in NUMBERED.names})
    with channel.producer() as producer:
        producer.publish_many(array if published == "array" else columns)
    behind = position_behind(channel, 700)
    with channel.derive("number % 100 == 0").subscribe(start=behind) as subscription:
        assert [subscription.get(timeout=SOON)["number"] for _ in range(3)] == [700, 800, 900]


def test_members_of_a_group_share_one_replay(parties, channel):
    publish_all(None, channel, [*range(100)])
    inbox = Inbox()
    members = [channel.subscribe(inbox, modulator=ec.FIFOModulator(), start="earliest", group="g") for _ in range(2)]
    assert sorted(inbox.wait(100)) == [*range(100)]
    publish_all(None, channel, ["last"])
    assert inbox.wait(101)[-1] == "last"
    for member in members:
        member.close()


def test_a_group_that_comes_back_at_once_begins_anew_and_gets_nothing_twice(parties, channel):
    publish_all(None, channel, [*range(20)])
    options = {"modulator": ec.FIFOModulator(), "start": "earliest", "group": "g"}
    before, inbox = Inbox(), Inbox()
    with channel.subscribe(before, **options):
        before.wait(20)
        time.sleep(1.5)  # until it is noted how far they are
    with channel.subscribe(inbox, **options), channel.subscribe(inbox, **options):
        publish_all(None, channel, [*range(20, 40)])
        inbox.wait(40)
        time.sleep(0.5)  # nothing more is to come, so there is nothing to wait for
        assert sorted(inbox.items) == [*range(40)]


def test_a_reset_is_a_cut_of_the_replay(parties, channel):
    publish_all(None, channel, [*range(3000)])
    inbox = Inbox()
    with channel.subscribe(inbox, modulator=modulators.Tagged("old"), start="earliest") as subscription:
        inbox.wait(1)
        subscription.reset(modulators.Tagged("new"))
        publish_all(None, channel, [*range(3000, 3010)])
        came = inbox.wait(3010)
    assert [number for _, _, number in came] == [*range(3010)]
    labels = [label for label, _, _ in came]
    assert labels == sorted(labels, reverse=True)
    assert labels[-1] == "new"


def test_what_is_missing_is_told(parties, name):
    channel = ec.channel(name, retain=ec.Retention(max_bytes=100_000))
    publish_all(None, channel, [0])
    behind = position_behind(channel, 1)
    publish_all(None, channel, [bytes([number]) * 10_000 for number in range(1, 31)])
    told, inbox = Inbox(), Inbox()
    with channel.subscribe(inbox, modulator=ec.FIFOModulator(), start=behind, on_error=told):
        wait_until(lambda: inbox.items and inbox.items[-1][0] == 30)
        missing = told.wait(1)  # or more, where the log forgets more meanwhile
        assert all(isinstance(each, ec.EventsMissing) for each in missing)
        gone = [number for each in missing for number in range(each.first, each.last + 1)]
        kept = [event[0] for event in inbox.items]
        assert kept == sorted(kept)
        assert sorted(gone + kept) == [*range(1, 31)]


def test_what_is_missing_is_only_counted_where_that_is_wished(parties, name):
    channel = ec.channel(name, retain=ec.Retention(max_bytes=100_000))
    publish_all(None, channel, [0])
    behind = position_behind(channel, 1)
    publish_all(None, channel, [bytes([number]) * 10_000 for number in range(1, 31)])
    told, inbox = Inbox(), Inbox()
    skipping = {"modulator": ec.FIFOModulator(), "start": behind, "on_missing": "skip"}
    with (
        channel.subscribe(**skipping) as pulled,
        channel.subscribe(inbox, on_error=told, **skipping) as pushed,
    ):
        first = pulled.get(timeout=SOON)[0]
        assert first > 1
        assert inbox.wait(1)[0][0] == first
        assert [each.stats().dropped for each in (pulled, pushed)] == [first - 1] * 2
    assert not told.items


def test_it_goes_on_after_its_concentrator_was_killed(parties, name):
    elsewhere = "replays-elsewhere"  # whose concentrators no other test looks at
    channel = ec.channel(name, retain=ec.Retention(disk=True), namespace=elsewhere)
    publish_all(None, channel, [*range(2000)])
    inbox = Inbox()
    with channel.subscribe(inbox, modulator=ec.FIFOModulator(), start="earliest"):
        inbox.wait(100)
        for part in ec.status(elsewhere).concentrators:
            os.kill(part.pid, signal.SIGKILL)
        publish_all(None, channel, [*range(2000, 2100)])
        while inbox.items[-1] != 2099:
            inbox.wait(len(inbox.items) + 1)
    assert set(inbox.items) == {*range(2100)}  # some perhaps twice
    ec.shutdown(elsewhere)


def test_it_ends_with_its_subscription(parties, channel):
    publish_all(None, channel, [1])
    inbox = Inbox()
    with channel.subscribe(inbox, modulator=ec.FIFOModulator(), start="earliest"):
        inbox.wait(1)
        assert {each.modulator for each in channel.stats().derived.values()} == {"replay", "FIFOModulator"}
    assert not channel.stats().derived
