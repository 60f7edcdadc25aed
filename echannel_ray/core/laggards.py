"""Recipients that lag behind where their producer drops: each has a route of its own until it has caught up.

Rules:

* A recipient begins to lag when an event finds its window full. Of what was dropped it gets a gap, in its place.
* `drop_newest`: it gets nothing more until half of its window is free. `drop_oldest`: what is new waits in a
  backlog of a window's size, from which the oldest are dropped.
* With nothing outstanding it comes back to the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from echannel_ray.core.frames import CHUNK_BYTES
from echannel_ray.core.kinds import GAP
from echannel_ray.core.streams import Recipient, SenderStream, Unhandled
from echannel_ray.core.windows import CONSUMER, DROP_THIS, has_room, on_full

if TYPE_CHECKING:
    from echannel_ray.core.sender import Sender


class Laggards:
    """The recipients that lag behind at one endpoint that sends."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def begin(self, stream: SenderStream, recipient: Recipient) -> None:
        """Serve a recipient apart from the others from here on: its window is full."""
        recipient.become("window full")
        recipient.left_mark = stream.published_bytes
        # Its `first_sequence` stays: what the plain route carried may be lost, and has to arrive before what comes now.
        self._sender.give_own_route(recipient)
        stream.laggards.append(recipient)
        self._sender.reroute(stream)

    def offer(self, stream: SenderStream, recipient: Recipient, event: Unhandled) -> bool:
        """An event for a laggard: sent, kept or dropped; False where it was dropped."""
        is_roomy = has_room(recipient, event.size_bytes, stream.window_bytes)
        if on_full(stream, CONSUMER) == DROP_THIS:
            if is_roomy and recipient.gap is None:
                self._send_own(stream, recipient, event)
                return True
            self._note_gap(stream, recipient, event)
            return False
        if is_roomy and not recipient.backlog and recipient.gap is None:
            self._send_own(stream, recipient, event)
            return True
        recipient.backlog.append(event)
        recipient.backlog_bytes += event.size_bytes
        while recipient.backlog_bytes > stream.window_bytes and len(recipient.backlog) > 1:
            oldest = recipient.backlog.popleft()
            recipient.backlog_bytes -= oldest.size_bytes
            self._note_gap(stream, recipient, oldest)
        return True

    def _note_gap(self, stream: SenderStream, recipient: Recipient, event: Unhandled) -> None:
        last = event.event if event.kind == GAP else event.sequence
        if event.kind != GAP:  # which was counted when it was made
            stream.drop_by_policy()
        recipient.dropped += last - event.sequence + 1
        first = recipient.gap[0] if recipient.gap else event.sequence
        recipient.gap = (first, last, event.mark)

    def _send_own(self, stream: SenderStream, recipient: Recipient, event: Unhandled) -> None:
        route = recipient.route
        assert route is not None
        if event.kind == GAP and route.gather.widen_gap(route.number, event.sequence, event.event):
            return
        route.declare(stream)
        route.gather.add(route.number, event.sequence, event.mark, event.kind, event.event, event.size_bytes)
        recipient.sent.append(Unhandled(event.mark, event.size_bytes, event.sequence, event.kind, None, False))
        recipient.sent_bytes += event.size_bytes

    def pump(self, stream: SenderStream, recipient: Recipient) -> None:
        """A laggard has room again: tell it what it missed, send what was kept, and let it come back to the others."""
        if stream.chunks or recipient.outstanding_bytes > stream.window_bytes // 2:
            return
        self._tell_gap(stream, recipient)
        while recipient.backlog and has_room(recipient, recipient.backlog[0].size_bytes, stream.window_bytes):
            event = recipient.backlog.popleft()
            recipient.backlog_bytes -= event.size_bytes
            self._send_own(stream, recipient, event)
            if event.size_bytes > CHUNK_BYTES:
                return  # and go on when it has left: see `large_event_left`
        if not recipient.backlog and not recipient.sent and recipient.outstanding_bytes == 0:
            self._sender.end_run(stream)
            recipient.become("caught up")
            recipient.handled_mark = recipient.left_mark = stream.published_bytes
            stream.laggards.remove(recipient)
            self._sender.leave_own_routes(stream, recipient)
            self._sender.reroute(stream)

    def _tell_gap(self, stream: SenderStream, recipient: Recipient) -> None:
        if recipient.gap is None:
            return
        first, last, mark = recipient.gap
        recipient.gap = None
        route = recipient.route
        assert route is not None
        route.declare(stream)
        route.gather.end_run()
        route.gather.add(route.number, first, mark, GAP, last)
        recipient.sent.append(Unhandled(mark, 0, last, GAP, None, False))

    def send_all(self, stream: SenderStream, recipient: Recipient) -> None:
        """It goes over to another handler version, or the stream ends: all that was kept for it leaves now, whether or
        not its window has room.
        """
        if stream.chunks and (recipient.gap is not None or recipient.backlog):
            # Not by the flow in which chunks wait: what is sent now would get lower numbers than what it has to follow.
            self._sender.leave_own_routes(stream, recipient)
            self._sender.give_own_route(recipient)
        self._tell_gap(stream, recipient)
        while recipient.backlog:
            event = recipient.backlog.popleft()
            recipient.backlog_bytes -= event.size_bytes
            self._send_own(stream, recipient, event)

    def large_event_left(self, stream: SenderStream) -> None:
        """The last chunk of a large event has left: what is behind it may follow."""
        stream.refresh_limit()
        for recipient in [*stream.laggards]:
            self.pump(stream, recipient)
