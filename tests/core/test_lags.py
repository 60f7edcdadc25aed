"""How far consumers lag behind, from what their processes and those of their producers say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from echannel_ray.core.lags import ends_of, lag_of_groups, take_off
from echannel_ray.core.windows import DROP_NEWEST, DROP_OLDEST
from tests.core.direct import Bench

PRODUCER, STREAM = "000000000000000a", "000000000000000a.1"


def lags(*answers: dict[str, Any]) -> list[Any]:
    take_off(answers)
    assert all("ends" not in each and "arrived" not in each for each in answers)
    return [each["consumer_lag_events"] for each in answers]


def test_is_what_has_not_arrived_and_what_waits():
    producer = {"ends": {STREAM: 11}}
    consumer = {"arrived": {f"{STREAM}/b.1": 4, f"{STREAM}/b.2": 11}, "consumer_lag_events": 2}
    assert lags(producer, consumer) == [0, 9]


def test_of_a_derived_channel_is_its_own():
    producer = {"ends": {STREAM: 11}}
    consumer: dict[str, Any] = {"derived": {"key": {"arrived": {f"{STREAM}/b.1": 4}}}}
    assert lags(producer, consumer) == [0, 0]
    assert consumer["derived"]["key"] == {"consumer_lag_events": 7}


def test_is_never_negative():
    """The consumer was asked later; or the producer does not answer, or is gone."""
    assert lags({"ends": {STREAM: 5}}, {"arrived": {f"{STREAM}/b.1": 9, "another/b.1": 9}}) == [0, 0]


def lag_of(bench: Bench, stream: Any, handler_versions: dict[int, int] | None = None) -> int:
    """What has not arrived at the consumers, as far as it is sent to them."""
    answers = [
        {"arrived": receiver.arrived(subscription, (handler_versions or {}).get(subscription, 0))}
        for receiver in bench.receivers.values()
        for subscription in receiver.subscriptions
    ]
    return sum(lags({"ends": ends_of(1, stream)}, *answers))


@pytest.mark.parametrize("policy", [DROP_NEWEST, DROP_OLDEST])
def test_what_was_dropped_for_a_laggard_is_no_part_of_its_lag(policy: str) -> None:
    bench = Bench()
    stream = bench.sender.open_stream("a", policy, 30)
    bench.members(stream, bench.consumer(2, 20), bench.consumer(3, 30))
    slow, lag = [], []
    for i in range(1, 11):
        bench.publish(stream, i)
        bench.sender.end_run(stream)
        lag.append(lag_of(bench, stream))
        got = bench.exchange()
        bench.handle(stream, [each for each in got if each.source.subscription == 30])
        slow += [each for each in got if each.source.subscription == 20]
    kept = 0 if policy == DROP_NEWEST else 3
    # The first event brings the routes, without which nothing is known of what has arrived.
    assert lag == [0, 2, 2, *(1 + min(each, kept) for each in range(1, 8))]
    assert lag_of(bench, stream) == kept
    pending = slow
    while pending:
        bench.handle(stream, pending)
        pending = bench.exchange()
    assert lag_of(bench, stream) == 0


def test_of_a_group_the_producer_knows() -> None:
    bench = Bench()
    stream = bench.sender.open_stream("a", DROP_NEWEST, 50)
    bench.members(stream, bench.consumer(2, 20, "g"), bench.consumer(3, 30, "g"))
    got: list[Any] = []
    for i in range(20):
        bench.publish(stream, i)
    assert stream.dropped == 10
    assert (lag_of_groups(stream), lag_of(bench, stream)) == (10, 0)
    got = bench.exchange()
    assert (lag_of_groups(stream), lag_of(bench, stream)) == (10, 0)
    bench.members(stream, bench.consumer(3, 30, "g"))
    assert lag_of_groups(stream) == 10  # the other one leaves when it has handled what it has
    assert bench.sender.endpoint_gone(2, 0.0) == [stream]
    assert lag_of_groups(stream) == 10  # what it had is for who is left
    pending = [each for each in got if each.source.subscription == 30]
    while pending:
        bench.handle(stream, pending)
        pending = bench.exchange()
    assert lag_of_groups(stream) == 0


def test_a_stream_that_a_subscription_has_left_does_not_count() -> None:
    bench = Bench()
    stream, other = bench.sender.open_stream("a", DROP_NEWEST, 1000), bench.sender.open_stream("a", DROP_NEWEST, 1000)
    bench.members(stream, bench.consumer(2, 20), bench.consumer(3, 30))
    bench.publish(stream, 1)
    bench.handle(stream, bench.exchange())
    bench.members(stream, bench.consumer(3, 30))
    bench.members(other, replace(bench.consumer(2, 20), handler_version=1))  # by which nothing has come yet
    for i in range(5):
        bench.publish(stream, i)
    bench.exchange()
    bench.sender.end_run(stream)
    assert lag_of(bench, stream, {20: 1}) == 0
