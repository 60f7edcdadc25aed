"""The tokens of a gateway: who has which rights, for how long, how fast they may go, and who had them.

Of a token its digest is kept, so what a gateway remembers on disk gives nobody access. (The token of the gateway's
own endpoint is part of its identity, since `session.gateway()` gives it again.)
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from echannel_ray import errors
from echannel_ray.gateway.rights import Rights

MAX_TOKENS: Final = 1000
_MAX_REVOKED: Final = 10_000
Reason = Literal["wrong_token", "expired", "revoked", "forbidden_channel", "too_large"]
_ADVICE: Final = "ask its session for another endpoint"
# What may come at once after a pause, in seconds of the rate.
_BURST_SECONDS: Final = 1.0


class Grant(msgspec.Struct, frozen=True):
    """What a token gives, as it is remembered."""

    digest: bytes
    rights: Rights
    expires_at: float | None = None  # by the clock of the wall, which goes on while nobody remembers


class Remembered(msgspec.Struct, frozen=True):
    """What a gateway's successor has to know of its tokens."""

    grants: tuple[Grant, ...] = ()
    revoked: tuple[bytes, ...] = ()


class Bucket:
    """Fills at a rate, up to a second's worth; what is taken may leave it in debt, which takes its time to be paid."""

    def __init__(self, per_second: float | None, now: float) -> None:
        """Begin full; None is no limit."""
        self._per_second = per_second
        self._level = (per_second or 0.0) * _BURST_SECONDS
        self._filled_at = now

    def take(self, amount: float, now: float) -> float:
        """Take so much, and say for how many seconds nothing more should be taken."""
        rate = self._per_second
        if rate is None:
            return 0.0
        filled = self._level + (now - self._filled_at) * rate
        self._level = min(filled, rate * _BURST_SECONDS) - amount
        self._filled_at = now
        return max(0.0, -self._level / rate)


class Rates:
    """The rates of one token, which all its connections share."""

    def __init__(self, events_per_second: float | None, bytes_per_second: float | None, now: float) -> None:
        self._events = Bucket(events_per_second, now)
        self._bytes = Bucket(bytes_per_second, now)
        self._lock = threading.Lock()

    def take(self, events: int, size_bytes: int, now: float) -> float:
        """So much came: for how many seconds its client is not to be read."""
        with self._lock:
            return max(self._events.take(events, now), self._bytes.take(size_bytes, now))


class Token:
    """A token that a client has shown, while it is good; connections of the same token have the same."""

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self.rights = grant.rights
        self.rates = Rates(grant.rights.max_events_per_second, grant.rights.max_bytes_per_second, time.monotonic())
        self.is_revoked = False

    def end(self, now: float) -> errors.NotAuthorised | None:
        """Why the token is no good any more; None while it is good."""
        if self.is_revoked:
            return errors.NotAuthorised(f"this token was revoked: {_ADVICE}", reason="revoked")
        if self.grant.expires_at is not None and now >= self.grant.expires_at:
            return errors.NotAuthorised(f"this token has expired: {_ADVICE}", reason="expired")
        return None

    def check(self) -> None:
        """Raise `NotAuthorised` where the token is no good any more."""
        end = self.end(time.time())
        if end is not None:
            raise end


def digest_of(token: str) -> bytes:
    """The digest by which a token is known. Tokens are random and long: a salt would add nothing."""
    return hashlib.sha256(token.encode()).digest()


class Tokens:
    """The tokens of one gateway; any thread may use it."""

    def __init__(self, remembered: Remembered, remember: Callable[[Remembered], None]) -> None:
        """`remember` is called with each change, before it takes effect."""
        self._remember = remember
        self._lock = threading.Lock()
        self._tokens = {grant.digest: Token(grant) for grant in remembered.grants}
        self._revoked = dict.fromkeys(remembered.revoked)
        self._refused: Counter[Reason] = Counter()

    def add(self, grant: Grant, is_remembered: bool = True) -> None:
        """Enter a token. Those that have expired are told so, until there is no room for them."""
        with self._lock:
            is_known = grant.digest in self._tokens  # the gateway's own, which a predecessor had among all the others
            if len(self._tokens) >= MAX_TOKENS and not is_known:
                now = time.time()
                self._tokens = {digest: each for digest, each in self._tokens.items() if each.end(now) is None}
            if len(self._tokens) >= MAX_TOKENS and not is_known:
                raise errors.EChannelError(
                    f"this gateway has {len(self._tokens)} tokens, and can't have more: revoke some that nobody needs",
                    tokens=len(self._tokens),
                )
            self._tokens[grant.digest] = Token(grant)
            if is_remembered:
                self._note()

    def revoke(self, digest: bytes) -> None:
        """End a token; `LookupError` where there is none."""
        with self._lock:
            if digest not in self._tokens:
                raise LookupError(
                    "this gateway has given no such token, or it was revoked before: call revoke() in a session on the "
                    "node whose gateway it is of"
                )
            self._revoked[digest] = None
            while len(self._revoked) > _MAX_REVOKED:
                del self._revoked[next(iter(self._revoked))]
            token = self._tokens.pop(digest)
            self._note()
            token.is_revoked = True

    def _note(self) -> None:
        grants = tuple(token.grant for token in self._tokens.values())
        self._remember(Remembered(grants, tuple(self._revoked)))

    def admit(self, shown: str) -> Token:
        """The token that a client shows; `NotAuthorised` where it is none."""
        # Found by its digest: how long that takes tells nothing of the tokens that there are.
        digest = digest_of(shown)
        with self._lock:
            token = self._tokens.get(digest)
            was_revoked = digest in self._revoked
        if token is None:
            if was_revoked:
                raise errors.NotAuthorised(f"this token was revoked: {_ADVICE}", reason="revoked")
            raise errors.NotAuthorised(f"the gateway does not know this token: {_ADVICE}", reason="wrong_token")
        token.check()
        return token

    def refused(self, error: BaseException) -> None:
        """Count an error, if it is of somebody who may not do what was asked."""
        if isinstance(error, errors.NotAuthorised):
            facts = error.facts
            reason: Reason = facts.get("reason") or ("too_large" if "size_bytes" in facts else "forbidden_channel")
            with self._lock:
                self._refused[reason] += 1

    def stats(self) -> dict[str, int]:
        """How many there are, and how often somebody was refused, by the reason."""
        with self._lock:
            return {
                "tokens": len(self._tokens),
                **{f"refused_{reason}": count for reason, count in self._refused.items()},
            }
