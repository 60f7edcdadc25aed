"""Calls between endpoints, as relays see them: passed on, returned where nobody will ever answer, else silence."""

from __future__ import annotations

import pytest

from echannel_ray.core import frames
from echannel_ray.core.relay import Relay
from tests.core.reading import routed

HERE, THERE, ELSEWHERE = 0xA, 0xB, 0xC


@pytest.fixture
def relay():
    """Endpoints 1 and 2 on "e1" and "e2", 5 expected back; THERE is linked on "b", ELSEWHERE is not known."""
    relay = Relay(HERE)
    relay.endpoint_attached(1, "e1")
    relay.endpoint_attached(2, "e2")
    relay.peer_attached(THERE, "b")
    relay.expected.add(5)
    relay.outbox.clear()
    yield relay
    relay.validate()


def call(node: int, endpoint: int, caller: tuple[int, int] = (HERE, 1)) -> bytes:
    return frames.frame(frames.CALL, frames.CALL_FIXED.pack(node, endpoint, *caller, 77) + b"what")


def nobody(endpoint: int, caller: tuple[int, int] = (HERE, 1)) -> bytes:
    return frames.frame(frames.RETURNED, frames.RETURNED_FIXED.pack(*caller, endpoint, 77), frames.IS_NOBODY)


@pytest.mark.parametrize(("address", "link"), [((HERE, 2), "e2"), ((THERE, 9), "b")])
def test_a_call_and_its_answer_are_passed_on_as_they_are(relay: Relay, address: tuple[int, int], link: str) -> None:
    assert routed(relay, "e1", call(*address)) == [(link, call(*address))]
    answer = frames.frame(frames.RETURNED, frames.RETURNED_FIXED.pack(HERE, 1, address[1], 77) + b"that")
    assert routed(relay, link, answer) == [("e1", answer)]


def test_a_call_to_who_is_gone_is_returned(relay: Relay) -> None:
    assert routed(relay, "e1", call(HERE, 4)) == [("e1", nobody(4))]
    relay.endpoint_gone(2)
    relay.outbox.clear()
    assert routed(relay, "e1", call(HERE, 2)) == [("e1", nobody(2))]


def test_it_is_returned_on_the_link_that_it_came_by(relay: Relay) -> None:
    assert routed(relay, "b", call(HERE, 4, (THERE, 9))) == [("b", nobody(4, (THERE, 9)))]


def test_to_who_is_expected_back_there_is_silence_until_it_is_known(relay: Relay) -> None:
    assert routed(relay, "e1", call(HERE, 5)) == []
    relay.endpoint_attached(5, "e5")
    relay.outbox.clear()
    assert routed(relay, "e1", call(HERE, 5)) == [("e5", call(HERE, 5))]
    relay.expected.add(6)
    relay.presume_gone([6])
    relay.outbox.clear()
    assert routed(relay, "e1", call(HERE, 6)) == [("e1", nobody(6))]


def test_to_a_node_without_a_link_there_is_silence_until_it_is_gone(relay: Relay) -> None:
    relay.peer_detached(THERE)
    assert routed(relay, "e1", call(THERE, 9)) == []
    relay.node_gone(THERE)
    assert routed(relay, "e1", call(THERE, 9)) == [("e1", nobody(9))]
    relay.peer_attached(THERE, "b2")
    relay.outbox.clear()
    assert routed(relay, "e1", call(THERE, 9)) == [("b2", call(THERE, 9))]


def test_a_node_that_was_called_in_vain_is_looked_for(relay: Relay) -> None:
    assert routed(relay, "e1", call(ELSEWHERE, 9)) == []
    assert relay.sought == {ELSEWHERE}
    relay.node_gone(ELSEWHERE)
    assert not relay.sought
    assert routed(relay, "e1", call(ELSEWHERE, 9)) == [("e1", nobody(9))]


def test_what_is_sought_is_bounded(relay: Relay) -> None:
    for node in range(100, 5000):
        routed(relay, "e1", call(node, 9))
    assert len(relay.sought) <= 1024


def test_other_addressed_frames_are_not_returned(relay: Relay) -> None:
    dropped = relay.dropped_frames
    answer = frames.frame(frames.RETURNED, frames.RETURNED_FIXED.pack(HERE, 4, 1, 77))
    assert routed(relay, "e1", answer) == []
    assert relay.dropped_frames == dropped + 1
