"""Projection: fewer fields of each event."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from typing_extensions import override

from echannel_ray.modulation.modulator import Modulator
from echannel_ray.modulators._fields import Read, as_plain, checked_names, reader


class Project(Modulator):
    """Sends only the named fields, as a dict; of NumPy records in an array, these columns.

    A path gives its last name: "order.price" arrives as "price".

    >>> try_out(Project("symbol", "price"), [{"symbol": "RAY", "price": 70, "book": "a long list"}])
    [{'symbol': 'RAY', 'price': 70}]
    """

    def __init__(self, *fields: str) -> None:
        self.fields = checked_names("fields", fields)
        names = [field.rpartition(".")[2] for field in self.fields]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two of the fields would both arrive as {name!r}: leave one out")

    @cached_property
    def _readers(self) -> list[tuple[str, Read]]:
        return [(field.rpartition(".")[2], reader(field)) for field in self.fields]

    @override
    def enqueue(self, event: Any) -> None:
        self.emit({name: as_plain(read(event)) for name, read in self._readers})
