"""A TLS connection over a blocking socket, for one thread that reads and others that write.

Not `ssl.SSLSocket`: that may not be read and written by two threads at once.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from typing import Final

from echannel_ray.gateway.identity import Identity
from echannel_ray.transport.security import file_in_memory

_READ_BYTES: Final = 64 << 10
_WRITE_BYTES: Final = 256 << 10  # encrypted at once: more would be there twice
# Each gateway's certificate has this name, and no other certificate is trusted: so a gateway may be reached by an
# address that it does not know, such as a tunnel's.
CERTIFICATE_NAME: Final = "localhost"
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


def server_context(identity: Identity) -> ssl.SSLContext:
    """The TLS of a gateway, which shows its identity's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    with file_in_memory(identity.key_pem + b"\n" + identity.certificate_pem) as path:
        context.load_cert_chain(path)
    return context


def client_context(certificate_der: bytes) -> ssl.SSLContext:
    """The TLS of a client, which believes this certificate and no other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=certificate_der)
    return context


class Wire:
    """One TLS connection; `close` wakes whoever waits in it."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, server_side: bool) -> None:
        self._socket = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:  # a client whose machine is gone is not kept for good
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        name = None if server_side else CERTIFICATE_NAME
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side, server_hostname=name)
        self._lock = threading.Lock()  # of the TLS object; the inner one
        self._writing = threading.Lock()  # what is encrypted leaves in that order

    def handshake(self, deadline: float) -> None:
        """Raises `ssl.SSLError`, `OSError`, or `TimeoutError` at the deadline."""
        while True:
            try:
                with self._lock:
                    self._tls.do_handshake()
                self._flush()
                return
            except ssl.SSLWantReadError:
                self._flush()
                if not self._receive(deadline):
                    raise ConnectionResetError("the connection ended during the handshake") from None
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._flush()  # the other side learns why
                raise

    def read(self, deadline: float | None = None) -> bytes:
        """What has come, waiting for some; nothing: the connection has ended."""
        while True:
            try:
                with self._lock:
                    return self._tls.read(_READ_BYTES)
            except ssl.SSLWantReadError:
                if not self._receive(deadline):
                    return b""
            except ssl.SSLError:  # a goodbye, or what is no record
                return b""

    def _receive(self, deadline: float | None) -> bool:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("nothing came in time")
            self._socket.settimeout(left)
        try:
            data = self._socket.recv(_READ_BYTES)
        finally:
            if deadline is not None:
                self._socket.settimeout(None)
        with self._lock:
            self._incoming.write(data)
        return bool(data)

    def write(self, data: bytes) -> None:
        """Send it all; `OSError` where the connection has ended."""
        view = memoryview(data)
        with self._writing:
            for at in range(0, len(view), _WRITE_BYTES):
                try:
                    with self._lock:
                        self._tls.write(view[at : at + _WRITE_BYTES])
                except ssl.SSLError as error:
                    raise ConnectionResetError(f"the connection has ended: {error}") from None
                self._send()

    def _flush(self) -> None:
        with self._writing:
            self._send()

    def _send(self) -> None:
        with self._lock:
            data = self._outgoing.read()
        if data:
            self._socket.sendall(data)

    def finish(self) -> None:
        """Write nothing more; what was written, arrives. `OSError` where the connection has ended."""
        self._socket.shutdown(socket.SHUT_WR)

    def linger(self, deadline: float) -> None:
        """After `finish`: read what the other side still sends, until it ends. Its system would else be told that
        nobody has read that, and forget what it had got from here.
        """
        try:
            while (left := deadline - time.monotonic()) > 0:
                self._socket.settimeout(left)
                if not self._socket.recv(_READ_BYTES):
                    return
        except OSError:
            pass

    def close(self) -> None:
        """End the connection, whoever waits in it; any thread, any number of times."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def dispose(self) -> None:
        """Free the socket, when nobody uses the connection any more."""
        self.close()
        self._socket.close()
