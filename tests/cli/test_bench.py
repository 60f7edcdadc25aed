"""`echannel bench`: what it refuses, and a short run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil
import pytest

from echannel_ray.cli import bench_command
from echannel_ray.errors import EChannelError
from tests.cli.commands import ROOT, echannel
from tests.clusters import wait_until


def test_help():
    shown = echannel("bench", "--help")
    assert shown.returncode == 0
    assert all(option in shown.stdout for option in ("--json", "--full", "--list", "--out"))


def test_the_list_as_json():
    shown = echannel("bench", "--list", "--json")
    assert shown.returncode == 0, shown.stderr
    lines = json.loads(shown.stdout)
    assert {"round_trip", "publish_rate"} <= {line["name"] for line in lines}
    assert all(line.keys() == {"name", "question", "paper", "missing"} for line in lines)


def test_an_unknown_name():
    refused = echannel("bench", "rount_trip")
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert "no experiment 'rount_trip'" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_missing_package_is_named_before_anything_starts(no_ray, monkeypatch):
    monkeypatch.setattr("echannel_ray.benchmarks.table.Experiment.lacks", "psutil")
    with pytest.raises(EChannelError, match=r"memory can't run here: .*pip install 'echannel-ray\[bench\]'"):
        bench_command.bench(["memory"], full=False, out=None, as_document=True)


def test_a_short_run():
    """Of itself it starts and ends a Ray, and keeps nothing."""
    before, kept = own_children(), results()
    done = echannel("bench", "subscribe", "--json", timeout=110)
    assert done.returncode == 0, done.stderr
    (document,) = json.loads(done.stdout)
    assert document["experiment"] == "subscribe"
    assert document["short"] is True
    assert any(row["ratio"] for row in document["rows"])
    assert "[1/1] subscribe: How long" in done.stderr
    assert "took" in done.stderr
    wait_until(lambda: own_children() <= before)
    assert results() == kept


def own_children() -> set[int]:
    """Processes of this environment's Ray, which all have its folder as TMPDIR."""
    found = set()
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == os.environ["TMPDIR"] and process.pid != os.getpid():
                found.add(process.pid)
        except psutil.Error:
            pass
    return found


def results() -> dict[Path, int]:
    """The kept results, and when they were written."""
    return {path: path.stat().st_mtime_ns for path in (ROOT / "benchmarks").glob("results/*")}
