"""What every link looks like to the layers above: a stream of bytes, both ways, whatever carries it.

Rules that hold for each implementation (`tests/transport/test_conformance.py` runs on all of them):

* Bytes arrive in order, or the link ends. What was sent before a close can still be read, then comes end of file.
* A link that was cut reads as end of file too: whether the other side closed, died or was reset makes no difference to
  flows, which probe for what was lost. So `recv_into` has one way to say it: it never raises for what the peer did.
* `send` has one way as well: `ConnectionError`.
* After our own `close()`, both raise `Closed`: the caller's mistake is told apart from the peer's act. A call that
  another thread is in when we close ends as if the other side had closed.
"""

from __future__ import annotations

import array
import contextlib
import errno
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NoReturn, Protocol

from typing_extensions import override

from echannel_ray.errors import Closed

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

# Linux takes this many parts in one call (UIO_MAXIOV).
MAX_PARTS = 1024
# So many descriptors may be handed over at a time.
MAX_DESCRIPTORS = 2
# As plain numbers: what is done with a member of `socket.MsgFlag` makes another one, in Python.
_CLOSE_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC)
_CUT_OFF = int(socket.MSG_CTRUNC)
_NO_SIGNAL = int(socket.MSG_NOSIGNAL)
_ANCILLARY_BYTES = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)

# Out of descriptors or memory, or a client that left at once: a reason to try again later, not to end the concentrator.
_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED})


@dataclass(frozen=True)
class Peer:
    """Who is at the other side, as the operating system (unix) or its certificate (tcp) vouches for."""

    kind: Literal["unix", "tcp", "memory"]
    pid: int | None = None  # of the process that connected or listened; later forks don't show
    uid: int | None = None
    node: int | None = None
    issued_at: int | None = None  # its certificate, in seconds since 1970; and until when that is good
    expires_at: int | None = None


class Connection(Protocol):
    """A link. Two threads may use it at once, one sending and one receiving, unless it is a `TlsConnection`."""

    __slots__ = ()
    peer: Peer  # at the other side

    def fileno(self) -> int:
        """What to register with epoll; -1 once it is closed."""

    def recv_into(self, buffer: WriteableBuffer) -> int | None:
        """Fill the (not empty) buffer from its start: how many bytes, 0 at end of file, None if there are none now."""

    def send(self, parts: Sequence[ReadableBuffer]) -> int:
        """Send the parts one after the other: how many bytes were taken, 0 if it would block.

        It also moves what an earlier call left inside: call it with no parts while `wants_write()`.
        """

    def pending(self) -> bool:
        """Whether a read may give something that epoll does not know of (bytes that have left the socket already)."""

    def wants_write(self) -> bool:
        """Whether bytes that `send` has taken are still inside: they would be lost if it were closed now."""

    def setblocking(self, blocking: bool) -> None:
        """Whether calls wait; links are made blocking by `connect_…` and non-blocking by listeners."""

    def close(self) -> None:
        """End the link at both sides, and wake the threads that wait in it. Any number of times, from any thread."""


class QuietSocket(socket.socket):
    """A socket that closes itself when its last user lets go of it, without a warning.

    A descriptor that is closed while another thread is about to use it may by then belong to another file, and bytes
    would go astray. So a link is shut down at once, and its descriptor is closed when no call is under way any more.
    """

    def __del__(self) -> None:
        self.close()

    @classmethod
    def adopt(cls, other: socket.socket) -> QuietSocket:
        """The socket as a quiet one; `other` is of no use afterwards."""
        adopted = cls(fileno=other.detach())
        adopted.setblocking(True)
        return adopted


