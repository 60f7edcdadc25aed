"""What the name server knows: which manager keeps which channel, where the concentrators are, and a second copy of the
channels' definitions; and which certificates are void.

Of two reports about one concentrator the one with the higher incarnation counts, so reports may come late or twice. A
concentrator's departure is remembered with its incarnation, so that its own late report does not bring it back.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from echannel_ray.core.messages import ConcentratorInfo, Definition, Directory

# What a restart can delay is delayed by seconds: older deletions need not be known.
MAX_REMEMBERED_DELETIONS = 10_000

# The life of a concentrator's entry: all its changes. Which reports are news, and so make one, is decided before.
LISTING_TRANSITIONS: dict[tuple[str, str], str] = {
    ("absent", "joined"): "present",
    ("absent", "left"): "left",
    ("present", "joined"): "present",  # counts with a higher incarnation
    ("present", "left"): "left",  # of this incarnation or a later one
    ("left", "joined"): "present",  # with a higher incarnation than the one that left
    ("left", "left"): "left",
}


def slot_of(channel: str, managers: int) -> int:
    """The manager that keeps a channel, of so many: the same in every process and Python, as `hash` is not."""
    return zlib.crc32(channel.encode()) % managers


class NameBook:
    """The state of the name server."""

    def __init__(self, epoch: int, managers: tuple[str, ...]) -> None:
        self._epoch = epoch
        self._version = 0
        self._managers = managers
        self._concentrators: dict[int, ConcentratorInfo] = {}
        self._left: dict[int, int] = {}  # node: the incarnation that left
        self._revoked: dict[int, int] = {}  # node: the second before which its certificates were issued
        self._definitions: dict[str, Definition] = {}
        self._forgotten: dict[str, int] = {}  # channel: the newest incarnation that was deleted
        self._last_epoch = epoch

    def directory(self) -> Directory:
        """The directory: all that a concentrator or a manager needs to find the others."""
        concentrators = tuple(info for _, info in sorted(self._concentrators.items()))
        return Directory(
            self._epoch, self._version, self._managers, concentrators, tuple(sorted(self._revoked.items()))
        )

    def concentrator(self, node: int) -> ConcentratorInfo | None:
        """The concentrator of a node."""
        return self._concentrators.get(node)

    def state(self, node: int) -> str:
        """`absent`, `present` or `left`."""
        return "present" if node in self._concentrators else "left" if node in self._left else "absent"

    # ---- concentrators ---------------------------------------------------------------------------------------------

    def joined(self, info: ConcentratorInfo) -> bool:
        """Enter a concentrator that has started or was found; whether that was news."""
        known = self._concentrators.get(info.node)
        if info.incarnation <= self._left.get(info.node, -1):
            return False
        if known is not None and known.incarnation >= info.incarnation:
            return False
        self._enter(info.node, "joined", info)
        self._version += 1
        return True

    def left(self, node: int, incarnation: int) -> bool:
        """A concentrator retired, or its node is gone; whether that was news. A later incarnation stays."""
        known = self._concentrators.get(node)
        if known is not None and known.incarnation > incarnation:
            return False
        self._enter(node, "left", max(incarnation, self._left.get(node, -1)))
        if known is None:
            return False
        self._version += 1
        return True

    def _enter(self, node: int, event: str, entry: ConcentratorInfo | int) -> None:
        """Put a node's entry where the table says that the event takes it."""
        state = LISTING_TRANSITIONS[self.state(node), event]
        self._concentrators.pop(node, None)
        self._left.pop(node, None)
        if state == "present":
            assert isinstance(entry, ConcentratorInfo), entry
            self._concentrators[node] = entry
        else:
            assert isinstance(entry, int), entry
            self._left[node] = entry

    # ---- certificates ----------------------------------------------------------------------------------------------

    def revoked(self, node: int, before: int) -> None:
        """Certificates that were issued to a node before this second are void; of two reports the later one counts."""
        if before > self.revoked_before(node):
            self._revoked[node] = before
            self._version += 1

    def revoked_before(self, node: int) -> int:
        """The time from which on certificates of this node count."""
        return self._revoked.get(node, 0)

    # ---- definitions and epochs ------------------------------------------------------------------------------------

    def recorded(self, definitions: Iterable[Definition]) -> None:
        """A manager has these; of two with one name the higher incarnation counts, then the higher revision."""
        for definition in definitions:
            known = self._definitions.get(definition.channel)
            newest = max(known.incarnation if known else -1, self._forgotten.get(definition.channel, -1))
            is_same = known is not None and definition.incarnation == newest == known.incarnation
            is_revised = is_same and known is not None and definition.revision > known.revision
            if definition.incarnation > newest or is_revised:
                self._definitions[definition.channel] = definition
                self._forgotten.pop(definition.channel, None)

    def forgotten(self, definitions: Iterable[Definition]) -> None:
        """Forget the definitions of channels that a manager has deleted."""
        for definition in definitions:
            known = self._definitions.get(definition.channel)
            if known is not None and known.incarnation > definition.incarnation:
                continue
            self._definitions.pop(definition.channel, None)
            # A number per deleted name: a record that a restart delayed must not bring the channel back.
            newest = max(definition.incarnation, self._forgotten.pop(definition.channel, -1))
            self._forgotten[definition.channel] = newest
            if len(self._forgotten) > MAX_REMEMBERED_DELETIONS:
                del self._forgotten[next(iter(self._forgotten))]

    def definitions(self, slot: int, managers: int) -> list[Definition]:
        """The definitions of one manager's share of the channels."""
        return [
            definition
            for channel, definition in sorted(self._definitions.items())
            if slot_of(channel, managers) == slot
        ]

    def channels(self) -> list[str]:
        """The names of all channels, sorted."""
        return sorted(self._definitions)

    def epoch_seen(self, epoch: int) -> None:
        """A part works with this epoch: none that is handed out from now on may be lower."""
        self._last_epoch = max(self._last_epoch, epoch)

    def next_epoch(self, now_milliseconds: int) -> int:
        """An epoch above all that were ever handed out: by the clock, unless that was set back."""
        self._last_epoch = max(now_milliseconds, self._last_epoch + 1)
        return self._last_epoch

    def restart_epoch(self, now_milliseconds: int) -> None:
        """Give the directory an epoch above all before, once the parts have said what they have seen."""
        self._epoch = self.next_epoch(now_milliseconds)

    def validate(self) -> None:
        """Raise AssertionError where what must hold doesn't."""
        assert not self._concentrators.keys() & self._left.keys(), "a concentrator is present and has left"
        assert all(node == info.node for node, info in self._concentrators.items())
        assert all(channel == definition.channel for channel, definition in self._definitions.items())
        assert not self._definitions.keys() & self._forgotten.keys(), "a definition is kept and forgotten"
        assert self._epoch <= self._last_epoch, "the directory's epoch was not handed out"
