"""The tree of what is derived from a channel."""

from __future__ import annotations

from echannel_ray.models import ChannelStats
from echannel_ray.overview.topology import derivation_of


def test_a_tree_with_what_each_modulator_saved():
    derived = {
        "c~2": ChannelStats(
            channel="c~2", parent="c~1", modulator="Throttle", events_in=5, events_out=1, saved_bytes=40
        ),
        "c~1": ChannelStats(channel="c~1", parent="c", modulator="x > 1", events_in=9, events_out=5, saved_bytes=70),
        "c~0": ChannelStats(channel="c~0", parent="c", modulator="x > 2", modulator_errors=3),
    }
    root = derivation_of(ChannelStats(channel="c", events_published=9, consumers=2, derived=derived))
    assert (root.channel, root.modulator, root.events_out, root.consumers) == ("c", None, 9, 2)
    assert [each.channel for each in root.derived] == ["c~0", "c~1"]
    assert [each.modulator for each in root.derived[1].derived] == ["Throttle"]
    assert root.derived[0].modulator_errors == 3
    assert (root.total_saved_bytes, root.derived[1].saved_bytes) == (110, 70)
