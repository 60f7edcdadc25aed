"""When all that was published so far is acknowledged: received by every consumer's process, handled by groups' members.

What a large event holds back has no place in a flow yet when somebody begins to wait: the marks are noted again then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter

from echannel_ray.core.flows import FlowSender
from echannel_ray.core.streams import Recipient, SenderStream


class DrainPoint:
    """A point in some streams, and whether everything before it is acknowledged. All that was gathered has left."""

    def __init__(
        self, streams: Iterable[SenderStream], is_excused: Callable[[Recipient], bool] = lambda recipient: False
    ) -> None:
        """`is_excused`: a member of a group in whose own handler somebody waits can't finish what it is handling."""
        self._streams = [*streams]
        self._is_excused = is_excused
        self._was_held_back = False
        self._note_marks()

    def _note_marks(self) -> None:
        self._marks = {flow: flow.last_sent for flow in self.flows}
        self._grouped = {
            (stream, key): recipient.sent[-1].mark
            for stream in self._streams
            for key, recipient in stream.recipients.items()
            if recipient.sent and recipient.consumer.group is not None and not self._is_excused(recipient)
        }

    @property
    def flows(self) -> list[FlowSender]:
        """The flows that carry events of these streams, in the same order in every run."""
        return sorted({flow for stream in self._streams for flow in stream.flows}, key=attrgetter("number"))

    @property
    def streams_that_need_credit(self) -> list[SenderStream]:
        """The streams whose members of groups, or laggards, have to say how far they are."""
        return [stream for stream in self._streams if stream.groups or stream.laggards]

    def is_reached(self, is_held_back: bool = False) -> bool:
        """Whether all of it is acknowledged; `is_held_back`: the shell has something of it that waits for its turn."""
        streams = self._streams
        if is_held_back or any(s.chunks or any(recipient.backlog for recipient in s.laggards) for s in streams):
            self._was_held_back = True
            return False
        if self._was_held_back:
            self._note_marks()
            self._was_held_back = False
        for (stream, key), mark in self._grouped.items():
            recipient = stream.recipients.get(key)
            if recipient is not None and any(unhandled.mark <= mark for unhandled in recipient.sent):
                return False
        if any(any(stream.undelivered.values()) for stream in streams):
            return False
        return all(flow.lowest_acked >= mark for flow, mark in self._marks.items())
