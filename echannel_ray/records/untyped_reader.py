"""Records on a channel without a type, where a gateway's clients may publish them: each as its format says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from echannel_ray.records.reader import Reader
from echannel_ray.records.sources import Block
from echannel_ray.schemas.schema import Format


class UntypedReader:
    """Reads events for a channel that any may come on, as a `Reader` does: what is no record stays as it is."""

    def __init__(self, batches: str | None = None) -> None:
        self.batches = batches
        self._readers: dict[Format, Reader] = {}

    def _reader(self, format: Format) -> Reader:  # noqa: A002
        reader = self._readers.get(format)
        if reader is None:
            reader = self._readers[format] = Reader(None, format.record, self.batches)
        return reader

    def events(self, format: Format, payloads: Sequence[bytes]) -> list[Any]:  # noqa: A002
        """An event of each payload; a record where the format has one."""
        return self._reader(format).events(format, payloads)

    def rows(self, format: Format, block: Block, count: int) -> list[Any]:  # noqa: A002
        """An event of each record of a block."""
        return self._reader(format).rows(format, block, count)

    def batch(self, format: Format, payloads: Sequence[bytes]) -> Any:  # noqa: A002
        """One array or record batch of payloads of a record each."""
        return self._reader(format).batch(format, payloads)

    def batch_of_block(self, format: Format, block: Block, count: int) -> Any:  # noqa: A002
        """One array or record batch of a block."""
        return self._reader(format).batch_of_block(format, block, count)

    def is_target(self, event: Any) -> bool:
        """Any event is what was asked for."""
        return True

    def of_mapping(self, fields: Mapping[str, Any]) -> Any:
        """Never called, since every event is a target."""
        return fields
