"""The public face of a delivered event."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from typing_extensions import override

from echannel_ray.producers.pending_deliveries import PendingDelivery, Receipt


class Delivery:
    """A delivered event: `result()` or `await` waits until every consumer's handler has returned."""

    __slots__ = ("_pending",)

    def __init__(self, pending: PendingDelivery) -> None:
        self._pending = pending

    @override
    def __reduce__(self) -> Any:
        raise TypeError("a delivery belongs to its process: pass on what its result() returns")

    def done(self) -> bool:
        """Whether every consumer has answered."""
        return self._pending.done

    def result(self, timeout: float | None = None) -> Receipt:
        """Wait until every consumer's handler has returned; `DeliveryFailed` where one raised or died."""
        return self._pending.result(timeout)

    def __await__(self) -> Generator[Any, None, Receipt]:
        return self._pending.__await__()