class PlainConnection(Connection):
    """A link over a stream socket as it is."""

    # The fast path of every event: a bound method of the socket and one call around it. An attribute that is the bound
    # method itself would save another 40 ns, and would block, fail and end in the socket's three ways instead of ours.
    __slots__ = ("_recv_into", "_recvmsg_into", "_sendmsg", "_socket", "peer")

    def __init__(self, sock: socket.socket, peer: Peer) -> None:
        self.peer = peer
        self._socket: QuietSocket | None = QuietSocket.adopt(sock)
        self._recv_into = self._socket.recv_into
        self._recvmsg_into = self._socket.recvmsg_into
        self._sendmsg = self._socket.sendmsg

    @override
    def fileno(self) -> int:
        return -1 if self._socket is None else self._socket.fileno()

    @override
    def recv_into(self, buffer: WriteableBuffer) -> int | None:
        try:
            return self._recv_into(buffer)
        except BlockingIOError:
            return None
        except OSError:
            return 0

    def recv_with(self, buffer: WriteableBuffer) -> tuple[int | None, list[int] | None]:
        """Do as `recv_into`; and the descriptors that were handed over with these bytes, if any were (None). Those for
        which this process has no room are not among them.
        """
        try:
            received, ancillary, flags, _ = self._recvmsg_into((buffer,), _ANCILLARY_BYTES, _CLOSE_ON_EXEC)
        except BlockingIOError:
            return None, None
        except OSError:
            return 0, None
        if not ancillary and not flags & _CUT_OFF:
            return received, None
        descriptors = array.array("i")
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        return received, [*descriptors]

    def send_with(self, part: ReadableBuffer, descriptors: Sequence[int]) -> int:
        """Send a part, and hand over descriptors with its first byte: how many bytes were taken, 0 if it would block.

        Where that fails, nothing was sent.
        """
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            return self._sendmsg((part,), rights, _NO_SIGNAL)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise as_connection_error(error) from None

    @override
    def send(self, parts: Sequence[ReadableBuffer]) -> int:
        try:
            # Without this flag a program that set SIGPIPE to its default would be killed by a peer's death.
            return self._sendmsg(parts, (), _NO_SIGNAL)
        except BlockingIOError:
            return 0
        except OSError as error:
            # Asked for only after the failure: nearly all sends have few parts.
            if len(parts) > MAX_PARTS:
                return self.send(parts[:MAX_PARTS])
            raise as_connection_error(error) from None

    @override
    def pending(self) -> bool:
        """Always False: all there is to read is in the socket."""
        return False

    @override
    def wants_write(self) -> bool:
        """Always False: what was taken is the kernel's."""
        return False

    @override
    def setblocking(self, blocking: bool) -> None:
        if self._socket is None:
            raise_closed()
        self._socket.setblocking(blocking)

    @override
    def close(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            self._recv_into = self._recvmsg_into = self._sendmsg = raise_closed  # type: ignore[assignment]
            shut_down(sock)

    def forget(self) -> None:
        """In the child of a fork: let go of the descriptor, and leave the link, which is the parent's, as it is.

        Who is at the other side would else not see the parent's end while the child lives. To drop our references is
        not enough: the frames of the parent's threads, which the child has too, keep theirs.
        """
        sock, self._socket = self._socket, None
        if sock is not None:
            self._recv_into = self._recvmsg_into = self._sendmsg = raise_closed  # type: ignore[assignment]
            sock.close()


def accept_socket(listening: socket.socket) -> socket.socket | None:
    """The next connection of a non-blocking socket that listens, or None if there is none now."""
    try:
        return listening.accept()[0]
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno in _PASSING:
            return None
        raise


def shut_down(sock: socket.socket) -> None:
    """End both directions, and wake the threads that wait in this socket (closing its descriptor would not)."""
    with contextlib.suppress(OSError):  # the other side may have been faster
        sock.shutdown(socket.SHUT_RDWR)


def as_connection_error(error: OSError) -> ConnectionError:
    """The failure as the one kind of error that `send` raises (an unreachable host, say, is none by itself)."""
    return error if isinstance(error, ConnectionError) else ConnectionResetError(error.errno, str(error))


def raise_closed(*_: object) -> NoReturn:
    """Raise what every call on a closed link raises."""
    raise Closed("this side has closed the link: use the one that was made after it", what="link")
