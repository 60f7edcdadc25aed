"""Tokens: what they give, for how long, and how fast."""

from __future__ import annotations

import time
from typing import Any

import pytest

from echannel_ray import errors
from echannel_ray.gateway.identity import new_token
from echannel_ray.gateway.rights import Rights
from echannel_ray.gateway.tokens import MAX_TOKENS, Bucket, Grant, Rates, Remembered, Tokens, digest_of

RIGHTS = Rights(("a/*",), ("b",), ())


@pytest.fixture
def kept() -> list[Remembered]:
    return []


@pytest.fixture
def tokens(kept) -> Tokens:
    return Tokens(Remembered(), kept.append)


def granted(tokens: Tokens, expires_at: float | None = None) -> str:
    token = new_token()
    tokens.add(Grant(digest_of(token), RIGHTS, expires_at))
    return token


def test_a_token_gives_its_rights(tokens):
    rights = tokens.admit(granted(tokens)).rights
    rights.check("a/b", "publish")
    rights.check("b", "subscribe")
    with pytest.raises(errors.NotAuthorised, match=r"right to derive on channel 'a/b'.*derive=\('a/b',\)") as refused:
        rights.check("a/b", "derive")
    assert (refused.value.right, refused.value.channel, refused.value.patterns) == ("derive", "a/b", [])


@pytest.mark.parametrize("shown", ["", "x", new_token(), "é" * 43], ids=["none", "x", "another", "not ASCII"])
def test_other_tokens_are_refused(tokens, shown):
    granted(tokens)
    with pytest.raises(errors.NotAuthorised) as refused:
        tokens.admit(shown)
    assert refused.value.reason == "wrong_token"


def test_a_token_expires(tokens):
    token = granted(tokens, time.time() + 1000)
    assert tokens.admit(token).end(time.time()) is None
    end = tokens.admit(token).end(time.time() + 1001)
    assert end.reason == "expired"
    gone = granted(tokens, time.time() - 1)
    with pytest.raises(errors.NotAuthorised, match="expired"):
        tokens.admit(gone)


def test_a_token_is_revoked_for_those_who_use_it_too(tokens):
    token, other = granted(tokens), granted(tokens)
    used = tokens.admit(token)
    tokens.revoke(digest_of(token))
    assert used.end(time.time()).reason == "revoked"
    with pytest.raises(errors.NotAuthorised, match="revoked"):
        tokens.admit(token)
    tokens.admit(other)
    with pytest.raises(LookupError, match="no such token"):
        tokens.revoke(digest_of(token))


def test_a_successor_knows_them_by_their_digests(tokens, kept):
    token, revoked = granted(tokens, time.time() + 1000), granted(tokens)
    tokens.revoke(digest_of(revoked))
    assert token.encode() not in repr(kept[-1]).encode()
    successor = Tokens(kept[-1], kept.append)
    assert successor.admit(token).rights == RIGHTS
    assert successor.admit(token).grant == tokens.admit(token).grant
    with pytest.raises(errors.NotAuthorised, match="revoked"):
        successor.admit(revoked)


def test_there_are_so_many_at_most_and_those_that_expired_make_room(tokens):
    past = time.time() - 1
    for _ in range(MAX_TOKENS - 1):
        tokens.add(Grant(new_token().encode(), RIGHTS, past))
    for _ in range(MAX_TOKENS):
        tokens.add(Grant(new_token().encode(), RIGHTS), is_remembered=False)
    with pytest.raises(errors.EChannelError, match="revoke some"):
        granted(tokens)


def test_refusals_are_counted_by_their_reason(tokens):
    tokens.refused(errors.NotAuthorised("", reason="expired"))
    tokens.refused(errors.NotAuthorised("", channel="c", right="publish"))
    tokens.refused(errors.NotAuthorised("", size_bytes=5))
    tokens.refused(ValueError())
    stats = tokens.stats()
    assert stats == {"tokens": 0, "refused_expired": 1, "refused_forbidden_channel": 1, "refused_too_large": 1}


def test_a_bucket_lets_a_second_s_worth_through_and_then_its_rate():
    bucket = Bucket(100, now=0.0)
    assert bucket.take(100, 0.0) == 0
    assert bucket.take(50, 0.0) == 0.5
    assert bucket.take(0, 0.25) == 0.25
    assert bucket.take(0, 0.5) == 0
    assert bucket.take(150, 1000.0) == 0.5  # no more gathers than a second's worth


def test_no_limit_is_none():
    assert Bucket(None, 0.0).take(1e12, 0.0) == 0


def test_the_slower_of_two_rates_counts():
    rates = Rates(10, 1000, 0.0)
    assert rates.take(10, 3000, 0.0) == 2
    assert rates.take(30, 0, 0.0) == 3


@pytest.mark.parametrize(
    ("position", "value", "error"),
    [(0, "sensors/*", TypeError), (2, [3], TypeError), (4, 0, ValueError), (4, True, ValueError), (5, "3", ValueError),
     (6, 1.5, ValueError), (6, 1 << 40, ValueError), (6, -1, ValueError)],
)  # fmt: skip
def test_rights_that_make_no_sense_are_refused(position, value, error):
    asked: list[Any] = [("*",), (), (), (), None, None, None]
    Rights.checked(*asked)
    asked[position] = value
    with pytest.raises(error):
        Rights.checked(*asked)


def test_a_successor_has_room_for_its_own_among_all_that_there_may_be(kept, tokens):
    own = Grant(digest_of(new_token()), RIGHTS)
    tokens.add(own, is_remembered=False)
    last = [granted(tokens) for _ in range(MAX_TOKENS - 1)][-1]
    successor = Tokens(kept[-1], kept.append)
    successor.add(own, is_remembered=False)
    successor.admit(last)
    with pytest.raises(errors.EChannelError, match=f"{MAX_TOKENS} tokens"):
        granted(successor)


def test_each_is_another():
    assert len(new_token()) >= 32
    assert new_token() != new_token()
