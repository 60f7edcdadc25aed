"""A type of events that a plan names by where it is."""

from dataclasses import dataclass


@dataclass
class Reading:
    """What a station has measured."""

    station: str
    value: float
