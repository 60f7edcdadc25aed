"""What is derived from one channel, as its manager keeps it: the derived channels, who uses them, and where they lack.

Rules:

* A derived channel is what its parent, its modulator's identity and its tier are: whoever derives the same, derives
  that one. Its key says so, and is worked out here, from what was shipped.
* It lives while something uses it: a consumer, a handle, a producer that publishes straight into it, a channel that is
  derived from it, or a request that waits until it is installed (a *claim*).
* It is *installed* when every producer's endpoint has answered the membership in which it came. Before that, whoever
  wants it waits, with everybody else who waits for the same installation, and all of them have its outcome.
* Where a producer has it no longer, it *lacks* there. Whoever wants it next has it installed anew, with the next
  generation, and so are its parents that lack somewhere.
* Its code travels while it is new; who needs it later asks for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from echannel_ray.core.messages import MAX_SHIPPED_BYTES, Derived, RefusedModulator, Shipment
from echannel_ray.errors import ChannelDeleted

# Raises ModulatorRefused where what was shipped is no modulator: `modulation.fingerprint.identity_of`.
Identify = Callable[[Shipment], str]

# So many changes of its channel after it came, a derived channel's code is no longer in the memberships: whoever has
# missed all of them asks for it.
MAX_CHANGES_WITH_CODE = 8
# A frame has to hold a membership.
MAX_CODE_BYTES = MAX_SHIPPED_BYTES
_KEY_DIGITS = 32


class Asker(NamedTuple):
    """Whose request it is: a subscription's, with one of its handler versions, or a handle's."""

    endpoint: int
    subscription: int | None
    handle: int | None
    handler_version: int


@dataclass(frozen=True)
class Claim:
    """What a request will enter when the derived channel is installed."""

    node: int
    key: str
    installation: int
    keys: tuple[str, ...]  # of what the installation is of
    group: str | None = None
    handler_fingerprint: str = ""
    parent: str = ""


@dataclass
class _Entry:
    derived: Derived
    came_at: int  # the channel's changes, when this generation came
    installation: int = 0  # the one that is under way; 0: none
    lacking: dict[tuple[int, int], int] = field(default_factory=dict)  # (endpoint, stream): generation

    @property
    def without_code(self) -> Derived:
        return replace(self.derived, shipment=replace(self.derived.shipment, code=b""))


class Derivations:
    """What is derived from one channel, in its manager's books."""

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self._entries: dict[str, _Entry] = {}  # parents before their children
        self.handles: dict[tuple[int, int], tuple[int, str]] = {}  # (endpoint, handle): (node, key)
        self.claims: dict[Asker, Claim] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> Derived | None:
        """The derived channel with this key, with its code; None where there is none."""
        entry = self._entries.get(key)
        return entry.derived if entry is not None else None

    def listed(self, changes: int, with_all_code: bool = False) -> tuple[Derived, ...]:
        """The derived channels, parents first; code that is not new, or for which there is no place, is left out."""
        with_code = set()
        left_bytes = MAX_CODE_BYTES
        for key, entry in reversed(self._entries.items()):
            size_bytes = len(entry.derived.shipment.code)
            is_new = with_all_code or changes - entry.came_at < MAX_CHANGES_WITH_CODE
            if is_new and size_bytes <= left_bytes:
                left_bytes -= size_bytes
                with_code.add(key)
        return tuple(entry.derived if key in with_code else entry.without_code for key, entry in self._entries.items())

    def chain(self, key: str) -> list[str]:
        """A derived channel and what it is derived from, the first parent first."""
        keys: list[str] = []
        while key:
            keys.append(key)
            key = self._entries[key].derived.parent
        return keys[::-1]

    # ---- deriving --------------------------------------------------------------------------------------------------

    def key_of(self, parent: str, shipment: Shipment | None, identify: Identify) -> str:
        """What a modulator on a parent makes; without one, the parent itself."""
        if parent and parent not in self._entries:
            raise ChannelDeleted(
                f"what was derived from channel {self._channel!r} has ended, as nothing used it: derive it again",
                channel=self._channel,
                derived=parent,
            )
        return parent if shipment is None else make_key(parent, identify(shipment), shipment.tier)

    def add(self, derived: Derived, changes: int, installation: int = 0) -> None:
        """Enter a derived channel whose parent is entered."""
        self._entries[derived.key] = _Entry(derived, changes, installation)

    def reported(self, derived: Derived, changes: int, identify: Identify) -> bool:
        """An endpoint says what it uses; whether that was not known. What is no modulator's key is not believed."""
        entry = self._entries.get(derived.key)
        if entry is None:
            if derived.parent and derived.parent not in self._entries:
                return False
            if derived.shipment.code and not _is_true(derived, identify):
                return False
            # Who produces has it installed, or asks.
            self.add(derived, changes - MAX_CHANGES_WITH_CODE)
            return True
        if derived.shipment.code and not entry.derived.shipment.code and _is_true(derived, identify):
            entry.derived = replace(derived, generation=entry.derived.generation)
        if derived.generation > entry.derived.generation:
            entry.derived = replace(entry.derived, generation=derived.generation)
            return True
        return False

    def lacks(self, key: str) -> list[str]:
        """Those of a derived channel and its parents to be installed anew, as a producer has them no longer."""
        entries = ((each, self._entries[each]) for each in self.chain(key))
        return [each for each, entry in entries if entry.lacking and not entry.installation]

    def renew(self, key: str, changes: int, installation: int) -> None:
        """Have a derived channel, and its parents, installed anew where they lack."""
        for each in self.lacks(key):
            entry = self._entries[each]
            generation = max(entry.derived.generation, *entry.lacking.values()) + 1
            entry.derived = replace(entry.derived, generation=generation)
            entry.came_at = changes
            entry.lacking.clear()
            entry.installation = installation

    def installing(self, key: str) -> tuple[int, tuple[str, ...]]:
        """The installation that has to end before this one can be used, and of what; (0, ()) where there is none."""
        keys = tuple(each for each in self.chain(key) if self._entries[each].installation)
        return max((self._entries[each].installation for each in keys), default=0), keys

    def installed(self, keys: Iterable[str], refused: Iterable[tuple[int, RefusedModulator]]) -> None:
        """Every producer's endpoint has answered; of those that refuse, (endpoint, what)."""
        present = [key for key in keys if key in self._entries]
        for key in present:
            self._entries[key].installation = 0
        for endpoint, each in refused:
            if each.key in present:
                self.note_lack(endpoint, each.stream, each.key, self._entries[each.key].derived.generation)

    def note_lack(self, endpoint: int, stream: int, key: str, generation: int) -> None:
        """A producer has it no longer. What it says of an earlier generation has been seen to since."""
        entry = self._entries.get(key)
        if entry is not None and generation >= entry.derived.generation:
            entry.lacking[endpoint, stream] = generation

    # ---- what is gone ----------------------------------------------------------------------------------------------

    def producer_gone(self, endpoint: int, stream: int) -> None:
        """Note no longer what a producer lacks: it is gone."""
        for entry in self._entries.values():
            entry.lacking.pop((endpoint, stream), None)

    def drop_claims(self, installation: int, keys: tuple[str, ...]) -> None:
        """Drop the claims of all who wait for an installation: it has failed."""
        failed = (installation, keys)
        self.claims = {a: claim for a, claim in self.claims.items() if (claim.installation, claim.keys) != failed}

    def forget_users(self, matches: Callable[[int, int], bool]) -> None:
        """Endpoints (of a node) are gone, and with them their handles and what they asked for."""
        self.handles = {key: value for key, value in self.handles.items() if not matches(value[0], key[0])}
        self.claims = {asker: claim for asker, claim in self.claims.items() if not matches(claim.node, asker.endpoint)}

    def collect(self, used: Iterable[str]) -> list[str]:
        """End what nothing uses; `used` is what consumers and producers use. Those that ended."""
        live = {*used, *(key for _, key in self.handles.values()), *(claim.key for claim in self.claims.values())}
        ended = []
        for key, entry in reversed([*self._entries.items()]):
            if key in live:
                live.add(entry.derived.parent)
            else:
                del self._entries[key]
                ended.append(key)
        return ended

    def validate(self) -> None:
        """Raise AssertionError where what must hold doesn't."""
        known = {""}
        for key, entry in self._entries.items():
            assert entry.derived.key == key
            assert entry.derived.parent in known, f"{key} stands before its parent"
            assert all(generation >= entry.derived.generation for generation in entry.lacking.values())
            known.add(key)
        assert {key for _, key in self.handles.values()} <= known
        for claim in self.claims.values():
            assert claim.key in known
            assert claim.installation


def make_key(parent: str, identity: str, tier: str) -> str:
    """The identity of a derived channel."""
    return hashlib.sha256("\0".join((parent, identity, tier)).encode()).hexdigest()[:_KEY_DIGITS]


def _is_true(derived: Derived, identify: Identify) -> bool:
    try:
        return make_key(derived.parent, identify(derived.shipment), derived.shipment.tier) == derived.key
    except Exception:  # of reading what anybody may have made
        return False
