"""Events of a channel for people to look at: few of them, chosen at their producers, as short texts."""

from __future__ import annotations

import reprlib
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from typing_extensions import override

import echannel_ray as ec
from echannel_ray.modulators import AtMostRate
from echannel_ray.overview.readings import read_status
from echannel_ray.page import looker_frames

MAX_SHOWN_PER_SECOND: Final = 50  # of all producers
_MAX_TEXT: Final = 2000


class Taps:
    """The open taps of this process, which is in the namespace while there are any."""

    def __init__(
        self,
        namespace: str,
        offer: Callable[[looker_frames.Answer], bool],
        send: Callable[[looker_frames.Answer], None],
    ) -> None:
        self._namespace = namespace
        self._offer = offer
        self._send = send
        self._lock = threading.Lock()
        self._open: dict[int, ec.Subscription | None] = {}  # None while it is being opened

    def run(self, question: looker_frames.OpenTap) -> None:
        """Serve a tap, from its beginning to its end; on a thread of its own."""
        call = question.call
        with self._lock:
            self._open[call] = None
        try:
            with self._subscribed(question) as subscription:
                with self._lock:
                    if call not in self._open:
                        return  # closed meanwhile
                    self._open[call] = subscription
                self._send(looker_frames.Tapped(call))
                self._show(call, subscription)
        except Exception as error:  # whatever ends it: who looks is told
            self._send(looker_frames.LookFailed(call, str(error)))
        finally:
            self._ended(call)

    def close(self, call: int) -> None:
        """End a tap."""
        with self._lock:
            subscription = self._open.pop(call, None)
        if subscription is not None:
            subscription.close()

    def close_all(self) -> None:
        """End all taps."""
        for call in [*self._open]:
            self.close(call)

    def _subscribed(self, question: looker_frames.OpenTap) -> ec.Subscription:
        # Before joining, which would start what is missing; as opening would make the channel.
        if question.channel not in read_status(self._namespace).channels:
            raise ec.EChannelError(f"there is no channel {question.channel!r} (any more)", channel=question.channel)
        ec.connect(self._namespace)
        sampler = AtMostRate(question.rate)
        return ec.channel(question.channel, namespace=self._namespace).subscribe(modulator=sampler)

    def _show(self, call: int, subscription: ec.Subscription) -> None:
        second, shown, missed = 0, 0, 0
        for message in subscription.messages():
            if not isinstance(message, ec.Message):
                missed += message.last - message.first + 1
                continue
            if int(time.monotonic()) != second:
                second, shown = int(time.monotonic()), 0
            text = text_of(message.event) if shown < MAX_SHOWN_PER_SECOND else None
            if text is None or not self._offer(
                looker_frames.Tapped(call, message.producer, message.sequence, message.published_at, text, missed)
            ):
                missed += 1
            else:
                shown, missed = shown + 1, 0

    def _ended(self, call: int) -> None:
        with self._lock:
            self._open.pop(call, None)
            if not self._open:
                ec.disconnect()


class _Shortened(reprlib.Repr):
    """`repr` that goes neither deep nor far."""

    def __init__(self) -> None:
        super().__init__()
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdeque = 40
        self.maxarray = self.maxlong = 100
        self.maxstring = 500
        self.maxother = _MAX_TEXT

    @override
    def repr_instance(self, x: Any, level: int) -> str:
        """The text of an object that may have any `__repr__`."""
        return _cut(super().repr_instance(x, level))


_shortened = _Shortened()


def text_of(event: Any) -> str:
    """An event as a text of bounded length that JSON can carry."""
    try:
        text = _shortened.repr(event)
    except Exception as error:  # of a `__repr__` that raises
        text = f"<{type(event).__name__}, which can't be shown: {type(error).__name__}>"
    return _cut(text).encode(errors="backslashreplace").decode()


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
