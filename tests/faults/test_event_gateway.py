"""Clients of the port for events, and their tokens, while the gateway's concentrator is killed."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import Any

import pytest

import echannel_ray as ec
from echannel_ray.gateway.event_client import EventClient
from tests.api.parties import SOON, Inbox
from tests.clusters import wait_until
from tests.faults.scene import Scene
from tests.faults.test_gateway import kill_concentrator


@pytest.fixture(scope="module")
def session(scene: Scene) -> Any:
    joined = ec.connect(scene.namespace)
    joined.gateway(derive=("*",))
    return joined


def counted(scene: Scene) -> dict[str, int]:
    """What the gateway has counted."""
    return scene.concentrator(scene.cluster.nodes[0]).gateway


def test_clients_find_the_next_gateway_and_go_on(scene, session):
    endpoint = session.gateway(derive=("*",))
    channel = ec.channel("notes", namespace=scene.namespace)
    inbox = Inbox()
    with EventClient(endpoint) as before, channel.subscribe(inbox), channel.producer() as producer:
        subscription = before.subscribe("notes")
        before.publish("notes", range(100))
        assert [subscription.get(SOON).event for _ in range(100)] == [*range(100)]
        kill_concentrator(scene)
        with pytest.raises(ec.Disconnected, match="make another"):
            subscription.get(SOON)
        with EventClient(endpoint) as after, after.subscribe("notes") as again:
            after.publish("notes", range(100, 200))
            assert [again.get(SOON).event for _ in range(100)] == [*range(100, 200)]
            producer.publish("from the cluster")
            assert again.get(SOON).event == "from the cluster"
        assert inbox.wait(201) == [*range(200), "from the cluster"]
    assert session.gateway(derive=("*",)) == endpoint


def test_what_was_acknowledged_on_a_retained_channel_survives(scene, session):
    endpoint = session.gateway(derive=("*",))
    ec.channel("orders", namespace=scene.namespace, retain=ec.Retention(disk=True))
    with EventClient(endpoint) as client:
        client.publish("orders", [{"order": number} for number in range(1000)])
        kill_concentrator(scene)
    with EventClient(endpoint) as client, client.subscribe("orders", start="earliest") as subscription:
        assert [subscription.get(SOON).event["order"] for _ in range(1000)] == [*range(1000)]


def test_tokens_and_their_limits_outlive_the_concentrator(scene, session):
    reader = session.grant(subscribe=("notes",))
    small = session.grant(publish=("*",), max_event_bytes=100)
    brief = session.grant(publish=("*",), expires_after_seconds=0.5)
    ended = session.grant(publish=("*",))
    ec.channel("notes", namespace=scene.namespace)
    session.revoke(ended)
    kill_concentrator(scene)
    with EventClient(reader) as client:
        client.subscribe("notes").close()
        with pytest.raises(ec.NotAuthorised, match=r"publish.*'notes'"):
            client.publish("notes", [1])
    with EventClient(small) as client, pytest.raises(ec.NotAuthorised, match="allows 100"):
        client.publish("notes", ["x" * 200])
    for endpoint, why in ((ended, "revoked"), (brief, "expired")):
        wait_until(partial(refused, endpoint, why))
    counts = counted(scene)
    assert counts["refused_revoked"] >= 1
    assert counts["refused_expired"] >= 1
    assert counts["refused_forbidden_channel"] == 1
    assert counts["refused_too_large"] == 1
    assert counts["tokens"] >= 3


def refused(endpoint: Any, why: str) -> bool:
    try:
        EventClient(endpoint).close()
    except ec.NotAuthorised as error:
        return error.reason == why  # type: ignore[no-any-return]
    return False


def test_a_revoked_token_ends_what_it_had_opened(scene, session):
    endpoint = session.grant(subscribe=("notes",))
    with EventClient(endpoint) as client, client.subscribe("notes") as subscription:
        session.revoke(str(endpoint))
        with pytest.raises(ec.NotAuthorised, match="revoked"):
            subscription.get(SOON)
    with pytest.raises(ec.NotAuthorised, match="no such token"):
        session.revoke(endpoint)
    with pytest.raises(ec.NotAuthorised, match="own"):
        session.revoke(session.gateway(derive=("*",)))


def test_a_gateway_with_other_rights_ends_all_tokens(scene, session):
    granted = session.grant(subscribe=("*",))
    former = session.gateway(derive=("*",))
    other = session.gateway(publish=("only-this",), subscribe=())
    assert other.token != former.token
    for endpoint in (granted, former):
        with pytest.raises((ec.NotAuthorised, ec.Disconnected)):
            EventClient(endpoint, patience_seconds=0.2)
    with EventClient(other) as client, pytest.raises(ec.NotAuthorised, match="only-this"):
        client.publish("notes", [1])


def test_what_makes_no_sense_is_refused_at_the_call(session):
    for wrong in (
        {"publish": "notes"},
        {"publish": (3,)},
        {"max_event_bytes": 0},
        {"max_events_per_second": "many"},
        {"expires_after_seconds": -1},
        {"expires_after_seconds": True},
        {"expires_after_seconds": "soon"},
    ):
        with pytest.raises((TypeError, ValueError)):
            session.grant(**wrong)
    with pytest.raises(TypeError, match="an address of this node"):
        session.gateway(None)
    with pytest.raises(ValueError, match="endpoint"):
        session.revoke("no endpoint")


MEMBER = """
import os, sys
from echannel_ray.gateway.event_client import EventClient
subscription = EventClient(sys.argv[1]).subscribe(sys.argv[2], group="workers")
print("ready", flush=True)
for number in range(500):
    assert subscription.get(20).event == number
print("handled", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("retain", [None, ec.Retention(disk=True)], ids=["passing", "retained"])
def test_what_a_client_that_is_killed_has_not_handled_goes_to_another_member(scene, session, retain):
    endpoint = session.gateway(derive=("*",))
    name = "shared-on-disk" if retain else "shared"
    channel = ec.channel(name, namespace=scene.namespace, retain=retain)
    command = [sys.executable, "-c", MEMBER, str(endpoint), name]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as member,
        channel.producer() as producer,
    ):
        assert member.stdout.readline() == "ready\n"
        producer.publish_many(range(4000))
        assert member.stdout.readline() == "handled\n"
        with channel.subscribe(group="workers") as other:
            member.kill()
            messages = other.messages()
            got: dict[int, bool] = {}
            while not got.keys() >= {*range(500, 4000)}:
                message = next(messages)
                assert message.event not in got
                got[message.event] = message.redelivered
        # What it had handled and not told yet may come again, marked.
        assert all(is_redelivered for number, is_redelivered in got.items() if number < 500)
        assert any(got.values())
