"""Links within a node: Unix sockets in a directory that only this user can enter.

Two locks, since one may be left open by mistake: the directory is private, and each side asks the kernel who is there.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import socket
import stat
import struct
import tempfile
import time
from collections import Counter
from pathlib import Path

from echannel_ray.errors import NotAuthorised
from echannel_ray.transport.connection import Peer, PlainConnection, QuietSocket, accept_socket
from echannel_ray.transport.presence import former_endpoints

# `sun_path` has room for 108 bytes, with the zero at its end.
_MAX_PATH_BYTES = 107
# A listener's file has a longer name for a moment: a dot and 8 hex digits.
_TEMPORARY_BYTES = 9
# With the usual 200 KB a pack of records fills it, and each side waits for the other: a quarter of the rate less.
_SEND_BUFFER_BYTES = 1 << 20
_BACKLOG = 1024
_UCRED = struct.Struct("3i")
_TIMEVAL = struct.Struct("@ll")
# The mark of a directory in which nobody was found, and how long it stays so before it goes.
_ABANDONED = "abandoned"
_ABANDONED_SECONDS = 60.0


class SocketDirectory:
    """The private directory of one namespace on one node; several nodes of a test cluster may share a machine."""

    def __init__(self, namespace: str, node_number: int) -> None:
        """Make it, or take it as it is; `NotAuthorised` if others could have put something there."""
        self.path = path_of_directory(namespace, node_number)
        make_private(self.path)
        (self.path / _ABANDONED).unlink(missing_ok=True)

    def __fspath__(self) -> str:
        return str(self.path)

    def socket_path(self, name: str) -> str:
        """Where the socket `name` is, or will be."""
        path = str(self.path / name)
        _check_length(path)
        return path


def endpoint_socket(directory: str, endpoint: int) -> str:
    """Where an endpoint of the node listens for direct links."""
    path = os.path.join(directory, f"{endpoint:016x}")
    _check_length(path)
    return path


def _check_length(path: str) -> None:
    if len(os.fsencode(path)) + _TEMPORARY_BYTES > _MAX_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, "too long for a Unix socket: set TMPDIR to a shorter directory", path)


def path_of_directory(namespace: str, node_number: int) -> Path:
    """Where the directory of a namespace on a node is, or will be."""
    # Namespaces may be longer than a path may be.
    digest = hashlib.sha256(namespace.encode()).hexdigest()[:12]
    return base_directory() / f"{node_number:016x}-{digest}"


def base_directory() -> Path:
    """Where all of this user on this machine is, in all namespaces; it is made where it is missing."""
    path = Path(tempfile.gettempdir()).absolute() / f"echannel-{os.geteuid()}"
    make_private(path)
    return path


def mark_draining(node_number: int) -> None:
    """A node is to be removed: no process joins from there any more. A mark that outlives its concentrators."""
    # A directory as the others are, so that it is swept as they are.
    make_private(_mark_of_draining(node_number))


def is_draining(node_number: int) -> bool:
    """Whether the node is to be removed."""
    return _mark_of_draining(node_number).exists()


def _mark_of_draining(node_number: int) -> Path:
    return base_directory() / f"{node_number:016x}-draining"


def make_private(path: Path, setting: str = "TMPDIR") -> None:
    """Make a directory that only this user can enter, or take it as it is; `NotAuthorised` where others can."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    # Looked at without following links: in a directory that all may write to, a link may lead anywhere.
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        problem = "is no directory (or a symbolic link to one)"
    elif status.st_uid != os.geteuid():
        problem = f"belongs to user {status.st_uid}"
    elif status.st_mode & 0o077:
        problem = f"can be entered by others (mode {stat.S_IMODE(status.st_mode):04o})"
    else:
        return
    raise NotAuthorised(
        f"{path} {problem}, so others could read events or make some up: remove it, or set {setting} to another "
        "directory",
        path=str(path),
    )


