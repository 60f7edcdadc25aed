"""Lifetimes: what is referred to weakly in the place of an object of a compiled class, which can't be."""

from __future__ import annotations


class Lifetime:
    """Ends with the object that has it; what is kept for that object is kept by a weak reference to this."""

    __slots__ = ("__weakref__",)
