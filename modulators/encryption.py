"""Encryption: events that only who has the key can read, or make.

AES-256 in Galois/counter mode. Each replica encrypts with a key of its own, derived from the shared one and a random
salt, and numbers its events: so no nonce is ever used twice, whatever number of replicas and events there are. Random
nonces under one key would be safe for 2**32 events, which is half a day at full rate.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from typing_extensions import override

from echannel_ray.formats import plain
from echannel_ray.modulation.modulator import Demodulator, Modulator
from echannel_ray.modulators._fields import as_made, as_plain, checked_make

KEY_BYTES: Final = 32
_SALT_BYTES: Final = 16
_NUMBER_BYTES: Final = 12  # AES-GCM's nonce
_MAX_CIPHERS: Final = 256


class Encrypt(Modulator):
    """Encrypts each event, so that `Decrypt` with the same key notices any change. Plain data arrives type for type,
    an object of a class as the dict of its fields.

    The key has 32 bytes: `secrets.token_bytes(32)`. It travels with the modulator, so the parts that install it (the
    channel's manager, the producers) know it. It protects from what comes behind: retained logs, gateways, wires.

    >>> key = secrets.token_bytes(32)
    >>> try_out(Encrypt(key), [{"price": 70}], Decrypt(key))
    [{'price': 70}]
    """

    _number = 0

    def __init__(self, key: bytes) -> None:
        self._secret = _checked(key)

    @cached_property
    def _salt(self) -> bytes:
        return os.urandom(_SALT_BYTES)

    @cached_property
    def _cipher(self) -> AESGCM:
        return _cipher_of(self._secret, self._salt)

    @override
    def key(self) -> str:
        """Tells keys apart without being one: what this returns is kept in more places than the modulator."""
        return hashlib.sha256(b"echannel_ray: which key" + self._secret).hexdigest()

    @override
    def enqueue(self, event: Any) -> None:
        number = self._number.to_bytes(_NUMBER_BYTES, "big")
        self._number += 1
        self.emit(self._salt + number + self._cipher.encrypt(number, plain.encode(as_plain(event)), None))


class Decrypt(Demodulator):
    """Undoes `Encrypt`; raises ValueError for what was made or changed without the key.

    `make` is the class of the events, where they are objects: `make(**fields)` is called. An event that somebody sends
    again, unchanged, is not noticed.

    >>> try_out(Encrypt(bytes(32)), ["what"], Decrypt(b"another key, which has 32 bytes."))
    Traceback (most recent call last):
    ValueError: an event was not encrypted with this key, or was changed on its way
    """

    def __init__(self, key: bytes, make: Callable[..., Any] | None = None) -> None:
        self._secret = _checked(key)
        self.make = checked_make(make)
        self._ciphers: dict[bytes, AESGCM] = {}  # by salt, which is by replica

    @override
    def receive(self, event: Any) -> Iterable[Any]:
        if not isinstance(event, bytes):
            raise TypeError(f"Decrypt reads what Encrypt has sent, not a {type(event).__qualname__}")
        salt, number = event[:_SALT_BYTES], event[_SALT_BYTES : _SALT_BYTES + _NUMBER_BYTES]
        cipher = self._ciphers.get(salt) or _cipher_of(self._secret, salt)
        try:
            data = cipher.decrypt(number, event[_SALT_BYTES + _NUMBER_BYTES :], None)
        except (InvalidTag, ValueError):  # ValueError: too short to have a nonce
            raise ValueError("an event was not encrypted with this key, or was changed on its way") from None
        if salt not in self._ciphers:
            if len(self._ciphers) >= _MAX_CIPHERS:
                self._ciphers.clear()
            self._ciphers[salt] = cipher
        return (as_made(self.make, plain.decode(data)),)


def _checked(key: Any) -> bytes:
    if not isinstance(key, bytes):
        raise TypeError(f"the key is bytes, not a {type(key).__qualname__}: make one with secrets.token_bytes(32)")
    if len(key) != KEY_BYTES:
        raise ValueError(f"the key has {KEY_BYTES} bytes, not {len(key)}: make one with secrets.token_bytes(32)")
    return key


def _cipher_of(secret: bytes, salt: bytes) -> AESGCM:
    return AESGCM(hmac.digest(secret, b"echannel_ray: key of a replica" + salt, "sha256"))
