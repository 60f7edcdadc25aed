"""Malformed input at the sockets: counted and dropped, and whoever works goes on."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
import ray

import echannel_ray as ec
from echannel_ray.actors.concentrator import SOCKET_NAME
from echannel_ray.core import frames
from echannel_ray.ids import node_number
from echannel_ray.transport import wire
from echannel_ray.transport.authority import Authority
from echannel_ray.transport.security import client_context
from echannel_ray.transport.unix import SocketDirectory
from tests.clusters import wait_until
from tests.core.reading import first_of
from tests.faults.intruder import ANSWER_SECONDS, FAKE_ENDPOINT, Intruder, read_all, senseless
from tests.faults.scene import Scene, check_all_arrived, seconds_until_flowing
from tests.formats.bodies import encode_body

SEED = 20240611
CASES = 600


@pytest.fixture(scope="module")
def flow(scene: Scene) -> Iterator[Any]:
    """A load in both directions during all tests, of which everything arrives."""
    lasting = Scene(scene.cluster, scene.namespace)
    consumers = [lasting.consumer(node, "load") for node in scene.cluster.nodes]
    loads = {i: lasting.load(node, i, "load") for i, node in enumerate(scene.cluster.nodes, 1)}
    yield loads, consumers
    check_all_arrived(loads, consumers, "load")
    lasting.clear()


@pytest.fixture
def undisturbed(scene: Scene, flow: Any) -> Iterator[Any]:
    """The consumers of that load, which flows before and after the test, by the same parts."""
    loads, consumers = flow
    seconds_until_flowing(loads, consumers, "load")
    pids = scene.pids()
    yield consumers
    seconds_until_flowing(loads, consumers, "load")
    assert scene.pids() == pids, "a part was restarted"


def test_what_is_no_frame_is_counted_and_dropped(scene: Scene, undisturbed: Any):
    seed = random.Random(SEED)
    intruder = Intruder(scene)
    node = scene.cluster.nodes[0]
    before = scene.concentrator(node)
    malformed = 0
    for _ in range(CASES):
        data, counts = senseless(seed, intruder)
        intruder.send(data)
        malformed += counts
    after = scene.concentrator(node)
    assert after.malformed_frames - before.malformed_frames == malformed
    wait_until(lambda: scene.concentrator(node).endpoints == before.endpoints)


def test_frames_that_make_no_sense_concern_nobody_else(scene: Scene, undisturbed: Any):
    """Well-formed headers of every type, from someone who has greeted; the contents are noise, or meant for others."""
    seed = random.Random(SEED)
    intruder = Intruder(scene)
    node = scene.cluster.nodes[0]
    before = scene.concentrator(node).endpoints
    victims = [ray.get(consumer.endpoint.remote()) for consumer in undisturbed]
    kinds = [kind for kind in range(256) if frames.LEAST_BODY[kind] <= frames.MAX_FRAME_BYTES]
    kinds = [kind for kind in kinds if kind not in (frames.HELLO, frames.WELCOME, frames.GOODBYE)]
    for _ in range(CASES // 3):
        data = bytearray(intruder.hello())
        for _ in range(20):
            kind = seed.choice(kinds)
            body = bytearray(seed.randbytes(frames.LEAST_BODY[kind] + seed.choice([0, 0, 1, 8, 100])))
            address = seed.choice(victims)
            if frames.FIRST_ADDRESSED <= kind <= frames.LAST_ADDRESSED:
                frames.ADDRESS.pack_into(body, 0, *address)
            elif kind == frames.GONE:
                frames.NUMBER.pack_into(body, 0, address[1])
            elif kind == frames.PACK:
                # In the name of somebody else, or as a destination of its own flow.
                frames.KEY.pack_into(body, 0, address[1], 1)
            data += frames.frame(kind, body, seed.choice([0, 1, 2, 3]))
        intruder.send(bytes(data))
    wait_until(lambda: scene.concentrator(node).endpoints == before)
    for consumer in undisturbed:
        assert ray.get(consumer.faults.remote("load")) == []


def test_packs_that_make_no_sense_concern_nobody_else(scene: Scene, undisturbed: Any):
    """A flow of its own to real consumers, with packs that are noise or good ones that were damaged."""
    seed = random.Random(SEED)
    intruder = Intruder(scene)
    victims = [ray.get(consumer.endpoint.remote()) for consumer in undisturbed]
    before = [ray.get(consumer.malformed.remote()) for consumer in undisturbed]
    for _ in range(CASES // 10):
        endpoint = FAKE_ENDPOINT + 0x1000 + seed.randrange(1 << 30)
        data = bytearray(intruder.hello(endpoint=endpoint))
        data += frames.flow_declaration(endpoint, 1, intruder.node, victims)
        for number in range(1, 20):
            good = bytearray(_good_pack(seed, victims))
            if seed.random() < 0.7:
                for _ in range(seed.randrange(1, 4)):
                    good[seed.randrange(len(good))] = seed.randrange(256)
            flags = frames.IS_CHUNK if seed.random() < 0.3 else 0
            data += frames.pack_head(endpoint, 1, number, 0, flags, len(good)) + good
        intruder.send(bytes(data))
    for consumer, count in zip(undisturbed, before, strict=True):
        assert ray.get(consumer.malformed.remote()) > count, "the case did not reach it"
        assert ray.get(consumer.faults.remote("load")) == []


def _good_pack(seed: random.Random, victims: list[tuple[int, int]]) -> bytes:
    if seed.random() < 0.2:
        total = seed.choice([0, 100, 1 << 20, 1 << 40, (1 << 64) - 1])
        return frames.CHUNK_FIXED.pack(1, 1, 100, 0, 0, total, seed.choice([0, 50, 1 << 63]), 0) + b"." * 100
    # A subscription of another number than theirs, or what they have would be disturbed rightly.
    who = [[endpoint, 77, 1, 0] for _, endpoint in victims]
    control: Any = [["route", 1, 1, 1, 1000, False, False, who], ["ended", 1, 5, [[victims[0][1], 77]]]]
    control = seed.choice([control, [], [["route"]], [["nonsense", 1]], [["route", "a", None, 1, 2, 3, 4, 5]], [5]])
    return encode_body(control, [1], [seed.choice([1, 2])], [2], [100], b"", 0, 0.0, [b"a", b"b"])


@pytest.mark.parametrize(
    "other",
    [{"namespace": "unknown"}, {"wire_version": 99}, {"endpoint": 0}, {"endpoint": 0, "node": 5}],
    ids=["another namespace", "another version", "a concentrator by a Unix socket", "a concentrator of no node"],
)
def test_greetings_that_are_refused(scene: Scene, other: dict[str, Any]):
    node = scene.cluster.nodes[0]
    before = scene.concentrator(node).refused_links
    intruder = Intruder(scene)
    answer = intruder.send(intruder.hello(**other))
    found = first_of(answer)
    assert found.kind == frames.REFUSED
    with pytest.raises(ec.EChannelError):
        wire.decode(found.body)
    assert scene.concentrator(node).refused_links == before + 1


def test_strangers_at_the_tcp_port(scene: Scene, undisturbed: Any):
    node = scene.cluster.nodes[0]
    before = scene.concentrator(node).refused_links
    address = ("127.0.0.1", scene.describe(node)["info"].port)
    seed = random.Random(SEED)
    refused = 0
    for _ in range(20):  # no TLS at all
        with socket.create_connection(address, ANSWER_SECONDS) as sock, contextlib.suppress(OSError):
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n" + seed.randbytes(seed.randrange(500)))
            read_all(sock)
            refused += 1
    without = ssl.create_default_context()
    without.check_hostname, without.verify_mode = False, ssl.CERT_NONE
    strange = client_context(Authority.generate().issue(5, ["127.0.0.1"]))
    strange.check_hostname, strange.verify_mode = False, ssl.CERT_NONE
    for context in (without, strange):  # no certificate, or one of another authority
        with socket.create_connection(address, ANSWER_SECONDS) as sock:
            assert not _is_let_in(sock, context)
        refused += 1
    wait_until(lambda: scene.concentrator(node).refused_links >= before + refused)


def _is_let_in(sock: socket.socket, context: ssl.SSLContext) -> bool:
    """Whether the other side goes on after the handshake (in TLS 1.3 that ends here before it has seen who we are)."""
    try:
        with context.wrap_socket(sock, server_hostname="127.0.0.1") as tls:
            tls.sendall(b"....")
            return bool(tls.recv(1))
    except (ssl.SSLError, ConnectionError):
        return False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_at_the_unix_socket(scene: Scene):
    node = scene.cluster.nodes[0]
    before = scene.concentrator(node).refused.get("other_user", 0)
    directory = SocketDirectory(scene.namespace, node_number(node.node_id))
    path = directory.socket_path(SOCKET_NAME)
    assert _as_nobody(path) == "PermissionError"
    modes = {each: os.stat(each).st_mode & 0o7777 for each in (directory.path.parent, directory.path, path)}
    try:
        for each in modes:  # by mistake
            os.chmod(each, 0o777)
        assert _as_nobody(path) == "closed"
    finally:
        for each, mode in modes.items():
            os.chmod(each, mode)
    assert scene.concentrator(node).refused.get("other_user", 0) == before + 1


def _as_nobody(path: str) -> str:
    """What somebody else finds who links up there."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_link_up_as_nobody, args=(path, theirs))
    process.start()
    try:
        assert ours.poll(30)
        return str(ours.recv())
    finally:
        process.join(10)


def _link_up_as_nobody(path: str, answer: Any) -> None:
    os.setuid(65534)
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(ANSWER_SECONDS)
            sock.connect(path)
            answer.send("closed" if not read_all(sock) else "answered")
    except OSError as error:
        answer.send(type(error).__name__)
