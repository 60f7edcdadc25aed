"""Names and numbers by which the parts know each other."""

from __future__ import annotations

import re
import secrets

from echannel_ray.errors import InvalidName

# Raised whenever a frame or message changes its meaning: parts with another one refuse each other.
WIRE_VERSION = 5

# What the certificates of managers have where those of concentrators have their node. It is no node's.
MANAGERS_NODE = 0

# All actors of all namespaces live in this Ray namespace, so that every job of the cluster finds them.
RAY_NAMESPACE = "echannel_ray"

MAX_NAME_LENGTH = 255
_NAME = re.compile(r"[^\x00-\x1f\x7f/\ud800-\udfff]+(/[^\x00-\x1f\x7f/\ud800-\udfff]+)*\Z")
_NAMESPACE = re.compile(r"[A-Za-z0-9_.-]+\Z")


def new_endpoint_id() -> int:
    """A number for an endpoint: random, never 0, unique for all practical purposes."""
    return secrets.randbits(63) + 1


def node_number(ray_node_id: str) -> int:
    """A Ray node id (56 hex digits) as the 64-bit number that frames carry."""
    return int(ray_node_id[:16], 16)


def check_channel_name(name: object) -> str:
    """The name itself, or `InvalidName`."""
    return _check("channel", name, _NAME, "use 1 to 255 printable characters, and '/' only between parts")


def check_namespace(name: object) -> str:
    """The namespace itself, or `InvalidName`."""
    return _check("namespace", name, _NAMESPACE, "use letters, digits, '.', '_' and '-'")


def check_group_name(name: object) -> str:
    """The group itself, or `InvalidName`."""
    return _check("group", name, _NAME, "use 1 to 255 printable characters, and '/' only between parts")


def _check(what: str, name: object, pattern: re.Pattern[str], advice: str) -> str:
    if not isinstance(name, str):
        raise InvalidName(f"a {what} name is a str, not {type(name).__name__}: {advice}", name=repr(name))
    if len(name) > MAX_NAME_LENGTH or not pattern.match(name):
        raise InvalidName(f"{name[:80]!r} can't be the name of a {what}: {advice}", name=name)
    return name
