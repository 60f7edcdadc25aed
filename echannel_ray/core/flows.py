"""Flows: the numbered packs from one endpoint to a fixed set of destinations, kept until all have acknowledged them.

Rules of the sender:

* Packs are numbered from 1; each is kept until every node of the flow has acknowledged it.
* No progress for `FIRST_PROBE_SECONDS` while something is unacknowledged: probe the nodes that lag. The probe follows
  every pack sent so far on the same path, so a destination that answers with less has lost what is between, and gets it
  again.
* A destination that is gone is no longer waited for. A flow whose destinations are all gone keeps nothing.
* A flow with one destination on the own node may go by a direct link instead of the concentrator. While it goes over,
  its packs are held until all before them have arrived: the two ways keep no order between them.

Rules of the receiver:

* The next number is accepted, all others are discarded: lower ones as repeated, higher ones because something before
  them is missing.
* Acknowledgements are late on purpose (`docs/design/flows.md`): after `ack_bytes`, on a tick, or when a probe asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from echannel_ray.core.frames import Buffer

FIRST_PROBE_SECONDS = 0.3
LONGEST_PROBE_SECONDS = 1.0


@dataclass(slots=True, eq=False)
class SentPack:
    """A pack that somebody has not acknowledged yet: `body` in the pieces that it was made of."""

    number: int
    flags: int
    body: Sequence[Buffer]
    size_bytes: int


class WayChange:
    """A flow goes over to another way: `held` leaves by `next` when pack `number`, the last on the former way, has
    arrived; at the latest when its time is over.
    """

    __slots__ = ("held", "next", "number", "until")

    def __init__(self, following: deque[Buffer], number: int, until: float) -> None:
        self.next = following
        self.held: deque[Buffer] = deque()
        self.number = number
        self.until = until


class FlowSender:
    """A flow at the endpoint that sends; many streams with the same destinations share it."""

    def __init__(self, number: int, destinations: Iterable[tuple[int, int]], out: deque[Buffer]) -> None:
        """`out` is where its frames are put: for the concentrator, or for a direct link."""
        self.number = number
        self.out = out
        self.change: WayChange | None = None
        self.looked_at = 0  # the last pack that was sent when somebody looked how busy it is
        self.members: dict[int, set[int]] = {}  # node -> endpoints
        for node, endpoint in destinations:
            self.members.setdefault(node, set()).add(endpoint)
        self.last_sent = 0
        self.kept: deque[SentPack] = deque()
        self.kept_bytes = 0
        self.acked: dict[int, int] = dict.fromkeys(self.members, 0)
        self.streams = 0  # routes that use it; a flow that none uses ends when all is acknowledged
        self.carries: set[Any] = set()  # streams whose events have gone by it (`SenderStream`s)
        self.resent_packs = 0
        self._probe_at = float("inf")
        self._probe_seconds = FIRST_PROBE_SECONDS
        self._resent: dict[int, tuple[int, int]] = {}  # node -> (probed number, lowest number resent for it)

    @property
    def destinations(self) -> list[tuple[int, int]]:
        """(node, endpoint) pairs that are not gone."""
        return [(node, endpoint) for node, members in self.members.items() for endpoint in sorted(members)]

    def sole_destination(self, node: int) -> int | None:
        """The one endpoint that it goes to, where that is on this node."""
        members = self.members.get(node)
        return next(iter(members)) if members is not None and len(members) == len(self.members) == 1 else None

    @property
    def lowest_acked(self) -> int:
        """The last pack that every destination has acknowledged, with all before it."""
        return min(self.acked.values(), default=self.last_sent)

    def crossings(self, node: int) -> int:
        """How many nodes besides this one the packs of the flow go to."""
        return len(self.members) - (node in self.members)

    def sent(self, body: Sequence[Buffer], flags: int, size_bytes: int, now: float) -> int:
        """A pack is about to leave: the number it gets. It is kept until acknowledged."""
        self.last_sent += 1
        if self.members:
            if not self.kept:
                self._rearm(now)
            self.kept.append(SentPack(self.last_sent, flags, body, size_bytes))
            self.kept_bytes += size_bytes
        return self.last_sent

    def acknowledged(self, node: int, number: int, now: float) -> None:
        """Note that a node has all packs up to `number`."""
        if number > self.acked.get(node, number):
            before = self.lowest_acked
            self.acked[node] = min(number, self.last_sent)
            # Progress of the nodes that are ahead says nothing of one that may have lost something: it keeps its probe.
            if self.lowest_acked > before:
                self._release(now)

    def endpoint_gone(self, endpoint: int, now: float) -> bool:
        """Wait no longer for this destination; True where it was one."""
        for node, members in self.members.items():
            if endpoint in members:
                members.discard(endpoint)
                if not members:
                    del self.members[node], self.acked[node]
                    self._release(now)
                return True
        return False

    def _release(self, now: float) -> None:
        lowest = self.lowest_acked
        kept = self.kept
        while kept and kept[0].number <= lowest:
            self.kept_bytes -= kept.popleft().size_bytes
        self._probe_seconds = FIRST_PROBE_SECONDS
        self._rearm(now)

    def _rearm(self, now: float) -> None:
        self._probe_at = now + self._probe_seconds if self.kept or self.last_sent > self.lowest_acked else float("inf")

    @property
    def probe_at(self) -> float:
        """When this flow wants `nodes_to_probe` to be called next."""
        return self._probe_at

    def nodes_to_probe(self, now: float, at_once: bool = False) -> list[int]:
        """Nodes that lag, if it is time (or `at_once`) to ask them what they have."""
        if now < self._probe_at and not at_once:
            return []
        self._resent.clear()  # what was sent again went ahead of this probe: its answers count that in
        self._rearm(now)
        if not at_once:
            self._probe_seconds = min(2 * self._probe_seconds, LONGEST_PROBE_SECONDS)
        return [node for node, number in self.acked.items() if number < self.last_sent]

    def answered(self, node: int, received: int, probed: int) -> list[SentPack]:
        """The packs that a destination lacks, by its answer to a probe."""
        if node not in self.acked or received >= probed:
            return []
        until = probed + 1
        last_probed, lowest = self._resent.get(node, (0, 0))
        if last_probed == probed and received + 1 < lowest:
            until = lowest  # another destination of the node was given the later ones in this round
        elif last_probed == probed:
            return []  # in this round it was all sent again: only a later probe shows a second loss
        self._resent[node] = (probed, received + 1)
        lost = [pack for pack in self.kept if received < pack.number < until]
        self.resent_packs += len(lost)
        return lost

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself."""
        numbers = [pack.number for pack in self.kept]
        assert self.kept_bytes == sum(pack.size_bytes for pack in self.kept)
        assert numbers == list(range(self.last_sent - len(numbers) + 1, self.last_sent + 1)), numbers
        assert not numbers or numbers[0] == self.lowest_acked + 1, (numbers[0], self.acked)
        assert set(self.acked) == set(self.members)
        assert all(self.members.values())


