"""The first job of a cluster: it makes the channels that a file lists, opens the gateway, and ends.

It may run again at any time: what is there is opened, not made anew, and the gateway keeps its secrets for as long as
it is asked for with the same rights.
"""

from __future__ import annotations

import importlib
import os
import secrets
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from echannel_ray.errors import EChannelError
from echannel_ray.ids import check_channel_name, check_namespace
from echannel_ray.options import Packing, retention_from

if TYPE_CHECKING:
    from echannel_ray.session import Session


class ChannelPlan(BaseModel):
    """A channel, as the file has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    type: str | None = None  # where its class is: "package.module:Class"
    packing: dict[str, Any] | None = None
    retain: dict[str, Any] | None = None

    def make(self, namespace: str) -> None:
        """Create the channel, or open it where there is one."""
        from echannel_ray.event_channel import channel

        packing = None if self.packing is None else Packing(**self.packing)
        event_type = None if self.type is None else _imported(self.type)
        channel(self.name, event_type, namespace=namespace, packing=packing, retain=retention_from(self.retain))


class GatewayPlan(BaseModel):
    """The gateway of the node where this runs; nobody may do anything there unless it is said."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    port: int = Field(gt=0, lt=65536)
    events_port: int = Field(gt=0, lt=65536)
    reached_as: str  # the name by which clients reach it: that of a Service
    endpoint_file: Path  # gets what clients need: a secret, so it is for the owner only
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    derive: tuple[str, ...] = ()
    max_events_per_second: float | None = Field(None, gt=0)
    max_bytes_per_second: float | None = Field(None, gt=0)
    max_event_bytes: int | None = Field(None, gt=0)

    def open(self, session: Session) -> None:
        """Open the gateway, and write down what its clients need."""
        asked = self.model_dump(exclude={"reached_as", "endpoint_file"})
        # A pod is reached by the name of a Service, which is no address that it could listen on.
        endpoint = session.gateway("0.0.0.0", files=(), **asked)
        _write_privately(self.endpoint_file, str(replace(endpoint, host=self.reached_as)))


class Plan(BaseModel):
    """What the file asks for, which is JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    namespace: str = "default"
    channels: tuple[ChannelPlan, ...] = ()
    gateway: GatewayPlan | None = None


def read_plan(path: Path) -> Plan:
    """The plan in a file, whole and checked; `ValueError` that says what is wrong with it."""
    try:
        plan = Plan.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ValueError(f"{path}: {_sentence(error)}") from None
    check_namespace(plan.namespace)
    for each in plan.channels:
        try:
            check_channel_name(each.name)
            if each.packing is not None:
                Packing(**each.packing)
            retention_from(each.retain)
            if each.type is not None:
                _imported(each.type)
        except (EChannelError, ImportError, AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: channel {each.name!r}: {error}") from None
    return plan


def bootstrap(path: Path) -> Plan:
    """Do what the file says, in the Ray that runs here."""
    plan = read_plan(path)  # before anything is made: a half of it would help nobody
    import ray

    from echannel_ray.session import connect

    if not ray.is_initialized():
        ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False)
    with connect(plan.namespace) as session:
        for each in plan.channels:
            each.make(plan.namespace)
        if plan.gateway is not None:
            plan.gateway.open(session)
    return plan


def _imported(where: str) -> Any:
    module, colon, name = where.partition(":")
    if not colon:
        raise ValueError(f'a type is said by where it is, as in "package.module:Class", not {where!r}')
    return getattr(importlib.import_module(module), name)


def _write_privately(path: Path, text: str) -> None:
    """Write a file, all of it or nothing, that others can never read."""
    beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text + "\n")
    beside.rename(path)


def _sentence(error: OSError | ValidationError) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'the file'}: {each['msg']}" for each in error.errors())


def main() -> int:
    """The entry point of the RayJob: `python -m echannel_ray.pod.bootstrap FILE`."""
    if len(sys.argv) != 2:
        print("usage: python -m echannel_ray.pod.bootstrap FILE", file=sys.stderr)
        return 2
    try:
        plan = bootstrap(Path(sys.argv[1]))
    except ValueError as error:
        print(f"echannel: {error}", file=sys.stderr)
        return 2
    except (EChannelError, TimeoutError, ConnectionError) as error:
        print(f"echannel: {error}", file=sys.stderr)
        return 1
    gateway = "no gateway" if plan.gateway is None else f"the gateway's endpoint is in {plan.gateway.endpoint_file}"
    print(f"echannel: {len(plan.channels)} channels in namespace {plan.namespace!r}; {gateway}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
