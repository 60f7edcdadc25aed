"""One client of a gateway's port for events.

Three threads, none of which is the concentrator's: one reads and does what is done at once, one does what may wait in
the backend, request by request, and one writes. So a client that does not read holds up only itself, and the one that
reads never waits for credit that it would have to read itself.

What is kept of a client is bounded: a frame that is being read, the requests that were not answered, and one frame on
its way out. Who has more requests under way is not read until some are answered.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from echannel_ray import errors
from echannel_ray.gateway import event_frames as frames
from echannel_ray.gateway import failures
from echannel_ray.gateway.event_service import EventService, release
from echannel_ray.gateway.event_subscription import OutgoingEvents
from echannel_ray.gateway.event_tls import Wire
from echannel_ray.gateway.tokens import Token

if TYPE_CHECKING:
    from echannel_ray.gateway.event_server import EventServer
    from echannel_ray.gateway.feeds import Feed

logger = logging.getLogger(__name__)

HELLO_SECONDS: Final = 5.0
MAX_REQUESTS: Final = 64
_MAX_ANSWERS: Final = 256
_CLOSING_SECONDS: Final = 0.5  # for the last words


class EventConnection:
    """One client of the port for events, from its handshake to its end."""

    def __init__(self, wire: Wire, peer: str, server: EventServer) -> None:
        self.peer = peer
        self.token: Token | None = None
        self._wire = wire
        self._server = server
        self._ending = threading.Event()
        self._end_by = 0.0
        # What the reader has for the worker: guarded by the condition, as are the bytes of it.
        self._changed = threading.Condition()
        self._requests: deque[tuple[frames.RequestFrame, int]] = deque()
        self._waiting_requests = self._waiting_bytes = 0
        # What all have for the writer.
        self._answers: deque[bytes] = deque()
        self._over: deque[Feed] = deque()  # feeds that have ended
        self._wake = threading.Event()
        # When it was let in:
        self._service: EventService
        self._max_frame_bytes = 0
        self._worker: threading.Thread | None = None
        self._writer: threading.Thread | None = None

    # ---- the thread that reads ----

    def run(self) -> None:
        """Serve the client, from its handshake to its end."""
        try:
            deadline = time.monotonic() + HELLO_SECONDS
            self._wire.handshake(deadline)
            incoming = frames.FrameCutter(frames.MAX_HELLO_BYTES)
            rest = self._welcome(incoming, deadline)
            self._worker = _started(self._work, "work")
            self._writer = _started(self._write, "write")
            for body in rest:
                self._take(body)
            while not self._ending.is_set():
                data = self._wire.read()
                if not data:
                    break
                for body in incoming.feed(data):
                    self._take(body)
        except frames.Malformed as error:
            self._server.count(malformed_frames=1)
            self.end(error)
        except errors.EChannelError as error:
            self.end(error)
        except OSError as error:
            if self.token is None:
                self._server.count(ended_before_hello=1)
            logger.debug("a client of the gateway at %s: %s", self.peer, error)
        except Exception:
            logger.exception("a connection of the gateway failed")
        finally:
            self._finish()

    def _welcome(self, incoming: frames.FrameCutter, deadline: float) -> list[bytes]:
        """Wait for the hello, and answer it; what has come behind it."""
        bodies: list[bytes] = []
        while not bodies:
            data = self._wire.read(deadline)
            if not data:
                raise ConnectionResetError("it ended before its hello")
            bodies += incoming.feed(data)
        hello = frames.from_client(bodies[0])
        if not isinstance(hello, frames.HelloFrame):
            raise frames.Malformed(f"the first frame is a hello, and {type(hello).__name__.lower()} came")
        token = self.token = self._server.greet(self, hello)
        self._service = EventService(self._server.backend, token, self._wake.set)
        self._max_frame_bytes = incoming.max_bytes = token.rights.event_bytes + frames.OVERHEAD_BYTES
        welcome = frames.WelcomeFrame(
            frames.VERSION, self._server.namespace, token.rights.event_bytes, incoming.max_bytes
        )  # fmt: skip
        self._wire.write(frames.frame(welcome))
        return bodies[1:]

    def _take(self, body: bytes) -> None:
        message = frames.from_client(body)
        self._server.count(frames_in=1, bytes_in=len(body))
        match message:
            case frames.HelloFrame():
                raise frames.Malformed("a second hello came")
            case frames.CreditFrame():
                outgoing = self._service.subscriptions.get(message.subscription)
                if outgoing is not None:  # else it was ended meanwhile
                    outgoing.add_credit(message.bytes)
                    outgoing.feed.acknowledge(message.handled)
                    self._wake.set()
            case frames.PingFrame():
                self._answer(frames.AnswerFrame(message.id))
            case _:
                self._submit(message, len(body))
        if isinstance(message, frames.PublishFrame):
            self._hold_back(len(message.events), len(body))
        with self._changed:
            self._changed.wait_for(lambda: len(self._answers) < _MAX_ANSWERS or self._ending.is_set())

    def _submit(self, message: frames.RequestFrame, size_bytes: int) -> None:
        """Hand a request to the worker, when there is room for it."""
        with self._changed:
            self._changed.wait_for(lambda: self._ending.is_set() or self._has_room(size_bytes))
            self._requests.append((message, size_bytes))
            self._waiting_requests += 1
            self._waiting_bytes += size_bytes
            self._changed.notify_all()

    def _has_room(self, size_bytes: int) -> bool:
        if not self._waiting_requests:
            return True
        return self._waiting_requests < MAX_REQUESTS and self._waiting_bytes + size_bytes <= self._max_frame_bytes

    def _hold_back(self, events: int, size_bytes: int) -> None:
        """Not to read is what holds a client back that goes beyond its token's rates."""
        token = self.token
        assert token is not None
        delay_seconds = token.rates.take(events, size_bytes, time.monotonic())
        if delay_seconds > 0:
            self._server.count(held_back=1)
            self._ending.wait(delay_seconds)

    # ---- the thread that works ----

    def _work(self) -> None:
        try:
            while not self._ending.is_set():
                self._work_once()
        finally:
            self._service.close()

    def _work_once(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._requests or self._over or self._ending.is_set())
            request = self._requests.popleft() if self._requests else None
        while self._over:
            release([self._over.popleft()])
        if request is not None and not self._ending.is_set():
            self._do(*request)

    def _do(self, message: frames.RequestFrame, size_bytes: int) -> None:
        try:
            result = self._service.perform(message)
            if isinstance(result, OutgoingEvents):
                # Credit may come as soon as this is answered, and events only behind the answer.
                self._service.subscriptions[message.id] = result
                self._answer(frames.AnswerFrame(message.id))
                result.is_announced = True
                self._wake.set()
            else:
                if isinstance(message, frames.PublishFrame):
                    self._server.count(events_in=result)
                self._answer(frames.AnswerFrame(message.id, result))
        except Exception as error:
            self._answer(self._failure(message, error))
        with self._changed:
            self._waiting_requests -= 1
            self._waiting_bytes -= size_bytes
            self._changed.notify_all()

    def _failure(self, message: frames.RequestFrame, error: Exception) -> frames.ErrorFrame:
        if not isinstance(error, failures.EXPECTED):
            logger.error("a request at the gateway failed", exc_info=error)
        if isinstance(error, frames.Malformed):
            self._server.count(malformed_frames=1)
        self._server.refused(error)
        return frames.error_of(error, message.id)

    # ---- the thread that writes ----

    def _answer(self, message: frames.AnswerFrame | frames.ErrorFrame) -> None:
        self._answers.append(frames.frame(message))
        self._wake.set()

    def _write(self) -> None:
        try:
            while not self._ending.is_set():
                self._wake.wait()
                self._wake.clear()
                while self._write_some() and not self._ending.is_set():
                    pass
            self._write_answers()
            self._wire.finish()
            return
        except OSError as error:
            logger.debug("a client of the gateway at %s: %s", self.peer, error)
        except Exception:
            logger.exception("a connection of the gateway failed")
        self._ending.set()
        self._wire.close()  # which ends the thread that reads

    def _write_some(self) -> bool:
        """A frame of each subscription that has one: whether there was any."""
        # In this order: whoever is announced now has its answer among those that are written before its events.
        announced = [each for each in [*self._service.subscriptions.items()] if each[1].is_announced]
        there_was = self._write_answers()
        for number, outgoing in announced:
            before = outgoing.events
            frame = outgoing.next_frame()
            if self._ending.is_set():
                return False  # its feeds may have ended for that: the client is to be told why first
            if frame is not None:
                self._wire.write(frame)
                self._server.count(frames_out=1, bytes_out=len(frame), events_out=outgoing.events - before)
                there_was = True
            if outgoing.is_over and self._service.subscriptions.pop(number, None) is not None:
                self._over.append(outgoing.feed)
                with self._changed:
                    self._changed.notify_all()
        return there_was

    def _write_answers(self) -> bool:
        there_was = bool(self._answers)
        while self._answers:
            self._wire.write(self._answers.popleft())
        if there_was:
            with self._changed:
                self._changed.notify_all()
        return there_was

    # ---- the end ----

    def end(self, error: Exception | None = None) -> None:
        """End it, saying why; any thread. What waits in the backend is waited for by nobody but its own thread."""
        if self._ending.is_set():
            return
        if error is not None:
            self._server.refused(error)
            self._answers.append(frames.frame(frames.error_of(error)))
        self._end_by = time.monotonic() + _CLOSING_SECONDS
        self._ending.set()
        self._wake.set()
        with self._changed:
            self._changed.notify_all()
        if self._writer is None:  # it was not let in
            try:
                self._write_answers()
                self._wire.finish()
            except OSError:
                self._wire.close()

    def look_after(self, now: float) -> None:
        """Now and then: end it with its token; and where it was ended and its client does not read, cut it."""
        if self._ending.is_set():
            if now >= self._end_by:
                self._wire.close()
            return
        end = self.token.end(time.time()) if self.token is not None else None
        if end is not None:
            self.end(end)

    def _finish(self) -> None:
        self._ending.set()
        self._wake.set()
        with self._changed:
            self._changed.notify_all()
        if self._writer is not None:
            self._writer.join()
        self._wire.linger(self._end_by)
        self._wire.dispose()

    def join(self, seconds: float) -> None:
        """Wait until the last words to the client are written, for so many seconds at most."""
        if self._writer is not None:
            self._writer.join(seconds)

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left: one of its threads may still wait in the backend."""
        return self._ending.is_set() and (self._worker is None or not self._worker.is_alive())


def _started(work: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=work, name=f"echannel-gateway-{name}", daemon=True)
    thread.start()
    return thread
