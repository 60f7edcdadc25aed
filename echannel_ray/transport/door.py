"""Questions to a process of this node, a line of JSON each way, over a Unix socket of its own.

They are for who has no link and no Ray: the process that runs a pod, which Kubernetes asks how its parts are. Ray hands
its environment down to the actors of the node, so that one variable says where all doors of a pod are. Where it is not
set, nobody asks, and there are none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import select
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from echannel_ray.errors import NotAuthorised
from echannel_ray.transport.connection import PlainConnection
from echannel_ray.transport.unix import UnixListener, trusted_peer

logger = logging.getLogger(__name__)

DIRECTORY_VARIABLE: Final = "ECHANNEL_POD_DIRECTORY"
_SUFFIX: Final = ".door"
# Paths of Unix sockets are short. A name's end says what it is.
_SHOWN_NAME: Final = 40
_MAX_BYTES: Final = 64 << 10
_QUESTION_SECONDS: Final = 5.0

Answers = Mapping[str, Callable[..., Any]]


def door_path(directory: str, name: str) -> str:
    """Where the door of the part of this name is."""
    if len(name) > _SHOWN_NAME:
        name = f"{hashlib.sha256(name.encode()).hexdigest()[:8]}~{name[-_SHOWN_NAME:]}"
    return os.path.join(directory, name + _SUFFIX)


def doors(directory: str) -> list[str]:
    """Where the doors in this directory are."""
    return sorted(entry.path for entry in os.scandir(directory) if entry.name.endswith(_SUFFIX))


def part_of(door: str) -> str:
    """The name of the part at a door."""
    return os.path.basename(door).removesuffix(_SUFFIX)


def open_door(name: str, answers: Answers, answered: Callable[[str], Any] | None = None) -> Door | None:
    """The door of this process, in a pod that has some; None elsewhere."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if not directory:
        return None
    try:
        return Door(door_path(directory, name), answers, answered)
    except OSError as error:  # the part works all the same, and its pod is told that it is not there
        logger.warning("%s can't be asked by its pod: %s", name, error)
        return None


def remove_doors(names: Iterable[str]) -> None:
    """Parts that are killed for good leave theirs: on this node, take them away."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    for name in names if directory else ():
        with contextlib.suppress(FileNotFoundError):
            os.unlink(door_path(str(directory), name))


class Door:
    """Where this process is asked; its answers are given in threads of their own."""

    def __init__(self, path: str, answers: Answers, answered: Callable[[str], Any] | None = None) -> None:
        """`answers` are functions of JSON keywords, by questions; `answered` is called when one was sent."""
        self._answers = answers
        self._answered = answered
        self._listener = UnixListener(path)
        self._stop = os.eventfd(0)
        self._thread = threading.Thread(target=self._run, name="echannel-door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer nobody any more, and leave no file; who waits for an answer gets it. A second call does nothing."""
        stop, self._stop = self._stop, -1
        if stop >= 0:
            os.eventfd_write(stop, 1)
            self._thread.join()

    def _run(self) -> None:
        stop = self._stop
        poll = select.poll()
        poll.register(self._listener.fileno(), select.POLLIN)
        poll.register(stop, select.POLLIN)
        while all(descriptor != stop for descriptor, _ in poll.poll()):
            while (connection := self._listener.accept()) is not None:
                threading.Thread(target=self._converse, args=[connection], name="echannel-door", daemon=True).start()
        self._listener.close()
        os.close(stop)

    def _converse(self, connection: PlainConnection) -> None:
        question = ""
        try:
            asked = json.loads(_read_line(connection))
            question = asked.pop("ask")
            answer = {"answer": self._answers[question](**asked)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        try:
            connection.send((json.dumps(answer).encode() + b"\n",))
        except OSError:
            pass  # who asked has given up
        connection.close()
        if self._answered is not None:
            self._answered(question)


def _read_line(connection: PlainConnection) -> bytes:
    connection.setblocking(True)
    line = bytearray()
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    buffer = bytearray(4096)
    while not line.endswith(b"\n"):
        if not poll.poll(_QUESTION_SECONDS * 1000):
            raise TimeoutError("no question came")
        received = connection.recv_into(buffer)
        if not received or len(line) > _MAX_BYTES:
            raise ValueError("a question is one short line of JSON")
        line += buffer[:received]
    return bytes(line)


class Unanswered(OSError):
    """A part was there and did not answer, or answered that it can't."""


def ask(path: str, question: str, timeout_seconds: float, **arguments: Any) -> Any:
    """What the process at this door answers.

    Raises `FileNotFoundError` or `ConnectionRefusedError` where there is none (any more, or for a moment), and
    `Unanswered` where it does not answer in time.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout_seconds)
        try:
            sock.connect(path)
            trusted_peer(sock)
            sock.sendall(json.dumps({"ask": question, **arguments}).encode() + b"\n")
            line = b"".join(iter(lambda: sock.recv(65536), b""))
        except (TimeoutError, BlockingIOError):
            raise Unanswered(f"no answer within {timeout_seconds:.1f} s") from None
        except (ConnectionResetError, BrokenPipeError) as error:
            raise Unanswered("it ended before it had answered") from error
        except NotAuthorised as error:
            raise Unanswered(str(error)) from error
    answer = json.loads(line) if line else {"error": "it ended before it had answered"}
    if "error" in answer:
        raise Unanswered(answer["error"])
    return answer["answer"]
