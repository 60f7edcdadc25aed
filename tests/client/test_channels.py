"""Channels as an endpoint opens them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from echannel_ray import errors
from echannel_ray.client.channels import encoder_of, fields_of, look_up, open_typed, retains
from echannel_ray.core.messages import Definition, LookUpChannel, OpenChannel
from echannel_ray.endpoint.definitions import open_channel
from echannel_ray.endpoint.record_codec import open_more
from echannel_ray.options import Packing, Retention
from echannel_ray.schemas import types


@dataclass
class Trade:
    price: float


def test_a_channel_is_opened_with_its_type_and_options_and_kept(endpoint, script):
    definition = open_typed(endpoint, "c", Trade, Packing(degree=64), Retention())
    assert endpoint.definitions == {"c": definition} == {"c": script.definition}
    (asked,) = script.of(OpenChannel)
    assert asked.type_schema == types.describe(Trade)
    assert asked.options["degree"] == 64
    assert "retain" in asked.options
    assert len(asked.formats) == 1
    assert not asked.incarnation


def test_a_format_may_be_told_without_a_type(endpoint, script):
    open_typed(endpoint, "c", Trade, declares=False)
    (asked,) = script.of(OpenChannel)
    assert asked.type_schema is None
    assert len(asked.formats) == 1


def test_one_that_has_to_be_there_is_opened_by_its_incarnation(endpoint, script):
    script.refusals[OpenChannel] = errors.ChannelDeleted("it was deleted", channel="c")
    with pytest.raises(errors.ChannelDeleted):
        open_channel(endpoint, "c", incarnation=2)
    (asked,) = script.of(OpenChannel)
    assert asked.incarnation == 2
    assert not endpoint.definitions


def test_fields_are_added_to_what_is_there(endpoint, script):
    definition = open_typed(endpoint, "c", None)
    open_more(endpoint, definition, Trade)
    assert script.of(OpenChannel, 2)[1].type_schema == types.describe(Trade)
    assert script.of(OpenChannel)[1].incarnation == definition.incarnation


def test_who_looks_a_channel_up_takes_no_part_in_it(endpoint, script):
    assert look_up(endpoint, "c") == script.definition
    assert script.kinds == [LookUpChannel]
    assert not endpoint.definitions


def test_what_a_definition_says(endpoint):
    untyped = Definition("c", None, {})
    assert fields_of(untyped) is None
    assert encoder_of(endpoint, untyped) is None
    assert not retains(untyped)
    typed = Definition("c", types.describe(Trade), {"retain": {}})
    assert fields_of(typed) == {"price": "float"}
    assert encoder_of(endpoint, typed) is not None
    assert retains(typed)
