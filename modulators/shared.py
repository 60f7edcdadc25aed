"""Shared objects that steer modulators of this library. They have a module of their own: the others import no pydantic."""

from __future__ import annotations

from echannel_ray.shared_object import SharedObject


class Rate(SharedObject):
    """So many events per second, for an `AtMostRate` whose rate is changed while it works."""

    per_second: float
