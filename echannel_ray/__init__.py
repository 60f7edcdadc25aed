"""Event channels for Ray: publish and subscribe between the processes of a cluster, losing nothing.

Everything public is importable from here. Names load on first use: the actors of this package import it too, and their
memory counts.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from echannel_ray.consumers.message import Gap as Gap
    from echannel_ray.consumers.message import Message as Message
    from echannel_ray.dataset import read_dataset as read_dataset
    from echannel_ray.delivery import Delivery as Delivery
    from echannel_ray.errors import ChannelDeleted as ChannelDeleted
    from echannel_ray.errors import Closed as Closed
    from echannel_ray.errors import DeliveryFailed as DeliveryFailed
    from echannel_ray.errors import Disconnected as Disconnected
    from echannel_ray.errors import EChannelError as EChannelError
    from echannel_ray.errors import EventsMissing as EventsMissing
    from echannel_ray.errors import InvalidName as InvalidName
    from echannel_ray.errors import MasterLost as MasterLost
    from echannel_ray.errors import ModulatorFailed as ModulatorFailed
    from echannel_ray.errors import ModulatorQuarantined as ModulatorQuarantined
    from echannel_ray.errors import ModulatorRefused as ModulatorRefused
    from echannel_ray.errors import NoSuchChannel as NoSuchChannel
    from echannel_ray.errors import NotAuthorised as NotAuthorised
    from echannel_ray.errors import NotSerialisable as NotSerialisable
    from echannel_ray.errors import Overloaded as Overloaded
    from echannel_ray.errors import ServiceNotGranted as ServiceNotGranted
    from echannel_ray.errors import StaleVersion as StaleVersion
    from echannel_ray.errors import TypeMismatch as TypeMismatch
    from echannel_ray.errors import VersionMismatch as VersionMismatch
    from echannel_ray.event_channel import EventChannel as EventChannel
    from echannel_ray.event_channel import channel as channel
    from echannel_ray.event_code import Ecode as Ecode
    from echannel_ray.event_code import ecode as ecode
    from echannel_ray.gateway.address import Endpoint as Endpoint
    from echannel_ray.logs.positions import Position as Position
    from echannel_ray.models import ChannelStats as ChannelStats
    from echannel_ray.models import Status as Status
    from echannel_ray.models import SubscriptionStats as SubscriptionStats
    from echannel_ray.modulation.admission import Admission as Admission
    from echannel_ray.modulation.modulator import Demodulator as Demodulator
    from echannel_ray.modulation.modulator import FIFOModulator as FIFOModulator
    from echannel_ray.modulation.modulator import Modulator as Modulator
    from echannel_ray.modulation.services import Clock as Clock
    from echannel_ray.modulation.services import Logger as Logger
    from echannel_ray.modulation.services import ProducerInfo as ProducerInfo
    from echannel_ray.options import Packing as Packing
    from echannel_ray.options import Retention as Retention
    from echannel_ray.producer import Producer as Producer
    from echannel_ray.producers.pending_deliveries import Failure as Failure
    from echannel_ray.producers.pending_deliveries import Receipt as Receipt
    from echannel_ray.progress_view import watch as watch
    from echannel_ray.records.generic import Record as Record
    from echannel_ray.session import Session as Session
    from echannel_ray.session import connect as connect
    from echannel_ray.session import disconnect as disconnect
    from echannel_ray.session import shutdown as shutdown
    from echannel_ray.session import status as status
    from echannel_ray.shared_object import SharedObject as SharedObject
    from echannel_ray.subscription import Subscription as Subscription

_HOMES = {
    "dataset": ("read_dataset",),
    "delivery": ("Delivery",),
    "event_channel": ("EventChannel", "channel"),
    "event_code": ("Ecode", "ecode"),
    "errors": (
        "ChannelDeleted", "Closed", "DeliveryFailed", "Disconnected", "EChannelError", "EventsMissing", "InvalidName",
        "MasterLost", "ModulatorFailed", "ModulatorQuarantined", "ModulatorRefused", "NoSuchChannel", "NotAuthorised",
        "NotSerialisable", "Overloaded", "ServiceNotGranted", "StaleVersion", "TypeMismatch", "VersionMismatch",
    ),
    "records.generic": ("Record",),
    "modulation.admission": ("Admission",),
    "modulation.modulator": ("Demodulator", "FIFOModulator", "Modulator"),
    "modulation.services": ("Clock", "Logger", "ProducerInfo"),
    "gateway.address": ("Endpoint",),
    "logs.positions": ("Position",),
    "options": ("Packing", "Retention"),
    "producer": ("Producer",),
    "producers.pending_deliveries": ("Failure", "Receipt"),
    "consumers.message": ("Gap", "Message"),
    "session": ("Session", "connect", "disconnect", "shutdown", "status"),
    "models": ("ChannelStats", "Status", "SubscriptionStats"),
    "shared_object": ("SharedObject",),
    "subscription": ("Subscription",),
    "progress_view": ("watch",),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'echannel_ray' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"echannel_ray.{home}"), name)
    # No submodule may have a public name: the import system would bind it here in the place of ours.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
