"""Who is told what happens in a sandbox, and the errors of making one."""

from __future__ import annotations

from typing import Any, Protocol

from echannel_ray.errors import EChannelError


class SandboxUnavailable(EChannelError):
    """Raised where this host can't make a sandbox that is worth the name (`.reason`)."""

    def __init__(self, reason: str, **facts: Any) -> None:
        message = reason if facts else f"no sandbox can be made here, so nothing runs isolated: {reason}"
        super().__init__(message, **(facts or {"reason": reason}))


class SandboxFailed(EChannelError):
    """What was to be installed failed, or its process ended (`.reason`; `.overran`: it broke a limit)."""

    def __init__(self, reason: str, **facts: Any) -> None:
        super().__init__(reason, **{"reason": reason, "overran": False, **facts})


class ServiceFailed(EChannelError):
    """A call of a service failed at the producer (`.kind`: the class of the error there)."""


class SandboxOwner(Protocol):
    """Told of what happens in its sandbox, on the warden's thread: it must not block.

    Outputs are (kind, payload) each, as in packs; of an event that was given, the payload is the one that was given.
    """

    def emitted(self, number: int, outputs: list[tuple[int, Any]], waiting: int) -> None:
        """A batch, a `flush` or a `dequeue` is done; number 0: from `period`."""

    def failed(self, number: int, index: int, outputs: list[tuple[int, Any]], waiting: int, description: str) -> None:
        """The modulator failed at this event of the batch (-1: in something else), and waits for `restart`."""

    def ended(self, number: int, index: int, reason: str, overran: bool) -> None:
        """The process is gone; the last call."""

    def called(self, call: int, service: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The modulator calls a service, and waits for `answer` or `refuse`."""

    def shared_published(self, call: int, index: int, fields: dict[str, Any], expected_version: int | None) -> None:
        """The modulator publishes a shared object, and waits for `answer` (version, fields) or `refuse`."""

    def shared_pulled(self, call: int, index: int) -> None:
        """The modulator pulls a shared object, and waits for `answer` (version, fields) or `refuse`."""

    def shared_updated(self, index: int, version: int) -> None:
        """The sandbox has taken over an update of a shared object."""
