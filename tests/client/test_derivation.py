"""Derived channels: held, let go, and taken back where they fail."""

from __future__ import annotations

import pytest

from echannel_ray import errors
from echannel_ray.client.derivation import derive, derived_meanwhile, name_of_derived, replay_from
from echannel_ray.core.messages import REPLAY, Derive, Release, Shipment

PROGRAM = Shipment("a filter", "ecode", b"price > 1")


def test_what_is_derived_is_held_by_a_handle(endpoint, script):
    derived, handle = derive(endpoint, script.definition, "parent", PROGRAM)
    (asked,) = script.of(Derive)
    assert asked == Derive("c", handle, "parent", PROGRAM, script.definition.incarnation)
    assert endpoint.derivations.held("c")[1] == ((handle, derived.key),)
    assert name_of_derived("c", "0123456789abcdef") == "c~0123456789ab"


def test_what_can_not_be_derived_is_taken_back(endpoint, script):
    script.refusals[Derive] = errors.ModulatorRefused("no", reason="no", channel="c")
    with pytest.raises(errors.ModulatorRefused):
        derive(endpoint, script.definition, "", PROGRAM)
    assert script.of(Release) == [Release("c", script.of(Derive)[0].handle)]
    assert endpoint.derivations.held("c") == ((), ())


def test_one_behind_another_is_held_for_a_while(endpoint, script):
    with derived_meanwhile(endpoint, script.definition, replay_from("earliest", None), PROGRAM) as key:
        first, second = script.of(Derive, 2)
        assert first.shipment.tier == REPLAY
        assert (second.parent, key) == (f"{first.handle:040x}", f"{second.handle:040x}")
        assert second.shipment == PROGRAM
        assert len(endpoint.derivations.held("c")[1]) == 2
    assert {each.handle for each in script.of(Release, 2)} == {first.handle, second.handle}
    assert endpoint.derivations.held("c")[1] == ()


def test_members_of_a_group_share_a_replay():
    assert replay_from("earliest", "g") == replay_from("earliest", "g")
    assert replay_from("earliest", None) != replay_from("earliest", None)
