"""Shared objects that steer modulators of this library, apart from these: they import no pydantic."""

from __future__ import annotations

from echannel_ray.shared_object import SharedObject


class Rate(SharedObject):
    """So many events per second, for an `AtMostRate` whose rate is changed while it works."""

    per_second: float
