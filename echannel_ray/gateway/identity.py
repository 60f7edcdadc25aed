"""Who a gateway is: what its clients know it by, so that a successor with the same is reached by the same string."""

from __future__ import annotations

import secrets
import socket
import ssl
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone

import msgspec
from typing_extensions import override

# An endpoint is good for as long as the gateway has this identity: revoking it is making another.
_LIFE = timedelta(days=3650)
_TOKEN_BYTES = 32


class Identity(msgspec.Struct, frozen=True):
    """A gateway's secrets, and its ports; kept for a successor as `bytes(identity)`, which `Identity.parse` reads."""

    token: str
    key_pem: bytes
    certificate_pem: bytes
    port: int = 0  # 0: any
    events_port: int = 0

    @override
    def __repr__(self) -> str:
        return f"Identity(port={self.port}, events_port={self.events_port})"

    def __bytes__(self) -> bytes:
        return msgspec.msgpack.encode(self)

    def at(self, port: int, events_port: int) -> Identity:
        """The same identity at other ports."""
        return msgspec.structs.replace(self, port=port, events_port=events_port)

    @staticmethod
    def parse(data: bytes) -> Identity:
        """The identity that these bytes are; `ValueError` where they are none."""
        try:
            return msgspec.msgpack.decode(data, type=Identity)
        except msgspec.DecodeError as error:
            raise ValueError(f"these bytes are no gateway's identity: {error}") from None

    @staticmethod
    def generate(hosts: Sequence[str], port: int = 0, events_port: int = 0) -> Identity:
        """A new one, for a gateway that is reached by these names and addresses, and those of this machine."""
        local = ("localhost", "127.0.0.1", "::1", socket.gethostname())
        key_pem, certificate_pem = _certificate(dict.fromkeys([*hosts, *local]))
        return Identity(new_token(), key_pem, certificate_pem, port, events_port)

    @property
    def certificate_der(self) -> bytes:
        """The certificate as endpoints carry it."""
        return ssl.PEM_cert_to_DER_cert(self.certificate_pem.decode())


def new_token() -> str:
    """A new token: random, and too long to be guessed."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def _certificate(hosts: Iterable[str]) -> tuple[bytes, bytes]:
    """A key, and a certificate for these hosts that is its own authority: clients trust it and no other."""
    from cryptography.hazmat.primitives.asymmetric import ec

    from echannel_ray.transport.authority import alternative_names, builder_of, key_pem_of, named, signed

    key = ec.generate_private_key(ec.SECP256R1())
    name = named("echannel_ray gateway")
    now = datetime.now(timezone.utc)
    builder = builder_of(name, name, key, now + _LIFE, now).add_extension(alternative_names(hosts), critical=False)
    return key_pem_of(key), signed(builder, key)
