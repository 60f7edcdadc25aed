"""The process that looks at a namespace for the page's server: the only one of the two that is in Ray.

A driver ends when the Ray that it joined does. The server is to say so and to wait for the next Ray, so it is another
process, which starts this one anew: `python -m echannel_ray.page.looker FD NAMESPACE [ADDRESS]`, FD being a socket.
"""

from __future__ import annotations

import queue
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from echannel_ray.errors import EChannelError
from echannel_ray.overview.ray_connection import first_line, running_ray
from echannel_ray.page import looker_frames
from echannel_ray.page.painter import Painter
from echannel_ray.page.picture import Picture

_MAX_WAITING: Final = 1000  # answers; beyond that events of taps are left out
_END = b""


class Looker:
    """Answers the questions of the page's server, each on a thread; one per server."""

    def __init__(self, connection: socket.socket, namespace: str) -> None:
        self._connection = connection
        self._namespace = namespace
        self._painter = Painter()
        self._outgoing: queue.Queue[bytes] = queue.Queue(_MAX_WAITING)
        self._pool = ThreadPoolExecutor(max_workers=64)
        threading.Thread(target=self._write, name="looker-writer", daemon=True).start()

    def send(self, answer: looker_frames.Answer) -> None:
        """Queue an answer."""
        self._outgoing.put(looker_frames.packed(answer))

    def offer(self, answer: looker_frames.Answer) -> bool:
        """Send it, unless too much waits already: who consumes events must not wait for who looks at them."""
        try:
            self._outgoing.put_nowait(looker_frames.packed(answer))
        except queue.Full:
            return False
        return True

    def serve(self) -> None:
        """Answer questions until the server is gone."""
        from echannel_ray.page.taps import Taps  # which imports the public API

        taps = Taps(self._namespace, self.offer, self.send)
        self.send(looker_frames.LookerJoined())
        reader = self._connection.makefile("rb")
        while len(head := reader.read(looker_frames.LENGTH_BYTES)) == looker_frames.LENGTH_BYTES:
            question = looker_frames.question(reader.read(looker_frames.length_of(head)))
            if isinstance(question, looker_frames.LookAround):
                self._pool.submit(self._look, question)
            elif isinstance(question, looker_frames.OpenTap):
                self._pool.submit(taps.run, question)
            else:
                taps.close(question.call)
        taps.close_all()

    def say_last(self, answer: looker_frames.Answer) -> None:
        """Send this answer, and nothing after it."""
        self.send(answer)
        self._outgoing.put(_END)
        self._outgoing.join()

    def _look(self, question: looker_frames.LookAround) -> None:
        try:
            if question.afresh:
                self._painter = Painter()
            self.send(looker_frames.PictureSeen(question.call, self._picture()))
        except Exception as error:  # whatever Ray may raise: the page shows it
            self.send(looker_frames.LookFailed(question.call, first_line(error)))

    def _picture(self) -> Picture:
        from echannel_ray.overview.readings import read_channels, read_status

        began = time.monotonic()
        status = read_status(self._namespace)
        lines = read_channels(self._namespace) if status.managers else []
        now = time.monotonic()
        return self._painter.paint(status, lines, now, time.time(), now - began)

    def _write(self) -> None:
        while (packed := self._outgoing.get()) != _END:
            try:
                self._connection.sendall(packed)
            except OSError:
                pass  # the server is gone, which `serve` notices
            self._outgoing.task_done()
        self._outgoing.task_done()


def main(number: str, namespace: str, address: str | None = None) -> None:
    """Join the Ray, and answer the server's questions."""
    looker = Looker(socket.socket(fileno=int(number)), namespace)
    try:
        with running_ray(address):
            looker.serve()
    except EChannelError as error:
        looker.say_last(looker_frames.LookFailed(0, str(error)))


if __name__ == "__main__":
    main(*sys.argv[1:])
