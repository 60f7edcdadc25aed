"""`info`, `graph`, `tree`, `doctor` on two nodes: a producer, a group, derived and retained channels, hostile names."""

from __future__ import annotations

import json
import platform
import signal
from dataclasses import dataclass
from threading import Thread
from typing import Any

import pytest
import ray

import echannel_ray as ec
from echannel_ray.cli.terminal_text import UNKNOWN
from echannel_ray.doctor import survey
from echannel_ray.ids import WIRE_VERSION
from echannel_ray.modulators import EveryNth
from echannel_ray.overview.readings import ChannelDetails
from echannel_ray.overview.topology import Topology
from tests.cli.commands import echannel, inside, start
from tests.cli.test_doctor import examined
from tests.clusters import on, wait_until

HOSTILE = "evil [red]\u202e\x9b2J\\[/red]"
SHOWN = r"evil [red]\u202e\x9b2J\[/red]"


@dataclass
class Trade:
    symbol: str
    price: float


class Worker:
    def __init__(self, channel):
        self.handled: list[Any] = []
        self.subscription = channel.subscribe(self.handled.append, group="workers")

    def count(self):
        return len(self.handled)


class Reader:
    """Reads when it is told to."""

    def __init__(self, channel):
        self.subscription = channel.subscribe()

    def ready(self):
        return True

    def read(self, count):
        for _ in range(count):
            self.subscription.get(timeout=30)


@pytest.fixture(scope="module")
def scene(two_nodes):
    """The address, the first 16 digits of both nodes, and what places an actor on the second."""
    trades = ec.channel("trades", Trade, packing=ec.Packing(degree=64, interval_seconds=0.1))
    ec.channel("kept", retain=ec.Retention(max_bytes=1000, disk=True))
    ec.channel(HOSTILE)
    worker: Any = ray.remote(Worker).options(**on(two_nodes.nodes[1]), num_cpus=0).remote(trades)
    ray.get(worker.count.remote())
    high = trades.derive("price > 6")
    with high.subscribe(modulator=EveryNth(2)) as sampled, trades.producer() as producer:
        producer.publish_many([Trade("RAY", float(price)) for price in range(10)])
        producer.drain()
        assert [sampled.get(timeout=30).price for _ in range(2)] == [7.0, 9.0]
        wait_until(lambda: ray.get(worker.count.remote()) == 10)
        first, second = two_nodes.nodes
        yield two_nodes.address, first.node_id[:16], second.node_id[:16], on(second)
    ray.kill(worker)


def shown(*arguments):
    done = inside(*arguments)
    assert done.exit_code == 0, done.stderr
    assert all(line.isprintable() for line in done.stdout.splitlines())
    return done.stdout


def test_info(scene):
    text = shown("info", "trades")
    lines = {line.split("  ")[0].strip(): line.split("  ", 1)[-1].strip() for line in text.splitlines()}
    assert text.splitlines()[0].strip() == "default/trades"
    assert lines["type"] == "Trade"
    assert lines["fields"] == "symbol: str, price: float"
    assert lines["packing"] == "64 events, 100.0 ms"
    assert lines["retention"] == "none"
    assert lines["published"].startswith("10 events, ")
    assert lines["delivered"] == "10 events"
    assert lines["dropped"] == "0 events"
    assert "p99" in lines["latency"]
    assert lines[scene[1][:8]].split() == ["1", "0", "10", "0", "0", "0"]
    assert lines[scene[2][:8]].split() == ["0", "1", "0", "10", "0", "0"]
    assert lines["workers"].split() == ["trades", f"{scene[2][:8]}:", "1", UNKNOWN]
    assert " EveryNth " in text


def test_info_as_json(scene):
    found = ChannelDetails.model_validate_json(shown("info", "trades", "--json"))
    assert (found.namespace, found.channel, found.fields) == ("default", "trades", {"symbol": "str", "price": "float"})
    assert found.packing["degree"] == 64
    assert [(group.name, group.members) for group in found.groups] == [("workers", {scene[2]: 1})]
    assert (found.events_published, found.events_delivered, found.consumer_lag_events) == (10, 10, 0)
    assert found.retention is None


