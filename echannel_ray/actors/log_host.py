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
from echannel_ray.core.messages import Definition, LogAddress
from echannel_ray.core.packing import Packing
from echannel_ray.endpoint.calls import Answer, Caller
from echannel_ray.endpoint.crew import Job
from echannel_ray.endpoint.definitions import open_channel
from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
from echannel_ray.logs.entries import LogBounds
from echannel_ray.logs.store import Store
from echannel_ray.options import DEFAULT_WINDOW_BYTES
from echannel_ray.producers.publisher import Publisher
from echannel_ray.retained import log_calls
from echannel_ray.retained.derived_feed import DerivedFeed
from echannel_ray.retained.hosted_log import HostedLog
from echannel_ray.retained.log_directory import directory_of, private_directory
from echannel_ray.retained.log_server import LogServer
from echannel_ray.transport.connection import Connection

logger = logging.getLogger(__name__)

_STOPPING_SECONDS: Final = 2.0
_QUESTIONS: Final = (
    log_calls.Append, log_calls.Slice, log_calls.Await, log_calls.Join, log_calls.Fetch, log_calls.FetchSlice,
    log_calls.Handled, log_calls.Leave,
    log_calls.Look, log_calls.ReadRange, log_calls.Hold,
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


class LogHost:
    """The logs of one node, and the endpoint that serves them; made when a log is first wanted."""

    def __init__(
        self, namespace: str, node: int, connect: Callable[[ProcessEndpoint], Connection], emptied: Callable[[], None]
    ) -> None:
        """`emptied` is called, in a thread of its own, when the last log was deleted."""
        self._emptied = emptied
        self.endpoint = ProcessEndpoint(namespace, node, connect)
        self.endpoint.calls.serve(dict.fromkeys(_QUESTIONS, self._asked), log_calls.ANSWERS, at_once=True)
        self.directory = directory_of(namespace, node)
        self._hosted_logs: dict[str, HostedLog] = {}
        self._opening = threading.Lock()
        self.endpoint.start()

    def open(self, channel: str, incarnation: int = 0) -> LogAddress:
        """Open the log of a channel at this node; its address."""
        log_server = self.hosted_log(channel, incarnation).log_server
        return LogAddress(self.endpoint.node, self.endpoint.id, log_server.store.log, log_server.opened_at)

    def hosted_log(self, channel: str, incarnation: int = 0) -> HostedLog:
        """The log of a channel; it is opened where it is not yet."""
        with self._opening:
            known_one = self._hosted_logs.get(channel)
            if known_one is not None and incarnation in (0, known_one.definition.incarnation):
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
                self.hosted_log(about.channel, about.incarnation)
            except errors.ChannelDeleted:
                logger.warning("%s has the log of a channel that is not there any more: it stays as it is", path)
            except Exception:
                logger.exception("the log that %s is about can't be opened", path)

    def _open(self, definition: Definition, retention: dict[str, Any]) -> HostedLog:
        endpoint = self.endpoint
        channel = definition.channel
        path = self._path_of(definition) if retention["disk"] else None
        bounds = LogBounds(retention["max_bytes"], retention["max_age_seconds"])
        store = Store(str(path) if path is not None else None, bounds)
        log_server = LogServer(channel, store)

        def deleted() -> None:
            endpoint.crew.submit(Job(self._deleted, channel, definition.incarnation))

        records = encoder_of(endpoint, definition)
        publisher = Publisher(
            endpoint, channel, definition.incarnation, "block", DEFAULT_WINDOW_BYTES, Packing(), records=records
        )
        feed = DerivedFeed(log_server, publisher, deleted)
        hosted_log = self._hosted_logs[channel] = HostedLog(definition, log_server, feed, path)
        try:
            enter_producer(publisher)
        except BaseException:
            del self._hosted_logs[channel]
            log_server.close()
            raise
        return hosted_log

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

    def _asked(self, message: Any, caller: Caller, answer: Answer) -> None:
        hosted_log = self._hosted_logs.get(message.channel)
        if hosted_log is None:
            answer(log_calls.OtherLog(""))
        else:
            hosted_log.log_server.ask(message, caller, answer)

    def _deleted(self, channel: str, incarnation: int) -> None:
        with self._opening:
            hosted_log = self._hosted_logs.get(channel)
            if hosted_log is None or hosted_log.definition.incarnation != incarnation:
                return
            del self._hosted_logs[channel]
            self._discard(hosted_log)
        if self.is_empty:
            threading.Thread(target=self._emptied, name="echannel-log-host-ends", daemon=True).start()

    def _discard(self, hosted_log: HostedLog) -> None:
        """Delete the log of a channel that was deleted."""
        hosted_log.feed.publisher.retire()
        hosted_log.log_server.close()
        hosted_log.store.delete()
        if hosted_log.path is not None:
            hosted_log.path.with_suffix(".json").unlink(missing_ok=True)

    @property
    def is_empty(self) -> bool:
        """Whether there is no log here any more."""
        return not self._hosted_logs

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
        for hosted_log in [*self._hosted_logs.values()]:
            if not hosted_log.log_server.wait_until_read(deadline):
                channel = hosted_log.log_server.channel
                logger.warning("node %016x is drained, and not all has been read of %r", self.endpoint.node, channel)

    def close(self, is_stopped: bool = False) -> None:
        """End; logs on disk stay. Where the whole namespace is stopped, the next one takes them over."""
        with self._opening:
            for hosted_log in self._hosted_logs.values() if is_stopped else ():
                if hosted_log.path is not None:
                    note(hosted_log.path, self._about(hosted_log.definition))
            for hosted_log in self._hosted_logs.values():
                hosted_log.log_server.close()
            self._hosted_logs.clear()
        self.endpoint.close()
