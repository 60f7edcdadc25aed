"""What the command says without a Ray, or when it is called wrongly."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pydantic
import pytest
import ray
from typer.testing import CliRunner

from echannel_ray.cli import app
from echannel_ray.cli.documents import NoDocument, as_json, documents
from echannel_ray.cli.terminal_text import console
from echannel_ray.errors import Disconnected
from echannel_ray.overview.ray_connection import running_ray
from tests.cli.commands import ROOT, echannel, inside

COMMANDS = ("status", "channels", "info", "tap", "publish", "top", "graph", "tree", "doctor", "revoke", "serve", "demo")
LOOKS = ("status", "channels", "info", "top", "graph", "tree", "revoke")


def test_help_lists_the_commands_and_the_exit_codes():
    shown = echannel("--help")
    assert shown.returncode == 0
    assert all(command in shown.stdout for command in COMMANDS)
    assert "Exit codes: 0 done, 1 failed" in shown.stdout


def test_every_command_has_help_without_a_wait():
    """All in one process, where Ray must not come along: its import takes longer than all else."""
    program = """
import sys
from typer.testing import CliRunner
from echannel_ray.cli import app
for command in sys.argv[1:]:
    done = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0, command
    wanted = () if command == "demo" else ("--namespace", "--address", "--json")
    assert all(option in done.output for option in wanted), (command, done.output)
assert "ray" not in sys.modules, "a help has imported Ray"
"""
    done = subprocess.run(
        [sys.executable, "-c", program, *COMMANDS], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing",),
        ("status", "--nothing"),
        ("tap",),
        ("tap", "trades", "--count", "0"),
        ("tap", "trades", "--count", "many"),
        ("publish", "trades"),
        ("publish", "trades", '{"price": '),
        ("publish", "trades", "1", "text without quotes"),
        ("info",),
        ("tap", "trades", "--rate", "0"),
        ("tap", "trades", "--gateway", "echannel://x", "--rate", "1"),
        ("tap", "trades", "--gateway", "echannel://x", "--address", "127.0.0.1:1"),
        ("top", "--sort", "colour"),
        ("top", "--interval", "0"),
        ("graph", "--json", "--dot"),
        ("tree", "one", "two"),
        ("revoke",),
    ],
)
def test_called_wrongly(arguments):
    refused = inside(*arguments)
    assert refused.exit_code == 2
    assert "Usage: " in refused.stderr
    assert refused.stdout == ""
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("status", "--address", "127.0.0.1:1"), "no running Ray found at '127.0.0.1:1'"),
        (("tap", "trades", "--address", "127.0.0.1:nothing"), "no running Ray found"),
        (("channels", "--address", "ray://127.0.0.1:10001"), "is a Ray Client's address"),
        (("publish", "trades", "1", "--address", "local"), "would start another Ray"),
        (("status", "--namespace", "a b"), "can't be the name of a namespace"),
        (("tap", "a//b"), "can't be the name of a channel"),
    ],
)
def test_failures_are_one_sentence(arguments, reason):
    failed = echannel(*arguments)
    assert failed.returncode == 1
    assert failed.stdout == ""
    assert failed.stderr.startswith("echannel: ")
    assert reason in failed.stderr
    assert len(failed.stderr.splitlines()) == 1


def test_a_process_ends_with_these_codes():
    assert echannel("nothing").returncode == 2
    assert echannel("status", "--address", "127.0.0.1:1").returncode == 1


@pytest.mark.parametrize("command", LOOKS)
def test_without_a_ray(command, monkeypatch):
    monkeypatch.setattr(logging.getLogger("echannel_ray"), "setLevel", Mock())
    name = ("trades",) if command in ("info", "revoke") else ()
    for address, told in (("127.0.0.1:1", "no running Ray found"), ("ray://127.0.0.1:1", "Ray Client's address")):
        failed = CliRunner().invoke(app, [command, *name, "--address", address])
        assert (failed.exit_code, failed.stdout) == (1, "")
        assert told in failed.stderr
        assert len(failed.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("ray_says", "we_say"),
    [
        (
            ConnectionError("Could not find any running Ray instance."),
            "no running Ray found: say where it is",
        ),
        (RuntimeError("Version mismatch.\nThe cluster has"), "could not join the Ray at 'auto': Version mismatch. For"),
    ],
)
def test_what_ray_says_in_vain(monkeypatch, ray_says, we_say):
    # Not as a process: it would find any other Ray of this machine.
    monkeypatch.setattr(ray, "init", Mock(side_effect=ray_says))
    monkeypatch.setattr(logging.getLogger("echannel_ray"), "setLevel", Mock())  # it would stay so for other tests
    with pytest.raises(Disconnected) as raised, running_ray(None):
        raise AssertionError("there is no Ray")
    assert str(raised.value).startswith(we_say)


@dataclass
class Trade:
    symbol: str
    prices: tuple[float, ...]


class Order(pydantic.BaseModel):
    symbol: str


class Opaque:
    def __repr__(self):
        return "<opaque>"


CYCLE: list = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("event", "document"),
    [
        (None, None),
        ({"a": (1, 2.5)}, {"a": [1, 2.5]}),
        (b"bytes", "Ynl0ZXM="),
        (Trade("RAY", (1.0, 2.0)), {"symbol": "RAY", "prices": [1.0, 2.0]}),
        (Order(symbol="RAY"), {"symbol": "RAY"}),
        (datetime(2026, 1, 2, tzinfo=timezone.utc), "2026-01-02T00:00:00Z"),
        (np.arange(3), [0, 1, 2]),
        (np.float64(1.5), 1.5),
        (pd.DataFrame({"a": [1, 2]}), {"a": {"0": 1, "1": 2}}),
        (pa.table({"a": [1, 2]}), [{"a": 1}, {"a": 2}]),
        ({"inside": Opaque()}, {"inside": "<opaque>"}),
        (Order, repr(Order)),
        (2**70, 2**70),
        ({(1, 2): 3}, {"(1, 2)": 3}),
        ("\ud800", repr("\ud800")),
        (CYCLE, "[[...]]"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_events_as_json(event, document):
    assert json.loads(as_json(event)) == document


def test_a_reader_that_has_enough_is_no_failure():
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):  # which `exit_codes` makes a 0 of
        console(Closed()).print("nobody reads this")


def test_json_lines():
    assert list(documents(io.StringIO('{"a": 1}\n\n  2\nnull'))) == [{"a": 1}, 2, None]


def test_the_line_that_is_no_json_is_named():
    read = documents(io.StringIO("1\nx\n"))
    assert next(read) == 1
    with pytest.raises(NoDocument, match="line 2 of standard input"):
        next(read)
