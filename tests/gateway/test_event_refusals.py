"""Who may not, may not; whoever is hostile ends alone; and nothing is unpickled."""

from __future__ import annotations

import dataclasses
import pickle
import socket
import time

import cloudpickle
import msgspec
import psutil
import pytest

from echannel_ray import errors
from echannel_ray.gateway import event_connection, event_server, event_service
from echannel_ray.gateway import event_frames as frames
from echannel_ray.gateway.client import GatewayClient
from echannel_ray.gateway.event_client import EventClient
from echannel_ray.gateway.identity import Identity, new_token
from echannel_ray.gateway.rights import Rights
from echannel_ray.gateway.tokens import digest_of
from tests.clusters import wait_until
from tests.gateway.conftest import gateway_of
from tests.gateway.raw import Raw
from tests.gateway.rows import batch_of

SOON = 20.0
CALLS = {
    "open": (lambda client: client.open("notes"), "publish"),
    "make": (lambda client: client.open("notes", {}), "publish"),
    "publish": (lambda client: client.publish("notes", [1]), "publish"),
    "derive": (lambda client: client.derive("notes", "value"), "derive"),
    "subscribe": (lambda client: client.subscribe("notes"), "subscribe"),
}


# ---- tokens ----


def test_a_wrong_token_is_refused_and_counted(gateway):
    endpoint = dataclasses.replace(gateway.endpoint, token=new_token())
    for _ in range(3):
        with pytest.raises(errors.NotAuthorised, match="does not know this token"):
            EventClient(endpoint)
    with GatewayClient(endpoint, 0) as rows, pytest.raises(errors.NotAuthorised, match="token"):
        rows.channel("rows")
    assert gateway.stats()["refused_wrong_token"] >= 4


def test_a_server_with_another_key_is_not_believed(gateway):
    impostor = Identity.generate(["127.0.0.1"])
    with pytest.raises(errors.NotAuthorised, match="another key"):
        EventClient(dataclasses.replace(gateway.endpoint, key=impostor.certificate_der))


@pytest.mark.parametrize(("call", "right"), CALLS.values(), ids=CALLS)
def test_channels_beyond_the_patterns_are_refused(gateway, call, right):
    endpoint = gateway.grant(Rights(("in-*",), ("out-*",), ("some/*",)))
    with EventClient(endpoint) as client:
        with pytest.raises(errors.NotAuthorised, match="'notes'") as refused:
            call(client)
        assert refused.value.right == right
        assert client.ping() < SOON
    assert gateway.stats()["refused_forbidden_channel"] == 1


def test_to_derive_is_not_to_subscribe(gateway):
    with EventClient(gateway.grant(Rights((), (), ("notes",)))) as client:
        assert client.derive("notes", "value")
        with pytest.raises(errors.NotAuthorised, match="right to subscribe on channel 'notes'"):
            client.subscribe("notes", where="value")


def test_a_revoked_token_ends_its_connections_within_a_second(gateway, events):
    endpoint = gateway.grant(Rights(("*",), ("*",), ()))
    client = EventClient(endpoint)
    subscription = client.subscribe("notes")
    before = time.monotonic()
    gateway.revoke(digest_of(endpoint.token))
    with pytest.raises(errors.NotAuthorised, match="revoked"):
        subscription.get(SOON)
    assert time.monotonic() - before < 5  # within a second, on a machine with nothing else to do
    with pytest.raises(errors.NotAuthorised, match="revoked"):
        client.publish("notes", [1])
    with pytest.raises(errors.NotAuthorised, match="revoked"):
        EventClient(endpoint)
    with GatewayClient(endpoint, 0) as rows, pytest.raises(errors.NotAuthorised, match=r"revoked|token"):
        rows.channel("rows")
    assert gateway.stats()["refused_revoked"] >= 3
    assert events.publish("notes", [1]) == 1
    client.close()


