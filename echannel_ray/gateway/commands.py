"""What clients ask of a gateway: JSON with a `type`, as the descriptor of a `DoPut`, the ticket of a `DoGet`, or the
body of the one action that there is. Anything else is refused before it is looked at further.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from typing_extensions import override

from echannel_ray.gateway.rights import Right
from echannel_ray.logs.entries import Chosen, WriteAttempt

if TYPE_CHECKING:
    import pyarrow as pa

ACTION: Final = "echannel"
MAX_COMMAND_BYTES: Final = 4 << 20  # a commit of 100,000 partitions
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=10 * 365 * 86400)]


class _Command(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """What all have: the channel, and what a client needs to be allowed there."""

    channel: _Name

    @property
    def needs(self) -> tuple[Right, ...]:
        """The rights of which a client needs one."""
        return ("publish",)


class Publish(_Command, frozen=True, tag="publish"):
    """With a `DoPut`: its rows are published. Each acknowledgement is how many batches were, as decimal digits."""


class Stage(_Command, frozen=True, tag="stage"):
    """With a `DoPut`: its batches are entries `first`, `first + 1`, … of this place; acknowledged by their numbers."""

    place: WriteAttempt
    first: _Number


class StageFiles(_Command, frozen=True, tag="stage_files"):
    """Rows that stand in files: each of these becomes an entry of this place, from 0."""

    place: WriteAttempt
    paths: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=10_000)]
    rows: tuple[_Number, ...]


class Open(_Command, frozen=True, tag="open"):
    """Open a channel; with a schema, as Arrow's IPC writes it, make it where there is none. Answered by `Opened`."""

    schema: bytes | None = None
    retain: dict[str, Any] | None = None

    @property
    @override
    def needs(self) -> tuple[Right, ...]:
        """The rights of which a client needs one: to make a channel is more than to look at it."""
        return ("publish", "subscribe") if self.schema is None else ("publish",)


@dataclass(frozen=True)
class ChannelInfo:
    """What clients are told of a channel."""

    name: str
    schema: pa.Schema | None  # None: it is untyped
    is_retained: bool
    is_on_disk: bool
    log: str = ""  # of the gateway's own node, where what is published here goes


class Opened(msgspec.Struct, frozen=True):
    """A `ChannelInfo` as it travels."""

    name: str
    schema: bytes | None
    is_retained: bool
    is_on_disk: bool
    log: str


class Commit(_Command, frozen=True, tag="commit"):
    """Append what was staged for a write to the log, ordered by partition, all or nothing."""

    write: _Name
    chosen: tuple[Chosen, ...]


class Abort(_Command, frozen=True, tag="abort"):
    """Forget what was staged for a write, unless it was committed; refuse what still comes for it."""

    write: _Name


class IsCommitted(_Command, frozen=True, tag="is_committed"):
    """Whether a write was committed."""

    write: _Name


class IsAborted(_Command, frozen=True, tag="is_aborted"):
    """Whether a write was aborted, or its lease has ended: then it needs another name."""

    write: _Name


class StagedBytes(_Command, frozen=True, tag="staged_bytes"):
    """How many bytes wait for a commit."""


class _Reading(_Command, frozen=True):
    @property
    @override
    def needs(self) -> tuple[Right, ...]:
        return ("subscribe",)


class Offsets(_Reading, frozen=True, tag="offsets"):
    """The offsets of the first event of each log of the channel, and those behind its last one."""


class Read(_Reading, frozen=True, tag="read"):
    """With a `DoGet`: the rows of this range of a log. Some batches come with the offset behind them, as digits."""

    log: _Name
    start: _Number
    stop: _Number


class Group(_Reading, frozen=True, tag="group"):
    """Where a group is in each log; what it has not acknowledged is kept until its lease ends, which this renews."""

    group: _Name
    start: Annotated[str, msgspec.Meta(pattern="^(earliest|latest)$")]
    lease_seconds: _Seconds


class Acknowledge(_Reading, frozen=True, tag="acknowledge"):
    """A group has done with all events before these offsets, and renews its lease."""

    group: _Name
    marks: dict[_Name, _Number]
    lease_seconds: _Seconds


Command = (
    Publish | Stage | StageFiles | Open | Commit | Abort | IsCommitted | IsAborted | StagedBytes
    | Offsets | Read | Group | Acknowledge
)  # fmt: skip
_decoder: Final[msgspec.json.Decoder[Command]] = msgspec.json.Decoder(Command)


def decode(data: bytes | None) -> Command:
    """The command; `ValueError` that says what is wrong with it."""
    if not data:
        raise ValueError("there is no command: clients of gateways send what `echannel_ray.gateway.commands` lists")
    if len(data) > MAX_COMMAND_BYTES:
        raise ValueError(f"a command of {len(data)} bytes: at most {MAX_COMMAND_BYTES} are read")
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"malformed command: {error}. Has the client the version of its gateway?") from None


encode: Final = msgspec.json.Encoder().encode
