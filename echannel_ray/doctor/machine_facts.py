"""What can be seen from inside a process of a machine: run where the doctor is called, and on every node as a task."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import socket
import subprocess
import tempfile
from typing import Any, Final

from pydantic import BaseModel, Field

from echannel_ray.compilation import is_compiled
from echannel_ray.errors import EChannelError
from echannel_ray.ids import WIRE_VERSION

REQUIRED: Final = ("ray", "msgspec", "cloudpickle", "pydantic", "cryptography", "typer", "rich", "numpy")
OPTIONAL: Final = ("llvmlite", "pyarrow", "pyspark", "aiohttp", "opentelemetry-api")
OURS: Final = "echannel-ray"
_JAVA_SECONDS: Final = 10.0
_SANDBOX_BYTES: Final = 256 << 20


class Facts(BaseModel):
    """Facts about one process, and the machine that it runs on."""

    node: str = ""  # the beginning of its Ray node id; "" is where the doctor was called
    host: str = ""
    uid: int = 0
    python: str = ""
    architecture: str = ""
    packages: dict[str, str | None] = Field(default_factory=dict)  # versions; None is not installed
    wire_version: int = WIRE_VERSION
    compiled: bool = False  # whether the hot modules are, or are pure Python
    import_error: str | None = None  # why there is no echannel_ray; the rest is missing then
    java: str | None = None
    tmpdir: str = ""
    sockets_problem: str | None = None
    sandbox_layers: list[str] = Field(default_factory=list)
    sandbox_problem: str | None = None
    memory_available_bytes: int = 0
    shm_total_bytes: int = 0
    shm_free_bytes: int = 0
    loopback_problem: str | None = None
    has_tokens: bool = False  # Ray's token authentication is on


def look(node: str = "") -> Facts:
    """Gather the facts of this process and machine. Makes a sandbox, and takes a second or two."""
    packages = {name: _version(name) for name in (OURS, *REQUIRED, *OPTIONAL)}
    layers, sandbox_problem = _sandbox()
    shm_total, shm_free = _shared_memory()
    return Facts(
        node=node,
        host=socket.gethostname(),
        uid=os.geteuid(),
        python=platform.python_version(),
        architecture=platform.machine(),
        packages=packages,
        compiled=is_compiled(),
        java=_java() if packages["pyspark"] is not None else None,
        tmpdir=tempfile.gettempdir(),
        sockets_problem=_sockets_problem(),
        sandbox_layers=layers,
        sandbox_problem=sandbox_problem,
        memory_available_bytes=_memory_available(),
        shm_total_bytes=shm_total,
        shm_free_bytes=shm_free,
        loopback_problem=_loopback_problem(),
        has_tokens=_has_tokens(),
    )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        return None
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stderr or done.stdout).partition("\n")[0] or None


def _sockets_problem() -> str | None:
    """What keeps a concentrator from listening below TMPDIR: where that is, how long its path is, and whose it is."""
    from echannel_ray.actors.storage import SOCKET_NAME
    from echannel_ray.transport.unix import SocketDirectory, UnixListener

    try:
        directory = SocketDirectory("doctor", os.getpid())
        try:
            UnixListener(directory.socket_path(SOCKET_NAME)).close()
        finally:
            os.rmdir(directory)
    except (EChannelError, OSError) as error:
        return str(error)
    return None


def _sandbox() -> tuple[list[str], str | None]:
    """The layers of a sandbox that was really made; or why none can be."""
    from echannel_ray.modulation.admission import Admission
    from echannel_ray.sandbox.process import Sandbox
    from echannel_ray.sandbox.warden import Warden

    nobody: Any = None  # owners are told from `install` on
    warden = Warden()
    try:
        limits = Admission(max_seconds_per_event=0.5, max_memory_bytes=_SANDBOX_BYTES, modules=())
        sandbox = Sandbox(nobody, warden, limits, "doctor")
        sandbox.close()
        return list(sandbox.layers), None
    except (EChannelError, OSError, TimeoutError) as error:
        return [], str(getattr(error, "reason", error))
    finally:
        warden.close()


def _memory_available() -> int:
    with open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 0


def _shared_memory() -> tuple[int, int]:
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return 0, 0
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def _loopback_problem() -> str | None:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 2.0):
            return None
    except OSError as error:
        return str(error)


def _has_tokens() -> bool:
    try:
        from ray import _raylet
    except ImportError:
        return False  # which is told elsewhere
    raylet: Any = _raylet  # compiled, so that type checkers see nothing of it
    mode = getattr(raylet, "get_authentication_mode", None)  # Ray has no public name for it
    return mode is not None and bool(mode() == raylet.AuthenticationMode.TOKEN)