def test_info_of_a_retained_channel(scene):
    lines = shown("info", "kept").splitlines()
    (retention,) = [line for line in lines if line.startswith("retention")]
    assert "on disk, up to 1.0 kB; holds 0 events" in retention


@pytest.mark.parametrize("command", ["info", "tree"])
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("trade",), "there is no channel 'trade' in namespace 'default': did you mean 'trades'?"),
        (("nothing-like-it",), ", 'kept', 'trades'"),
        (("trades", "--namespace", "nowhere"), "no process has joined namespace 'nowhere' yet"),
    ],
)
def test_what_is_not_there(scene, command, arguments, told):
    failed = inside(command, *arguments)
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert told in failed.stderr
    assert len(failed.stderr.splitlines()) == 1
    assert "nothing-like-it" not in ec.status().channels


def test_graph(scene):
    lines = [line.lstrip("│├└─ ").rstrip() for line in shown("graph").splitlines()]
    assert lines[0] == "namespace default"
    assert f"{scene[1][:8]}  1 process" in lines
    place = lines.index("trades  Trade")
    assert lines[place + 1] == f"{scene[1][:8]} →  1 producer, 10 published"
    assert lines[place + 2] == f"→ {scene[2][:8]}  1 consumer, 10 handled"
    assert lines[place + 3].endswith("  price > 6")
    assert lines[place + 4].endswith("  EveryNth")
    assert lines[place + 5] == f"→ {scene[1][:8]}  1 consumer, 2 handled"
    assert f"{SHOWN}  untyped" in lines


def test_graph_as_json_and_for_graphviz(scene):
    found = Topology.model_validate_json(shown("graph", "--json"))
    assert {node.node for node in found.nodes} == {scene[1], scene[2]}
    assert HOSTILE in {spot.channel for spot in found.channels}
    assert {(edge.kind, edge.node) for edge in found.edges_of("trades")} == {
        ("produces", scene[1]),
        ("consumes", scene[2]),
    }
    text = shown("graph", "--dot")
    assert text.startswith("digraph echannel {")
    assert f'"produces {scene[1]}" -> "channel trades"' in text
    assert f'"channel trades" -> "consumes {scene[2]}"' in text
    assert '"channel evil [red]\\\\u202e\\\\x9b2J\\\\[/red]"' in text  # in Graphviz's strings a backslash escapes


@pytest.mark.parametrize("command", [("info", "trades"), ("graph",), ("tree",)], ids=lambda command: command[0])
def test_as_people_run_it(scene, command):
    done = echannel(*command, "--address", scene[0])
    assert (done.returncode, done.stderr) == (0, "")
    assert "trades" in done.stdout


def test_tree(scene):
    root, high, high_counts, sampled, sampled_counts = shown("tree", "trades").splitlines()
    assert root.startswith("trades  10 published, 1 consumer")
    assert high.rstrip().endswith("price > 6")
    assert "10 in → 3 out (30.0%)" in high_counts
    assert sampled.rstrip().endswith("EveryNth")
    assert "3 in → 2 out (66.7%)" in sampled_counts
    assert sampled_counts.rstrip().endswith("1 consumer")
    assert SHOWN in shown("tree")


def test_tree_as_json(scene):
    (found,) = json.loads(shown("tree", "trades", "--json"))
    (high,) = found["derived"]
    (sampled,) = high["derived"]
    assert (high["modulator"], high["events_in"], high["events_out"]) == ("price > 6", 10, 3)
    assert (sampled["modulator"], sampled["events_out"], sampled["derived"]) == ("EveryNth", 2, [])
    assert {each["channel"] for each in json.loads(shown("tree", "--json"))} == {"trades", "kept", HOSTILE}


