"""Flows: what is kept, who is asked, and what is sent again."""

from __future__ import annotations

from collections import deque

import pytest

from echannel_ray.core.flows import FIRST_PROBE_SECONDS, LONGEST_PROBE_SECONDS, FlowReceiver, FlowSender

NEVER = float("inf")


@pytest.fixture
def flow():
    """Two nodes, 0xa with two destinations and 0xb with one."""
    flow = FlowSender(1, [(0xA, 1), (0xA, 2), (0xB, 3)], deque())
    yield flow
    flow.validate()


def send(flow: FlowSender, count: int, now: float = 0.0) -> None:
    for _ in range(count):
        flow.sent([b"abc", b"de"], 0, 5, now)


def test_packs_are_numbered_and_kept(flow: FlowSender) -> None:
    send(flow, 3)
    assert [pack.number for pack in flow.kept] == [1, 2, 3]
    assert flow.kept_bytes == 15
    assert flow.last_sent == 3


def test_what_all_nodes_have_is_released(flow: FlowSender) -> None:
    send(flow, 3)
    flow.acknowledged(0xA, 3, 0.0)
    assert len(flow.kept) == 3
    flow.acknowledged(0xB, 2, 0.0)
    assert [pack.number for pack in flow.kept] == [3]
    flow.acknowledged(0xB, 1, 0.0)  # an old one, late
    flow.acknowledged(0xB, 3, 0.0)
    assert not flow.kept
    assert not flow.kept_bytes
    assert flow.probe_at == NEVER


def test_acknowledgements_of_strangers_and_of_the_future_do_no_harm(flow: FlowSender) -> None:
    send(flow, 2)
    flow.acknowledged(0xC, 2, 0.0)
    flow.acknowledged(0xA, 99, 0.0)
    assert flow.acked == {0xA: 2, 0xB: 0}


def test_a_flow_without_destinations_keeps_nothing(flow: FlowSender) -> None:
    send(flow, 2)
    flow.acknowledged(0xA, 2, 0.0)
    assert not flow.endpoint_gone(9, 0.0)
    assert flow.endpoint_gone(3, 0.0)
    assert not flow.kept  # only 0xb had been waited for
    assert flow.endpoint_gone(1, 0.0)
    assert flow.destinations == [(0xA, 2)]
    assert flow.endpoint_gone(2, 0.0)
    send(flow, 1)
    assert not flow.kept
    assert flow.last_sent == 3


def test_who_lags_is_probed_and_less_and_less_often(flow: FlowSender) -> None:
    assert flow.probe_at == NEVER
    send(flow, 2, now=1.0)
    assert flow.probe_at == 1.0 + FIRST_PROBE_SECONDS
    assert flow.nodes_to_probe(1.0) == []
    assert flow.nodes_to_probe(1.0, at_once=True) == [0xA, 0xB]
    flow.acknowledged(0xA, 2, 1.0)
    times = []
    now = 1.0
    for _ in range(5):
        times.append(flow.probe_at - now)
        now = flow.probe_at
        assert flow.nodes_to_probe(now) == [0xB]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(LONGEST_PROBE_SECONDS)


def test_a_node_that_goes_on_does_not_put_off_the_probe_of_one_that_does_not(flow: FlowSender) -> None:
    send(flow, 1, now=0.0)
    for i in range(1, 20):
        now = i * 0.1
        flow.acknowledged(0xA, flow.last_sent, now)
        send(flow, 1, now)
    assert flow.probe_at == FIRST_PROBE_SECONDS
    assert 0xB in flow.nodes_to_probe(2.0)


def test_what_an_answer_lacks_is_sent_again_once_a_round(flow: FlowSender) -> None:
    send(flow, 5)
    assert [pack.number for pack in flow.answered(0xA, 2, 4)] == [3, 4]  # 5 came after the probe
    assert flow.answered(0xA, 2, 4) == []  # another destination of the node
    assert flow.answered(0xA, 3, 4) == []
    assert [pack.number for pack in flow.answered(0xA, 1, 4)] == [2]  # this one lacks more
    assert [pack.number for pack in flow.answered(0xB, 4, 5)] == [5]
    assert flow.answered(0xB, 5, 5) == []
    assert flow.answered(0xC, 0, 5) == []
    assert flow.resent_packs == 4


def test_a_second_loss_is_seen_by_the_next_probe(flow: FlowSender) -> None:
    send(flow, 2)
    for now in (1.0, 3.0, 5.0):
        flow.nodes_to_probe(now)
        assert [pack.number for pack in flow.answered(0xA, 0, 2)] == [1, 2]
        assert flow.answered(0xA, 0, 2) == []


def test_a_receiver_takes_the_next_one_only() -> None:
    flow = FlowReceiver(1, 2, 3)
    assert not flow.is_next(2)
    assert flow.is_next(1)
    flow.accepted(10)
    assert not flow.is_next(1)
    assert flow.is_next(2)
    assert (flow.repeated, flow.discarded, flow.unacked_bytes) == (1, 1, 10)
    assert flow.acknowledge() == 1
    assert not flow.unacked_bytes
