"""The bootstrap job: what its file may say, and what it makes of it."""

from __future__ import annotations

import json
import stat
import sys
from dataclasses import replace

import pyarrow as pa
import pytest

import echannel_ray as ec
from echannel_ray.gateway.client import GatewayClient
from echannel_ray.pod.bootstrap import bootstrap, main, read_plan
from tests.clusters import free_port
from tests.k8s.rendered import FOLDER


def written(folder, plan):
    path = folder / "channels.json"
    path.write_text(plan if isinstance(plan, str) else json.dumps(plan))
    return path


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("{", "Invalid JSON"),
        ({"channel": []}, "channel: Extra inputs"),
        ({"channels": [{"nam": "a"}]}, "channels.0.name: Field required"),
        ({"channels": [{"name": "a b/"}]}, "channel 'a b/'"),
        ({"channels": [{"name": "a", "retain": {"bytes": 1}}]}, "channel 'a'.*max_bytes"),
        ({"channels": [{"name": "a", "packing": {"degree": 0}}]}, "channel 'a'.*packing degree"),
        ({"channels": [{"name": "a", "packing": {"speed": 1}}]}, "channel 'a'.*speed"),
        ({"channels": [{"name": "a", "type": "Trade"}]}, "channel 'a'.*package.module:Class"),
        ({"channels": [{"name": "a", "type": "no_such_module:Trade"}]}, "channel 'a'.*no_such_module"),
        ({"gateway": {"port": 0, "events_port": 1, "reached_as": "here", "endpoint_file": "/a"}}, "gateway.port"),
        ({"gateway": {"port": 1, "reached_as": "here", "endpoint_file": "/a"}}, "gateway.events_port: Field required"),
    ],
)
def test_a_plan_that_is_none_says_why(tmp_path, no_ray, plan, said):
    with pytest.raises(ValueError, match=said):
        bootstrap(written(tmp_path, plan))


def test_a_plan_that_is_not_there_says_so(tmp_path, no_ray):
    with pytest.raises(ValueError, match="No such file"):
        bootstrap(tmp_path / "channels.json")


def test_the_plan_that_is_deployed_is_one(no_ray):
    assert read_plan(FOLDER / "base/channels.json").gateway is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [([], "usage"), (["a", "b"], "usage"), (["/no/file"], "echannel: /no/file: No such")],
)
def test_a_wrong_call_is_told_on_standard_error(monkeypatch, capsys, no_ray, arguments, said):
    monkeypatch.setattr(sys, "argv", ["bootstrap", *arguments])
    assert main() == 2
    assert capsys.readouterr().err.startswith(said)


def test_channels_and_the_gateway_are_there_also_when_it_runs_again(tmp_path, two_nodes):
    ports = free_port(), free_port()
    plan = {
        "namespace": "planned",
        "channels": [
            {"name": "plain", "packing": {"degree": 64}},
            {"name": "kept", "retain": {"max_bytes": 1 << 20}},
            {"name": "typed", "type": "tests.k8s.readings:Reading"},
        ],
        "gateway": {
            "port": ports[0],
            "events_port": ports[1],
            "reached_as": "echannel-gateway.echannel.svc",
            "endpoint_file": str(tmp_path / "gateway"),
            "publish": ["kept"],
            "max_event_bytes": 1000,
        },
    }
    path = written(tmp_path, plan)
    bootstrap(path)
    endpoint_file = tmp_path / "gateway"
    first = endpoint_file.read_text()
    bootstrap(path)
    assert endpoint_file.read_text() == first
    assert stat.S_IMODE(endpoint_file.stat().st_mode) == 0o600
    with ec.connect("planned") as session:
        assert set(session.status().channels) == {"plain", "kept", "typed"}
        assert ec.channel("typed", namespace="planned").schema() == {"station": "str", "value": "float"}
        with ec.channel("kept", namespace="planned").subscribe() as subscription:
            endpoint = ec.Endpoint.parse(first)
            assert endpoint.host == "echannel-gateway.echannel.svc"
            assert (endpoint.port, endpoint.events_port) == ports
            batch = pa.record_batch({"number": [7]})
            with GatewayClient(replace(endpoint, host="127.0.0.1")) as client:
                assert client.publish("kept", [batch]) == 1
                with pytest.raises(ec.NotAuthorised):
                    client.publish("plain", [batch])
                with pytest.raises(ec.EChannelError, match="1000"):
                    client.publish("kept", [pa.record_batch({"number": list(range(1000))})])
            assert subscription.get(timeout=30) == {"number": 7}
    ec.shutdown()
