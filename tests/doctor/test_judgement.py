"""What facts of machines mean."""

from __future__ import annotations

import pytest

from echannel_ray.doctor.findings import Report
from echannel_ray.doctor.judgement import compare, judge, judge_clocks
from echannel_ray.doctor.machine_facts import OPTIONAL, OURS, REQUIRED, Facts

VERSIONS = {**dict.fromkeys((*REQUIRED, *OPTIONAL, OURS), "1.0"), "ray": "2.60.0"}


def facts(node="", **others):
    known = {
        "node": node,
        "host": "a",
        "uid": 1000,
        "python": "3.11.7",
        "architecture": "x86_64",
        "packages": VERSIONS,
        "java": "openjdk 17",
        "tmpdir": "/tmp",
        "sandbox_layers": ["seccomp"],
        "memory_available_bytes": 4 << 30,
        "shm_total_bytes": 1 << 30,
        "shm_free_bytes": 1 << 30,
        "has_tokens": True,
    }
    return Facts(**{**known, **others})


def without(*packages):
    return {**VERSIONS, **dict.fromkeys(packages)}


def test_nothing_is_wrong():
    found = judge([facts(), facts("a" * 16)])
    assert {each.state for each in found} == {"ok"}
    assert all(each.advice is None and each.nodes == [] for each in found)


@pytest.mark.parametrize(
    ("check", "state", "others", "told"),
    [
        ("python", "problem", {"python": "3.9.1"}, "3.10 or newer"),
        ("package", "problem", {"packages": without("msgspec")}, "not installed: msgspec"),
        ("package", "problem", {"packages": {**VERSIONS, "ray": "2.9.3"}}, "Ray 2.53 or newer"),
        ("package", "problem", {"import_error": "No module named 'echannel_ray'"}, "on every node"),
        ("extras", "ok", {"packages": without("llvmlite")}, "pip install 'echannel-ray[native]'"),
        ("extras", "ok", {"packages": without("opentelemetry-api")}, "pip install 'echannel-ray[tracing]'"),
        ("extras", "warning", {"java": None}, "no Java"),
        ("sockets", "problem", {"sockets_problem": "too long for a Unix socket"}, "TMPDIR to a short path"),
        ("sandbox", "problem", {"sandbox_problem": "the kernel refuses seccomp"}, "allow seccomp"),
        ("memory", "warning", {"memory_available_bytes": 1 << 20}, "of memory available"),
        ("memory", "warning", {"shm_total_bytes": 1 << 20}, "--shm-size"),
        ("loopback", "problem", {"loopback_problem": "[Errno 99]"}, "loopback interface"),
        ("tokens", "warning", {"has_tokens": False}, "RAY_AUTH_MODE=token"),
    ],
)
def test_what_is_wrong_is_found_at_its_node(check, state, others, told):
    wrong = [
        each
        for each in judge([facts(), facts("a" * 16), facts("b" * 16, **others)])
        if each.nodes == ["b" * 8] and each.check == check
    ]
    assert any(each.state == state and told in f"{each.says} {each.advice}" for each in wrong), wrong
    assert Report(namespace="default", findings=wrong).has_problem == (state == "problem")


@pytest.mark.parametrize(
    ("others", "state", "told"),
    [
        ({"python": "3.12.1"}, "problem", "3.11.7 at here; 3.12.1 at bbbbbbbb"),
        ({"python": "3.11.9"}, "warning", "3.11.7 at here; 3.11.9 at bbbbbbbb"),
        ({"wire_version": 1000}, "problem", "different wire versions"),
        ({"packages": {**VERSIONS, OURS: "2.0"}}, "warning", "echannel-ray differs: 1.0 at here; 2.0 at bbbbbbbb"),
        ({"packages": without("pyarrow")}, "warning", "pyarrow differs: 1.0 at here; none at bbbbbbbb"),
        ({"tmpdir": "/var/tmp"}, "warning", "TMPDIR is /tmp here, and /var/tmp"),
        ({"uid": 0}, "warning", "this is user 1000, and Ray on this machine runs as user 0"),
    ],
)
def test_machines_that_do_not_go_together(others, state, told):
    found = [each for each in compare([facts(), facts("b" * 16, **others)]) if each.state != "ok"]
    assert [each.state for each in found] == [state]
    assert told in found[0].says
    assert found[0].advice


def test_machines_that_go_together():
    found = [*compare([facts(), facts("b" * 16), facts("c" * 16, host="c", tmpdir="/mnt")])]
    assert [each.state for each in found] == ["ok"]


def test_clocks():
    (found,) = judge_clocks({"aaaaaaaa": (-0.01, 0.02), "bbbbbbbb": (-3.0, 0.4)})
    assert found.state == "ok"  # nothing says that they differ
    (ahead, behind) = judge_clocks({"aaaaaaaa": (4.0, 4.2), "bbbbbbbb": (-9.0, -8.5), "cccccccc": (0.0, 0.1)})
    assert (ahead.nodes, ahead.state, behind.nodes) == (["aaaaaaaa"], "warning", ["bbbbbbbb"])
    assert "4.0 s or more" in ahead.says
    assert "8.5 s or more" in behind.says
