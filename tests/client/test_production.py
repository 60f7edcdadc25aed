"""Producers in and out of their channel's books."""

from __future__ import annotations

import pytest

from echannel_ray import errors
from echannel_ray.client.production import end_producer, produce
from echannel_ray.core.messages import RegisterProducer, UnregisterProducer


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
