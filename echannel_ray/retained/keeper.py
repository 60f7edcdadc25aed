"""Who keeps the logs of a node: an endpoint in the concentrator's process, and the logs behind it."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from echannel_ray import errors
from echannel_ray.logs.directory import directory_of
from echannel_ray.logs.entries import Bounds
from echannel_ray.logs.store import Store
from echannel_ray.protocol.messages import Definition, KeptLog, LogAddress, Membership, OpenChannel, RegisterProducer
from echannel_ray.protocol.packing import Packing
from echannel_ray.records import known
from echannel_ray.retained import calls
from echannel_ray.retained.reissuing import Reissuer
from echannel_ray.retained.shelf import Shelf
from echannel_ray.runtime.calls import Answer, Caller
from echannel_ray.runtime.crew import Errand
from echannel_ray.runtime.endpoint import Endpoint
from echannel_ray.runtime.typed import RecordEncoder
from echannel_ray.transport.connection import Connection
from echannel_ray.transport.unix import make_private

logger = logging.getLogger(__name__)

_WINDOW_BYTES: Final = 8 << 20
_QUESTIONS: Final = (
    calls.Append, calls.Slice, calls.Await, calls.Join, calls.Fetch, calls.FetchSlice, calls.Handled, calls.Leave,
    calls.Look, calls.Read, calls.Hold,
)  # fmt: skip


class About(msgspec.Struct, frozen=True):
    """What stands beside a log on disk: whose it is."""

    channel: str
    incarnation: int


class Kept:
    """A log, and the producer that stands for it in the channel's books."""

    def __init__(self, definition: Definition, shelf: Shelf, producer: Reissuer, path: Path | None) -> None:
        self.definition = definition
        self.shelf = shelf
        self.producer = producer
        self.path = path


class Keeper:
    """One per concentrator of which a log was wanted."""

    def __init__(self, namespace: str, node: int, connect: Callable[[Endpoint], Connection]) -> None:
        self.endpoint = Endpoint(namespace, node, connect)
        self.endpoint.calls.serve(dict.fromkeys(_QUESTIONS, self._asked), calls.ANSWERS, at_once=True)
        self.directory = directory_of(namespace, node)
        self._kept: dict[str, Kept] = {}
        self._opening = threading.Lock()
        self.endpoint.start()

    def open(self, channel: str, incarnation: int = 0) -> LogAddress:
        """Have the log of a channel here; where it is."""
        return self._address(self.kept(channel, incarnation).shelf)

    def kept(self, channel: str, incarnation: int = 0) -> Kept:
        """The log of a channel; it is opened where it is not yet."""
        with self._opening:
            known_one = self._kept.get(channel)
            if known_one is not None and known_one.definition.incarnation == (
                incarnation or known_one.definition.incarnation
            ):
                return known_one
            definition = self.endpoint.requests.ask(OpenChannel(channel, None, {}, {}, incarnation))
            if known_one is not None and known_one.definition.incarnation == definition.incarnation:
                return known_one
            retention = definition.options.get("retain")
            if retention is None:
                raise errors.EChannelError(
                    f"channel {channel!r} keeps nothing: create it with retain=echannel_ray.Retention()",
                    channel=channel,
                )
            if known_one is not None:
                self._discard(known_one)
            return self._open(definition, retention)

    def recover(self) -> None:
        """Open the logs on disk that a predecessor had."""
        for path in sorted(self.directory.glob("*.json")):
            try:
                about = msgspec.json.decode(path.read_bytes(), type=About)
                self.kept(about.channel, about.incarnation)
            except errors.ChannelDeleted:
                logger.warning("%s has the log of a channel that is not there any more: it stays as it is", path)
            except Exception:
                logger.exception("the log that %s is about can't be opened", path)

    def _open(self, definition: Definition, retention: dict[str, Any]) -> Kept:
        endpoint = self.endpoint
        channel = definition.channel
        endpoint.definitions[channel] = definition
        known.learn_all(definition.formats)
        path = self._path_of(definition) if retention["disk"] else None
        bounds = Bounds(retention["max_bytes"], retention["max_age_seconds"])
        store = Store(str(path) if path is not None else None, bounds)
        shelf = Shelf(channel, definition.incarnation, store)

        def told(membership: Membership, is_deleted: bool) -> None:
            direct = [each for each in membership.consumers if not each.derived]
            if not is_deleted:
                shelf.members_are({(each.endpoint, each.subscription): each.group for each in direct})
            else:
                endpoint.crew.submit(Errand(self._deleted, channel, definition.incarnation))

        records = RecordEncoder(endpoint, definition, None, False) if definition.type_schema else None
        producer = Reissuer(
            endpoint, channel, definition.incarnation, "block", _WINDOW_BYTES, Packing(), records=records,
            kept=KeptLog(store.log, shelf.opened_at), store=store, told=told, settled=shelf.derived_handled,
        )  # fmt: skip
        shelf.derives = producer.derives
        kept = self._kept[channel] = Kept(definition, shelf, producer, path)
        try:
            registered = RegisterProducer(channel, producer.stream.number, definition.incarnation, log=producer.log)
            endpoint.installer.install(endpoint.requests.ask(registered))
        except BaseException:
            del self._kept[channel]
            self._close(kept)
            raise
        return kept

    def _path_of(self, definition: Definition) -> Path:
        self.directory.parent.parent.mkdir(parents=True, exist_ok=True)
        make_private(self.directory.parent)
        make_private(self.directory)
        digest = hashlib.sha256(definition.channel.encode()).hexdigest()[:16]
        path = self.directory / f"{digest}-{definition.incarnation}.db"
        about = msgspec.json.encode(About(definition.channel, definition.incarnation))
        temporary = path.with_suffix(".new")
        temporary.write_bytes(about)
        temporary.replace(path.with_suffix(".json"))
        return path

    def _address(self, shelf: Shelf) -> LogAddress:
        return LogAddress(self.endpoint.node, self.endpoint.id, shelf.store.log, shelf.opened_at)

    def _asked(self, message: Any, caller: Caller, answer: Answer) -> None:
        kept = self._kept.get(message.channel)
        if kept is None:
            answer(calls.OtherLog(""))
        else:
            kept.shelf.ask(message, caller, answer)

    def _deleted(self, channel: str, incarnation: int) -> None:
        with self._opening:
            kept = self._kept.get(channel)
            if kept is None or kept.definition.incarnation != incarnation:
                return
            del self._kept[channel]
            self._discard(kept)

    def _discard(self, kept: Kept) -> None:
        """Its channel was deleted."""
        self._close(kept)
        kept.shelf.store.delete()
        if kept.path is not None:
            kept.path.with_suffix(".json").unlink(missing_ok=True)

    def _close(self, kept: Kept) -> None:
        kept.producer.retire()
        kept.shelf.close()

    def close(self) -> None:
        """End; logs on disk stay."""
        with self._opening:
            for kept in self._kept.values():
                kept.shelf.close()
            self._kept.clear()
        self.endpoint.close()
