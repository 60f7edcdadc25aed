"""Groups, from a channel's membership. The rest is shown by `tests/cli/test_inspection.py`, on a running Ray."""

from __future__ import annotations

from echannel_ray.core.messages import Consumer, Membership
from echannel_ray.overview.readings import groups_of


def test_groups_are_of_a_channel_or_of_what_is_derived_from_it():
    derived = "d" * 32
    consumers = (
        Consumer(1, 10, 1, "workers"),
        Consumer(2, 20, 1, "workers"),
        Consumer(2, 20, 2, "workers"),
        Consumer(2, 20, 3, "workers", derived),
        Consumer(1, 10, 2, None),
    )
    found = groups_of("trades", Membership("trades", 1, 1, consumers))
    assert [(each.name, each.channel, each.members) for each in found] == [
        ("workers", "trades", {"0000000000000001": 1, "0000000000000002": 2}),
        ("workers", "trades~dddddddddddd", {"0000000000000002": 1}),
    ]