def test_a_revoked_token_cuts_off_who_does_not_read(host, gateway):
    endpoint = gateway.grant(Rights((), ("*",), ()))
    with Raw(endpoint) as stuck:
        stuck.say({"op": "subscribe", "id": 1, "channel": "notes", "credit": 2**31})
        assert stuck.hear()["op"] == "answer"
        feed = host.events["notes"].feeds[-1]
        host.publish_events("notes", [b"x" * 1_000_000] * 20)
        gateway.revoke(digest_of(endpoint.token))
        assert feed.closed.wait(SOON)


def test_a_token_expires_while_it_is_used(gateway):
    endpoint = gateway.grant(Rights(("*",), ("*",), ()), expires_after_seconds=1.0)
    with (
        EventClient(endpoint) as client,
        client.subscribe("notes") as subscription,
        pytest.raises(errors.NotAuthorised, match="expired"),
    ):
        subscription.get(SOON)
    with pytest.raises(errors.NotAuthorised, match="expired"):
        EventClient(endpoint)
    assert gateway.stats()["refused_expired"] >= 2


def test_a_stream_of_batches_ends_with_its_token(gateway):
    endpoint = gateway.grant(Rights(("*",), ("*",), ()))

    def batches():
        yield batch_of(0, 10)
        gateway.revoke(digest_of(endpoint.token))
        for at in range(1000):
            yield batch_of(at, 10)

    with GatewayClient(endpoint, 0) as rows, pytest.raises(errors.NotAuthorised, match="revoked"):
        rows.publish("rows", batches())


def test_the_gateway_s_own_token_is_not_revoked(gateway):
    with pytest.raises(ValueError, match="own"):
        gateway.revoke(digest_of(gateway.endpoint.token))


# ---- limits ----


def test_who_is_too_fast_is_held_back_and_loses_nothing(host, gateway):
    with EventClient(gateway.grant(Rights(("*",), (), (), max_events_per_second=2000))) as client:
        before = time.monotonic()
        for first in range(0, 4000, 500):
            client.publish("notes", range(first, first + 500))
        assert time.monotonic() - before > 0.7  # the first 2000 at once, and the last 500 are not waited for
    assert host.events["notes"].published == [*range(4000)]
    assert gateway.stats()["events_held_back"] >= 2


def test_bytes_and_batches_have_rates_too(gateway):
    endpoint = gateway.grant(Rights(("*",), (), (), max_bytes_per_second=50_000))
    with EventClient(endpoint) as client, GatewayClient(endpoint) as rows:
        before = time.monotonic()
        for _ in range(3):
            client.publish("notes", [b"x" * 25_000])
        rows.publish("rows", [batch_of(0, 100)])
        rows.publish("rows", [batch_of(0, 100)])
        assert time.monotonic() - before > 0.4


def test_large_events_and_batches_are_refused(host, gateway):
    endpoint = gateway.grant(Rights(("*",), (), (), max_event_bytes=1000))
    with EventClient(endpoint) as client, GatewayClient(endpoint) as rows:
        assert client.publish("notes", [b"x" * 990]) == 1
        with pytest.raises(errors.NotAuthorised, match="allows 1000") as refused:
            client.publish("notes", [b"x" * 1001])
        assert refused.value.max_event_bytes == 1000
        with pytest.raises(errors.NotAuthorised, match="allows 1000"):
            rows.publish("rows", [batch_of(0, 1000)])
        with pytest.raises(errors.NotAuthorised, match="allows events of 1000: send smaller ones") as refused:
            client.publish("notes", [b"x" * 100_000])  # for which the gateway would end the connection
        assert refused.value.max_event_bytes == 1000
        assert client.publish("notes", [b"x"] * 900) == 900
    assert len(host.events["notes"].published) == 901
    assert gateway.stats()["refused_too_large"] == 2


# ---- whoever is hostile ----

