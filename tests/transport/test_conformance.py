"""What every link promises, tried on each kind of link: so the one in memory can stand for the others."""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import signal
import time

import pytest

from echannel_ray.errors import Closed
from echannel_ray.transport.connection import MAX_PARTS, Connection, Peer
from tests.transport.links import LINKS, in_child, in_thread, receive, send_all, unix_link


@pytest.fixture(params=LINKS)
def kind(request):
    return request.param


@pytest.fixture
def link(kind):
    left, right = LINKS[kind]()
    yield left, right
    left.close()
    right.close()


def fill(connection: Connection, data: bytes) -> int:
    """Send the beginning of `data` until the link takes no more."""
    connection.setblocking(False)
    sent = 0
    while taken := connection.send([memoryview(data)[sent:]]):
        sent += taken
    assert sent < len(data), "the link took everything"
    return sent


def send_each(connection: Connection, *sends: list[bytes]) -> None:
    for parts in sends:
        send_all(connection, parts)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("blocking", [True, False])
def test_bytes_arrive_in_order(link, seed, blocking):
    print(f"seed {seed}")
    chance = random.Random(seed)
    left, right = link
    left.setblocking(blocking)
    right.setblocking(blocking)
    sends = [
        [chance.randbytes(chance.choice((0, 1, 10, 100, 5000, 70_000))) for _ in range(chance.randint(1, 20))]
        for _ in range(20)
    ]
    everything = b"".join(b"".join(parts) for parts in sends)
    sending = in_thread(lambda: send_each(left, *sends))
    received = b""
    while len(received) < len(everything):
        size = min(len(everything) - len(received), chance.choice((1, 7, 1000, 100_000)))
        received += receive(right, size, chance.choice((1, 3, 64, 4096, 300_000)) if size < 1000 else 300_000)
    sending()
    assert received == everything


def test_both_directions_at_once(link):
    left, right = link
    for connection in link:
        connection.setblocking(False)
    data = [random.Random(i).randbytes(300_000) for i in range(2)]
    sizes = [0, 0]
    received = [bytearray(), bytearray()]
    buffer = bytearray(50_000)
    end = time.monotonic() + 20
    while min(map(len, received)) < 300_000 and time.monotonic() < end:
        for i, (sender, receiver) in enumerate(((left, right), (right, left))):
            sizes[i] += sender.send([memoryview(data[i])[sizes[i] :]])
            if count := receiver.recv_into(buffer):
                received[i] += buffer[:count]
    assert [bytes(each) for each in received] == data


def test_more_parts_than_the_kernel_takes_at_once(link):
    left, right = link
    parts = [bytes([i % 256]) for i in range(MAX_PARTS * 2 + 5)]
    assert 0 < left.send(parts) <= len(parts)
    left.close()
    received = receive(right)
    assert received == b"".join(parts)[: len(received)]
    assert received


def test_parts_of_any_buffer(link):
    left, right = link
    array = memoryview(bytes(range(24))).cast("I")
    send_all(left, [b"head"])
    assert left.send([bytearray(b"ab"), b"", array]) == 26
    assert receive(right, 30) == b"headab" + bytes(range(24))


def test_sending_nothing_is_harmless(link):
    left, right = link
    assert left.send([]) == 0
    assert left.send([b""]) == 0
    send_all(left, [b"x"])
    assert receive(right, 1) == b"x"


def test_nothing_there_now(link):
    left, right = link
    right.setblocking(False)
    assert right.recv_into(bytearray(10)) is None
    assert not right.pending()
    send_all(left, [b"abc"])
    assert receive(right, 3) == b"abc"
    assert right.recv_into(bytearray(10)) is None
    assert not right.pending()


def test_small_buffers_and_pending(kind, link):
    left, right = link
    right.setblocking(False)
    send_all(left, [b"abcdef"])
    assert receive(right, 1) == b"a"
    # A plain socket still has the rest, so epoll reports it.
    assert right.pending() == (kind != "unix")
    assert receive(right, 5, 2) == b"bcdef"
    assert right.recv_into(bytearray(1)) is None
    assert not right.pending()


