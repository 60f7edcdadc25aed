"""What a modulator may ask of the producer that it works at: services, called by name, with plain data only.

A service is a Protocol class; its name is the qualified name of that class. The producer grants a handle for it. The
modulator gets a proxy that knows names alone: neither side ever reads a class of the other's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from typing_extensions import override


class Clock(Protocol):
    """The producer's clocks; offered everywhere."""

    def time(self) -> float:
        """Seconds since 1970."""

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""


class Logger(Protocol):
    """Writes to the producer's log; offered everywhere."""

    def debug(self, message: str) -> None:
        """Write a message for whoever looks for an error."""

    def info(self, message: str) -> None:
        """Write a message that tells what is usual."""

    def warning(self, message: str) -> None:
        """Write a message that tells what is not usual."""

    def error(self, message: str) -> None:
        """Write a message that tells what went wrong."""


class ProducerInfo(Protocol):
    """Tells which producer the modulator works at; offered everywhere."""

    def name(self) -> str:
        """The producer's name, as `Message.producer` has it."""

    def channel(self) -> str:
        """The channel that the producer publishes on."""

    def namespace(self) -> str:
        """The namespace of that channel."""

    def node_id(self) -> str:
        """The Ray node that the producer is on, as 16 hex digits."""

    def pid(self) -> int:
        """The process that the producer is in."""


def service_name(service: Any) -> str:
    """The name by which a service is asked for and granted."""
    if isinstance(service, str):
        return service
    if isinstance(service, type):
        return f"{service.__module__}.{service.__qualname__}"
    raise TypeError(f"a service is a Protocol class or its qualified name, not {service!r}")


def public_methods(of: Any) -> frozenset[str]:
    """The methods that a Protocol class declares, or that a handle has."""
    return frozenset(name for name in dir(of) if not name.startswith("_") and callable(getattr(of, name, None)))


# Performs a call at the producer: (service, method, args, kwargs) -> result.
Call = Callable[[str, str, tuple[Any, ...], dict[str, Any]], Any]


class Services(Mapping[Any, Any]):
    """What `Modulator.services` is: proxies, by Protocol class or name."""

    def __init__(self, names: Iterable[str], call: Call) -> None:
        self._proxies = {name: Proxy(name, call) for name in names}

    @override
    def __getitem__(self, service: Any) -> Proxy:
        name = service_name(service)
        try:
            return self._proxies[name]
        except KeyError:
            raise KeyError(f"{name} was not asked for: name it in the modulator's `requires`") from None

    @override
    def __iter__(self) -> Iterator[Any]:
        return iter(self._proxies)

    @override
    def __len__(self) -> int:
        return len(self._proxies)


class Proxy:
    """A service as a modulator sees it: each public method is a call to the producer's handle."""

    __slots__ = ("_call", "_name")

    def __init__(self, name: str, call: Call) -> None:
        self._name = name
        self._call = call

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(f"{method!r} is not a public method of {self._name}")

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(self._name, method, args, kwargs)

        return call

    @override
    def __repr__(self) -> str:
        return f"<service {self._name}>"
