"""Who may see the page."""

from __future__ import annotations

import pytest

from echannel_ray.errors import NotAuthorised
from echannel_ray.page.access import COOKIE_SECONDS, Access, is_from_elsewhere, token_from

TOKEN = "a token that nobody guesses"


@pytest.fixture
def access():
    return Access(TOKEN, ["Page.Example.", "10.0.0.5"])


@pytest.mark.parametrize("given", ["", "a token", TOKEN + " ", TOKEN.upper(), "naïve \udcff"[:6]])
def test_only_the_token_is_the_token(access, given):
    assert access.is_token(TOKEN)
    assert not access.is_token(given)


def test_a_cookie_is_good_for_half_a_day(access):
    cookie = access.cookie(1000.0)
    assert access.is_cookie(cookie, 1000.0 + COOKIE_SECONDS - 1)
    assert not access.is_cookie(cookie, 1000.0 + COOKIE_SECONDS)
    assert TOKEN not in cookie


def test_a_cookie_can_not_be_made_up(access):
    until, signature = access.cookie(1000.0).split(".")
    later = str(int(until) + 1)
    for forged in (
        "",
        ".",
        until,
        f"{later}.{signature}",
        f"{until}.",
        f".{signature}",
        f"{until}.{signature}0",
        "x.é",
    ):
        assert not access.is_cookie(forged, 1000.0)
    assert not access.is_cookie(Access("another token").cookie(1000.0), 1000.0)


def test_cookies_outlive_the_server(access):
    assert Access(TOKEN).is_cookie(access.cookie(1000.0), 1001.0)


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8269", "127.0.0.1:8269", "[::1]:8269", "10.0.0.5", "page.example:443", "1.2.3.4"],
)
def test_names_that_are_ours(access, host):
    assert access.is_our_host(host)


@pytest.mark.parametrize(
    "host", ["", "evil.example", "localhost.evil.example", "evil.example:8269", "127.0.0.1.evil.example", "[::1", "a b"]
)
def test_names_that_were_rebound_to_us(access, host):
    assert not access.is_our_host(host)


@pytest.mark.parametrize(("site", "is_elsewhere"), [(None, False), ("same-origin", False), ("none", False),
                                                    ("same-site", True), ("cross-site", True)])  # fmt: skip
def test_other_pages_of_this_machine(site, is_elsewhere):
    assert is_from_elsewhere(site) is is_elsewhere


def test_tokens_of_deployments(tmp_path):
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    assert token_from({}) is None
    assert token_from({"ECHANNEL_PAGE_TOKEN": TOKEN}) == TOKEN
    assert token_from({"ECHANNEL_PAGE_TOKEN_FILE": str(path)}) == TOKEN


def test_tokens_that_are_no_good(tmp_path):
    with pytest.raises(NotAuthorised, match="ECHANNEL_PAGE_TOKEN has 5 characters"):
        token_from({"ECHANNEL_PAGE_TOKEN": "short"})
    with pytest.raises(NotAuthorised, match="ECHANNEL_PAGE_TOKEN has 0 characters"):
        token_from({"ECHANNEL_PAGE_TOKEN": ""})
    with pytest.raises(NotAuthorised, match="can't be read"):
        token_from({"ECHANNEL_PAGE_TOKEN_FILE": str(tmp_path / "none")})
