"""What the tests of the transport share: links of each kind, and sending and receiving until it is done."""

from __future__ import annotations

import hashlib
import os
import select
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from echannel_ray.transport.authority import Authority
from echannel_ray.transport.connection import Connection
from echannel_ray.transport.security import Credentials
from echannel_ray.transport.tcp import TcpListener, connect_tcp
from echannel_ray.transport.tls import TlsConnection
from echannel_ray.transport.unix import UnixListener, connect_unix
from tests.transport.memory import MemoryConnection, memory_pair

HOST = "127.0.0.1"
NOBODY = 65534
SECONDS = 20.0  # long enough for a slow machine; nothing that works takes so long

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


@cache
def authority() -> Authority:
    return Authority.generate()


@cache
def credentials(node: int) -> Credentials:
    return authority().issue(node, [HOST])


def unix_link() -> tuple[Connection, Connection]:
    with tempfile.TemporaryDirectory(prefix="ec") as directory:
        listener = UnixListener(str(Path(directory, "s")))
        client = connect_unix(listener.path, SECONDS)
        server = listener.accept()
        listener.close()
    assert server is not None
    return client, server


def accept_tcp(listener: TcpListener, seconds: float = SECONDS) -> TlsConnection:
    """What a loop does with a listener."""
    end = time.monotonic() + seconds
    while (connection := listener.accept()) is None:
        assert time.monotonic() < end, "nobody connected"
        select.select([listener], [], [], max(0, end - time.monotonic()))
    return connection


def in_thread(function: Callable[[], object]) -> Callable[[], object]:
    """Start it; the result waits for what it returned or raised."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(function())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result() -> object:
        thread.join(SECONDS)
        assert outcome, "it still runs"
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        return outcome[0]

    return result


def tcp_link() -> tuple[Connection, Connection]:
    listener = TcpListener(HOST, 0, credentials(1))
    connecting = in_thread(lambda: connect_tcp(HOST, listener.port, credentials(2), SECONDS))
    server = accept_tcp(listener)
    client = connecting()
    assert isinstance(client, TlsConnection)
    listener.close()
    server.setblocking(True)
    return client, server


def memory_link() -> tuple[Connection, Connection]:
    return memory_pair(10_000)


LINKS: dict[str, Callable[[], tuple[Connection, Connection]]] = {
    "unix": unix_link,
    "tcp": tcp_link,
    "memory": memory_link,
}


def wait(connection: Connection, *, write: bool = False) -> None:
    """Until a non-blocking link may be able to go on."""
    if isinstance(connection, MemoryConnection):
        time.sleep(0.0002)
    elif write or not connection.pending():
        select.select([] if write else [connection], [connection] if write else [], [], 0.1)


def send_all(connection: Connection, parts: Sequence[bytes]) -> None:
    """All of it, past would-block and partial sends, until nothing of it is inside the link."""
    rest = [memoryview(part) for part in parts]
    while rest or connection.wants_write():
        taken = connection.send(rest)
        if not taken:
            wait(connection, write=True)
        while rest and taken >= len(rest[0]):
            taken -= len(rest.pop(0))
        if taken:
            rest[0] = rest[0][taken:]


def receive(connection: Connection, size: int | None = None, buffer_size: int = 65536) -> bytes:
    """So many bytes, or all until end of file."""
    received = bytearray()
    buffer = memoryview(bytearray(buffer_size))
    while size is None or len(received) < size:
        count = connection.recv_into(buffer if size is None else buffer[: size - len(received)])
        if count is None:
            wait(connection)
            continue
        if not count:
            break
        received += buffer[:count]
    return bytes(received)


def in_child(function: Callable[[], int], uid: int | None = None) -> int:
    """The exit status of a forked process that runs it, as another user if asked to."""
    pid = os.fork()
    if pid == 0:
        status = 111
        try:
            if uid is not None:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            status = function()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def raw_client(listener: TcpListener) -> socket.socket:
    """A stranger's connection, which has said nothing yet."""
    return socket.create_connection((HOST, listener.port), SECONDS)


def recorded(port: int, connect: Callable[[int], Connection]) -> bytes:
    """All that a client sends that connects to this port, as somebody on the way sees it; it closes in the end."""
    seen = bytearray()
    with socket.create_server((HOST, 0)) as proxy:

        def forward() -> None:
            with proxy.accept()[0] as client, socket.create_connection((HOST, port), SECONDS) as server:
                while True:
                    for ready in select.select([client, server], [], [], SECONDS)[0]:
                        data = ready.recv(100_000)
                        if not data:
                            return
                        (server if ready is client else client).sendall(data)
                        if ready is client:
                            seen.extend(data)

        forwarding = in_thread(forward)
        connect(proxy.getsockname()[1]).close()
        forwarding()
    return bytes(seen)


def certificate_at(port: int) -> str:
    """The SHA-256 of the certificate that a listener shows to whoever asks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection((HOST, port), SECONDS) as sock, context.wrap_socket(sock) as tls:
        return hashlib.sha256(tls.getpeercert(binary_form=True) or b"").hexdigest()
