"""Why a producer does not let a modulator in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echannel_ray import errors
from echannel_ray.core.messages import Shipment

if TYPE_CHECKING:
    from echannel_ray.derived.branch import Branch


def check_key(shipment: Shipment, branch: Branch, key: bytes | None) -> None:
    """Refuse a modulator whose `key()` returns here something else than who shipped it said."""
    if key != shipment.key:
        raise refused(shipment, branch, "its key() returns here something else than where it was shipped")


def refused(shipment: Shipment, branch: Branch, reason: str) -> errors.ModulatorRefused:
    """The error that `subscribe` is to raise."""
    return errors.ModulatorRefused(
        f"producer {branch.publisher.name} of channel {branch.publisher.channel!r} refuses modulator {shipment.name}: "
        f"{reason}",
        reason=reason,
        producer=branch.publisher.name,
        channel=branch.publisher.channel,
        modulator=shipment.name,
    )
