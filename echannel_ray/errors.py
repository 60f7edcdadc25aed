"""The errors of the public API.

Each says whose act caused it, carries its facts as attributes, survives pickling, and says what to do next.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import override


class EChannelError(Exception):
    """The base of every error of this library (time-outs apart, which are `TimeoutError`)."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self._facts = facts
        # The facts are attributes: `error.channel`, `error.field`, …
        self.__dict__.update(facts)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        # Ray raises errors again in other processes: the default would lose the keywords.
        return _rebuild, (type(self), self.message, self._facts)

    @override
    def __str__(self) -> str:
        return self.message

    @property
    def facts(self) -> dict[str, Any]:
        """What the error talks about, by name."""
        return dict(self._facts)


def _rebuild(cls: type[EChannelError], message: str, facts: dict[str, Any]) -> EChannelError:
    return cls(message, **facts)


class InvalidName(EChannelError):
    """The caller gave a channel, namespace or group a name that can't be one (`.name`)."""


class TypeMismatch(EChannelError):
    """The caller opened a channel with a type that its definition does not allow (`.channel`, `.field`)."""


class NotSerialisable(EChannelError):
    """The caller published an object that can't leave its process (`.path` says where inside it, if known)."""


class EventsMissing(EChannelError):
    """The caller reads a retained channel, and events of a log are gone that it was to get: `.first` to `.last` (None:
    nobody knows how many) of `.log` of `.channel`. Reading goes on behind them.
    """


class Overloaded(EChannelError):
    """A consumer's window is full, and the producer was opened with overflow="raise" (`.channel`, `.consumer`)."""


class DeliveryFailed(EChannelError):
    """Consumers did not handle a delivered event: `.failures` has a `Failure` for each, `.handled` counts the rest."""


class ServiceNotGranted(EChannelError):
    """A modulator requires a service that a producer does not grant (`.service`, `.producer`)."""


class ModulatorRefused(EChannelError):
    """A producer's admission does not let this modulator in (`.reason`)."""


class ModulatorQuarantined(EChannelError):
    """A modulator broke its limits while it ran, and was removed from a producer (`.producer`, `.reason`)."""


class ModulatorFailed(EChannelError):
    """A modulator failed at an event, which is lost to its consumers; it goes on (`.producer`, `.reason`, `.event`)."""


class MasterLost(EChannelError):
    """The process that held the master copy of a shared object is gone."""


class StaleVersion(EChannelError):
    """Somebody else published a newer version of a shared object first (`.expected`, `.current`)."""


class ChannelDeleted(EChannelError):
    """The channel was deleted, by this process or another (`.channel`)."""


class NoSuchChannel(EChannelError, LookupError):
    """The caller looked for a channel that nobody has created (`.channel`, `.namespace`)."""


class Closed(EChannelError):
    """The caller used a producer, subscription or session after it was closed (`.what`)."""


class Disconnected(EChannelError):
    """This process can't reach its concentrator, or Ray is gone."""


class VersionMismatch(EChannelError):
    """A part speaks another version of the wire protocol (`.ours`, `.theirs`)."""


class NotAuthorised(EChannelError):
    """A peer without the right key or user id was turned away, or turned us away."""
