"""`echannel tap`: sampled at the producers, what it shows of hostile events, and from outside the cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass

import pytest

import echannel_ray as ec
from echannel_ray.session import endpoint_for
from tests.cli.commands import ROOT, start
from tests.clusters import wait_until


@dataclass
class Trade:
    symbol: str
    price: float


class Hostile:
    def __repr__(self):
        return "\x1b]0;title\x07\nsecond"


@pytest.fixture(scope="module")
def address(two_nodes):
    return two_nodes.address


def reach(channel, taps):
    """Wait until producers of this process reach so many taps: managers know of a consumer before producers do."""
    memberships = endpoint_for(None).memberships

    def reached():
        membership = memberships.get(channel.name)
        return membership is not None and len(membership.consumers) == taps

    wait_until(reached, timeout=60)


def test_what_a_rate_leaves_out_never_leaves_its_producer(address):
    channel = ec.channel("sampled")
    with channel.producer() as producer:
        tap = start("tap", channel.name, "--rate", "0.01", "--json", "--address", address)
        reach(channel, 1)
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
        reach(channel, 1)
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
    with channel.producer() as producer:
        reach(channel, 2)
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


# As on a machine where Ray is not installed.
WITHOUT_RAY = "import sys; sys.modules['ray'] = None; from echannel_ray.cli import main; main()"


@pytest.fixture(scope="module")
def gateway(address):
    return str(ec.connect().gateway(derive=("out*",)))


def outside(gateway, *arguments):
    """The command where there is no Ray, with the gateway in its environment."""
    return subprocess.Popen(
        [sys.executable, "-c", WITHOUT_RAY, *arguments],
        cwd=ROOT,
        env={**os.environ, "ECHANNEL_GATEWAY": gateway},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_publish_from_outside(address, gateway):
    with ec.channel("outer").subscribe() as subscription:
        shell = outside(gateway, "publish", "outer", '{"price": 76.5}', "-", "--json")
        out, errors = shell.communicate('"text"\n[1, null]\n', timeout=60)
        assert (shell.returncode, errors) == (0, "")
        assert json.loads(out) == {"channel": "outer", "published": 3, "consumers": None}
        assert [subscription.get(timeout=30) for _ in range(3)] == [{"price": 76.5}, "text", [1, None]]
        shell = outside(gateway, "publish", "outer", "-")
        _, errors = shell.communicate("no document\n", timeout=60)
        assert shell.returncode == 2
        assert "line 1 of standard input" in errors


def test_tap_from_outside(address, gateway):
    channel = ec.channel("outer-trades", Trade)
    tap = outside(gateway, "tap", channel.name, "--where", "price > 50", "--count", "2", "--json")
    with channel.producer() as producer:
        reach(channel, 1)
        producer.publish_many([Trade("RAY", 40.0), Trade("RAY", 60.0), Trade("RAY", 70.0)])
        out, errors = tap.communicate(timeout=60)
    assert (tap.returncode, errors) == (0, "")
    found = [json.loads(line) for line in out.splitlines()]
    assert [each["event"] for each in found] == [{"symbol": "RAY", "price": price} for price in (60.0, 70.0)]
    assert {each["producer"] for each in found} == {producer.name}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("tap", "outer", "--count", "1", "--timeout", "0.5"), "0 of 1 events came"),
        (("tap", "inner", "--where", "price > 3", "--timeout", "5"), "derive"),
        (("tap", "outer", "--where", "price > 3", "--timeout", "5"), "untyped"),
        (("tap", "outer", "--gateway", "echannel://nothing"), "endpoint"),
    ],
)
def test_what_fails_from_outside_is_one_sentence(address, gateway, arguments, told):
    ec.channel("outer")
    ec.channel("inner", Trade)
    shell = outside(gateway, *arguments)
    out, errors = shell.communicate(timeout=60)
    assert (shell.returncode, out) == (1, "")
    assert told in errors
    assert len(errors.splitlines()) == 1
    assert gateway not in errors


def test_a_tap_from_outside_ends_at_ctrl_c(address, gateway):
    tap = outside(gateway, "tap", "outer-interrupted")
    wait_until(lambda: "outer-interrupted" in ec.status().channels, timeout=60)
    channel = ec.channel("outer-interrupted")
    wait_until(lambda: channel.stats().consumers == 1, timeout=60)
    with channel.producer() as producer:
        producer.publish("before")
        assert "'before'" in tap.stdout.readline()
        tap.send_signal(signal.SIGINT)
        out, errors = tap.communicate(timeout=60)
    assert (tap.returncode, out) == (130, "")
    assert "did not exist" in errors
    wait_until(lambda: channel.stats().consumers == 0)
