"""Who keeps the logs of a node: an endpoint in the concentrator's process, and the logs behind it."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from echannel_ray import errors
from echannel_ray.client.channels import encoder_of, look_up
from echannel_ray.client.production import enter_producer
from echannel_ray.core.messages import Definition, KeptLog, LogAddress, Membership
from echannel_ray.core.packing import Packing
from echannel_ray.logs.directory import directory_of
from echannel_ray.logs.entries import Bounds
from echannel_ray.logs.store import Store
from echannel_ray.options import DEFAULT_WINDOW_BYTES
from echannel_ray.retained import calls
from echannel_ray.retained.derived_feed import DerivedFeed
from echannel_ray.retained.directory import private_directory
from echannel_ray.retained.kept import Kept
from echannel_ray.retained.shelf import Shelf
from echannel_ray.runtime.calls import Answer, Caller
from echannel_ray.runtime.crew import Errand
from echannel_ray.runtime.definitions import open_channel
from echannel_ray.runtime.endpoint import Endpoint
from echannel_ray.runtime.publisher import Publisher
from echannel_ray.transport.connection import Connection

logger = logging.getLogger(__name__)

_STOPPING_SECONDS: Final = 2.0
_QUESTIONS: Final = (
    calls.Append, calls.Slice, calls.Await, calls.Join, calls.Fetch, calls.FetchSlice, calls.Handled, calls.Leave,
    calls.Look, calls.Read, calls.Hold,
)  # fmt: skip


class About(msgspec.Struct, frozen=True):
    """Whose log a file is: what stands beside a log on disk."""

    channel: str
    incarnation: int
    is_stopped: bool = False  # with its namespace: whoever makes the channel anew goes on with its log
    type: str = ""
    formats: dict[int, bytes] = {}


def note(path: Path, about: About) -> None:
    """Write what a log is about to the file beside it, all or nothing."""
    temporary = path.with_suffix(".new")
    temporary.write_bytes(msgspec.json.encode(about))
    temporary.replace(path.with_suffix(".json"))


def type_of(definition: Definition) -> str:
    """A channel's declared type, to compare; nothing: it is untyped."""
    return definition.type_schema["schema"].hex() if definition.type_schema else ""


