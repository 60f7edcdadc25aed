"""Shares grow to what a member does in a moment, and no fixed cost makes them small."""

from __future__ import annotations

import pytest

from echannel_ray.core.shares import FIRST, MOST, Share


def sizes_of(seconds, rounds=30, share=None):
    """The sizes that a member is given one after the other, which takes so long for a share of that size."""
    share, sizes, now = share or Share(), [], 0.0
    for _ in range(rounds):
        sizes.append(share.most)
        share.given(share.most, now)
        now += seconds(share.most)
        share.is_back(now)
    return sizes


def test_who_is_soon_back_gets_more():
    assert sizes_of(lambda events: events * 1e-8)[:4] == [64, 128, 256, 512]
    assert sizes_of(lambda events: events * 1e-8)[-1] == MOST


@pytest.mark.parametrize("each", [1e-5, 1e-4, 1e-3, 1e-2])
def test_who_takes_long_for_events_gets_what_it_does_in_a_moment(each):
    last = sizes_of(lambda events: events * each)[-5:]
    assert len(set(last)) == 1
    assert 0.02 <= last[0] * each <= 0.2


def test_who_takes_very_long_for_each_event_gets_one_by_one():
    assert sizes_of(lambda events: events * 5.0)[-1] == 1


def test_who_takes_long_for_any_share_gets_no_less_for_that():
    assert sizes_of(lambda events: 0.5)[-1] == MOST


@pytest.mark.parametrize("fixed", [0.03, 0.1, 1.0])
@pytest.mark.parametrize("each", [1e-4, 1e-3])
def test_events_take_about_as_long_as_the_share_itself_or_a_moment(fixed, each):
    for events in sizes_of(lambda events: fixed + events * each)[-5:]:
        assert max(0.02, fixed / 2) / 2 <= events * each <= 2 * max(0.2, fixed)


def test_one_that_was_held_up_once_does_not_pay_for_it_long():
    share = Share()
    before = sizes_of(lambda events: events * 1e-3, share=share)[-1]
    share.given(share.most, 0.0)
    share.is_back(60.0)
    assert sizes_of(lambda events: events * 1e-3, 6, share)[-1] >= before / 2


def test_one_that_becomes_slow_gets_less():
    share = Share()
    assert sizes_of(lambda events: 0.3, share=share)[-1] == MOST
    assert sizes_of(lambda events: events * 0.1, share=share)[-1] <= 2


def test_one_that_had_nothing_is_not_back():
    share = Share()
    share.is_back(100.0)
    assert share.most == FIRST
