"""The payloads that a sandbox may answer with by number: of the batch it works on, and of events that it holds."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import repeat
from typing import Any, Final

from echannel_ray.core.kinds import DATA
from echannel_ray.formats.events import OVERHEAD_BYTES
from echannel_ray.sandbox.messages import Outcome, Violation

# What an event that is held costs at least, so that a flood of empty ones is bounded too.
_HELD_BYTES: Final = OVERHEAD_BYTES + 100


class GivenPayloads:
    """The payloads that one sandbox holds. Beyond `max_bytes` the oldest are forgotten, and can't be emitted."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: dict[int, tuple[int, Any]] = {}  # by handle, in the order of their coming
        self._held_bytes = 0
        self._next = 0

    def resolve(
        self, outcome: Outcome, kinds: Sequence[int], payloads: Sequence[Any]
    ) -> tuple[list[tuple[int, Any]], bool]:
        """The outputs, and whether some are missing that were held too long; `Violation` where it makes no sense."""
        missing = False
        if outcome.passed:
            outputs = list(zip(kinds, payloads, strict=True))
        else:
            table: list[Any] = [*zip(kinds, payloads, strict=True), *zip(repeat(DATA), outcome.values)]
            for handle in outcome.held:
                if handle >= self._next:
                    raise Violation("it emitted an event that it was not given")
                table.append(self._held.get(handle))
            try:
                outputs = [table[pick] for pick in array("I", outcome.picks)]
            except IndexError:
                raise Violation("it emitted an event that it was not given") from None
            if outcome.held and None in outputs:
                outputs = [output for output in outputs if output is not None]
                missing = True
        self._keep(outcome, kinds, payloads)
        return outputs, missing

    def clear(self) -> None:
        """Forget all payloads: the sandbox holds none any more, since its modulator is gone."""
        self._held.clear()
        self._held_bytes = 0

    def _keep(self, outcome: Outcome, kinds: Sequence[int], payloads: Sequence[Any]) -> None:
        if len(outcome.keeps) > 4 * len(payloads):
            raise Violation("it holds more events than it was given")
        for index in array("I", outcome.keeps):
            if index >= len(payloads):
                raise Violation("it holds an event that it was not given")
            payload = payloads[index]
            self._held[self._next] = kinds[index], payload
            self._held_bytes += _size(payload)
            self._next += 1
        for handle in outcome.drops:
            self._forget(handle)
        while self._held_bytes > self._max_bytes:
            self._forget(next(iter(self._held)))

    def _forget(self, handle: int) -> None:
        held = self._held.pop(handle, None)
        if held is not None:
            self._held_bytes -= _size(held[1])


def _size(payload: Any) -> int:
    if type(payload) is list:
        return sum(map(len, payload)) + _HELD_BYTES
    return _HELD_BYTES + (len(payload) if isinstance(payload, bytes | str) else 0)
