"""Mixtures at both ends, without a network: who is in one, what is counted, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from echannel_ray.core import frames
from echannel_ray.core.credit import Reception
from echannel_ray.core.flows import FlowReceiver
from echannel_ray.core.gather import PackColumns
from echannel_ray.core.kinds import PLAIN
from echannel_ray.core.mixed_receipts import MixedArrival
from echannel_ray.core.mixtures import MAX_LANES, MixedColumns, Mixture
from echannel_ray.core.receiver import Delivered
from echannel_ray.core.streams import NEVER, SenderStream
from echannel_ray.core.windows import BLOCK
from tests.core.direct import Bench

SIZE = 10
RESERVE = 4 * SIZE


class Turns:
    """Endpoint 1 has a few streams with a consumer each at endpoint 2, all in one mixture."""

    def __init__(self, streams: int = 3, window: int = 1000) -> None:
        self.bench = Bench()
        self.left: list[int] = []
        self.streams = [self._stream(i, window) for i in range(streams)]
        mixture = self.bench.sender.mixture_for(self.streams[0], PLAIN)
        assert mixture is not None
        self.mixture: Mixture = mixture
        self.receiver = self.bench.receivers[2]

    def _stream(self, i: int, window: int) -> SenderStream:
        stream = self.bench.sender.open_stream(f"c{i}", BLOCK, window)
        self.bench.members(stream, self.bench.consumer(2, 20 + i))
        return stream

    def join(self, *which: int) -> None:
        for i in which or range(len(self.streams)):
            lane = self.mixture.join(self.streams[i], partial(self.left.append, i), PLAIN, RESERVE)
            assert lane is not None, i

    def publish(self, *which: int) -> list[int]:
        """One event of each of these streams: the places of those that had left."""
        lanes = np.array([self.streams[i].lane for i in which], np.uint16)
        sizes = np.full(len(which), SIZE)
        late = self.mixture.publish(lanes, [f"{i}" for i in which], sizes, RESERVE)
        self.bench.sender.validate()
        return [*late]

    def taken(self) -> list[PackColumns | MixedColumns]:
        return [columns for columns, _ in self.mixture.gather.take()]

    @property
    def flow(self) -> FlowReceiver:
        key = frames.KEY.pack(1, self.mixture.flow.number)
        self.receiver.flow_declared(key, 0xA, 1, self.mixture.flow.number)
        return self.receiver.flows[key]

    def arrive(
        self, columns: PackColumns | MixedColumns, *, seated: bool = True
    ) -> tuple[list[Delivered], MixedArrival | None]:
        if isinstance(columns, PackColumns):
            return self.receiver.pack_received(self.flow, columns, 100), None
        target_of = (lambda subscription, version, kind: subscription) if seated else None
        number = columns.mixture.number
        got = self.receiver.mixed.received(self.flow, columns, number, columns.control, 100, target_of)
        self.receiver.validate()
        return got


def events_of(arrival: MixedArrival | None) -> list[tuple[int, Any]]:
    assert arrival is not None
    return [*zip(arrival.targets(), arrival.events, strict=True)]


def test_events_come_in_the_order_of_publishing_each_with_its_own_numbers() -> None:
    turns = Turns()
    turns.join()
    turns.publish(0, 1, 0, 2, 0)
    assert [stream.next_sequence for stream in turns.streams] == [4, 2, 2]
    assert [stream.published_bytes for stream in turns.streams] == [30, 10, 10]
    (columns,) = turns.taken()
    assert isinstance(columns, MixedColumns)
    assert columns.sequences.tolist() == [1, 1, 2, 1, 3]
    assert columns.marks.tolist() == [10, 10, 20, 10, 30]
    delivered, arrival = turns.arrive(columns)
    assert not delivered
    assert events_of(arrival) == [(20, "0"), (21, "1"), (20, "0"), (22, "2"), (20, "0")]


def test_the_same_in_runs_where_nobody_takes_events_one_by_one() -> None:
    turns = Turns()
    turns.join()
    turns.publish(0, 1, 0, 2, 0)
    delivered, arrival = turns.arrive(*turns.taken(), seated=False)
    assert arrival is None
    found = [(each.source.subscription, each.first, each.events, each.mark) for each in delivered]
    assert found == [(20, 1, ["0", "0", "0"], 30), (21, 1, ["1"], 10), (22, 1, ["2"], 10)]


def test_whoever_publishes_otherwise_has_left() -> None:
    turns = Turns()
    turns.join()
    turns.publish(0, 1)
    assert turns.streams[0].limit_bytes == NEVER
    turns.bench.publish(turns.streams[0], "other")
    assert turns.left == [0]
    assert turns.streams[0].mixture is None
    assert turns.publish(0, 1) == [0]  # a thread that was about to append it
    first, second, third = turns.taken()  # in the order of publishing
    assert isinstance(first, MixedColumns)
    assert isinstance(second, PackColumns)
    assert second.firsts == [2]
    assert isinstance(third, MixedColumns)
    assert third.events == ["1"]
    assert events_of(turns.arrive(first)[1]) == [(20, "0"), (21, "1")]
    delivered, _ = turns.arrive(second)
    assert [(each.first, each.events) for each in delivered] == [(2, ["other"])]
    assert events_of(turns.arrive(third)[1]) == [(21, "1")]


def test_who_comes_back_has_the_same_lane() -> None:
    turns = Turns()
    turns.join()
    turns.publish(0, 1, 2)
    lane = turns.streams[1].lane
    turns.bench.publish(turns.streams[1], "other")
    turns.join(1)
    assert turns.streams[1].lane == lane
    turns.publish(1)
    parts = turns.taken()
    assert len(parts) == 3
    turns.arrive(parts[0])
    turns.arrive(parts[1])
    assert events_of(turns.arrive(parts[2])[1]) == [(21, "1")]


def test_who_has_little_room_left_leaves_before_it_is_used_up() -> None:
    turns = Turns(window=RESERVE + 2 * SIZE)
    turns.join()
    turns.publish(0, 1, 0)
    assert not turns.left
    turns.publish(0)
    assert turns.left == [0]
    assert turns.streams[0].published_bytes <= turns.streams[0].limit_bytes
    assert turns.mixture.join(turns.streams[0], lambda: None, PLAIN, RESERVE) is None
    turns.bench.sender.credited(turns.streams[0], 2, 20, 30)
    turns.join(0)


def test_credit_makes_room_while_a_stream_is_in_it() -> None:
    turns = Turns(window=RESERVE + 2 * SIZE)
    turns.join()
    for handled in range(10, 100, 10):
        turns.publish(0)
        turns.bench.sender.credited(turns.streams[0], 2, 20, handled)
    assert not turns.left


def test_who_has_most_of_it_is_left_to_himself() -> None:
    turns = Turns(window=10**6)
    turns.join()
    turns.publish(*[0] * 65, *[1] * 64)
    assert turns.left == [0]
    turns.publish(*[1] * 64, 2)
    assert turns.left == [0]


def test_what_is_handled_is_reported_at_a_quarter_of_the_window() -> None:
    turns = Turns(window=400)
    turns.join()
    reported = []
    for _ in range(25):
        turns.publish(0, 1)
        _, arrival = turns.arrive(*turns.taken())
        assert arrival is not None
        for reception, mark in turns.receiver.mixed.handled(arrival, 2):
            if reception.handled(mark):
                reported.append((reception.subscription, reception.credit()))
                stream = turns.streams[reception.subscription - 20]
                turns.bench.sender.credited(stream, 2, reception.subscription, mark)
    assert reported == [(20, 100), (21, 100), (20, 200), (21, 200)]


def test_a_producer_that_waits_hears_of_the_mark_that_it_waits_for() -> None:
    turns = Turns()
    turns.join()
    turns.publish(0, 0)
    _, arrival = turns.arrive(*turns.taken())
    assert arrival is not None
    assert turns.receiver.credit_wanted(1, turns.streams[0].number, 20, 20) == (0, False)
    ((reception, mark),) = [*turns.receiver.mixed.handled(arrival, 2)][-1:]
    assert reception.handled(mark)
    assert reception.credit() == 20


@pytest.mark.parametrize("ask", ["expected", "handled_mark"])
def test_who_asks_for_the_numbers_of_a_reception_has_true_ones(ask: str) -> None:
    turns = Turns()
    turns.join()
    turns.publish(0, 0)
    _, arrival = turns.arrive(*turns.taken())
    assert arrival is not None
    assert not [*turns.receiver.mixed.handled(arrival, 1)]
    reception = turns.receiver.receptions[20][1, turns.streams[0].number]
    assert is_seated(reception)
    assert getattr(reception, ask) == {"expected": 3, "handled_mark": 10}[ask]
    assert not is_seated(reception)
    turns.publish(0)
    assert events_of(turns.arrive(*turns.taken())[1]) == [(20, "0")]
    assert is_seated(reception)


def is_seated(reception: Reception) -> bool:
    return reception.seat is not None


def test_a_closed_subscription_gets_nothing_more() -> None:
    turns = Turns()
    turns.join()
    turns.publish(0, 1)
    turns.arrive(*turns.taken())
    turns.receiver.subscription_closed(20)
    turns.publish(0, 1)
    assert events_of(turns.arrive(*turns.taken())[1]) == [(21, "1")]


def test_a_pack_that_came_before_what_its_streams_wait_for_is_refused_whole() -> None:
    turns = Turns()
    turns.join()
    turns.publish(0, 1)
    (first,) = turns.taken()
    turns.publish(0, 1)
    (second,) = turns.taken()
    turns.arrive(first)
    assert isinstance(second, MixedColumns)
    ahead = MixedColumns(
        [], second.mixture, second.lanes, second.sequences + np.array([1, 0]), second.marks, ["x", "y"]
    )
    received = turns.flow.received
    assert turns.arrive(ahead) == ([], None)
    assert turns.flow.received == received
    assert events_of(turns.arrive(second)[1]) == [(20, "0"), (21, "1")]


def test_lanes_that_nobody_declared_are_malformed() -> None:
    turns = Turns()
    turns.join()
    turns.publish(0)
    (columns,) = turns.taken()
    assert isinstance(columns, MixedColumns)
    turns.arrive(columns)
    for lane in (3, MAX_LANES - 1):
        forged = MixedColumns([], columns.mixture, np.array([lane], np.uint16), columns.sequences, columns.marks, ["x"])
        with pytest.raises(ValueError, match="lane"):
            turns.arrive(forged)
    with pytest.raises(ValueError, match="mixture"):
        turns.receiver.mixed.received(turns.flow, columns, 99, [], 10, None)
    with pytest.raises(ValueError, match="behind"):
        turns.receiver.mixed.lane_declared(turns.flow, turns.mixture.number, 7, 1, 0)


def test_a_mixture_is_left_for_another_when_most_of_its_lanes_are_dead() -> None:
    turns = Turns(streams=1, window=10**9)
    stream = turns.streams[0]
    said: list[Any] = []
    while not turns.mixture.is_retired:
        if turns.mixture.join(stream, lambda: None, PLAIN, RESERVE) is not None:
            turns.publish(0)
        said += [entry for columns in turns.taken() for entry in columns.control]
        # Another consumer in the same process, and so another route of the same flow.
        turns.bench.members(stream, turns.bench.consumer(2, 100 + len(said)))
        assert len(said) < 10_000, "lanes are never used up"
    said += [entry for columns in turns.taken() for entry in columns.control]
    assert said[-1] == ["mixture ended", turns.mixture.number]
    other = turns.bench.sender.mixture_for(stream, PLAIN)
    assert other is not turns.mixture


def test_what_a_relay_forgot_is_forgotten_here_when_the_flow_ends() -> None:
    turns = Turns()
    turns.join()
    turns.publish(0, 1)
    turns.arrive(*turns.taken())
    flow = turns.flow
    turns.receiver.flow_ended(frames.KEY.pack(flow.endpoint, flow.flow))
    assert all(each.seat is None for each in turns.receiver.receptions[20].values())
    assert isinstance(turns.receiver.receptions[20][1, turns.streams[0].number], Reception)
