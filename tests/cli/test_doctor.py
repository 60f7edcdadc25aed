"""`echannel doctor` without a Ray, and on one of two nodes."""

from __future__ import annotations

import json
import os
import platform
from threading import Thread
from typing import Any

import pytest
import ray

import echannel_ray as ec
from echannel_ray.doctor import examination
from echannel_ray.errors import Disconnected
from echannel_ray.ids import WIRE_VERSION
from tests.cli.commands import echannel
from tests.clusters import on, wait_until

OF_A_RAY = {"nodes", "clocks", "wire version", "parts", "links", "channels"}


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
def cluster_of_two(cluster):
    started = cluster(nodes=2)
    yield started.address, started.nodes[1]
    ec.disconnect()


def examined(*arguments, code=0):
    done = echannel("doctor", "--json", *arguments)
    assert done.returncode == code, done.stderr
    findings = json.loads(done.stdout)["findings"]
    assert all(each.keys() == {"check", "state", "says", "advice", "nodes"} for each in findings)
    assert all(each["advice"] for each in findings if each["state"] in ("warning", "problem"))
    return findings


def test_where_no_ray_can_be_reached_the_rest_is_looked_at():
    findings = examined("--address", "127.0.0.1:1", code=1)
    assert {each["check"] for each in findings if each["state"] == "left out"} == OF_A_RAY
    assert [each["check"] for each in findings if each["state"] == "problem"] == ["ray"]
    assert {"python", "package", "sockets", "sandbox", "loopback"} <= {each["check"] for each in findings}


def test_no_ray_and_none_wanted_is_no_problem(monkeypatch, no_ray):
    def none(address):
        raise Disconnected("no running Ray found")

    monkeypatch.setattr("echannel_ray.overview.joining.running_ray", none)
    report = examination.examine("default", None)
    assert not report.has_problem
    assert {each.check for each in report.findings if each.state == "left out"} == OF_A_RAY


def test_a_ray_client_address_is_a_problem():
    (found,) = [each for each in examined("--address", "ray://127.0.0.1:1", code=1) if each["check"] == "ray"]
    assert found["state"] == "problem"
    assert "Ray Client" in found["says"]


def test_a_tmpdir_that_is_too_long(tmp_path, monkeypatch):
    long = tmp_path / ("long" * 20)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    (found,) = [each for each in examined("--address", "127.0.0.1:1", code=1) if each["check"] == "sockets"]
    assert found["state"] == "problem"
    assert "TMPDIR to a short" in found["advice"]


def test_a_socket_directory_that_others_may_enter(tmp_path, monkeypatch):
    (tmp_path / f"echannel-{os.geteuid()}").mkdir(mode=0o755)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (found,) = [each for each in examined("--address", "127.0.0.1:1", code=1) if each["check"] == "sockets"]
    assert found["state"] == "problem"
    assert "can be entered by others" in found["says"]


def test_two_nodes_where_a_producer_waits(cluster_of_two):
    address, second = cluster_of_two
    channel = ec.channel("stuck")
    reader: Any = ray.remote(Reader).options(**on(second), num_cpus=0).remote(channel)
    ray.get(reader.ready.remote())
    with channel.producer() as producer:
        publishing = Thread(target=lambda: [producer.publish(bytes(1 << 20)) for _ in range(20)], daemon=True)
        publishing.start()
        wait_until(lambda: channel.stats().blocked_producers == 1, timeout=60)
        findings = examined("--address", address)
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


def test_lines_for_people(cluster_of_two):
    address, _ = cluster_of_two
    done = echannel("doctor", "--address", address)
    assert done.returncode == 0, done.stderr
    assert "0 problems" in done.stdout.splitlines()[-1]
    assert "sandbox" in done.stdout
