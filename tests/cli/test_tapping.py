"""`echannel tap`: sampled at the producers, and what it shows of hostile events."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass

import pytest

import echannel_ray as ec
from tests.cli.commands import start
from tests.clusters import wait_until


@dataclass
class Trade:
    symbol: str
    price: float


class Hostile:
    def __repr__(self):
        return "\x1b]0;title\x07\nsecond"


@pytest.fixture(scope="module")
def address(cluster):
    address = cluster().address
    yield address
    ec.disconnect()


def sampled(channel):
    """Wait until a tap consumes what it derives."""
    wait_until(lambda: any(each.consumers for each in channel.stats().derived.values()), timeout=60)


def test_what_a_rate_leaves_out_never_leaves_its_producer(address):
    channel = ec.channel("sampled")
    with channel.producer() as producer:
        tap = start("tap", channel.name, "--rate", "0.01", "--json", "--address", address)
        sampled(channel)
        for number in range(500):
            producer.publish({"number": number})
        producer.drain()
        (derived,) = channel.stats().derived.values()
        assert (derived.modulator, derived.events_in, derived.events_out) == ("AtMostRate", 500, 1)
        assert json.loads(tap.stdout.readline())["event"] == {"number": 0}
        tap.send_signal(signal.SIGINT)
        out, errors = tap.communicate(timeout=60)
    assert (tap.returncode, errors) == (130, "")
    assert json.loads(out) == {"sampled": {"events": 500, "left_out": 499}}


def test_a_rate_behind_a_filter(address):
    channel = ec.channel("sampled-trades", Trade)
    with channel.producer() as producer, channel.producer() as other:
        wanted = ("--rate", "0.01", "--where", "price > 50", "--count", "2")
        tap = start("tap", channel.name, *wanted, "--address", address)
        sampled(channel)
        for each in (producer, other):  # they share the rate: one event of each comes
            each.publish_many([Trade("RAY", float(price)) for price in range(100)])
        out, errors = tap.communicate(timeout=60)
    assert tap.returncode == 0
    assert sorted(line.split()[0] for line in out.splitlines()) == sorted((producer.name, other.name))
    assert all(line.endswith("Record(symbol='RAY', price=51.0)") for line in out.splitlines())
    assert errors == "echannel: 96 of 98 events were left out, at their producers\n"


def test_hostile_events_are_shown_escaped(address):
    channel = ec.channel("hostile")
    tap = start("tap", channel.name, "--count", "2", "--address", address)
    lines = start("tap", channel.name, "--count", "2", "--json", "--address", address)
    wait_until(lambda: channel.stats().consumers == 2, timeout=60)
    with channel.producer() as producer:
        producer.publish(Hostile())
        producer.publish("\x1b[31m\x9b2J\u202e[bold]")
    out, _ = tap.communicate(timeout=60)
    documents, _ = lines.communicate(timeout=60)
    assert all(each.isprintable() for each in out.splitlines())
    assert [line.partition("  ")[2] for line in out.splitlines()] == [
        r"\x1b]0;title\x07\nsecond",
        r"'\x1b[31m\x9b2J\u202e[bold]'",
    ]
    assert all(each.isprintable() for each in documents.splitlines())
    assert [json.loads(line)["event"] for line in documents.splitlines()] == [
        "\x1b]0;title\x07\nsecond",
        "\x1b[31m\x9b2J\u202e[bold]",
    ]
