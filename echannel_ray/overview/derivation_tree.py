"""What is derived from a channel, as a tree: what each modulator was given, what it passed on, what that saved."""

from __future__ import annotations

from pydantic import BaseModel, Field

from echannel_ray.models import ChannelStats
from echannel_ray.overview.topology import parent_of


class DerivationTree(BaseModel):
    """A channel, or one that is derived, with what is derived from it."""

    channel: str
    modulator: str | None = None  # None of a channel that is not derived
    consumers: int = 0
    events_in: int = 0  # that its modulator has seen; of a channel, events that were published
    events_out: int = 0  # that it has emitted; of a channel, the same
    saved_bytes: int = 0
    modulator_errors: int = 0
    derived: list[DerivationTree] = Field(default_factory=list)

    @property
    def total_saved_bytes(self) -> int:
        """The bytes that this modulator and those below it have saved."""
        return self.saved_bytes + sum(each.total_saved_bytes for each in self.derived)


def derivation_of(channel: ChannelStats) -> DerivationTree:
    """The tree of one channel."""
    children: dict[str, list[ChannelStats]] = {}
    for each in channel.derived.values():
        children.setdefault(parent_of(each, channel), []).append(each)

    def branch(stats: ChannelStats) -> DerivationTree:
        is_root = stats is channel
        return DerivationTree(
            channel=stats.channel,
            modulator=stats.modulator,
            consumers=stats.consumers,
            events_in=stats.events_published if is_root else stats.events_in,
            events_out=stats.events_published if is_root else stats.events_out,
            saved_bytes=stats.saved_bytes,
            modulator_errors=stats.modulator_errors,
            derived=[branch(each) for each in sorted(children.get(stats.channel, ()), key=lambda each: each.channel)],
        )

    return branch(channel)
