"""Compiles the hot modules by mypyc where ECHANNEL_COMPILE=1 is set, as `make wheel` does; else all is pure."""

from __future__ import annotations

import os

from setuptools import setup

# What each event or pack passes. Each of them runs as Python too: what is compiled is the same file.
#
# Not among them:
# - `core.messages`, and the books of managers and the name server (`core.membership`, `core.channel_entry`,
#   `core.derivations`, `core.name_book`, `core.allotments`, `core.shares`, `core.lags`): frozen dataclasses of a
#   compiled module can't be unpickled, and no event passes there;
# - `core.packing`: policies are referred to weakly, as instances of compiled classes can't be;
# - `core.lifetimes`: its instances are referred to weakly;
# - `core.states`: names of states, looked up seldom;
# - `formats.packs`, `formats.mixed_packs`, `endpoint.calls`: they have msgspec's structs;
# - `transport.connection`: links of TLS, and those of tests, extend its protocol;
# - `producer`, `endpoint.ownership`: a producer binds methods as attributes, which compiled classes don't have;
# - `delivery`, as all that users see: what is compiled shows them no annotations.
HOT = (
    "consumers/driver", "consumers/function_driver", "consumers/inbox", "consumers/mixed_driver",
    "core/arrivals", "core/counters", "core/credit", "core/cursors", "core/cutover", "core/deliveries",
    "core/drain_point", "core/endpoint", "core/flows", "core/frames", "core/framing", "core/gather", "core/kinds",
    "core/laggards", "core/large_events", "core/latencies", "core/mixed_receipts", "core/mixtures", "core/receiver",
    "core/relay", "core/segments", "core/sender", "core/streams", "core/trials", "core/ways", "core/windows",
    "endpoint/bell", "endpoint/by_channel", "endpoint/crew", "endpoint/deadlines", "endpoint/direct_links",
    "endpoint/link_reader", "endpoint/link_writer", "endpoint/process_endpoint", "endpoint/timers",
    "formats/buffers", "formats/events",
    "producers/consumer_sink", "producers/drain", "producers/handover", "producers/mixed_list", "producers/outlet",
    "producers/pending_deliveries", "producers/publisher", "producers/room", "producers/sink",
)  # fmt: skip

# Who asks for it needs mypy: `make wheel` has it in its environment, and builds there (`--no-build-isolation`).
extensions = []
if os.environ.get("ECHANNEL_COMPILE") == "1":
    from mypyc.build import mypycify

    modules = [f"echannel_ray/{module}.py" for module in HOT]
    extensions = mypycify(["--config-file=pyproject.toml", *modules], opt_level="3", debug_level="0")

setup(ext_modules=extensions)
