"""What a concentrator's successor has to know of its gateway: how it was opened, and who it is.

It stands in the directory of the node's logs, which only this user can enter: it holds secrets.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

import msgspec

from echannel_ray.core.messages import OpenGateway
from echannel_ray.gateway.tokens import Remembered
from echannel_ray.retained.log_directory import directory_of, private_directory

logger = logging.getLogger(__name__)

_REQUEST: Final = "gateway.request"
_IDENTITY: Final = "gateway.identity"
_TOKENS: Final = "gateway.tokens"


def remembered_gateway(namespace: str, node: int) -> OpenGateway | None:
    """How a predecessor was asked to open its gateway."""
    if not directory_of(namespace, node).exists():
        return None
    # Another user may have been the first to make that directory: a gateway with secrets of theirs would open.
    data = _read(private_directory(namespace, node) / _REQUEST)
    if data is None:
        return None
    try:
        return msgspec.msgpack.decode(data, type=OpenGateway)
    except msgspec.DecodeError:
        logger.warning("what is known of the former gateway of namespace %r can't be read: there is none", namespace)
        return None


def remembered_identity(namespace: str, node: int) -> bytes | None:
    """The identity of the gateway that the node's former concentrator had."""
    return _read(directory_of(namespace, node) / _IDENTITY)


def remembered_tokens(namespace: str, node: int) -> Remembered:
    """The other tokens that the former gateway had granted, and those that were ended."""
    data = _read(directory_of(namespace, node) / _TOKENS)
    try:
        return Remembered() if data is None else msgspec.msgpack.decode(data, type=Remembered)
    except msgspec.DecodeError:
        logger.warning("what is known of the tokens of namespace %r can't be read: there are none", namespace)
        return Remembered()


def remember_tokens(namespace: str, node: int, tokens: Remembered) -> None:
    """Write down a gateway's tokens for its successor: digests, and no token itself."""
    _write(private_directory(namespace, node) / _TOKENS, msgspec.msgpack.encode(tokens))


def remember_gateway(namespace: str, node: int, request: OpenGateway, identity: bytes) -> None:
    """Write down for a successor how a gateway was opened, and its identity."""
    directory = private_directory(namespace, node)
    _write(directory / _IDENTITY, identity)
    _write(directory / _REQUEST, msgspec.msgpack.encode(request))


def forget_gateway(namespace: str, node: int) -> None:
    """Remove what is known of a gateway: the namespace ends, and a later one has a gateway of its own."""
    for name in (_REQUEST, _IDENTITY, _TOKENS):
        (directory_of(namespace, node) / name).unlink(missing_ok=True)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _write(path: Path, data: bytes) -> None:
    """Write a file, all of it or nothing, for this user alone from the first byte on."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(data)
    new.replace(path)
