"""The way by which memory is handed over to other processes of the node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from echannel_ray.transport.memory_files import MemoryFile


class SegmentPath(Protocol):
    """What a `SegmentStore` has to say to consumers."""

    def reaches(self, endpoint: int) -> bool:
        """Whether memory can be handed over to an endpoint now; where not, that is seen to."""

    def offer(self, endpoint: int, arena: int, max_held_bytes: int, files: Sequence[MemoryFile]) -> bool:
        """Hand over an arena and the ledger of it; False where there is no way (yet: one is asked for)."""

    def withdraw(self, endpoint: int, arena: int) -> None:
        """Say that nothing more comes by an arena."""