def test_top(scene):
    with ec.channel("busy").producer() as producer:
        for number in range(100):
            producer.publish(number)
        producer.drain()
        top = start("top", "--interval", "0.5", "--count", "2", "--sort", "lag", "--address", scene[0])
        lines = start("top", "--interval", "0.5", "--once", "--json", "--address", scene[0])
        out, errors = top.communicate(timeout=60)
        document, _ = lines.communicate(timeout=60)
    assert (top.returncode, errors) == (0, "")
    first, second = out.split("\n\n")  # no terminal, no screen: one after the other
    for table in (first, second):
        assert all(name in table for name in ("namespace default", "by lag", "in/s", "p99", "busy", "trades", SHOWN))
        assert all(line.isprintable() for line in table.splitlines())
    found = json.loads(document)
    assert (found["namespace"], len(document.splitlines())) == ("default", 1)
    assert 0.5 <= found["seconds"] < 30
    assert {"busy", "trades", "kept", HOSTILE} < {each["channel"] for each in found["channels"]}


def test_top_ends_at_ctrl_c(scene):
    top = start("top", "--interval", "0.2", "--json", "--address", scene[0])
    assert json.loads(top.stdout.readline())["channels"]
    top.send_signal(signal.SIGINT)
    top.communicate(timeout=60)
    assert top.returncode == 130


def test_hostile_names_are_shown_escaped(scene):
    for command in (("channels",), ("info", HOSTILE), ("graph",), ("tree", HOSTILE)):
        assert SHOWN in shown(*command)
    for command in (("channels", "--json"), ("status", "--json"), ("tree", "--json")):
        shown(*command)


def test_a_namespace_that_nobody_has_joined(scene):
    assert "no channels" in shown("graph", "--namespace", "empty")
    assert "no channels" in shown("tree", "--namespace", "empty")
    assert json.loads(shown("tree", "--namespace", "empty", "--json")) == []
    assert json.loads(shown("graph", "--namespace", "empty", "--json"))["channels"] == []


def test_the_doctor_finds_a_producer_that_waits(scene):
    channel = ec.channel("stuck")
    reader: Any = ray.remote(Reader).options(**scene[3], num_cpus=0).remote(channel)
    ray.get(reader.ready.remote())
    with channel.producer() as producer:
        publishing = Thread(target=lambda: [producer.publish(bytes(1 << 20)) for _ in range(20)], daemon=True)
        publishing.start()
        wait_until(lambda: channel.stats().blocked_producers == 1, timeout=60)
        findings = examined("--address", scene[0])
        ray.get(reader.read.remote(20))
        publishing.join()
    ray.kill(reader)
    assert not [each for each in findings if each["state"] in ("problem", "left out")]
    (waits,) = [each for each in findings if each["check"] == "channels"]
    assert (waits["state"], waits["says"].split(",")[0]) == (
        "warning",
        "stuck: 1 of 1 producers wait in publish",
    )
    says = {each["check"]: each["says"] for each in findings if each["state"] == "ok"}
    assert says["versions"] == f"Python {platform.python_version()}, wire version {WIRE_VERSION} everywhere"
    assert says["links"] == "all 2 concentrators reach each other"
    assert "within 0.5 s" in says["clocks"]


def test_nodes_that_can_not_be_asked_are_problems(scene, monkeypatch):
    facts, (failed,) = survey.ask_nodes(["ab" * 28])
    assert (facts, failed.state, failed.nodes) == ([], "problem", ["ab" * 4])
    assert "a task failed" in failed.says
    assert [*survey.ask_clocks(["ab" * 28])] == []
    monkeypatch.setattr(survey, "_LOOK_SECONDS", 0.001)
    facts, (failed,) = survey.ask_nodes([ray.get_runtime_context().get_node_id()])
    assert (facts, failed.state) == ([], "problem")
    assert "was not answered within" in failed.says


def test_the_doctor_speaks_to_people(scene):
    done = inside("doctor")
    assert done.exit_code == 0, done.stderr
    assert "0 problems" in done.stdout.splitlines()[-1]
    assert "sandbox" in done.stdout