class Keeper:
    """The logs of one node, and the endpoint that serves them; made when a log is first wanted."""

    def __init__(
        self, namespace: str, node: int, connect: Callable[[Endpoint], Connection], emptied: Callable[[], None]
    ) -> None:
        """`emptied` is called, in a thread of its own, when the last log was deleted."""
        self._emptied = emptied
        self.endpoint = Endpoint(namespace, node, connect)
        self.endpoint.calls.serve(dict.fromkeys(_QUESTIONS, self._asked), calls.ANSWERS, at_once=True)
        self.directory = directory_of(namespace, node)
        self._kept: dict[str, Kept] = {}
        self._opening = threading.Lock()
        self.endpoint.start()

    def open(self, channel: str, incarnation: int = 0) -> LogAddress:
        """Open the log of a channel at this node; its address."""
        return self._address(self.kept(channel, incarnation).shelf)

    def kept(self, channel: str, incarnation: int = 0) -> Kept:
        """The log of a channel; it is opened where it is not yet."""
        with self._opening:
            known_one = self._kept.get(channel)
            if known_one is not None and known_one.definition.incarnation == (
                incarnation or known_one.definition.incarnation
            ):
                return known_one
            definition = open_channel(self.endpoint, channel, incarnation=incarnation)
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
                if about.is_stopped:
                    continue  # until its channel is made anew
                self.kept(about.channel, about.incarnation)
            except errors.ChannelDeleted:
                logger.warning("%s has the log of a channel that is not there any more: it stays as it is", path)
            except Exception:
                logger.exception("the log that %s is about can't be opened", path)

    def _open(self, definition: Definition, retention: dict[str, Any]) -> Kept:
        endpoint = self.endpoint
        channel = definition.channel
        path = self._path_of(definition) if retention["disk"] else None
        bounds = Bounds(retention["max_bytes"], retention["max_age_seconds"])
        store = Store(str(path) if path is not None else None, bounds)
        shelf = Shelf(channel, store)

        def told(membership: Membership, is_deleted: bool) -> None:
            direct = [each for each in membership.consumers if not each.derived]
            if not is_deleted:
                shelf.members_are({(each.endpoint, each.subscription): each.group for each in direct})
            else:
                endpoint.crew.submit(Errand(self._deleted, channel, definition.incarnation))

        records = encoder_of(endpoint, definition)
        publisher = Publisher(
            endpoint, channel, definition.incarnation, "block", DEFAULT_WINDOW_BYTES, Packing(), records=records
        )
        log = KeptLog(store.log, shelf.opened_at)
        feed = DerivedFeed(store, publisher, log, told, shelf.derived_handled)
        shelf.derives = feed.derives
        kept = self._kept[channel] = Kept(definition, shelf, feed, path)
        try:
            enter_producer(publisher)
        except BaseException:
            del self._kept[channel]
            shelf.close()
            raise
        return kept

    def _path_of(self, definition: Definition) -> Path:
        directory = private_directory(self.endpoint.namespace, self.endpoint.node)
        digest = hashlib.sha256(definition.channel.encode()).hexdigest()[:16]
        path = directory / f"{digest}-{definition.incarnation}.db"
        if not path.exists():
            self._take_over(definition, digest, path)
        note(path, About(definition.channel, definition.incarnation))
        return path

    def _take_over(self, definition: Definition, digest: str, path: Path) -> None:
        """Go on with the log that this channel had when its namespace was stopped, if it has the same type now."""
        for found in sorted(self.directory.glob(f"{digest}-*.json"), reverse=True):
            about = msgspec.json.decode(found.read_bytes(), type=About)
            if about.is_stopped and about.channel == definition.channel and about.type == type_of(definition):
                if about.formats:
                    incarnation = definition.incarnation
                    open_channel(self.endpoint, definition.channel, formats=about.formats, incarnation=incarnation)
                for former in found.parent.glob(f"{found.stem}.db*"):
                    former.rename(path.with_name(former.name.replace(found.stem, path.stem)))
                found.unlink()
                return

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
        if self.is_empty:
            threading.Thread(target=self._emptied, name="echannel-keeper-ends", daemon=True).start()

    def _discard(self, kept: Kept) -> None:
        """Delete the log of a channel that was deleted."""
        self._close(kept)
        kept.store.delete()
        if kept.path is not None:
            kept.path.with_suffix(".json").unlink(missing_ok=True)

    def _close(self, kept: Kept) -> None:
        kept.feed.publisher.retire()
        kept.shelf.close()

    @property
    def is_empty(self) -> bool:
        """Whether there is no log here any more."""
        return not self._kept

    def _about(self, definition: Definition) -> About:
        """What is written beside a log for the time when its channel's books are gone."""
        with contextlib.suppress(errors.EChannelError, TimeoutError):  # formats may have been added elsewhere
            definition = look_up(self.endpoint, definition.channel, _STOPPING_SECONDS) or definition
        return About(definition.channel, definition.incarnation, True, type_of(definition), definition.formats)

    def drain(self, deadline: float) -> None:
        """Wait until whoever reads these logs now has read all of them, derived channels' consumers included."""
        for publisher in [*self.endpoint.publishers.values()]:
            with contextlib.suppress(errors.EChannelError, TimeoutError):  # as much as can be
                publisher.drain(max(0.0, deadline - time.monotonic()))
        for kept in [*self._kept.values()]:
            if not kept.shelf.wait_until_read(deadline):
                logger.warning(
                    "node %016x is drained, and not all has been read of %r", self.endpoint.node, kept.shelf.channel
                )

    def close(self, is_stopped: bool = False) -> None:
        """End; logs on disk stay. Where the whole namespace is stopped, the next one takes them over."""
        with self._opening:
            for kept in self._kept.values() if is_stopped else ():
                if kept.path is not None:
                    note(kept.path, self._about(kept.definition))
            for kept in self._kept.values():
                kept.shelf.close()
            self._kept.clear()
        self.endpoint.close()
