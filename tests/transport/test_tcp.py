"""TCP with TLS: who is let in, and that strangers hold up nobody."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import socket
import ssl
import time
from datetime import timedelta
from functools import partial

import pytest

from echannel_ray.errors import NotAuthorised
from echannel_ray.transport import tcp
from echannel_ray.transport.authority import Authority
from echannel_ray.transport.connection import Connection
from echannel_ray.transport.security import client_context, server_context
from echannel_ray.transport.tcp import TcpListener, connect_tcp
from echannel_ray.transport.tls import MAX_BATCH_BYTES, TlsConnection
from tests.transport.links import (
    HOST,
    SECONDS,
    accept_tcp,
    authority,
    credentials,
    in_thread,
    raw_client,
    receive,
    recorded,
    send_all,
    tcp_link,
)

WHY = {"authority": "unknown_authority", "expired": "expired"}


@pytest.fixture
def listener():
    listener = TcpListener(HOST, 0, credentials(1))
    yield listener
    listener.close()


def turn(listener: TcpListener, until) -> None:
    """A loop's turns, until the condition holds; nobody may be let in."""
    end = time.monotonic() + SECONDS
    while not until():
        assert time.monotonic() < end
        select.select([listener], [], [], 0.05)
        assert listener.accept() is None


def good_client(listener: TcpListener, node: int = 2) -> None:
    """One that must get in whatever else goes on."""
    connecting = in_thread(lambda: connect_tcp(HOST, listener.port, credentials(node), SECONDS))
    server = accept_tcp(listener)
    client = connecting()
    assert isinstance(client, TlsConnection)
    assert (server.peer.kind, server.peer.node, client.peer.node) == ("tcp", node, 1)
    send_all(client, [b"ping"])
    assert receive(server, 4) == b"ping"
    client.close()
    server.close()


def test_nobody_comes(listener):
    assert listener.accept() is None
    assert not listener._handshakes
    assert not select.select([listener], [], [], 0)[0]
    good_client(listener)


def test_what_the_client_sends_right_away_is_not_lost(listener):
    def connect_and_send() -> None:
        client = connect_tcp(HOST, listener.port, credentials(2), SECONDS)
        send_all(client, [b"first"])
        client.close()

    connecting = in_thread(connect_and_send)
    server = accept_tcp(listener)
    connecting()
    assert server.pending()
    assert receive(server) == b"first"


@pytest.mark.parametrize("fault", ["authority", "expired"])
def test_a_client_with_a_bad_certificate_is_refused(listener, fault):
    if fault == "authority":
        bad = Authority.generate().issue(2, [HOST])
        # As if only the server noticed.
        bad = type(bad)(bad.key_pem, bad.certificate_pem, credentials(1).authority_pem, bad.not_after)
    else:
        bad = authority().issue(2, [HOST], timedelta(seconds=-5))
    connecting = in_thread(lambda: connect_tcp(HOST, listener.port, bad, SECONDS))
    turn(listener, lambda: listener.refused)
    with pytest.raises(NotAuthorised, match="do not trust"):
        connecting()
    good_client(listener)
    assert listener.refused == {WHY[fault]: 1}


def test_what_was_issued_before_a_node_was_revoked_is_void(listener):
    old, after = credentials(2), int(time.time()) + 1
    careful = dataclasses.replace(credentials(1), revoked=((2, after),))
    listener.renew(careful)
    connecting = in_thread(lambda: connect_tcp(HOST, listener.port, old, SECONDS))
    turn(listener, lambda: listener.refused)
    with pytest.raises(NotAuthorised, match="does not accept this node's certificate"):
        connecting()
    good_client(listener, 3)
    new = authority().issue(2, [HOST], not_revoked_at=after)
    connecting = in_thread(lambda: connect_tcp(HOST, listener.port, new, SECONDS))
    assert accept_tcp(listener).peer.node == 2
    assert isinstance(connecting(), TlsConnection)
    assert listener.refused == {"revoked": 1}
    strict = dataclasses.replace(credentials(3), revoked=((1, after),))
    refused = []

    def connect() -> None:
        with pytest.raises(NotAuthorised, match="node 0000000000000001 was revoked"):
            connect_tcp(HOST, listener.port, strict, SECONDS)
        refused.append(True)

    in_thread(connect)
    turn(listener, lambda: refused)


