"""Credit: how far consumers have handled what was published for them, at both ends.

Rules:

* A stream's marks count the bytes that it has published, and only grow. A consumer reports the mark up to which it has
  handled; what lies between that and the last mark is what its window counts.
* It reports each quarter of a window by itself, and at once when the producer wants to know of a mark that it has
  reached. A report may be lost with a link: whoever waits for one asks again.
* Recipients that share a route report marks alone. One with a route of its own (a laggard, a member of a group) has an
  account of what it was sent, in the order of sending, which is that of handling; a report takes off what lies before
  it. Events that are given to a member again have older marks than those sent before them: there the exact mark counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from echannel_ray.core.arrivals import Arrival, Reports, Source
    from echannel_ray.core.mixed_receipts import Seat
    from echannel_ray.core.receiver import ReceivedStream
    from echannel_ray.core.streams import Recipient, SenderStream


# ---- at the endpoint that consumes ---------------------------------------------------------------------------------


class Reception:
    """The reception of one stream at one subscription: the source of the events that it has sent."""

    __slots__ = (
        "credited_mark",
        "ends_at",
        "final",
        "grouped",
        "handler_version",
        "own_expected",
        "own_handled",
        "producer",
        "seat",
        "stream",
        "subscription",
        "wanted_mark",
    )  # fmt: skip

    def __init__(
        self, stream: ReceivedStream, subscription: int, first_sequence: int, first_mark: int, handler_version: int
    ) -> None:
        self.stream = stream
        self.producer = stream.producer
        self.subscription = subscription
        self.handler_version = handler_version  # the one that gets what comes by the newest route
        self.seat: Seat | None = None  # of its numbers, while its events come by a mixture
        # Its numbers, while nobody else holds them: see `expected`, `handled_mark`.
        self.own_expected = first_sequence
        self.own_handled = first_mark
        self.credited_mark = first_mark
        self.wanted_mark: int | None = None
        self.grouped = False
        self.final = False
        self.ends_at: int | None = None  # nothing comes from this number on: the stream was closed, say

    def stand_up(self) -> None:
        """Have its numbers back."""
        if self.seat is not None:
            self.seat.give_up(self)

    @property
    def expected(self) -> int:
        """The next sequence number; of a member of a group: behind the highest that it has seen."""
        if self.seat is not None:
            self.seat.give_up(self)
        return self.own_expected

    @expected.setter
    def expected(self, number: int) -> None:
        self.own_expected = number

    @property
    def handled_mark(self) -> int:
        """The mark up to which all is handled."""
        if self.seat is not None:
            self.seat.give_up(self)
        return self.own_handled

    @handled_mark.setter
    def handled_mark(self, mark: int) -> None:
        self.own_handled = mark

    def handled(self, mark: int) -> bool:
        """Everything up to `mark` was handled; True when that is to be reported now."""
        if self.seat is not None:
            self.seat.give_up(self)
        if mark < self.own_handled and not self.grouped:
            mark = self.own_handled  # a gap that was found out late
        self.own_handled = mark
        wanted = self.wanted_mark
        if wanted is not None and mark >= wanted:
            return True
        return mark - self.credited_mark >= self.stream.credit_bytes or mark < self.credited_mark

    def credit(self) -> int:
        """The mark to report now."""
        self.credited_mark = self.handled_mark
        if self.wanted_mark is not None and self.handled_mark >= self.wanted_mark:
            self.wanted_mark = None
        return self.handled_mark

    def wanted(self, mark: int) -> int:
        """The producer waits until `mark` is handled: the mark to report at once; another report follows then."""
        self.wanted_mark = mark
        return self.credit()

    def position(self, run: Arrival[Source], count: int) -> None:
        """No position: what a stream has sent is sent to nobody again."""

    def close_run(self, run: Arrival[Source], outcome: bytes, reports: Reports) -> None:
        """Have the producer know: with the next report, or at once where it waits for the outcome."""
        reports.run_handled(self, run.mark, run.delivery, outcome)

    def release(self, run: Arrival[Source], handled: int, reports: Reports) -> None:
        """Have whoever delivered the last event not wait; how far it was handled, the end of the subscription tells."""
        if run.delivery:
            reports.release(self, run.delivery)


# ---- at the endpoint that publishes --------------------------------------------------------------------------------


def report(recipient: Recipient, mark: int) -> None:
    """Note that a recipient has handled everything up to a mark."""
    recipient.handled_mark = max(recipient.handled_mark, mark)
    if recipient.route is not None:
        _take_off(recipient, mark)


def _take_off(recipient: Recipient, mark: int) -> None:
    sent = recipient.sent
    if recipient.redelivery_route is None:
        while sent and sent[0].mark <= mark:
            recipient.sent_bytes -= sent.popleft().size_bytes
    else:
        position = next((i for i, unhandled in enumerate(sent) if unhandled.mark == mark), None)
        for _ in range(-1 if position is None else position + 1):
            recipient.sent_bytes -= sent.popleft().size_bytes


def is_awaited(stream: SenderStream) -> bool:
    """Whether a report of a laggard or of a group's member would change something: nobody blocks for it and asks."""
    return bool(stream.laggards) or any(m.sent for members in stream.groups.values() for m in members)


def unreported(stream: SenderStream) -> Iterator[tuple[Recipient, int]]:
    """The recipients that have not reported all that they were sent, and the marks up to which they were sent it."""
    for recipient in stream.recipients.values():
        mark = recipient.sent[-1].mark if recipient.sent else stream.published_bytes
        if recipient.handled_mark < mark or recipient.sent:
            yield recipient, mark
