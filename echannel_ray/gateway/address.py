"""Where a gateway is and what a client has to show it: all of it in one string."""

from __future__ import annotations

import base64
import binascii
import re
import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

from typing_extensions import override

_SCHEME: Final = "echannel+tls"
_FORM: Final = f"{_SCHEME}://TOKEN@HOST:PORT/NAMESPACE?events=PORT&key=KEY, as `str(session.gateway())` gives it"
_PORT: Final = re.compile(r"[0-9]{1,5}\Z")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}\Z")  # 32 bytes, url-safe


@dataclass(frozen=True)
class Endpoint:
    """What a client needs. Whoever has it may do what the gateway allows: it is a secret."""

    host: str
    port: int  # of record batches: Arrow Flight
    namespace: str
    token: str = field(repr=False)
    key: bytes = field(repr=False)  # the server's certificate, DER: no other is trusted
    events_port: int

    @override
    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        key = base64.urlsafe_b64encode(self.key).decode().rstrip("=")
        where = f"{host}:{self.port}/{quote(self.namespace, safe='')}"
        return f"{_SCHEME}://{self.token}@{where}?events={self.events_port}&key={key}"

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """The endpoint again; `ValueError` that says what is wrong with the text, without showing it."""
        parts = urlsplit(text.strip())
        if parts.scheme != _SCHEME:
            raise _malformed(f"it has to begin with {_SCHEME}://")
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or not port:
            raise _malformed("there is no host with a port in it")
        if not _TOKEN.match(parts.username or ""):
            raise _malformed("the token before the @ is missing, or has lost some of its 43 characters")
        namespace = unquote(parts.path[1:])
        if not namespace:
            raise _malformed("there is no namespace in it")
        query = parse_qs(parts.query)
        key = _certificate(query.get("key", [""])[0])
        events_port = query.get("events", [""])[0]
        if not _PORT.match(events_port) or not 0 < int(events_port) < 65536:
            raise _malformed("there is no port for events in it")
        return cls(host, port, namespace, parts.username or "", key, int(events_port))

    @property
    def certificate_pem(self) -> bytes:
        """The server's certificate in the form that TLS libraries take."""
        return ssl.DER_cert_to_PEM_cert(self.key).encode()


def _certificate(text: str) -> bytes:
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _malformed("the key is no base64url: was the text cut or changed?") from None
    # A DER sequence says how long it is: that tells a text that was cut from a whole one.
    if len(key) < 4 or key[:2] != b"\x30\x82" or len(key) != 4 + int.from_bytes(key[2:4], "big"):
        raise _malformed("the key is no whole certificate: was the text cut?")
    return key


def _malformed(reason: str) -> ValueError:
    return ValueError(f"this is no gateway's endpoint: {reason}. It is {_FORM}")
