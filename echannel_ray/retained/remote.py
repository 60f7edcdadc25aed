"""The logs of a channel, wherever they are, for who reads ranges of them and is no subscriber."""

from __future__ import annotations

import threading
import time
from typing import Any, Final

import msgspec

from echannel_ray import errors
from echannel_ray.core.messages import GetMembership, LogAddress
from echannel_ray.endpoint.calls import Nobody
from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
from echannel_ray.logs.entries import Entry, Missing
from echannel_ray.retained import log_calls

# Where a log host is being restarted.
_PATIENCE_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.1


class RemoteLogs:
    """One per channel and whoever reads so; any thread may use it."""

    def __init__(self, endpoint: ProcessEndpoint, channel: str, incarnation: int) -> None:
        self._endpoint = endpoint
        self._channel = channel
        self._incarnation = incarnation
        self._closing = threading.Event()

    def addresses(self) -> tuple[LogAddress, ...]:
        """Where they are now: all that something was logged in before this was asked."""
        request = GetMembership(self._channel, self._incarnation)
        found: tuple[LogAddress, ...] = self._endpoint.requests.ask(request).logs
        return found

    def address_of(self, log: str) -> LogAddress | None:
        """Where this one is, if it is anywhere."""
        return next((each for each in self.addresses() if each.log == log), None)

    def ask(self, log: str, question: Any) -> Any:
        """Ask the log host; while it is being restarted, its successor. `Missing` where there is none."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        start = getattr(question, "start", 0)
        while True:
            address = self.address_of(log)
            if address is not None:
                try:
                    answer = self._endpoint.calls.call(address.node, address.endpoint, question, _PATIENCE_SECONDS)
                except (Nobody, TimeoutError):
                    answer = None
                if isinstance(answer, log_calls.Gone):
                    raise Missing(log, start, answer.first)
                if isinstance(answer, log_calls.Unlogged):
                    raise errors.EChannelError(f"log {log} of channel {self._channel!r} can't be read: {answer.reason}")
                if answer is not None and not isinstance(answer, log_calls.OtherLog):
                    return answer
            if time.monotonic() > deadline or self._closing.wait(_PAUSE_SECONDS):
                raise Missing(log, start, None)

    def extent(self, log: str) -> tuple[int, int]:
        """The offsets of its first event and behind its last one."""
        extent = self.ask(log, log_calls.Look(self._channel, log))
        return extent.first, extent.next

    def entries(self, log: str, start: int, stop: int, max_bytes: int) -> list[Entry]:
        """As `Store.read`."""
        fetched = self.ask(log, log_calls.ReadRange(self._channel, log, start, stop, max_bytes))
        if not fetched.slices:
            return list(fetched.entries)
        (about,) = fetched.entries
        parts = [
            self.ask(log, log_calls.FetchSlice(self._channel, log, about.first, number * log_calls.MAX_CALL_BYTES)).data
            for number in range(fetched.slices)
        ]
        return [msgspec.structs.replace(about, data=b"".join(parts))]

    def close(self) -> None:
        """Whoever waits for a log host that is away is let go."""
        self._closing.set()
