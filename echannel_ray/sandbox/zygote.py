"""Where sandboxes come from: a small process of its own per producer process and set of modules, never a fork of it.

It imports what modulators may need, since nothing can be imported after the lockdown, and forks one sandbox whenever
its control socket brings a byte; what goes back is the sandbox's socket and a descriptor of the process. It ends with
that socket, or with the producer, and its sandboxes end with it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pickle
import pkgutil
import platform
import random
import signal
import socket
import sys
import time
import types

from echannel_ray.sandbox import lockdown

SPARE = b"s"
UNAVAILABLE = b"u"

_OWN = (
    "cloudpickle", "ctypes", "msgspec", "pickle", "pydantic", "echannel_ray.errors", "echannel_ray.formats.by_value",
    "echannel_ray.formats.events", "echannel_ray.formats.plain", "echannel_ray.formats.trace_context",
    "echannel_ray.modulation.modulator", "echannel_ray.modulation.replica", "echannel_ray.modulation.services",
    "echannel_ray.modulators", "echannel_ray.records.generic",
    "echannel_ray.shared_object", "collections.abc", "typing", "enum", "dataclasses",
    "_strptime", "encodings.ascii", "encodings.latin_1", "encodings.utf_16", "encodings.utf_32", "encodings.cp1252",
    "encodings.raw_unicode_escape", "encodings.unicode_escape", "_compat_pickle", "copyreg", "traceback",
)  # fmt: skip
# Parts that NumPy imports when they are asked for, by code or by pickles.
_PARTS = {"numpy": ("numpy.linalg", "numpy.fft", "numpy.random", "numpy.ma", "numpy.polynomial", "numpy.rec")}


def main() -> None:
    """What the exec'd program runs: `settings` came as an argument, the control socket as a descriptor."""
    settings = json.loads(sys.argv[1])
    lockdown.die_with_parent()
    if os.getppid() != settings["parent"]:
        os._exit(0)  # it was gone before it could be watched
    control = socket.socket(fileno=settings["control"])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    layers = lockdown.enter_namespaces()
    if "pid namespace" in layers and os.fork():
        # The child is the first process of the namespace: with it all of them end. This one only waits for it.
        control.close()
        with contextlib.suppress(ChildProcessError):  # raised when there are no more children, with SIGCHLD ignored
            os.waitpid(-1, 0)
        os._exit(0)
    lockdown.die_with_parent()
    try:
        _preload(settings["modules"])
        has_empty_root = "mount namespace" in layers and lockdown.hide_files()
        _serve(control, [layer for layer in layers if layer != "mount namespace"], has_empty_root)
    except Exception as error:
        control.send(UNAVAILABLE + f"{type(error).__name__}: {error}".encode(errors="replace")[:2000])


def _preload(modules: list[str]) -> None:
    # Events of classes made in scripts and notebooks are pickled by Ray's copy of cloudpickle. Its functions have the
    # names and arguments of the original's, and Ray itself has no place in a sandbox.
    cloudpickle = importlib.import_module("cloudpickle.cloudpickle")
    for name in ("ray", "ray.cloudpickle"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["ray.cloudpickle.cloudpickle"] = cloudpickle
    for name in (*_OWN, *modules):
        for each in (name, *_PARTS.get(name, ())):
            with contextlib.suppress(Exception):  # not installed: then a modulator that needs it fails, and says so
                importlib.import_module(each)
    package = sys.modules.get("echannel_ray.modulators")
    for found in pkgutil.iter_modules(package.__path__ if package else ()):
        with contextlib.suppress(Exception):
            importlib.import_module(f"echannel_ray.modulators.{found.name}")
    inmate = importlib.import_module("echannel_ray.sandbox.inmate")
    time.localtime()
    platform.machine()
    _warm()
    inmate.rehearse()


def _warm() -> None:
    """Do once what reads files or imports when it is done for the first time."""
    with contextlib.suppress(Exception):
        pydantic = importlib.import_module("pydantic")
        model = pydantic.create_model("Warm", field=(int, 0))
        copy = model.model_validate({"field": 1}).model_copy(update={"field": 2})
        pickle.loads(pickle.dumps(copy.model_dump()))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        with contextlib.suppress(Exception):
            array = numpy.zeros((2, 2), [("x", "f8")])
            repr(pickle.loads(pickle.dumps(array, 5)))
            pickle.loads(pickle.dumps(numpy.random.default_rng(1)))
            array["x"] @ array["x"]


def _serve(control: socket.socket, layers: list[str], has_empty_root: bool) -> None:
    gc.collect()
    gc.freeze()  # or every collection of a sandbox would touch, and so copy, all of these pages
    numpy = sys.modules.get("numpy")
    while True:
        for _ in control.recv(64) or os._exit(0):
            if numpy is not None:
                numpy.random.seed()  # here, since a forked process would fetch its code anew
            ours, theirs = socket.socketpair()
            child = os.fork()
            if child == 0:
                try:
                    _become(ours, [*layers], has_empty_root)
                finally:
                    os._exit(1)
            ours.close()
            process = os.pidfd_open(child)
            socket.send_fds(control, [SPARE], [theirs.fileno(), process])
            theirs.close()
            os.close(process)


def _become(own: socket.socket, layers: list[str], has_empty_root: bool) -> None:
    """Do in the new process everything that can be done before somebody wants it, and serve."""
    from echannel_ray.sandbox import inmate

    descriptor = os.dup2(own.fileno(), 3)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    inmate.rehearse()
    memory = lockdown.memory_in_use()
    random.seed()
    layers += lockdown.enclose(has_empty_root)
    inmate.serve(descriptor, layers, memory)
