"""The commands on a Ray that runs."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import echannel_ray as ec
from tests.cli.commands import echannel, inside, start
from tests.clusters import wait_until


@dataclass
class Trade:
    symbol: str
    price: float


@pytest.fixture(scope="module")
def address(two_nodes):
    return two_nodes.address


@pytest.fixture
def run(address):
    """Run the command on this cluster; it must succeed."""

    def run(*arguments, stdin=""):
        done = echannel(*arguments, "--address", address, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def look(address):
    """Run a command that looks, in this process; it must succeed."""

    def look(*arguments):
        done = inside(*arguments)
        assert done.exit_code == 0, done.stderr
        return done.stdout

    return look


def test_status_of_a_namespace_that_nobody_has_joined_starts_nothing(look):
    assert "no process has joined" in look("status", "--namespace", "empty")
    assert "no channels" in look("channels", "--namespace", "empty")
    assert json.loads(look("channels", "--namespace", "empty", "--json")) == []
    status = ec.Status.model_validate_json(look("status", "--namespace", "empty", "--json"))
    assert (status.managers, status.concentrators, status.name_server.pid) == ([], [], 0)
    assert [node.joined for node in status.nodes if node.alive] == [False, False]


def test_status(run, look):
    ec.channel("seen")
    expected = ec.status()
    shown = run("status")
    for part in (expected.name_server, *expected.managers, *expected.concentrators):
        assert str(part.pid) in shown
    found = ec.Status.model_validate_json(look("status", "--json"))
    assert found.name_server.pid == expected.name_server.pid
    assert "seen" in found.channels


def test_channels(run, look):
    typed = ec.channel("typed", Trade)
    untyped = ec.channel("feeds/untyped")
    with untyped.subscribe() as subscription, untyped.producer() as producer, typed.producer():
        for number in range(3):
            producer.publish(number)
        assert [subscription.get(timeout=30) for _ in range(3)] == [0, 1, 2]
        lines = {line.split()[0]: line.split()[1:] for line in run("channels").splitlines()}
        assert lines["typed"] == ["Trade", "1", "0", "0", "0"]
        assert lines["feeds/untyped"] == ["untyped", "1", "1", "3", "3"]
        found = {each["channel"]: each for each in json.loads(look("channels", "--json"))}
    assert found["typed"]["event_type"].endswith(":Trade")
    assert found["feeds/untyped"]["event_type"] is None
    assert ec.ChannelStats.model_validate(found["feeds/untyped"]).events_published == 3


def test_publish(run):
    with ec.channel("published").subscribe() as subscription:
        shown = run("publish", "published", '{"price": 76.5}', '"text"', "-", stdin="-1")
        assert shown == "published 3 on published, which has 1 consumer\n"
        done = run("publish", "published", "--json", "-", "4", stdin='[2]\n\n{"3": null}\n')
        assert json.loads(done) == {"channel": "published", "published": 3, "consumers": 1}
        events = [subscription.get(timeout=30) for _ in range(6)]
    assert events == [{"price": 76.5}, "text", -1, [2], {"3": None}, 4]


def test_publish_in_another_namespace(run):
    with ec.channel("published", namespace="other").subscribe() as subscription:
        run("publish", "published", "1", "--namespace", "other")
        assert subscription.get(timeout=30) == 1


def test_a_line_that_is_no_json_ends_it(address):
    with ec.channel("lines").subscribe() as subscription:
        failed = echannel("publish", "lines", "-", "--address", address, stdin="1\nnothing\n2\n")
        assert failed.returncode == 2
        assert "line 2" in failed.stderr
        assert subscription.get(timeout=30) == 1


def test_json_on_a_typed_channel(address):
    with ec.channel("typed", Trade).subscribe() as subscription:
        done = echannel("publish", "typed", '{"symbol": "RAY", "price": 76.5}', "--address", address)
        assert done.returncode == 0, done.stderr
        assert subscription.get(timeout=30) == Trade("RAY", 76.5)
        failed = inside("publish", "typed", '{"symbol": "RAY"}')
        assert failed.exit_code == 1
        assert "price" in failed.stderr
        assert len(failed.stderr.splitlines()) == 1


@pytest.mark.parametrize("line", ['{"symbol": "RAY", "price": "dear"}', '{"symbol": 3, "price": 76.5}', '"RAY"', "[]"])
def test_json_that_is_no_record_is_refused_in_a_line(address, line):
    with ec.channel("typed-lines", Trade).subscribe() as subscription:
        good = '{"symbol": "RAY", "price": 76}'
        failed = inside("publish", "typed-lines", "-", stdin=f"{good}\n{line}\n{good}\n")
        assert failed.exit_code == 1
        assert "price" in failed.stderr or "symbol" in failed.stderr
        assert len(failed.stderr.splitlines()) == 1
        assert subscription.get(timeout=30) == Trade("RAY", 76.0)
        with pytest.raises(TimeoutError):
            subscription.get(timeout=0.1)


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_tap_of_a_typed_channel(address, as_json):
    channel = ec.channel(f"typed-tap-{as_json}", Trade)
    tap = start("tap", channel.name, "--count", "4", "--address", address, *(["--json"] if as_json else []))
    wait_until(lambda: channel.stats().consumers == 1, timeout=60)
    fields: list[dict[str, Any]] = [{"symbol": "RAY", "price": price / 2} for price in range(4)]
    with channel.producer() as producer:
        producer.publish(Trade(**fields[0]))
        producer.publish(fields[1])
        producer.publish_many(pa.RecordBatch.from_pylist(fields[2:]))
    out, errors = tap.communicate(timeout=60)
    assert (tap.returncode, errors) == (0, "")
    if as_json:
        found = [json.loads(line) for line in out.splitlines()]
        assert [each["event"] for each in found] == fields
        assert [each["sequence"] for each in found] == [1, 2, 3, 4]
    else:
        shown = [f"Record(symbol='RAY', price={each['price']!r})" for each in fields]
        assert out.splitlines() == [f"{producer.name} #{i}  {event}" for i, event in enumerate(shown, 1)]


def test_tap_where(address):
    channel = ec.channel("typed-where", Trade)
    where = 'symbol == "RAY" and price > 76'
    tap = start("tap", channel.name, "--where", where, "--count", "2", "--json", "--address", address)
    wait_until(lambda: [each.consumers for each in channel.stats().derived.values()] == [1], timeout=60)
    with channel.producer() as producer:
        producer.publish_many([Trade("RAY", 75.0), Trade("RAY", 77.0), Trade("SUN", 78.0), Trade("RAY", 79.0)])
        out, errors = tap.communicate(timeout=60)
        assert (tap.returncode, errors) == (0, "")
    events = [json.loads(line)["event"] for line in out.splitlines()]
    assert events == [{"symbol": "RAY", "price": 77.0}, {"symbol": "RAY", "price": 79.0}]


@pytest.mark.parametrize(
    ("channel", "where", "told"),
    [
        ("typed", "prise > 3", ["line 1, column 1", "did you mean price"]),
        ("typed", "price >", ["line 1"]),
        ("untyped", "price > 3", ["untyped"]),
    ],
)
def test_a_where_that_can_not_be_is_refused(address, channel, where, told):
    ec.channel(f"where-{channel}", Trade if channel == "typed" else None)
    failed = inside("tap", f"where-{channel}", "--where", where, "--timeout", "5")
    assert failed.exit_code in (1, 2)
    assert failed.stdout == ""
    assert "Traceback" not in failed.stderr
    for each in told:
        assert each in failed.stderr


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_tap(address, as_json):
    channel = ec.channel(f"tapped-{as_json}")
    events = [{"price": 76.5}, Trade("RAY", 1.0), b"bytes", {1, 2}]
    tap = start("tap", channel.name, "--count", "4", "--address", address, *(["--json"] if as_json else []))
    wait_until(lambda: channel.stats().consumers == 1, timeout=60)
    with channel.producer() as producer:
        producer.publish_many(events)
    out, errors = tap.communicate(timeout=60)
    assert (tap.returncode, errors) == (0, "")
    lines = out.splitlines()
    if as_json:
        found = [json.loads(line) for line in lines]
        assert [each["event"] for each in found] == [
            {"price": 76.5},
            {"symbol": "RAY", "price": 1.0},
            "Ynl0ZXM=",
            [1, 2],
        ]
        assert [each["sequence"] for each in found] == [1, 2, 3, 4]
        assert {each["producer"] for each in found} == {producer.name}
        assert all(abs(time.time() - each["published_at"]) < 120 for each in found)
    else:
        assert lines == [f"{producer.name} #{i}  {event!r}" for i, event in enumerate(events, 1)]


def test_a_tap_that_waits_in_vain(address):
    failed = echannel("tap", "silent", "--count", "1", "--timeout", "0.5", "--address", address)
    assert failed.returncode == 1
    assert "0 of 1 events came" in failed.stderr
    done = echannel("tap", "silent", "--timeout", "0.5", "--address", address)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_tap_makes_the_channel_and_says_so(address):
    done = echannel("tap", "made", "--timeout", "0.1", "--address", address)
    assert done.returncode == 0
    assert "'made' did not exist" in done.stderr
    assert "made" in ec.status().channels


def test_a_tap_ends_at_ctrl_c_and_leaves(address):
    channel = ec.channel("interrupted")
    tap = start("tap", channel.name, "--address", address)
    wait_until(lambda: channel.stats().consumers == 1, timeout=60)
    with channel.producer() as producer:
        producer.publish("before")
        assert "'before'" in tap.stdout.readline()
        tap.send_signal(signal.SIGINT)
        out, errors = tap.communicate(timeout=60)
        assert (tap.returncode, out, errors) == (130, "", "")
        assert channel.stats().consumers == 0


def test_a_deleted_channel_ends_its_tap(address):
    channel = ec.channel("deleted")
    tap = start("tap", channel.name, "--address", address)
    wait_until(lambda: channel.stats().consumers == 1, timeout=60)
    channel.delete()
    out, errors = tap.communicate(timeout=60)
    assert (tap.returncode, out) == (1, "")
    assert "was deleted" in errors
    assert len(errors.splitlines()) == 1