def test_a_recorded_handshake_that_is_sent_again_is_of_no_use(listener):
    def connect(port: int) -> Connection:
        connecting = in_thread(lambda: connect_tcp(HOST, port, credentials(2), SECONDS))
        server = accept_tcp(listener)
        client = connecting()
        assert isinstance(client, TlsConnection)
        send_all(client, [b"a secret order"])
        assert receive(server, 14) == b"a secret order"
        return client

    sent = recorded(listener.port, connect)
    assert not listener.refused
    with raw_client(listener) as attacker:
        in_thread(lambda: attacker.sendall(sent))
        turn(listener, lambda: listener.refused)
    assert listener.refused == {"bad_handshake": 1}


@pytest.mark.parametrize("fault", ["authority", "expired"])
def test_a_server_with_a_bad_certificate_is_refused(fault):
    if fault == "authority":
        bad = Authority.generate().issue(1, [HOST])
    else:
        bad = authority().issue(1, [HOST], timedelta(seconds=-5))
    listener = TcpListener(HOST, 0, bad)
    connecting = in_thread(lambda: connect_tcp(HOST, listener.port, credentials(2), SECONDS))
    turn(listener, lambda: listener.refused)
    with pytest.raises(NotAuthorised) as caught:
        connecting()
    assert caught.value.facts == {"host": HOST, "port": listener.port, "reason": WHY[fault]}
    listener.renew(credentials(1))
    good_client(listener)
    listener.close()


def test_a_client_without_a_certificate_is_refused(listener):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE

    def connect() -> bytes:
        with context.wrap_socket(raw_client(listener)) as client:
            return client.recv(1)

    connecting = in_thread(connect)
    turn(listener, lambda: listener.refused)
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate.required"):
        connecting()
    good_client(listener)


def test_an_older_tls_is_refused(listener):
    context = client_context(credentials(2))
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    connecting = in_thread(lambda: context.wrap_socket(raw_client(listener)))
    turn(listener, lambda: listener.refused)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connecting()


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", bytes(100_000), b"\x16\x03\x01\xff\xff" + b"x" * 70_000]
)
def test_plain_garbage_is_refused(listener, garbage):
    with raw_client(listener) as stranger:
        in_thread(lambda: stranger.sendall(garbage))
        turn(listener, lambda: listener.refused)
        good_client(listener)
    assert listener.refused == {"bad_handshake": 1}


def test_a_server_that_speaks_no_tls():
    with socket.create_server((HOST, 0)) as plain:

        def answer() -> None:
            accepted, _ = plain.accept()
            accepted.sendall(b"220 mail.example ESMTP\r\n")
            accepted.recv(100_000)
            accepted.close()

        in_thread(answer)
        with pytest.raises(NotAuthorised):
            connect_tcp(HOST, plain.getsockname()[1], credentials(1), SECONDS)


def test_a_server_that_is_silent_gone_or_leaves():
    with socket.create_server((HOST, 0)) as plain:
        port = plain.getsockname()[1]
        with pytest.raises(TimeoutError):
            connect_tcp(HOST, port, credentials(1), 0.1)
        plain.accept()[0].close()
        in_thread(lambda: plain.accept()[0].close())
        with pytest.raises(ConnectionError):
            connect_tcp(HOST, port, credentials(1), SECONDS)
    with pytest.raises(ConnectionRefusedError):
        connect_tcp(HOST, port, credentials(1), SECONDS)


def test_a_look_whether_the_port_is_open_is_no_refusal(listener):
    raw_client(listener).close()
    good_client(listener)
    assert not listener.refused
    assert not listener._handshakes


