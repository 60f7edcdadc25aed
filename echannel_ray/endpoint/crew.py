"""Who reads the link, and who runs handlers: a leader among a few threads, which anybody who waits may borrow from.

Rules:

* One thread at a time reads the link: the *leader*. It also runs the handlers that what it read is for: no other
  thread is woken for an event (JECho's express mode).
* A leader that is kept in a handler, because the handler waits in our own API or runs for longer than a few
  milliseconds, loses the lead to another thread; it goes on with that subscription's events, and joins the others when
  there are none left.
* A thread of the program that waits for something from the link borrows the lead and reads itself, so that a
  `deliver` costs no handover between threads. It runs no handlers: if it reads events for one, it gives the lead back.
  After it has what it waited for, nobody leads until the next tick: a program that delivers in a loop borrows the lead
  again at no cost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from echannel_ray.compilation import mypyc_attr

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.002
# Producers that are looked after one by one at each tick.
MANY_ARMED = 16
# The ticker goes to sleep after so many ticks without anything to do. One costs 15 to 30 µs, since nothing of it is in
# the caches any more: with 50 of them an event each 40 ms cost its consumer's process 880 µs, with 5 it is 580.
_IDLE_TICKS = 5
# A leader that is in one handler at this many ticks loses the lead.
_PATIENCE_TICKS = 2
_MAX_IDLE_THREADS = 4
# What is due so soon is not slept for.
EARLY_SECONDS = 50e-6
_NEVER = float("inf")


class Runnable(Protocol):
    """Something with handlers to run: an inbox."""

    def run(self) -> None:
        """Run until there is nothing left."""


class Job:
    """A call to be made by a thread of the crew: of a user's function, where the caller must not be kept."""

    __slots__ = ("_arguments", "_call")

    def __init__(self, call: Callable[..., Any], *arguments: Any) -> None:
        self._call = call
        self._arguments = arguments

    def run(self) -> None:
        """Make the call."""
        self._call(*self._arguments)