class UnixListener:
    """Where the endpoints of a node link to its concentrator; non-blocking."""

    def __init__(self, path: str) -> None:
        """Listen at the path. A file that a killed predecessor left there is replaced; there is never none."""
        self.path = path
        self.refused: Counter[str] = Counter()  # connections of other users
        temporary = f"{path}.{secrets.token_hex(4)}"
        self._socket = QuietSocket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.bind(temporary)
        try:
            os.chmod(temporary, 0o600)
            self._socket.listen(_BACKLOG)
            status = os.stat(temporary)
            os.rename(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise
        self._inode = (status.st_dev, status.st_ino)

    def fileno(self) -> int:
        """What to register with epoll; -1 once it is closed."""
        return self._socket.fileno()

    def accept(self) -> PlainConnection | None:
        """The next connection of our user, blocking still; None if there is none now."""
        while (sock := accept_socket(self._socket)) is not None:
            try:
                return _connection(sock)
            except NotAuthorised:
                self.refused["other_user"] += 1
                sock.close()
        return None

    def close(self) -> None:
        """Listen no more. The file goes too, unless a successor has replaced it."""
        if self._socket.fileno() == -1:
            return
        # Before the socket is closed: while it lives, no other file can have its inode number.
        try:
            status = os.lstat(self.path)
            if (status.st_dev, status.st_ino) == self._inode:
                os.unlink(self.path)
        except FileNotFoundError:
            pass
        self._socket.close()

    def forget(self) -> None:
        """In the child of a fork: let go of the descriptor; the parent listens on."""
        self._socket.close()


def connect_unix(path: str, timeout_seconds: float) -> PlainConnection:
    """A blocking link to the listener at the path.

    Raises `FileNotFoundError` or `ConnectionRefusedError` if nobody listens, `TimeoutError` if the listener does not
    keep up, and `NotAuthorised` if it is another user's.
    """
    sock = QuietSocket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Python's own time-outs make the socket non-blocking, and such a socket does not wait for room in the backlog.
    seconds, fraction = divmod(max(timeout_seconds, 0.001), 1)
    sock.setblocking(True)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(int(seconds), int(fraction * 1e6)))
    try:
        sock.connect(path)
    except BlockingIOError:
        raise TimeoutError(f"the listener at {path} accepted nobody for {timeout_seconds} s") from None
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(0, 0))
    return _connection(sock)


def _connection(sock: socket.socket) -> PlainConnection:
    peer = trusted_peer(sock)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    return PlainConnection(sock, peer)


def sweep(own: SocketDirectory) -> list[str]:
    """Remove the directories beside this one that nobody uses any more: their names.

    Nothing else would: each local Ray has nodes of its own, and a concentrator that is killed can't tidy up. A
    directory is marked when nobody is found there, and goes when a sweep at least a minute later finds the mark: at
    first sight it may belong to a concentrator that Ray is about to start (again), which takes the mark away and needs
    the rest.
    """
    removed = []
    for path in sorted(own.path.parent.iterdir()):
        if path == own.path:
            continue
        # Others sweep too, and no file of a directory that is not ours has to stay.
        with contextlib.suppress(OSError, ValueError):
            if _removed(path):
                removed.append(path.name)
    return removed


def _removed(path: Path) -> bool:
    if _is_in_use(path):
        return False
    mark = path / _ABANDONED
    try:
        marked_for_seconds = time.time() - mark.stat().st_mtime
    except FileNotFoundError:
        mark.touch(mode=0o600)
        return False
    if marked_for_seconds < _ABANDONED_SECONDS:
        return False
    # Under another name nobody can begin to use it while its files go one by one.
    aside = path.with_name(f"swept-{secrets.token_hex(4)}")
    path.rename(aside)
    if _is_in_use(aside) or not (aside / _ABANDONED).exists():
        aside.rename(path)  # somebody came between the look and the rename
        return False
    shutil.rmtree(aside)
    return True


def _is_in_use(directory: Path) -> bool:
    return any(former.alive for former in former_endpoints(directory)) or any(
        _somebody_listens(path) for path in directory.iterdir() if path.is_socket()
    )


def _somebody_listens(path: Path) -> bool:
    try:
        connect_unix(str(path), 0.1).close()
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    except (TimeoutError, NotAuthorised):
        pass
    return True


def trusted_peer(sock: socket.socket) -> Peer:
    """Who is at the other side of a Unix socket; `NotAuthorised` if that is another user."""
    pid, uid, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    if uid != os.geteuid():
        raise NotAuthorised(f"process {pid} of user {uid} is at the other side: only our own user may link", uid=uid)
    return Peer("unix", pid=pid, uid=uid)
