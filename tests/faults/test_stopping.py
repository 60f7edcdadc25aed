"""A namespace that is stopped and started again, and nodes whose last log goes."""

from __future__ import annotations

import dataclasses
import socket

import pyarrow as pa
import pytest

import echannel_ray as ec
from echannel_ray.gateway.client import GatewayClient
from tests.clusters import wait_until

NAMESPACE = "stopping"
GOES_ON = "going-on"


@dataclasses.dataclass
class Reading:
    number: int


@pytest.fixture(scope="module")
def stoppable(nodes):
    """A namespace for tests that stop it."""
    ec.connect(NAMESPACE)
    yield
    ec.shutdown(NAMESPACE)


@pytest.fixture(scope="module")
def session(nodes):
    """In a namespace that goes on."""
    yield ec.connect(GOES_ON)
    ec.shutdown(GOES_ON)


def test_a_log_on_disk_goes_on_where_its_namespace_was_stopped(stoppable):
    def channel():
        return ec.channel("orders", namespace=NAMESPACE, retain=ec.Retention(disk=True))

    with channel().producer() as producer:
        producer.publish_many(["first", "second"])
    with channel().subscribe(group="g", start="earliest") as subscription:
        assert subscription.get(timeout=20) == "first"
    ec.shutdown(NAMESPACE)
    with channel().producer() as producer:
        producer.publish("third")
        producer.drain()
    with channel().subscribe(group="g") as subscription:
        assert [subscription.get(timeout=20) for _ in range(2)] == ["second", "third"]


def test_records_of_before_are_read_by_their_formats(stoppable):
    with ec.channel("typed", Reading, namespace=NAMESPACE, retain=ec.Retention(disk=True)).producer() as producer:
        producer.publish(Reading(1))
        producer.publish_many(pa.record_batch([pa.array([2])], schema=pa.schema([("number", pa.int64())])))
    ec.shutdown(NAMESPACE)
    opened = ec.channel("typed", Reading, namespace=NAMESPACE, retain=ec.Retention(disk=True))
    opened.producer().close()  # which opens the log of this node
    with opened.subscribe(start="earliest") as subscription:
        assert [subscription.get(timeout=20) for _ in range(2)] == [Reading(1), Reading(2)]


def test_another_type_begins_another_log(stoppable):
    with ec.channel("other", Reading, namespace=NAMESPACE, retain=ec.Retention(disk=True)).producer() as producer:
        producer.publish(Reading(1))
    ec.shutdown(NAMESPACE)
    opened = ec.channel("other", namespace=NAMESPACE, retain=ec.Retention(disk=True))
    with opened.producer() as producer, opened.subscribe(start="earliest") as subscription:
        producer.publish("untyped")
        assert subscription.get(timeout=20) == "untyped"


def test_what_was_deleted_stays_deleted(stoppable):
    for word in ("before", "after"):
        channel = ec.channel("deleted", namespace=NAMESPACE, retain=ec.Retention(disk=True))
        with channel.producer() as producer, channel.subscribe(start="earliest") as subscription:
            producer.publish(word)
            assert subscription.get(timeout=20) == word
        channel.delete()
        ec.shutdown(NAMESPACE)


def test_the_keeper_ends_with_the_last_log(session):
    def endpoints():
        return sum(each.endpoints for each in ec.status(GOES_ON).concentrators)

    before = endpoints()
    for _ in range(2):
        channel = ec.channel("one", namespace=GOES_ON, retain=ec.Retention())
        channel.producer().close()
        assert endpoints() == before + 1
        channel.delete()
        wait_until(lambda: endpoints() == before)


def test_what_could_not_be_opened_grants_nothing(session):
    """As long as there is no gateway."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ec.EChannelError, match="can't listen"):
        session.gateway(port=taken.getsockname()[1])
    with pytest.raises(ec.EChannelError, match="has no gateway"):
        session.grant(publish=("*",))


@pytest.mark.parametrize("which", ["port", "events_port"])
def test_a_gateway_that_can_not_be_has_no_effect(session, which):
    endpoint = session.gateway()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        where = f"{port} and any port" if which == "port" else f"any port and {port}"
        with pytest.raises(ec.EChannelError, match=rf"can't listen on 127.0.0.1:{where} \(events\): .*use port=0"):
            session.gateway(publish=("x",), **{which: port})
    for host in ("x" * 64, "ü", "\0"):  # no names at all
        with pytest.raises(ec.EChannelError, match=r"can't listen on .*an address of this node"):
            session.gateway(host, publish=("x",))
    assert str(session.gateway()) == str(endpoint)
    with GatewayClient(str(endpoint), patience_seconds=5) as client:
        assert client.channel("c", pa.schema([("a", pa.int64())])).name == "c"


def test_other_rights_have_other_secrets(session):
    narrow = session.gateway(publish=("a*",))
    wide = session.gateway()
    assert wide.token != narrow.token
    with GatewayClient(str(wide)) as client:
        client.channel("b", pa.schema([("a", pa.int64())]))
    with GatewayClient(str(narrow), patience_seconds=1) as client, pytest.raises((ec.NotAuthorised, ec.Disconnected)):
        client.channel("b")
