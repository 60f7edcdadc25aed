"""The kinds of events in a pack, and records: what stands in a pack for them, and what does inside a process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from echannel_ray.core.gather import Pack

# An object that msgpack has a form for; pickle protocol 5; the same with the large buffers behind it.
PLAIN: Final = 0
PICKLED: Final = 1
BUFFERS: Final = 2
# No event: the number of the last of some that were dropped on purpose, in the place where they would have been.
GAP: Final = 3
# Plain data, as `formats.plain` writes it: what a sandbox emits travels so, since a pickle of its making would run code
# in whoever reads it.
DATA: Final = 4
# No event: an error that a modulator's consumers are told, in the place where what it would have emitted is missing.
NOTICE: Final = 5
# Of a typed channel: one record, and many in one piece, which stand for all events of their run. Into what they are
# decoded depends on who reads them. Inside a process, their kinds have the token of their format above the lowest byte.
RECORD: Final = 6
BLOCK: Final = 7
TOKEN_BYTES: Final = 8
# With one of these kinds: the event's bytes are not in the pack, but in a segment (`core.segments`), and the pack says
# where. Whoever takes the pack in puts them in that place, so beyond the link nobody meets this.
IN_SEGMENT: Final = 0x80
_IS_INNER: Final = 0x7F


def typed(kind: int, token: int) -> int:
    """A kind of events of this format."""
    return token << 8 | kind


def wire_kind(kind: int) -> int:
    """The kind as packs have it."""
    return kind & 0xFF


def token_of(kind: int) -> int:
    """The token of the format of these events; 0 where they have none."""
    return kind >> 8


class Block:
    """Some of the records of a block, as the events of a run."""

    __slots__ = ("count", "data", "start", "stop")

    def __init__(self, data: Any, count: int, start: int = 0, stop: int | None = None) -> None:
        self.data = data
        self.count = count  # of the whole block
        self.start = start
        self.stop = count if stop is None else stop

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, part: slice) -> Block:
        start, stop, _ = part.indices(len(self))
        return Block(self.data, self.count, self.start + start, self.start + stop)


def kind_at(pack: Pack, run: int, entry: int) -> int:
    """The kind of a run that begins with this entry, its format's token included."""
    kinds = pack.kinds
    if not kinds:
        return PLAIN
    kind = kinds[0] if len(kinds) == 1 else kinds[entry]
    if kind & _IS_INNER < RECORD:
        return kind
    start = run * TOKEN_BYTES
    return typed(kind, int.from_bytes(pack.tokens[start : start + TOKEN_BYTES], "little"))


def entries_of(kind: int, count: int) -> int:
    """How many entries a run of so many events has."""
    return 1 if kind & _IS_INNER == BLOCK else count


def as_wire(kinds: list[int], counts: list[int]) -> tuple[bytes, bytes]:
    """The kinds and tokens of a pack, from the kinds of its runs."""
    tokens = b""
    if kinds and max(kinds) > 0xFF:
        tokens = b"".join([(kind >> 8).to_bytes(TOKEN_BYTES, "little") for kind in kinds])
        kinds = [kind & 0xFF for kind in kinds]
    if len(kinds) == 1:
        return bytes(kinds) if kinds[0] else b"", tokens
    if not any(kinds):
        return b"", tokens
    if len(set(kinds)) == 1:
        return bytes(kinds[:1]), tokens
    entries = map(entries_of, kinds, counts)
    return b"".join(bytes((kind,)) * count for kind, count in zip(kinds, entries, strict=True)), tokens
