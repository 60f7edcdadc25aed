"""Producers in and out of their channel's books."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from echannel_ray import errors
from echannel_ray.client.consumption import consume
from echannel_ray.client.production import end_producer, enter_producer, produce
from echannel_ray.consumers.inbox import Inbox
from echannel_ray.consumers.pull_driver import PullDriver
from echannel_ray.core.messages import Derived, GetModulator, RegisterProducer, UnregisterProducer
from echannel_ray.core.packing import Packing
from echannel_ray.derived.shipments import ship
from echannel_ray.modulation.admission import Admission
from echannel_ray.modulators import EveryNth
from echannel_ray.producers.consumer_sink import ConsumerSink
from echannel_ray.producers.publisher import Publisher


def test_a_producer_is_entered_and_taken_out_with_its_totals(endpoint, script):
    publisher = produce(endpoint, script.definition, None, derived="key")
    (asked,) = script.of(RegisterProducer)
    assert asked == RegisterProducer("c", publisher.stream.number, script.definition.incarnation, "key")
    assert publisher.publish(b"an event")
    end_producer(publisher)
    (told,) = script.of(UnregisterProducer)
    assert told.totals["events_published"] == 1
    assert not endpoint.publishers
    with pytest.raises(errors.Closed):
        publisher.publish(b"another")
    end_producer(publisher)
    assert len(script.of(UnregisterProducer)) == 1


def test_of_one_that_was_refused_nothing_stays(endpoint, script):
    script.refusals[RegisterProducer] = errors.ChannelDeleted("it was deleted", channel="c")
    with pytest.raises(errors.ChannelDeleted):
        produce(endpoint, script.definition, None)
    (told,) = script.of(UnregisterProducer)  # the manager may have entered it before it failed
    assert told.stream == script.of(RegisterProducer)[0].stream
    assert not endpoint.publishers
    assert not endpoint.core.sender.streams


def test_one_of_a_channel_that_nobody_keeps_ends_all_the_same(endpoint, script):
    publisher = produce(endpoint, script.definition, None)
    script.refusals[UnregisterProducer] = errors.ChannelDeleted("it was deleted", channel="c")
    end_producer(publisher)
    assert publisher.stream.closed


def test_one_whose_process_has_left_ends_without_a_word(endpoint, script):
    publisher = produce(endpoint, script.definition, None)
    endpoint.close()
    end_producer(publisher)
    assert publisher.stream.closed
    assert UnregisterProducer not in script.kinds


def test_one_made_while_modulators_are_made_ready_for_others_has_them_too(endpoint, script):
    admission = Admission(tiers=("inline",))
    sink = partial(ConsumerSink, admission=admission)
    produce(endpoint, script.definition, None, admission=admission)
    script.derived = (Derived("key", "", ship(EveryNth(2), "inline"), endpoint.id),)
    made: list[Publisher] = []

    def make() -> None:
        made.append(Publisher(endpoint, "c", 3, "block", 1 << 20, Packing(), sink=sink))
        made[0].enter()

    script.at[GetModulator] = make
    inbox = Inbox(endpoint, endpoint.new_subscription(), "c", None, "", PullDriver)
    consume(endpoint, script.definition, inbox, None, parent="key")
    endpoint.installer.install(script.membership())  # behind the other thread, which does so too
    (publisher,) = made
    enter_producer(publisher)  # which makes no other version of the membership
    for number in range(4):
        assert publisher.publish(number)
    publisher.drain(20)
    driver: Any = inbox.driver
    assert [driver.get(0).event for _ in range(2)] == [0, 2]
