"""The options of a source or sink, read and checked once, on the driver."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

EXACTLY_ONCE: Final = "exactly_once"
AT_LEAST_ONCE: Final = "at_least_once"
ARROW: Final = "arrow"
FILES: Final = "files"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_ROWS_PER_PARTITION: Final = 500_000
_LEASE_SECONDS: Final = 3600.0

Options = Mapping[str, str]  # as Spark hands them over: the case of names doesn't count

# Spark hands over what it was told of a query, and where `save`, `load` or `start` were given a place.
_OF_SPARK: Final = ("checkpointLocation", "queryName", "path")
_OF_ALL: Final = ("channel", "endpoint", "namespace", *_OF_SPARK)
_OF_SINKS: Final = (*_OF_ALL, "delivery", "writeId", "transfer", "retainBytes", "retainSeconds")
_OF_SOURCES: Final = (
    *_OF_ALL, "group", "leaseSeconds", "startingOffsets", "endingOffsets", "failOnDataLoss", "maxRowsPerEpoch",
    "rowsPerPartition",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """Which channel, and where its gateway is."""

    channel: str
    endpoint: str

    @classmethod
    def of(cls, options: Options) -> Target:
        """As the options say."""
        from echannel_ray.gateway.address import Endpoint

        endpoint = _needed(options, "endpoint", "what `str(session.gateway())` gives on the side of Ray")
        namespace = Endpoint.parse(endpoint).namespace
        asked = options.get("namespace", namespace)
        if asked != namespace:
            raise ValueError(
                f"this endpoint is a gateway of namespace {namespace!r}, and the option namespace is {asked!r}: use "
                "an endpoint of that namespace (`ec.connect(namespace).gateway()`), or leave the option out"
            )
        return cls(_needed(options, "channel", "its name"), endpoint)


@dataclass(frozen=True)
class SinkOptions:
    """How rows get into a channel."""

    target: Target
    is_exactly_once: bool
    write: str | None  # the batch's name, under which it is applied once
    directory: str | None  # where files go; None: rows travel as record batches
    retain: dict[str, Any] | None  # of a channel that the sink makes

    @classmethod
    def of(cls, options: Options) -> SinkOptions:
        """As the options say."""
        _check_names(options, _OF_SINKS, "writing to")
        is_exactly_once = _choice(options, "delivery", EXACTLY_ONCE, AT_LEAST_ONCE) == EXACTLY_ONCE
        directory = None
        if _choice(options, "transfer", ARROW, FILES) == FILES:
            directory = _needed(options, "path", "a directory that both sides can read, for transfer=files")
            if not is_exactly_once:
                raise ValueError(
                    f"transfer={FILES} needs delivery={EXACTLY_ONCE}, as files are seen when all are complete: leave "
                    f"one of the two options out"
                )
        retain: dict[str, Any] = {"disk": True} if is_exactly_once else {}
        if "retainBytes" in options:
            retain["max_bytes"] = int(_number(options, "retainBytes", 0))
        if "retainSeconds" in options:
            retain["max_age_seconds"] = _number(options, "retainSeconds", 0)
        return cls(Target.of(options), is_exactly_once, options.get("writeId"), directory, retain or None)


@dataclass(frozen=True)
class SourceOptions:
    """What of a channel is read, and how."""

    target: Target
    group: str | None
    lease_seconds: float
    starting: str | dict[str, int]  # EARLIEST, LATEST, or an offset for each log
    ending: str | dict[str, int]
    fails_on_data_loss: bool
    max_rows_per_epoch: int | None
    rows_per_partition: int

    @classmethod
    def of(cls, options: Options) -> SourceOptions:
        """As the options say."""
        _check_names(options, _OF_SOURCES, "reading from")
        return cls(
            Target.of(options),
            options.get("group"),
            _number(options, "leaseSeconds", _LEASE_SECONDS),
            _offsets(options, "startingOffsets", EARLIEST),
            _offsets(options, "endingOffsets", LATEST),
            _choice(options, "failOnDataLoss", "true", "false") == "true",
            int(_number(options, "maxRowsPerEpoch", 0)) if "maxRowsPerEpoch" in options else None,
            int(_number(options, "rowsPerPartition", _ROWS_PER_PARTITION)),
        )


def _check_names(options: Options, names: Sequence[str], doing: str) -> None:
    """`ValueError` for an option that nobody reads. Names with a dot belong to others, such as a session's settings."""
    known = {name.lower(): name for name in names}
    for name in options:
        if name.lower() in known or "." in name:
            continue
        nearest = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0)[0]
        raise ValueError(
            f"there is no option {name!r} for {doing} a channel: the nearest is {known[nearest]!r}, and all are "
            f"{', '.join(sorted(set(names) - set(_OF_SPARK) | {'path'}))}"
        )


def _needed(options: Options, name: str, what: str) -> str:
    value = options.get(name)
    if not value:
        raise ValueError(f"the option {name!r} is missing: add .option({name!r}, ...), {what}")
    return value


def _choice(options: Options, name: str, *choices: str) -> str:
    """One of the choices, the first where nothing is said."""
    value = options.get(name, choices[0]).lower()
    if value not in choices:
        raise ValueError(f"the option {name!r} is {value!r}: use {' or '.join(choices)}")
    return value


def _number(options: Options, name: str, default: float) -> float:
    text = options.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0
    if value <= 0:
        raise ValueError(f"the option {name!r} is {text!r}: use a number above 0")
    return value


def _offsets(options: Options, name: str, default: str) -> str | dict[str, int]:
    text = options.get(name, default)
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    try:
        offsets = json.loads(text)
    except ValueError:
        offsets = None
    if isinstance(offsets, dict) and all(type(each) is int and each >= 0 for each in offsets.values()):
        return offsets
    raise ValueError(f'the option {name!r} is {text!r}: use {EARLIEST}, {LATEST} or JSON, {{"a log": its offset}}')
