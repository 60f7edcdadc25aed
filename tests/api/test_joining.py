"""Joining from every kind of process, several namespaces of one process, leaving, and joining again."""

from __future__ import annotations

import gc
import os
import threading
from typing import Any

import pytest
import ray

import echannel_ray as ec
from tests.api.parties import AsyncPartyActor, Inbox, PartyActor, ask, publish_all
from tests.clusters import on, wait_until


@pytest.fixture
def elsewhere(nodes):
    """A namespace for one test; the driver's calls go to "default" again afterwards."""
    yield "elsewhere"
    ec.shutdown("elsewhere")
    ec.connect("default")


def test_first_use_joins_the_default_namespace(new_party, channel):
    assert channel.namespace == "default"
    assert ask(new_party(), lambda party: ec.channel("x").namespace) == "default"
    assert ask(new_party(AsyncPartyActor), lambda party: ec.channel("x").namespace) == "default"


def test_from_many_processes_at_the_same_moment(nodes, elsewhere):
    made: list[Any] = [PartyActor.options(**on(node)).remote() for node in nodes.nodes for _ in range(3)]
    ray.get([party.where.remote() for party in made])

    def join(party):
        session = ec.connect("elsewhere")
        publish_all(party, ec.channel("x"), [1])
        return session.namespace

    assert ray.get([party.run.remote(join) for party in made], timeout=100) == ["elsewhere"] * len(made)
    status = ask(made[0], lambda party: ec.status())
    actors = [a["name"] for a in ray.util.list_named_actors(all_namespaces=True) if a["namespace"] == "echannel_ray"]
    mine = sorted(name for name in actors if name.startswith("elsewhere:"))
    numbers = sorted(node.node_id[:16] for node in nodes.nodes)
    assert mine == sorted(
        ["elsewhere:name-server", "elsewhere:manager-0", "elsewhere:manager-1"]
        + [f"elsewhere:concentrator-{number}" for number in numbers]
    )
    assert sum(part.endpoints for part in status.concentrators) == len(made)
    for party in made:
        ray.kill(party)


def test_connect_is_a_context_manager(elsewhere):
    with ec.connect(elsewhere) as session:
        channel = ec.channel("x")
        assert channel.namespace == session.namespace == elsewhere
        subscription = channel.subscribe()
        producer = channel.producer()
        producer.publish("x")
    with pytest.raises(ec.Closed):
        producer.publish("y")
    with pytest.raises(ec.Closed):
        producer.publish(b"y")
    assert [*subscription] == []
    with pytest.raises(ec.Closed):
        subscription.get(timeout=1)
    assert ec.channel("x").namespace == "default"


def test_several_namespaces_of_one_process(near, elsewhere):
    here, there = Inbox(), Inbox()
    with ec.channel("same").subscribe(here), ec.channel("same", namespace=elsewhere).subscribe(there):
        # A namespace that was only named is not the one that later calls use.
        assert ec.channel("same").namespace == "default"
        ask(near, publish_all, ec.channel("same"), ["default"])
        ask(near, publish_all, ec.channel("same", namespace=elsewhere), [elsewhere])
        assert here.wait(1) == ["default"]
        assert there.wait(1) == [elsewhere]
    assert "same" in ec.status().channels
    assert ec.status(elsewhere).channels == ["same"]
    assert ask(near, lambda party: ec.channel("same").namespace) == "default"


def test_connect_twice_gives_one_session(nodes):
    assert ec.connect() is ec.connect("default")


def test_leaving_drains_and_coming_back_works(new_party, channel):
    party = new_party()
    inbox = Inbox()

    def publish_and_leave(party):
        producer = channel.producer()
        for number in range(1000):
            producer.publish(number)
        ec.disconnect()
        ec.disconnect()
        try:
            producer.publish("too late")
        except ec.Closed as error:
            return str(error)
        return None

    with channel.subscribe(inbox):
        assert "connect() again" in ask(party, publish_and_leave)
        assert len(inbox.wait(1000)) == 1000
        ask(party, publish_all, channel, ["back"])
        assert inbox.wait(1001)[-1] == "back"


def test_shutdown_and_again(nodes, elsewhere):
    session = ec.connect(elsewhere)
    channel = ec.channel("x")
    producer, subscription = channel.producer(), channel.subscribe()
    first = ec.status()
    ec.shutdown()
    ec.shutdown(elsewhere)
    assert not [a for a in ray.util.list_named_actors(all_namespaces=True) if a["name"].startswith("elsewhere:")]
    for call in (lambda: producer.publish(1), producer.drain, lambda: subscription.get(timeout=1), session.status):
        with pytest.raises(ec.Closed):
            call()
    producer.close()
    subscription.close()
    ec.connect(elsewhere)
    again = ec.status()
    assert again.name_server.pid != first.name_server.pid
    assert again.channels == []
    with channel.subscribe() as fresh, channel.producer() as other:  # the handle opens itself again
        other.publish("x")
        assert fresh.get(timeout=5) == "x"


def test_shutdown_reaches_other_processes(new_party, elsewhere):
    party = new_party()
    ec.connect(elsewhere)
    channel = ec.channel("x")
    ask(party, lambda party: party.kept.update(producer=channel.producer(), subscription=channel.subscribe()))
    ec.shutdown(elsewhere)

    def outcome(party):
        try:
            party.kept["subscription"].get(timeout=20)
        except ec.EChannelError as error:
            return type(error).__name__
        return None

    assert ask(party, outcome) == "Disconnected"
    with pytest.raises(ec.Disconnected):
        ask(party, lambda party: party.kept["producer"].publish("x"))
    assert not [a for a in ray.util.list_named_actors(all_namespaces=True) if a["name"].startswith("elsewhere:")]
    ask(party, publish_all, channel, ["joins anew"])


def test_status(nodes, near, far, channel):
    ray.get([near.where.remote(), far.consume.remote(channel)])
    publish_all(None, channel, [1])
    status = ec.status()
    assert isinstance(status, ec.Status)
    assert status.namespace == "default"
    assert channel.name in status.channels
    assert len(status.managers) == 2
    assert {node.node_id for node in status.nodes if node.joined} == {node.node_id for node in nodes.nodes}
    assert {part.node_id for part in status.concentrators} == {node.node_id for node in nodes.nodes}
    parts = [status.name_server, *status.managers, *status.concentrators]
    assert [part for part in parts if part.pid <= 0 or part.restarts or part.error is not None] == []
    assert len({part.pid for part in parts}) == 5
    assert all(part.endpoints > 0 for part in status.concentrators)
    assert type(status).model_validate_json(status.model_dump_json()) == status


def test_leaving_leaves_nothing_behind(new_party, nodes):
    def once():
        channel = ec.channel("come-and-go")
        with channel.subscribe(Inbox()), channel.producer() as producer:
            assert producer.deliver("x").result(timeout=10).consumers == 1
        ec.disconnect()

    def come_and_go(party):
        once()  # Ray opens something of its own at its first calls
        threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            once()
        gc.collect()
        wait_until(lambda: threading.active_count() <= threads)
        wait_until(lambda: len(os.listdir("/proc/self/fd")) <= files)

    ask(new_party(), come_and_go)
