"""The public face of a subscription."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from echannel_ray import errors
from echannel_ray.runtime.mailbox import Gap, Mailbox, Message
from echannel_ray.runtime.offload import in_thread
from echannel_ray.runtime.owned import OwnedByProcess
from echannel_ray.runtime.pulling import Ended, PullMailbox, closed_error
from echannel_ray.runtime.waiting import deadline_of
from echannel_ray.session import Session

if TYPE_CHECKING:
    from echannel_ray.models import SubscriptionStats


class Subscription(OwnedByProcess):
    """One consumer of a channel, made by `EventChannel.subscribe`. It lives until it is closed or its process ends."""

    _advice = "a subscription belongs to its process: pass the channel instead, and call channel.subscribe() there"

    def __init__(self, session: Session, mailbox: Mailbox) -> None:
        self._session = session
        self._mailbox = mailbox
        self._closing = threading.Lock()
        self._closed = False
        if mailbox.is_pulled:
            # Nobody can ask for its events any more, and producers would wait for it for good.
            weakref.finalize(self, session.endpoint.abandon_later, mailbox).atexit = False

    def __repr__(self) -> str:
        state = " (closed)" if self._closed else ""
        return f"<subscription {self._mailbox.number} of channel {self._mailbox.channel!r}{state}>"

    # ---- pulling ----

    def get(self, timeout: float | None = None) -> Any:
        """The next event, waiting up to `timeout` seconds (`TimeoutError`). Gaps go to `on_error` (see `messages`)."""
        deadline = deadline_of(timeout)
        while True:
            try:
                message = self._next_message(deadline)
            except Ended:
                raise closed_error(self._mailbox.channel) from None
            if isinstance(message, Message):
                return message.event
            self._mailbox.report(message)

    def __iter__(self) -> Iterator[Any]:
        for message in self.messages():
            if isinstance(message, Message):
                yield message.event
            else:
                self._mailbox.report(message)

    def messages(self) -> Iterator[Message | Gap]:
        """Events with what is known about them, and gaps in the places of what was dropped; ends when it is closed."""
        self._pull()
        return self._messages()

    def _messages(self) -> Iterator[Message | Gap]:
        while True:
            try:
                yield self._next_message(None)
            except Ended:
                return

    async def __aiter__(self) -> AsyncIterator[Any]:
        pull = self._pull()
        while True:
            try:
                message = await pull.aget()
            except Ended:
                return
            if isinstance(message, Message):
                yield message.event
            else:
                self._mailbox.report(message)

    def _next_message(self, deadline: float | None) -> Message | Gap:
        return self._pull().get(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def _pull(self) -> PullMailbox:
        if not isinstance(self._mailbox, PullMailbox):
            raise TypeError(
                "this subscription has a handler, which gets its events: subscribe() without one to pull them"
            )
        return self._mailbox

    # ---- the rest ----

    def reset(self, modulator: Any = None, demodulator: Any = None) -> None:
        """Replace the pair of modulator and demodulator; None is none."""
        self._check_open()
        if modulator is not None or demodulator is not None:
            raise no_eager_handlers()

    async def areset(self, modulator: Any = None, demodulator: Any = None) -> None:
        """As `reset`, without holding up the event loop."""
        await in_thread(lambda: self.reset(modulator, demodulator))

    def drain(self, timeout: float | None = None) -> None:
        """Wait until all that has arrived is handled. In its own handler, which can't wait for itself: not at all."""
        self._check_open()
        deadline = deadline_of(timeout)
        if self._mailbox.is_current_thread():
            return
        if not self._session.endpoint.crew.wait(self._mailbox.when_idle(), deadline):
            raise TimeoutError(
                f"{self._mailbox.pending} events of {self._mailbox.channel!r} not handled within {timeout} s"
            )

    def close(self) -> None:
        """End it: no event is handled after this, but for one that is being handled. A second call does nothing."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        endpoint = self._session.endpoint
        if endpoint.closed or endpoint.broken is not None:
            self._mailbox.close()
            return
        try:
            self._session.mailbox_closed(self._mailbox, None)
        except errors.ChannelDeleted:
            pass  # nobody keeps its books any more
        finally:
            endpoint.close_mailbox(self._mailbox)

    async def aclose(self) -> None:
        """As `close`, without holding up the event loop."""
        await in_thread(self.close)

    def stats(self) -> SubscriptionStats:
        """What it has received, handled, failed to handle, and discarded as repeated, and what waits."""
        from echannel_ray.models import SubscriptionStats

        counters = self._mailbox.counters
        duplicates = self._session.endpoint.receiver.duplicates.get(self._mailbox.number, 0)
        return SubscriptionStats(
            received=counters.received,
            handled=counters.handled,
            failed=counters.failed,
            dropped=counters.dropped,
            duplicates=duplicates,
            pending=max(0, self._mailbox.pending),
        )

    def _check_open(self) -> None:
        if self._mailbox.deleted:
            raise errors.ChannelDeleted(
                f"channel {self._mailbox.channel!r} was deleted: create it again, and subscribe again",
                channel=self._mailbox.channel,
            )
        if self._closed:
            raise closed_error(self._mailbox.channel)
        self._session.endpoint.check_usable()


def no_eager_handlers() -> errors.ModulatorRefused:
    """What asking for a modulator raises as long as no producer can run one."""
    return errors.ModulatorRefused(
        "eager handlers are not part of this version: filter in the handler, or publish on several channels",
        reason="not available",
    )
