"""Which services a producer grants to modulators, and how their calls reach the handles."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from functools import partialmethod
from typing import Any

from echannel_ray.errors import ServiceNotGranted
from echannel_ray.formats import plain
from echannel_ray.modulation.services import Clock, Logger, ProducerInfo, public_methods, service_name

_logger = logging.getLogger("echannel_ray.modulators")


class Grants:
    """The services of one producer that modulators may call."""

    def __init__(
        self,
        services: Mapping[Any, Any] | None,
        delegate: Callable[[str], Any] | None,
        info: Info,
    ) -> None:
        self._info = info
        self._delegate = delegate
        self._handles: dict[str, tuple[Any, frozenset[str]]] = {}
        offered: dict[Any, Any] = {Clock: time, Logger: _Log(info), ProducerInfo: info, **(services or {})}
        for service, handle in offered.items():
            methods = public_methods(service if isinstance(service, type) else handle)
            self._handles[service_name(service)] = (handle, methods)

    def grant(self, name: str) -> frozenset[str]:
        """The methods of a service that this producer offers; `ServiceNotGranted` where it does not."""
        if name not in self._handles and self._delegate is not None:
            try:
                handle = self._delegate(name)
            except Exception:  # the user's: it does not grant
                _logger.exception("the delegate of producer %s failed when asked for %r", self._info.name(), name)
                handle = None
            if handle is not None:
                self._handles[name] = (handle, public_methods(handle))
        if name not in self._handles:
            raise ServiceNotGranted(
                f"producer {self._info.name()} of channel {self._info.channel()!r} does not grant {name}: make it with "
                "services={…} or a delegate that knows it, or do without",
                service=name,
                producer=self._info.name(),
            )
        return self._handles[name][1]

    def call(self, name: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a granted handle with plain data."""
        handle, methods = self._handles[name]
        if method not in methods:
            raise AttributeError(f"{name} has no public method {method!r}; it has {', '.join(sorted(methods))}")
        return getattr(handle, method)(*args, **kwargs)

    def call_copied(self, name: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a granted handle for a modulator in this process: it and the handle share no objects either."""
        args, kwargs = plain.decode(plain.encode((args, kwargs)))
        return plain.decode(plain.encode(self.call(name, method, args, kwargs)))


class Info:
    """The name, channel, namespace, node and process of the producer, for its modulators."""

    def __init__(self, name: str, channel: str, namespace: str, node: int) -> None:
        self._name, self._channel, self._namespace, self._node = name, channel, namespace, node

    def name(self) -> str:
        """The producer's name, as `Message.producer` has it."""
        return self._name

    def channel(self) -> str:
        """The channel that the producer publishes on."""
        return self._channel

    def namespace(self) -> str:
        """The namespace of that channel."""
        return self._namespace

    def node_id(self) -> str:
        """The Ray node that the producer is on."""
        return f"{self._node:016x}"

    def pid(self) -> int:
        """The process that the producer is in."""
        return os.getpid()


class _Log:
    """Writes what modulators say to the log of this process, with the channel's name."""

    def __init__(self, info: Info) -> None:
        self._info = info

    def _write(self, level: int, message: str) -> None:
        # As an argument: a modulator's text is no format.
        _logger.log(level, "channel %r: %s", self._info.channel(), str(message)[:4096])

    debug = partialmethod(_write, logging.DEBUG)
    info = partialmethod(_write, logging.INFO)
    warning = partialmethod(_write, logging.WARNING)
    error = partialmethod(_write, logging.ERROR)
