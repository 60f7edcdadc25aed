"""What the environment says: a container has no other place to say it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from echannel_ray.errors import NotAuthorised
from echannel_ray.transport.door import DIRECTORY_VARIABLE
from echannel_ray.transport.unix import base_directory, make_private

_HOST: Final = "ECHANNEL_PROBE_HOST"
PORT_VARIABLE: Final = "ECHANNEL_PROBE_PORT"
_DRAIN: Final = "ECHANNEL_DRAIN_SECONDS"


class CommandRefused(Exception):
    """Raised where somebody asked for what can't be: the command ends with its text, which says what to do instead."""


class Settings(NamedTuple):
    """The settings of the process that runs a pod, and of those that ask it something."""

    host: str = "127.0.0.1"
    port: int = 8470
    drain_seconds: float = 30.0

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Settings:
        """The settings that the environment has."""
        default = cls()
        port = _number(environment, PORT_VARIABLE, default.port, 65535)
        if port != int(port):
            raise CommandRefused(f"{PORT_VARIABLE}={port} is no port: set a whole number from 0 (any) to 65535")
        seconds = _number(environment, _DRAIN, default.drain_seconds, 86400)
        return cls(environment.get(_HOST) or default.host, int(port), seconds)


def _number(environment: Mapping[str, str], name: str, default: float, most: float) -> float:
    given = environment.get(name) or default
    try:
        number = float(given)
        if not 0 <= number <= most:
            raise ValueError
    except ValueError:
        raise CommandRefused(
            f"{name}={given!r}: set a number from 0 to {most:.0f}, or leave it out for {default:.0f}"
        ) from None
    return number


def directory() -> str:
    """The directory of the doors of this pod; made where it is missing."""
    given = os.environ.get(DIRECTORY_VARIABLE)
    path = Path(given) if given else base_directory() / "pod"
    try:
        make_private(path, DIRECTORY_VARIABLE)
    except NotAuthorised as error:
        raise CommandRefused(str(error)) from None
    except OSError as error:
        raise CommandRefused(f"{error}: set {DIRECTORY_VARIABLE} to a directory that can be made") from None
    return str(path)
