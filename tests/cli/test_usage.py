"""What the command says without a Ray, or when it is called wrongly."""

from __future__ import annotations

import io
import json
import logging
import socket
from dataclasses import dataclass
from datetime import datetime, timezone
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pydantic
import pytest
import ray

from echannel_ray.cli.documents import NoDocument, as_json, documents
from echannel_ray.errors import Disconnected
from echannel_ray.overview.joining import running_ray
from tests.cli.commands import echannel

COMMANDS = ("status", "channels", "tap", "publish", "serve", "demo")


def test_help_lists_the_commands_and_the_exit_codes():
    shown = echannel("--help")
    assert shown.returncode == 0
    assert all(command in shown.stdout for command in COMMANDS)
    assert "Exit codes: 0 done, 1 failed" in shown.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command):
    shown = echannel(command, "--help")
    assert shown.returncode == 0
    wanted = () if command == "demo" else ("--namespace", "--address", "--json")
    assert all(option in shown.stdout for option in wanted)


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
    ],
)
def test_called_wrongly(arguments):
    refused = echannel(*arguments)
    assert refused.returncode == 2
    assert "Usage: echannel" in refused.stderr
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


def test_json_lines():
    assert list(documents(io.StringIO('{"a": 1}\n\n  2\nnull'))) == [{"a": 1}, 2, None]


def test_the_line_that_is_no_json_is_named():
    read = documents(io.StringIO("1\nx\n"))
    assert next(read) == 1
    with pytest.raises(NoDocument, match="line 2 of standard input"):
        next(read)


def test_serve_says_what_it_can_not_do(monkeypatch, tmp_path):
    monkeypatch.setenv("ECHANNEL_PAGE_TOKEN", "short")
    failed = echannel("serve", "--port", "0")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "the token in ECHANNEL_PAGE_TOKEN has 5 characters" in failed.stderr
    monkeypatch.delenv("ECHANNEL_PAGE_TOKEN")
    failed = echannel("serve", "--tls-cert", str(tmp_path / "none.pem"))
    assert failed.returncode == 1
    assert "none.pem can't be used" in failed.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        failed = echannel("serve", "--port", str(taken.getsockname()[1]))
        assert failed.returncode == 1
        assert "choose another --port" in failed.stderr
        assert "Traceback" not in failed.stderr