PING = {"op": "ping", "id": 1}
NESTED = b"\x91" * 100_000 + b"\xc0"
HOSTILE = {
    "nothing of a length": b"\0\0\0\0",
    "a huge length": b"\xff\xff\xff\xff",
    "no msgpack": b"\0\0\0\1\xc1",
    "text": b"GET / HTTP/1.1\r\n\r\n",
    "a pickle": b"\0\0\0\x05\x80\x04K\x01.",
    "an unknown op": {"op": "eval", "id": 1},
    "a long op": {"op": "x" * 1_000_000, "id": 1},
    "a long name": {"op": "open", "id": 1, "channel": "x" * 1_000_000},
    "wrong types": {"op": "publish", "id": 1, "channel": 5, "events": {}},
    "an extension": {"op": "open", "id": msgspec.msgpack.Ext(3, b""), "channel": "notes"},
    "a second hello": {"op": "hello", "version": 1, "token": new_token()},
    "what gateways send": {"op": "welcome", "version": 1},
    "no map": [PING],
}
REFUSED = {
    "an extension as an event": {"op": "publish", "id": 1, "channel": "notes", "events": [msgspec.msgpack.Ext(3, b"")]},
    "too many events": {"op": "publish", "id": 1, "channel": "notes", "events": [None] * (frames.MAX_EVENTS + 1)},
    "no such subscription": {"op": "unsubscribe", "id": 1, "subscription": 99},
}


@pytest.mark.parametrize("greeted", [False, True], ids=["stranger", "client"])
@pytest.mark.parametrize("what", HOSTILE.values(), ids=HOSTILE)
def test_what_is_malformed_ends_its_connection_and_no_other(gateway, events, what, greeted):
    if what == HOSTILE["a second hello"] and not greeted:
        return  # that is a first one, with a wrong token
    with events.subscribe("notes") as subscription, Raw(gateway.endpoint, greeted) as hostile:
        hostile.send(what) if isinstance(what, bytes) else hostile.say(what)
        (last,) = hostile.rest()
        assert (last["op"], last["error"]) == ("error", "ValueError")
        assert len(last["message"]) < 1000
        events.publish("notes", ["still there"])
        assert subscription.get(SOON).event == "still there"
    assert gateway.stats()["events_malformed_frames"] == 1


@pytest.mark.parametrize("what", REFUSED.values(), ids=REFUSED)
def test_what_can_be_told_apart_is_refused_by_itself(host, gateway, what):
    with Raw(gateway.endpoint) as client:
        client.say(what)
        answer = client.hear()
        assert (answer["op"], answer["id"]) == ("error", 1)
        client.say(PING)
        assert client.hear() == {"op": "answer", "id": 1}
    assert host.events["notes"].published == []


def test_deep_nesting_is_refused(gateway):
    with Raw(gateway.endpoint) as hostile:
        body = b"\x84\xa2op\xa7publish\xa2id\x01\xa7channel\xa5notes\xa6events\x91" + NESTED
        hostile.send(frames.LENGTH.pack(len(body)) + body)
        assert hostile.rest()[-1]["error"] == "ValueError"


def test_a_frame_that_does_not_end_is_waited_for_at_no_cost(gateway, events):
    with Raw(gateway.endpoint) as slow:
        slow.send(frames.LENGTH.pack(1_000_000) + b"\x84")
        assert events.publish("notes", [1]) == 1


def test_who_does_not_say_hello_is_let_go(gateway, monkeypatch, events):
    monkeypatch.setattr(event_connection, "HELLO_SECONDS", 0.5)
    endpoint = gateway.endpoint
    with socket.create_connection((endpoint.host, endpoint.events_port)) as silent, Raw(endpoint, greet=False) as slow:
        silent.settimeout(SOON)
        for byte in b"\0\0\0\x20\x83":  # byte by byte does not help
            slow.send(bytes((byte,)))
        assert slow.rest() == []
        assert silent.recv(1) == b""
    assert events.publish("notes", [1]) == 1
    wait_until(lambda: gateway.stats()["events_ended_before_hello"] == 2)


def test_strangers_take_nobody_s_place(gateway):
    endpoint = gateway.endpoint
    strangers = [
        socket.create_connection((endpoint.host, endpoint.events_port)) for _ in range(3 * event_server.MAX_STRANGERS)
    ]
    try:
        with EventClient(endpoint, patience_seconds=0) as client:
            assert client.publish("notes", [1]) == 1
            assert gateway.stats()["events_strangers"] <= event_server.MAX_STRANGERS
            assert gateway.stats()["events_crowded_out"] >= event_server.MAX_STRANGERS
    finally:
        for each in strangers:
            each.close()


