"""`echannel doctor` without a Ray. `test_inspection.py` has it on two nodes."""

from __future__ import annotations

import json
import os

from echannel_ray.doctor import examination
from echannel_ray.errors import Disconnected
from tests.cli.commands import echannel

OF_A_RAY = {"nodes", "clocks", "wire version", "parts", "links", "certificates", "channels"}


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

    monkeypatch.setattr("echannel_ray.overview.ray_connection.running_ray", none)
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
