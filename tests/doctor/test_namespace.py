"""What parts and channels say of a namespace's health."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from echannel_ray.doctor.namespace import LONG_LAG_EVENTS, judge_certificates, judge_channels, judge_parts
from echannel_ray.ids import WIRE_VERSION
from echannel_ray.models import Certificate, ChannelStats, ConcentratorPart, Manager, Node, NodeShare, Part, Status
from echannel_ray.overview.readings import ChannelLine

ONE, OTHER = "a" * 56, "b" * 56


def status(**others):
    known = {
        "namespace": "default",
        "name_server": Part(name="default:name-server", wire_version=WIRE_VERSION),
        "managers": [Manager(name="default:manager-0", state="serving", wire_version=WIRE_VERSION)],
        "concentrators": [concentrator(ONE), concentrator(OTHER)],
        "channels": [],
        "nodes": [Node(node_id=node, alive=True, joined=True, suspected=False) for node in (ONE, OTHER)],
    }
    return Status(**{**known, **others})


def concentrator(node, **others):
    known = {"name": f"default:concentrator-{node[:16]}", "node_id": node, "wire_version": WIRE_VERSION, "peers": 1}
    return ConcentratorPart(**{**known, **others})


def test_nothing_is_wrong():
    assert {each.state for each in [*judge_parts(status()), *judge_channels([])]} == {"ok"}


@pytest.mark.parametrize(
    ("others", "check", "state", "told"),
    [
        ({"managers": [Manager(name="m", error="TimeoutError: 2 s")]}, "parts", "problem", "m does not answer: Time"),
        ({"managers": [Manager(name="m", state="rebuilding")]}, "parts", "warning", "m is rebuilding"),
        ({"concentrators": [concentrator(ONE, peers=0, wire_version=1)]}, "wire version", "problem", "parts speak 1"),
        ({"concentrators": [concentrator(ONE, peers=0), concentrator(OTHER)]}, "links", "problem", "not linked"),
        ({"concentrators": [concentrator(ONE, peers=0, malformed_frames=3)]}, "links", "warning", "3 malformed"),
        (
            {"concentrators": [concentrator(ONE, refused_links=2, refused={"expired": 2})]},
            "links",
            "warning",
            "2 expired",
        ),
        ({"nodes": [Node(node_id=ONE, alive=True, joined=True, suspected=True)]}, "nodes", "warning", "silent"),
    ],
)
def test_parts(others, check, state, told):
    (found,) = [each for each in judge_parts(status(**others)) if each.state != "ok"]
    assert (found.check, found.state) == (check, state)
    assert told in found.says
    assert found.advice


def test_a_namespace_that_nobody_has_joined_is_no_problem():
    absent = status(name_server=Part(name="x", error="not started"), managers=[], concentrators=[])
    (found,) = judge_parts(absent)
    assert found.state == "ok"
    assert "nobody has joined" in found.says


@pytest.mark.parametrize(
    ("source", "left", "failures", "state", "told"),
    [
        ("issued", timedelta(days=20), 0, "ok", "the first of 1 ends at"),
        ("issued", timedelta(days=5), 0, "warning", "was not renewed"),
        ("issued", timedelta(seconds=-1), 0, "problem", "ended at"),
        ("mounted", timedelta(days=5), 0, "ok", "ends at"),
        ("mounted", timedelta(hours=5), 0, "warning", "was not renewed"),
        ("mounted", timedelta(days=5), 2, "warning", "2 times files that were mounted were no good"),
    ],
)
def test_certificates(source, left, failures, state, told):
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    shown = Certificate(source=source, until=now + left, sha256="", failures=failures)
    (found,) = judge_certificates([concentrator(ONE, certificate=shown)], now)
    assert (found.check, found.state) == ("certificates", state)
    assert told in found.says
    assert bool(found.advice) == (state != "ok")


@pytest.mark.parametrize(
    ("counters", "told"),
    [
        ({"producers": 2, "blocked_producers": 1}, "1 of 2 producers wait"),
        ({"consumer_lag_events": LONG_LAG_EVENTS + 1}, "100,001 events behind"),
        ({"lag": {"workers": LONG_LAG_EVENTS + 1, "others": 3}}, "group workers is 100,001 events behind"),
        ({"events_dropped": 5, "dropped": {"drop_newest": 5}}, "5 events were dropped (5 drop_newest)"),
        ({"derived": {"k": ChannelStats(channel="c~k", modulator="M", modulator_errors=2)}}, "c~k: modulator M failed"),
    ],
)
def test_channels(counters, told):
    (found,) = judge_channels([ChannelLine(channel="c", **counters)])
    assert found.state == "warning"
    assert told in found.says
    assert found.advice


def test_who_waits_is_named_by_its_node():
    shares = {ONE[:16]: NodeShare(producers=1), OTHER[:16]: NodeShare(producers=1, blocked_producers=1)}
    (found,) = judge_channels([ChannelLine(channel="c", producers=2, blocked_producers=1, nodes=shares)])
    assert found.nodes == [OTHER[:8]]