def test_stalled_handshakes_hold_up_nobody_and_end(monkeypatch):
    monkeypatch.setattr(tcp, "HANDSHAKE_SECONDS", 0.4)
    listener = TcpListener(HOST, 0, credentials(1))
    silent = [raw_client(listener) for _ in range(3)]
    silent[0].sendall(b"\x16\x03\x01")
    start = time.monotonic()
    for node in range(2, 5):
        good_client(listener, node)
    assert listener._handshakes
    turn(listener, lambda: listener.refused["silent"] == 3)
    assert time.monotonic() - start >= 0.3
    assert not listener._handshakes
    assert silent[1].recv(10) == b""
    for stranger in silent:
        stranger.close()
    listener.close()


def test_a_crowd_of_strangers_keeps_nobody_out(monkeypatch):
    monkeypatch.setattr(tcp, "MAX_HANDSHAKES", 4)
    listener = TcpListener(HOST, 0, credentials(1))
    silent = [raw_client(listener) for _ in range(20)]
    before = len(os.listdir("/proc/self/fd"))
    good_client(listener)
    # They would have had five seconds each: the oldest made room.
    assert listener.refused == {"crowded_out": 17}
    assert len(os.listdir("/proc/self/fd")) <= before + 4
    assert not select.select([listener], [], [], 0)[0]
    for stranger in silent[:-3]:
        assert stranger.recv(1) == b""
    for stranger in silent:
        stranger.close()
    listener.close()


def test_many_clients_at_once(listener):
    connecting = [
        in_thread(partial(connect_tcp, HOST, listener.port, credentials(node), SECONDS)) for node in range(2, 22)
    ]
    servers = [accept_tcp(listener) for _ in connecting]
    assert {server.peer.node for server in servers} == set(range(2, 22))
    assert [result().peer.node for result in connecting] == [1] * 20


def test_a_closed_listener_lets_nobody_in():
    listener = TcpListener(HOST, 0, credentials(1))
    waiting = raw_client(listener)
    assert listener.accept() is None
    assert listener.fileno() != -1
    listener.close()
    listener.close()
    assert listener.fileno() == -1
    assert listener.accept() is None
    assert waiting.recv(1) == b""
    waiting.close()
    with pytest.raises(ConnectionRefusedError):
        raw_client(listener)


def test_what_is_left_inside_is_flushed_by_sending_nothing():
    left, right = tcp_link()
    left.setblocking(False)
    sent = 0
    while not left.wants_write():
        sent += left.send([bytes(MAX_BATCH_BYTES)])
    right.setblocking(False)
    receiving = in_thread(lambda: receive(right, sent))
    while left.wants_write():
        assert left.send([]) == 0
    left.close()
    assert receiving() == bytes(sent)


def test_bytes_changed_under_way_end_the_link():
    client_side, relay_left = socket.socketpair()
    relay_right, server_side = socket.socketpair()
    client = TlsConnection(client_side, client_context(credentials(2)), credentials(2), server_side=False)
    listener = TcpListener(HOST, 0, credentials(1))
    server = TlsConnection(server_side, server_context(credentials(1)), credentials(1), server_side=True)
    done = {client: False, server: False}
    for relay in (relay_left, relay_right):
        relay.setblocking(False)
    while not all(done.values()):
        for end in done:
            done[end] = done[end] or end.handshake()
        for source, sink in ((relay_left, relay_right), (relay_right, relay_left)):
            with contextlib.suppress(BlockingIOError):
                sink.sendall(source.recv(100_000))
    assert client.send([b"secret"]) == 6
    record = bytearray(relay_left.recv(1000))
    assert b"secret" not in record
    record[-1] ^= 1
    relay_right.sendall(record)
    assert server.recv_into(bytearray(10)) == 0
    with pytest.raises(ConnectionError):
        server.send([b"answer"])
    for each in (relay_left, relay_right, listener):
        each.close()
