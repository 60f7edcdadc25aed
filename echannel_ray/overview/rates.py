"""How much a channel does in a second, from two looks at its counters."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field

from echannel_ray.models import ChannelStats, NodeShare


class Rates(BaseModel):
    """Of a channel, or of the processes of one node on it."""

    published_per_second: float = 0.0
    delivered_per_second: float = 0.0
    dropped_per_second: float = 0.0
    bytes_per_second: float = 0.0  # published


class ChannelRates(Rates):
    """Of a channel, and what there is below it."""

    channel: str
    nodes: dict[str, Rates] = Field(default_factory=dict)  # by the first 16 digits of the node's id
    derived: dict[str, ChannelRates] = Field(default_factory=dict)  # published is what the modulators let out


def rates_between(
    before: Sequence[ChannelStats], before_at: float, after: Sequence[ChannelStats], after_at: float
) -> list[ChannelRates]:
    """Of each channel of the second look, which was at `after_at` by the clock of `before_at`, in that order.

    Where there was nothing to compare with (it is new, say, or no time has passed) nothing is known, which is 0. So is
    the rate of a counter that went back: what closed producers had counted is gone with a manager that was restarted,
    and a node's share with the processes that have left it.
    """
    known = {each.channel: each for each in before}
    seconds = after_at - before_at
    return [_channel(known.get(each.channel), each, seconds) for each in after]


def _channel(before: ChannelStats | None, after: ChannelStats, seconds: float) -> ChannelRates:
    nodes = before.nodes if before is not None else {}
    derived = before.derived if before is not None else {}
    return ChannelRates(
        channel=after.channel,
        nodes={node: _rates(nodes.get(node), share, seconds) for node, share in after.nodes.items()},
        derived={name: _channel(derived.get(name), each, seconds) for name, each in after.derived.items()},
        **_rates(before, after, seconds).model_dump(),
    )


def _rates(before: ChannelStats | NodeShare | None, after: ChannelStats | NodeShare, seconds: float) -> Rates:
    if before is None or seconds <= 0:
        return Rates()
    return Rates(
        published_per_second=max(0, after.events_published - before.events_published) / seconds,
        delivered_per_second=max(0, after.events_delivered - before.events_delivered) / seconds,
        dropped_per_second=max(0, after.events_dropped - before.events_dropped) / seconds,
        bytes_per_second=max(0, after.bytes_published - before.bytes_published) / seconds,
    )
