"""A gateway's host without Ray, over real logs; and a process of its own for it, which tests may kill.

`python -m tests.gateway.local DIRECTORY PORT IDENTITY [FAULT]` prints the endpoint. IDENTITY is a file: what is in it
is used, and it is made where there is none, so that the same command makes a successor. FAULT: see `DyingHost`.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from echannel_ray import errors
from echannel_ray.gateway.commands import ChannelInfo
from echannel_ray.gateway.identity import Identity
from echannel_ray.gateway.server import Gateway
from echannel_ray.logs.columns import ColumnReader, ColumnWriter
from echannel_ray.logs.entries import LogBounds, Missing
from echannel_ray.logs.files import Files, file_entry
from echannel_ray.logs.store import Store
from echannel_ray.schemas.declarations import schema_of
from tests.gateway.events import LocalEvents

LEASE_SECONDS = 3600.0


class _Channel:
    """A channel with a log: what a concentrator has of it."""

    def __init__(self, directory: Path, name: str, schema: pa.Schema | None, retain: dict | None) -> None:
        self.name = name
        self.schema = schema
        self.retain = retain
        is_on_disk = bool((retain or {}).get("disk"))
        path = directory / f"{quote(name, safe='')}.log" if is_on_disk else None
        bounds = LogBounds((retain or {}).get("max_bytes"), (retain or {}).get("max_age_seconds"))
        self.store = Store(None if path is None else str(path), bounds)
        self.info = ChannelInfo(name, schema, retain is not None, is_on_disk, self.store.log)
        self.writer = None if schema is None else ColumnWriter(schema)

    def entry(self, rows):
        if self.writer is None:
            raise errors.TypeMismatch(f"channel {self.name!r} has no type", channel=self.name, field=None)
        if isinstance(rows, Files):
            return file_entry(rows, "gateway", 0, time.time())
        return self.writer.entry(rows, "gateway", 0, time.time())

    def reader(self):
        return ColumnReader(self.schema, schema_of(self.schema))


class LocalHost(LocalEvents):
    """A `GatewayBackend` whose channels are in this directory; with `retain={"disk": True}` they are there again."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._channels: dict[str, _Channel] = {}
        super().__init__()
        for path in sorted(self._directory.glob("*.json")):
            known = json.loads(path.read_text())
            schema = known["schema"] and pa.ipc.read_schema(pa.py_buffer(base64.b64decode(known["schema"])))
            self._channels[known["name"]] = _Channel(self._directory, known["name"], schema, known["retain"])

    def channel(self, name, schema=None, retain=None):
        with self._lock:
            if schema is None:
                return self._found(name).info
            if name not in self._channels:
                self._channels[name] = _Channel(self._directory, name, schema, retain)
                self._remember(self._channels[name])
            found = self._channels[name]
            if found.schema is not None and not found.schema.equals(schema):
                field = next((f.name for f in schema if f not in list(found.schema)), None)
                raise errors.TypeMismatch(f"channel {name!r} has another type", channel=name, field=field)
            return found.info

    def _remember(self, channel: _Channel) -> None:
        path = self._directory / f"{quote(channel.name, safe='')}.json"
        schema = base64.b64encode(channel.schema.serialize().to_pybytes()).decode()
        new = path.with_suffix(".new")
        new.write_text(json.dumps({"name": channel.name, "schema": schema, "retain": channel.retain}))
        new.rename(path)

    def _found(self, name: str) -> _Channel:
        if name not in self._channels:
            raise LookupError(f"there is no channel {name!r}: make it with a schema")
        return self._channels[name]

    def store(self, name: str) -> Store:
        """For tests: the log of a channel."""
        return self._found(name).store

    def schema(self, name):
        return self._found(name).schema

    def publish(self, name, batch):
        channel = self._found(name)
        channel.store.append([channel.entry(batch)])

    def drain(self, name):
        if name not in self.events:
            self._found(name)

    def stage(self, name, place, number, batch):
        channel = self._found(name)
        channel.store.stage(place, number, channel.entry(batch), LEASE_SECONDS, time.time())

    def commit(self, name, write, chosen):
        return self._found(name).store.commit(write, chosen, time.time())

    def abort(self, name, write):
        return self._found(name).store.abort(write, time.time())

    def outcome(self, name, write):
        return self._found(name).store.outcome(write)

    def staged_bytes(self, name):
        return self._found(name).store.staged_bytes

    def offsets(self, name):
        store = self._found(name).store
        return {store.log: (store.first, store.next)}

    def read(self, name, log, start, stop, max_bytes):
        channel = self._found(name)
        if log != channel.store.log:
            raise Missing(log, start, None)
        return channel.reader().taken(log, channel.store.read(start, max_bytes, stop), start, stop, max_bytes)

    def group(self, name, group, start, lease_seconds):
        store = self._found(name).store
        if store.group(group) is None:
            store.set_group(group, store.first if start == "earliest" else store.next)
        return self._hold(store, group, store.group(group), lease_seconds)

    def acknowledge(self, name, group, marks, lease_seconds):
        store = self._found(name).store
        self._hold(store, group, marks.get(store.log, 0), lease_seconds)

    def _hold(self, store, group, offset, lease_seconds):
        store.set_group(group, offset, hold_until=time.time() + lease_seconds)
        return {store.log: offset}

    def close(self):
        for channel in self._channels.values():
            channel.store.close()


class DyingHost(LocalHost):
    """A host whose process is killed in a call of a method: "commit:1:after" is in the first, once it is done."""

    def __init__(self, directory: str | Path, fault: str) -> None:
        super().__init__(directory)
        method, call, when = fault.split(":")
        does, calls = getattr(self, method), itertools.count(1)

        def do(*arguments):
            is_fatal = next(calls) == int(call)
            if is_fatal and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = does(*arguments)
            if is_fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(self, method, do)


def main(directory: str, port: str, identity_path: str, fault: str = "") -> None:
    parent = os.getppid()
    path = Path(identity_path)
    identity = Identity.parse(path.read_bytes()) if path.exists() else None
    host: Any = DyingHost(directory, fault) if fault else LocalHost(directory)
    gateway = Gateway(host, "default", port=int(port), identity=identity)
    endpoint = gateway.start()
    if identity is None:
        path.write_bytes(bytes(gateway.identity))
    print(endpoint, flush=True)
    while os.getppid() == parent:  # whoever started it ends it, or has ended
        time.sleep(0.2)


if __name__ == "__main__":
    main(*sys.argv[1:])