@dataclass(slots=True, eq=False)
class FlowReceiver:
    """A flow at one of its destinations."""

    node: int
    endpoint: int
    flow: int
    received: int = 0
    unacked_bytes: int = 0
    repeated: int = 0
    discarded: int = 0
    refusals: int = 0  # how often the next pack came before what its streams wait for
    has_skipped: bool = False
    highest: int = 0  # number that has come and was not taken in
    others_had: int = 0  # how many packs its sender's other flows had brought when the next one of this was refused
    asked_until: int = 0  # the last pack that is to be sent again, as its sender was told since then
    is_direct: bool = False  # it comes by a direct link, so no concentrator merges its acknowledgements
    is_over: bool = False  # it has ended, or its sender is gone

    def is_next(self, number: int) -> bool:
        """Whether a pack may be taken in now; if so, and its streams agree, `accepted` follows."""
        if number == self.received + 1:
            return True
        if number <= self.received:
            self.repeated += 1
        else:
            self.discarded += 1
            self.highest = max(self.highest, number)
        return False

    def refused(self, others_have: int) -> None:
        """The next pack came before what its streams wait for, which another flow of the same sender brings."""
        self.refusals += 1
        self.highest = max(self.highest, self.received + 1)
        self.others_had = others_have
        self.asked_until = 0

    def is_to_be_sent_again(self, others_have: int) -> bool:
        """Whether what was refused may be taken in now, and its sender does not know yet."""
        if self.asked_until:
            return self.received >= self.asked_until  # and what came meanwhile was discarded
        return others_have != self.others_had

    def accepted(self, size_bytes: int) -> None:
        """Note that the next pack was taken in."""
        self.received += 1
        self.refusals = 0
        self.unacked_bytes += size_bytes

    def skipped(self, size_bytes: int) -> None:
        """The next pack can't be read, and would be no better if sent again: its events are missing for good."""
        self.has_skipped = True
        self.accepted(size_bytes)

    def acknowledge(self) -> int:
        """The number to acknowledge now."""
        self.unacked_bytes = 0
        return self.received
