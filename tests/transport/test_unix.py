"""Unix sockets: who gets in, and whose file is whose after a kill."""

from __future__ import annotations

import os
import select
import shutil
import socket
import tempfile
from pathlib import Path

import pytest

from echannel_ray.errors import NotAuthorised
from echannel_ray.transport.connection import Peer
from echannel_ray.transport.presence import note_endpoint
from echannel_ray.transport.unix import SocketDirectory, UnixListener, connect_unix, sweep
from tests.transport.links import NOBODY, SECONDS, as_root, in_child, in_thread, receive, send_all


@pytest.fixture
def temporary(monkeypatch):
    """A temporary directory that others may enter, like the system's; pytest's own are private and have long names."""
    path = Path(tempfile.mkdtemp(prefix="ec"))
    path.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    yield path
    shutil.rmtree(path)


def try_to_connect(path: str) -> int:
    """0 if let in, 1 if the file can't be reached, 2 if the listener closes the connection."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(SECONDS)
    try:
        client.connect(path)
    except PermissionError:
        return 1
    try:
        return 0 if client.recv(1) else 2
    except ConnectionResetError:
        return 2


def test_the_directory_is_private_and_the_same_for_all_processes_of_a_node(temporary):
    directory = SocketDirectory("default", 0xABC)
    base = temporary / f"echannel-{os.geteuid()}"
    assert directory.path.parent == base
    for path in (base, directory.path):
        assert path.stat().st_mode & 0o7777 == 0o700
    assert SocketDirectory("default", 0xABC).path == directory.path
    assert os.fspath(directory) == str(directory.path)
    assert len({SocketDirectory(*args).path for args in (("default", 0xABC), ("default", 1), ("other", 1))}) == 3


def test_long_namespaces_have_short_paths(temporary):
    path = SocketDirectory("n" * 255, 2**64 - 1).socket_path("concentrator")
    UnixListener(path).close()
    assert len(path) - len(str(temporary)) < 70


def test_a_temporary_directory_with_too_long_a_name_is_an_error_with_advice(temporary, monkeypatch):
    long = temporary / ("x" * 80)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(OSError, match="TMPDIR"):
        SocketDirectory("default", 1).socket_path("concentrator")


@pytest.mark.parametrize("level", ["base", "own"])
@pytest.mark.parametrize("fault", ["symlink", "file", "group", "world", "owner"])
def test_a_directory_that_others_may_have_touched_is_refused(temporary, level, fault):
    if fault == "owner" and os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    directory = SocketDirectory("default", 1).path
    path = directory if level == "own" else directory.parent
    if fault in ("symlink", "file"):
        elsewhere = temporary / "elsewhere"
        path.rename(elsewhere)
        if fault == "symlink":
            path.symlink_to(elsewhere)
        else:
            path.touch(0o700)
    elif fault == "owner":
        os.chown(path, NOBODY, -1)
    else:
        path.chmod(0o710 if fault == "group" else 0o701)
    with pytest.raises(NotAuthorised, match="remove it") as caught:
        SocketDirectory("default", 1)
    assert caught.value.facts["path"] == str(path)


def test_both_sides_know_each_other(temporary):
    listener = UnixListener(str(temporary / "s"))
    assert listener.accept() is None
    client = connect_unix(listener.path, SECONDS)
    server = listener.accept()
    assert server is not None
    assert server.peer == client.peer == Peer("unix", pid=os.getpid(), uid=os.geteuid())
    assert Path(listener.path).stat().st_mode & 0o777 == 0o600
    send_all(client, [b"hello"])
    assert receive(server, 5) == b"hello"
    listener.close()
    listener.close()
    assert list(temporary.iterdir()) == []


@as_root
def test_the_directory_stops_another_user(temporary):
    listener = UnixListener(SocketDirectory("default", 1).socket_path("s"))
    os.chmod(listener.path, 0o666)
    assert in_child(lambda: try_to_connect(listener.path), NOBODY) == 1
    assert listener.accept() is None
    assert not listener.refused


@as_root
def test_the_kernel_gives_another_user_away(temporary):
    directory = SocketDirectory("default", 1)
    listener = UnixListener(directory.socket_path("s"))
    # Somebody opened everything.
    for path in (directory.path.parent, directory.path):
        path.chmod(0o711)
    os.chmod(listener.path, 0o666)

    connecting = in_thread(lambda: in_child(lambda: try_to_connect(listener.path), NOBODY))
    while not listener.refused:
        select.select([listener], [], [], 0.05)
        assert listener.accept() is None
    assert connecting() == 2
    assert listener.refused == {"other_user": 1}
    client = connect_unix(listener.path, SECONDS)
    assert listener.accept() is not None
    client.close()


def test_a_listener_of_another_user_is_refused(temporary, monkeypatch):
    listener = UnixListener(str(temporary / "s"))
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(NotAuthorised, match=f"user {user}"):
        connect_unix(listener.path, SECONDS)


@as_root
def test_a_socket_that_another_user_planted_is_not_used(temporary):
    """In a directory that was opened to everybody: the client finds out who listens before it says anything."""
    path = str(temporary / "s")
    ready, planted = os.pipe()

    def listen() -> int:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(path)
            os.chmod(path, 0o777)
            listening.listen(1)
            os.write(planted, b".")
            with listening.accept()[0] as victim:
                return len(victim.recv(100))

    listener = in_thread(lambda: in_child(listen, NOBODY))
    os.read(ready, 1)
    with pytest.raises(NotAuthorised, match=f"user {NOBODY} is at the other side"):
        connect_unix(path, SECONDS)
    assert listener() == 0
    os.close(ready)
    os.close(planted)


def test_nobody_listens(temporary):
    path = str(temporary / "s")
    with pytest.raises(FileNotFoundError):
        connect_unix(path, SECONDS)
    stale = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stale.bind(path)
    stale.close()
    with pytest.raises(ConnectionRefusedError):
        connect_unix(path, SECONDS)


def test_a_listener_that_does_not_keep_up(temporary):
    path = str(temporary / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(path)
        listening.listen(0)
        first = connect_unix(path, SECONDS)
        with pytest.raises(TimeoutError):
            connect_unix(path, 0.05)
        first.close()


def test_a_successor_takes_over_the_file_of_a_killed_listener(temporary):
    path = str(temporary / "s")

    def listen_and_die() -> int:
        UnixListener(path)
        os.kill(os.getpid(), 9)
        return 0

    assert in_child(listen_and_die) == -9
    successor = UnixListener(path)
    client = connect_unix(path, SECONDS)
    assert successor.accept() is not None
    client.close()
    successor.close()
    assert list(temporary.iterdir()) == []


def test_a_listener_leaves_its_successors_file_alone(temporary):
    path = str(temporary / "s")
    first = UnixListener(path)
    second = UnixListener(path)
    first.close()
    client = connect_unix(path, SECONDS)
    assert second.accept() is not None
    client.close()
    second.close()
    assert not Path(path).exists()


def test_a_directory_that_is_gone_is_no_half_made_listener(temporary):
    with pytest.raises(FileNotFoundError):
        UnixListener(str(temporary / "gone" / "s"))
    (temporary / "s").mkdir()
    (temporary / "s" / "file").touch()
    with pytest.raises(OSError, match=r"[Dd]irectory"):
        UnixListener(str(temporary / "s"))
    assert [path.name for path in temporary.iterdir()] == ["s"]


class Neighbours:
    """Directories beside ours, each as some concentrator left it."""

    def __init__(self) -> None:
        self.own = SocketDirectory("default", 1)

    def add(self, node: int, end: str) -> Path:
        """`listening`, `killed`, `closed`, or `new` (before it listens)."""
        directory = SocketDirectory("default", node)
        if end == "listening":
            self.listener = UnixListener(directory.socket_path("concentrator"))
        elif end == "killed":
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as abandoned:
                abandoned.bind(directory.socket_path("concentrator"))
        elif end == "closed":
            UnixListener(directory.socket_path("concentrator")).close()
        return directory.path

    def let_time_pass(self) -> None:
        """More than a minute."""
        for mark in self.own.path.parent.glob("*/abandoned"):
            os.utime(mark, (mark.stat().st_atime - 61, mark.stat().st_mtime - 61))

    def left(self) -> set[Path]:
        return {*self.own.path.parent.iterdir()} - {self.own.path}


def test_a_sweep_removes_what_nobody_uses_after_a_minute(temporary):
    neighbours = Neighbours()
    ended = {neighbours.add(2, "killed"), neighbours.add(3, "closed")}

    def link_and_die() -> int:
        note_endpoint(neighbours.add(2, "new"), 7, os.getpid())
        return 0

    assert in_child(link_and_die) == 0
    used = {neighbours.add(4, "listening"), neighbours.add(5, "killed")}
    note_endpoint(neighbours.add(5, "new"), 8, os.getpid())
    (neighbours.own.path.parent / "file").touch()
    everything = neighbours.left()
    for _ in range(2):
        assert sweep(neighbours.own) == []
        assert neighbours.left() == everything
    neighbours.let_time_pass()
    assert sweep(neighbours.own) == sorted(path.name for path in ended)
    assert neighbours.left() == everything - ended
    assert not list(neighbours.own.path.iterdir())
    for path in used:
        assert not (path / "abandoned").exists()
    connect_unix(neighbours.listener.path, SECONDS).close()
    neighbours.listener.close()


def test_a_directory_that_is_taken_again_is_not_swept(temporary):
    neighbours = Neighbours()
    path = neighbours.add(2, "killed")
    assert sweep(neighbours.own) == []
    neighbours.let_time_pass()
    assert neighbours.add(2, "new") == path  # a successor, before it listens
    assert sweep(neighbours.own) == []
    assert neighbours.left() == {path}


@pytest.mark.parametrize("successor", ["new", "listening"])
def test_a_successor_that_comes_while_a_sweep_looks(temporary, monkeypatch, successor):
    neighbours = Neighbours()
    path = neighbours.add(2, "closed")
    sweep(neighbours.own)
    neighbours.let_time_pass()
    rename = Path.rename

    def come_first(self, target):
        monkeypatch.setattr(Path, "rename", rename)
        neighbours.add(2, successor)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", come_first)
    assert sweep(neighbours.own) == []
    assert neighbours.left() == {path}
    if successor == "listening":
        connect_unix(str(path / "concentrator"), SECONDS).close()
        neighbours.listener.close()
