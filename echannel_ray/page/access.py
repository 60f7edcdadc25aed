"""Who may see the page: a token, exchanged for a cookie; and names that a browser may know the server by. No I/O."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from echannel_ray.errors import NotAuthorised

TOKEN_VARIABLE = "ECHANNEL_PAGE_TOKEN"
TOKEN_FILE_VARIABLE = "ECHANNEL_PAGE_TOKEN_FILE"
COOKIE_SECONDS = 12 * 3600
_SHORTEST_TOKEN = 16


class Access:
    """The token of one server, and what follows from it. Cookies outlive the server where the token does."""

    def __init__(self, token: str, hosts: Iterable[str] = ()) -> None:
        self._token = token.encode()
        self._hosts = {"localhost", *(host.lower().rstrip(".") for host in hosts)}

    def is_token(self, given: str) -> bool:
        """Whether this is the token."""
        return hmac.compare_digest(given.encode(), self._token)

    def cookie(self, now: float) -> str:
        """A cookie that is good for half a day. The token does not follow from it."""
        until = str(int(now) + COOKIE_SECONDS)
        return f"{until}.{self._sign(until)}"

    def is_cookie(self, given: str, now: float) -> bool:
        """Whether it is one of ours, and still good."""
        until, _, signature = given.partition(".")
        # Signed first: what is believed is what we wrote.
        return hmac.compare_digest(signature.encode(), self._sign(until).encode()) and now < int(until)

    def is_our_host(self, header: str) -> bool:
        """Whether a request is for us. By DNS rebinding the name of another site leads here, and its pages could read
        ours. An address can't be rebound.
        """
        try:
            host = urlsplit(f"//{header}").hostname or ""
            if host.rstrip(".") in self._hosts:
                return True
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True

    def _sign(self, text: str) -> str:
        return hmac.new(self._token, b"echannel live page " + text.encode(), hashlib.sha256).hexdigest()


def is_from_elsewhere(fetch_site: str | None) -> bool:
    """Whether a browser says (by `Sec-Fetch-Site`) that another page asks. SameSite cookies don't see that where both
    are on this machine: a site has no port.
    """
    return fetch_site not in (None, "same-origin", "none")


def token_from(variables: Mapping[str, str]) -> str | None:
    """The token that the environment gives, itself or by the name of a file; None where it gives none."""
    token = variables.get(TOKEN_VARIABLE)
    source = TOKEN_VARIABLE
    path = variables.get(TOKEN_FILE_VARIABLE)
    if token is None and path is not None:
        source = f"{TOKEN_FILE_VARIABLE} ({path})"
        try:
            token = Path(path).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise NotAuthorised(f"the page's token can't be read from {source}: {error}") from error
    if token is not None and len(token) < _SHORTEST_TOKEN:
        raise NotAuthorised(
            f"the token in {source} has {len(token)} characters, and can be guessed: use {_SHORTEST_TOKEN} or more, as "
            "`python -c 'import secrets; print(secrets.token_urlsafe())'` makes them"
        )
    return token