def test_there_are_so_many_connections_at_most(gateway, monkeypatch):
    monkeypatch.setattr(event_server, "MAX_CONNECTIONS", 3)
    with Raw(gateway.endpoint), Raw(gateway.endpoint) as second, Raw(gateway.endpoint):
        with pytest.raises(errors.Overloaded, match="3 connections"):
            EventClient(gateway.endpoint)
        second.wire.close()
        wait_until(lambda: gateway.stats()["events_connections"] == 2)
        with EventClient(gateway.endpoint) as client:
            assert client.ping() < SOON
    assert gateway.stats()["events_refused_too_many"] == 1


def test_subscriptions_are_bounded(gateway, monkeypatch):
    monkeypatch.setattr(event_service, "MAX_SUBSCRIPTIONS", 2)
    with EventClient(gateway.endpoint) as client:
        for _ in range(2):
            client.subscribe("notes")
        with pytest.raises(ValueError, match="at most 2"):
            client.subscribe("notes")


def test_of_what_a_client_derives_and_does_not_use_the_last_is_kept(gateway, host):
    """One that filters anew with each subscription, for months, must not fill the producers with its programs."""
    with EventClient(gateway.endpoint) as client, client.subscribe("notes", where="in use"):
        for number in range(10):
            client.subscribe("notes", where=f"value > {number}").close()
        derived = [client.derive("notes", f"value > {number}") for number in range(10, 20)]
        is_open = [not each.closed.is_set() for each in host.derived]
        assert is_open == [True] + [False] * 16 + [True] * 4
        client.subscribe(derived[-1]).close()
        with pytest.raises(LookupError, match="there is no channel"):
            client.subscribe(derived[0])


def test_what_is_hostile_costs_bounded_memory(gateway, events):
    process = psutil.Process()
    before = process.memory_info().rss
    clients = [Raw(gateway.endpoint) for _ in range(8)]
    try:
        for client in clients:  # each has a frame on its way that never ends, and is as long as it may be
            client.send(frames.LENGTH.pack(1_000_000) + b"x" * 900_000)
        assert events.publish("notes", [1]) == 1
        wait_until(lambda: gateway.stats()["events_connections"] == 9)
        assert process.memory_info().rss - before < 64 << 20
    finally:
        for client in clients:
            client.wire.dispose()


def test_another_version_is_told_apart(gateway):
    with Raw(gateway.endpoint, greet=False) as other:
        other.say({"op": "hello", "version": 2, "token": gateway.endpoint.token})
        (last,) = other.rest()
        assert last["error"] == "VersionMismatch"


def test_what_fails_in_the_host_is_no_secret_and_no_end(host, gateway, events, monkeypatch, caplog):
    def broken(name):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(host, "drain", broken)
    with pytest.raises(errors.EChannelError, match=r"the gateway failed.*by zero"):
        events.publish("notes", [1])
    assert events.ping() < SOON
    assert "ZeroDivisionError" in caplog.text


def test_nothing_is_pickled_in_either_direction(host, gateway, monkeypatch):
    def never(*arguments, **keywords):
        raise AssertionError("a pickle")

    for module in (pickle, cloudpickle):
        for name in ("loads", "load", "dumps", "dump"):
            monkeypatch.setattr(module, name, never)
    monkeypatch.setattr("echannel_ray.formats.events._loads", never)
    monkeypatch.setattr("echannel_ray.formats.events._dumps", never)
    with EventClient(gateway.endpoint) as client, client.subscribe("notes", where="value", params={"low": 1}) as got:
        client.publish("notes", [3, 4])
        assert got.get(SOON).event == 3


def test_an_endpoint_without_the_port_for_events_is_none(host):
    gateway = gateway_of(host)
    text = str(gateway.start())
    gateway.close()
    for wrong in (
        text.replace("events=", "other="),
        text.replace("events=", "events=0&x="),
        text.replace("events=", "events=9"),
    ):
        with pytest.raises(ValueError, match="port for events"):
            EventClient(wrong)