class CrewLink(Protocol):
    """The link that a crew reads."""

    def read(self, timeout_seconds: float | None) -> bool:
        """Wait for input, or for `interrupt`, and take in what has come; False when the link is lost."""

    def restore(self) -> None:
        """Have a link again, however long that takes."""

    def interrupt(self) -> None:
        """Make the thread that is in `read` return."""

    def tick(self) -> bool:
        """Do what is due, every few milliseconds; True when there is more to do soon."""

    def depart(self, now: float) -> None:
        """Send what has to leave: the time that was given to `depart_at` has come."""

    def about_to_wait(self) -> None:
        """The calling thread is about to wait: what it has begun with and others can do must not wait with it."""

    def idle_seconds(self) -> float:
        """How long the ticker may sleep when `tick` had nothing to do."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Waiter:
    """Waits for one thing; it comes by the link as a rule, and whoever reads it calls `set`."""

    __slots__ = ("_lock", "done", "interrupt", "reader")

    def __init__(self) -> None:
        self.done = False
        self.reader = 0  # the thread that waits for it in the link
        self.interrupt: Callable[[], None] | None = None  # what makes that thread return
        self._lock: threading.Lock | None = None

    def set(self) -> None:
        """Let whoever waits go on: what they wait for has come."""
        self.done = True
        interrupt = self.interrupt
        if interrupt is not None and self.reader != threading.get_ident():
            interrupt()  # it came from this process itself, and nothing may come by the link for long
        lock = self._lock
        if lock is not None:
            try:
                lock.release()
            except RuntimeError:
                pass  # set twice

    def wait(self, timeout_seconds: float | None) -> bool:
        """Wait without reading the link; whether it has come."""
        lock = threading.Lock()
        lock.acquire()
        self._lock = lock
        # Set before `_lock` was there: nobody will release it.
        if not self.done:
            lock.acquire(timeout=-1 if timeout_seconds is None else max(0.0, timeout_seconds))
        return self.done


def _run(runnable: Runnable) -> None:
    try:
        runnable.run()
    except BaseException:  # a leader that ends so would be waited for by everybody
        logger.exception("a thread of the crew goes on after an error")


class Crew:
    """The threads of one endpoint. Large: who leads, works, waits and ticks is decided under one lock."""

    def __init__(self, name: str, link: CrewLink) -> None:
        self._name = name
        self._link = link
        self._mutex = threading.Lock()
        self._ready: deque[Runnable] = deque()
        self._idle: list[threading.Lock] = []
        self._leader = 0  # the thread that leads; 0 is nobody
        self._borrowing = threading.Lock()
        self._granted: threading.Lock | None = None
        self._borrower = 0
        self._free_ticks = 0
        self._handling = 0  # counts handler runs of leaders: unchanged at a tick means that one is still in it
        self._in_handler = False
        self._seen_handling = -1
        self._borrowings = 0  # counts who borrowed the lead
        self._seen_borrowings = 0
        self._patience = 0
        self._closed = False
        self._threads = 0
        self.ticking = True
        self.ticks = 0
        self._tick_wake = threading.Lock()
        self._tick_wake.acquire()
        self._departs_at = _NEVER
        self._wakes_at = 0.0  # when the ticker looks again by itself
        self._ticker = threading.Thread(target=self._tick_loop, name=f"{name}-ticker", daemon=True)

    def start(self) -> None:
        """Start the threads."""
        self._ticker.start()
        with self._mutex:
            self._spawn()

    def close(self, timeout_seconds: float = 1.0) -> None:
        """End all threads that are not in a handler."""
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
            granted, self._granted = self._granted, None  # one of two releases it: a leader may be about to
        for lock in idle:
            lock.release()
        if granted is not None:
            granted.release()
        self._link.interrupt()
        self.wake_ticker()
        if threading.current_thread() is not self._ticker and self._ticker.is_alive():
            self._ticker.join(timeout_seconds)

    # ---- handlers ----

    def submit(self, runnable: Runnable) -> None:
        """Something has handlers to run: the leader takes it, if it is the leader that calls; else an idle thread."""
        if self._leader == threading.get_ident():
            self._ready.append(runnable)
            return
        with self._mutex:
            self._ready.append(runnable)
            self._wake_one()

    def _wake_one(self) -> None:
        if self._idle:
            self._idle.pop().release()
        elif not self._closed:
            self._spawn()

    def _spawn(self) -> None:
        self._threads += 1
        threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()

    def _work(self) -> None:
        me = threading.get_ident()
        while not self._closed:
            with self._mutex:
                if not self._leader and self._granted is None and not self._borrower:
                    self._leader = me
            if self._leader == me:
                self._lead(me)
                continue
            try:
                runnable = self._ready.popleft()
            except IndexError:
                if not self._rest():
                    return
                continue
            _run(runnable)

    def _rest(self) -> bool:
        """Wait to be needed; False when there are enough threads that wait."""
        wake = threading.Lock()
        wake.acquire()
        with self._mutex:
            if self._ready or self._closed or (not self._leader and self._granted is None and not self._borrower):
                return True
            if len(self._idle) >= _MAX_IDLE_THREADS:
                return False
            self._idle.append(wake)
        wake.acquire()
        return True

    def _lead(self, me: int) -> None:
        ready = self._ready
        while not self._closed:
            while ready:
                try:
                    runnable = ready.popleft()
                except IndexError:
                    break
                # Ahead of the look at `ticking`: a ticker that goes to sleep clears that, and then looks at these.
                self._handling += 1
                self._in_handler = True
                if not self.ticking:
                    self.wake_ticker()
                _run(runnable)
                if self._leader != me:
                    return
                self._in_handler = False
            if self._granted is not None and self._grant():
                return
            if not self._link.read(None):
                self._link.restore()
            if self._leader != me:
                return

    def _grant(self) -> bool:
        """Let who waits to borrow the lead have it, if somebody still does."""
        with self._mutex:
            granted, self._granted = self._granted, None
            if granted is None:
                return False
            self._leader = self._borrower
            granted.release()
            return True

    def step_aside(self) -> None:
        """The calling thread is about to wait: if it leads, somebody else must."""
        self._link.about_to_wait()
        if self._leader == threading.get_ident():
            self._give_away()

    def _give_away(self) -> None:
        with self._mutex:
            self._pass_on()

    def _pass_on(self) -> None:
        """The leader is kept from reading: who waits to borrow the lead has it now, else who comes; under the mutex."""
        self._in_handler = False
        granted, self._granted = self._granted, None
        if granted is not None:
            self._leader = self._borrower
            granted.release()
        else:
            self._leader = 0
            self._wake_one()

    @property
    def leads(self) -> bool:
        """Whether the calling thread is the leader (and so in a handler of ours)."""
        return self._leader == threading.get_ident()

    # ---- waiting ----

    def wait(self, waiter: Waiter, deadline: float | None) -> bool:
        """Wait until it is set, or the deadline; read meanwhile if nobody else has to."""
        if waiter.done:
            return True
        self._link.about_to_wait()
        if self._leader == threading.get_ident():
            self._give_away()
        elif self._borrowing.acquire(blocking=False):
            try:
                if self._borrow(deadline):
                    self._read_for(waiter, deadline)
            finally:
                self._borrowing.release()
        if not waiter.done:
            waiter.wait(None if deadline is None else deadline - time.monotonic())
        return waiter.done

    def _borrow(self, deadline: float | None) -> bool:
        me = threading.get_ident()
        with self._mutex:
            if self._closed:
                return False
            self._borrower = me
            if not self._leader:
                self._leader = me
                return True
            granted = self._granted = threading.Lock()
            granted.acquire()
        self._link.interrupt()
        try:
            granted.acquire(timeout=-1 if deadline is None else max(0.0, deadline - time.monotonic()))
        except BaseException:  # Ctrl-C: nobody may be waited for who does not read
            with self._mutex:
                self._granted = None
                self._borrower = 0
                if self._leader == me:
                    self._leader = 0
                    self._wake_one()
            raise
        with self._mutex:
            self._granted = None
            if self._leader == me:
                return True
            self._borrower = 0
            return False

    def _read_for(self, waiter: Waiter, deadline: float | None) -> None:
        waiter.reader = threading.get_ident()
        waiter.interrupt = self._link.interrupt
        self._borrowings += 1
        try:
            while not waiter.done and not self._ready and not self._closed:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                if not self._link.read(left):
                    break  # a thread of ours restores it: that may take longer than this one may wait
        finally:
            waiter.interrupt = None
            with self._mutex:
                self._leader = 0
                self._borrower = 0
                self._free_ticks = 0
                if self._ready or not waiter.done:
                    self._wake_one()
            if not self.ticking:
                self.wake_ticker()

    # ---- the ticker ----

    def wake_ticker(self) -> None:
        """Have the ticker tick again: there is something to do in a few milliseconds."""
        self.ticking = True
        self._wake()

    def depart_at(self, due_at: float) -> None:
        """Have `CrewLink.depart` called at this time, or at an earlier one that was asked for."""
        if due_at < self._departs_at:
            self._departs_at = due_at
            if due_at < self._wakes_at:
                self._wake()

    def _wake(self) -> None:
        try:
            self._tick_wake.release()
        except RuntimeError:
            pass  # it is awake

    def _tick_loop(self) -> None:
        idle_ticks = 0
        while not self._closed:
            if idle_ticks < _IDLE_TICKS:
                self._sleep(TICK_SECONDS)
            else:
                self.ticking = False
                # Again after `ticking` was cleared: what came between found it set, and woke nobody.
                is_busy = self._tick()
                if not is_busy:
                    self._sleep(self._link.idle_seconds())
                self.ticking = True
                idle_ticks = 0 if is_busy else _IDLE_TICKS - 1
            idle_ticks = 0 if self._tick() else idle_ticks + 1

    def _sleep(self, seconds: float) -> None:
        """Sleep until the next tick; what has to leave before that leaves in time."""
        now = time.monotonic()
        end = now + seconds
        while not self._closed:
            # First this, then a look at `_departs_at`: who sets that looks at this afterwards.
            self._wakes_at = end
            until = min(end, self._departs_at)
            if until > now:
                self._tick_wake.acquire(timeout=until - now)
            self._wakes_at = 0.0
            now = time.monotonic()
            if self._departs_at <= now + EARLY_SECONDS:
                self._departs_at = _NEVER
                self._depart(now)
            was_called = self.ticking and seconds > TICK_SECONDS
            if now >= end or was_called:
                return

    def _depart(self, now: float) -> None:
        try:
            self._link.depart(now)
        except Exception:
            logger.exception("the ticker goes on after an error")

    def _tick(self) -> bool:
        """Have the link do what is due; whether there is more to do soon."""
        self.ticks += 1
        try:
            busy = self._link.tick()
        except Exception:  # without a ticker nothing would be sent, acknowledged or probed any more
            logger.exception("the ticker goes on after an error")
            busy = False
        return self._supervise() or busy

    def _supervise(self) -> bool:
        """Make sure that somebody leads; True while that has to be watched, or somebody handled or waited of late.

        A ticker that fell asleep between two of many deliveries would be woken by each of them.
        """
        has_waited = self._borrowings != self._seen_borrowings
        self._seen_borrowings = self._borrowings
        has_handled = self._handling != self._seen_handling
        self._seen_handling = self._handling
        if self._in_handler:
            if has_handled:
                self._patience = 0
            else:
                self._patience += 1
                if self._patience >= _PATIENCE_TICKS and self._in_handler:
                    with self._mutex:
                        if self._handling == self._seen_handling and self._in_handler:
                            self._pass_on()
            return True
        if not self._leader and not self._borrower:
            self._free_ticks += 1
            if self._free_ticks > 1:
                with self._mutex:
                    if not self._leader and not self._borrower:
                        self._wake_one()
            return True
        return has_handled or has_waited