def test_a_full_link_takes_no_more_and_loses_nothing(link):
    left, right = link
    data = random.Random(1).randbytes(30_000_000)
    sent = fill(left, data)
    assert left.send([b"more"]) == 0
    right.setblocking(False)
    receiving = in_thread(lambda: receive(right, sent + 4))
    send_all(left, [b"more"])
    assert receiving() == data[:sent] + b"more"


def test_a_blocking_send_waits_for_room(link):
    left, right = link
    data = random.Random(2).randbytes(20_000_000)
    sending = in_thread(lambda: send_all(left, [data[:5], data[5:]]))
    time.sleep(0.05)
    assert receive(right, len(data)) == data
    sending()


def test_what_was_sent_can_be_read_after_the_close(link):
    left, right = link
    send_all(left, [b"last words"])
    left.close()
    assert receive(right) == b"last words"
    assert right.recv_into(bytearray(1)) == 0
    right.setblocking(False)
    assert right.recv_into(bytearray(1)) == 0


def test_a_close_with_unread_bytes_is_end_of_file_too(link):
    left, right = link
    send_all(left, [b"x" * 5000])
    assert receive(right, 1) == b"x"
    right.close()
    assert receive(left) == b""


def test_sending_to_a_closed_peer_fails(link):
    left, right = link
    right.close()
    with pytest.raises(ConnectionError):
        # The first may be under way before the peer's refusal comes back.
        send_each(left, *[[b"x"]] * 1_000_000)
    with pytest.raises(ConnectionError):
        left.send([b"x"] * (MAX_PARTS + 1))
    assert receive(left) == b""


def test_a_closed_peer_does_not_kill_a_process_that_dies_of_sigpipe(link):
    def send_until_it_fails() -> int:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        try:
            for _ in range(1000):
                left.send([b"x"])
                time.sleep(0.001)
        except ConnectionError:
            return 7
        return 8

    left, right = link
    right.close()
    assert in_child(send_until_it_fails) == 7


def test_close_is_idempotent_and_ends_all_use(kind, link):
    left, right = link
    send_all(right, [b"unread"])
    assert left.peer.kind == kind
    left.close()
    left.close()
    for use in (
        lambda: left.recv_into(bytearray(1)),
        lambda: left.send([b"x"]),
        lambda: left.setblocking(False),
    ):
        with pytest.raises(Closed):
            use()
    assert not left.wants_write()
    if kind != "memory":
        assert left.fileno() == -1
        assert not left.pending()


def test_a_close_wakes_the_thread_that_reads(link):
    left, _ = link
    reading = in_thread(lambda: left.recv_into(bytearray(1)))
    time.sleep(0.05)
    left.close()
    assert reading() == 0


def test_a_close_wakes_the_thread_that_sends(link):
    left, _ = link
    data = bytes(30_000_000)
    sending = in_thread(lambda: send_all(left, [data]))
    time.sleep(0.1)
    left.close()
    with pytest.raises((ConnectionError, Closed)):
        sending()


@pytest.mark.parametrize("method", ["_recv_into", "_recvmsg_into", "_sendmsg"])
def test_a_descriptor_is_not_used_again_while_a_call_is_under_way(method):
    left, _ = unix_link()
    descriptor = left.fileno()
    # A call holds the socket's bound method while it runs, and nothing else.
    under_way = getattr(left, method)
    left.close()
    os.fstat(descriptor)
    del under_way
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_50_megabytes(link):
    left, right = link
    block = random.Random(3).randbytes(1_000_000)
    expected = hashlib.blake2b(block * 50).hexdigest()
    sending = in_thread(lambda: send_each(left, *[[block[:100], block[100:]]] * 50))
    received = hashlib.blake2b()
    size = 0
    buffer = memoryview(bytearray(1_000_000))
    while size < 50_000_000:
        count = right.recv_into(buffer)
        assert count
        received.update(buffer[:count])
        size += count
    sending()
    assert received.hexdigest() == expected


def test_peers_say_who_they_are():
    peer = Peer("tcp", node=5)
    assert pickle.loads(pickle.dumps(peer)) == peer
