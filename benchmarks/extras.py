"""What the benchmarks use where it is there: packages that the extras bring, and servers that the system brings."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from echannel_ray.compilation import is_compiled

# What is imported, and the package that has it. An experiment or baseline that lacks one is skipped by name.
PACKAGES = {
    "zmq": "pyzmq",
    "nats": "nats-py",
    "redis": "redis",
    "zenoh": "eclipse-zenoh",
    "grpc": "grpcio",
    "mpi4py": "mpi4py",
    "psutil": "psutil",
    "matplotlib": "matplotlib",
    "pyarrow": "pyarrow",
    "llvmlite": "llvmlite",
    "pyspark": "pyspark",
    "lmdb": "lmdb",
    "rocksdict": "rocksdict",
}
ALWAYS_THERE = ("echannel-ray", "ray", "msgspec", "numpy")
SERVERS = ("nats-server", "redis-server", "mpiexec")
EXTRA_OF = {"pyarrow": "arrow", "llvmlite": "native", "pyspark": "spark"}  # all others are in "bench"
ANSWER_SECONDS = 10.0


def is_installed(module: str) -> bool:
    """Whether the module could be imported, without doing so."""
    return importlib.util.find_spec(module) is not None


def not_installed(package: str) -> str:
    """What to say of a package that is missing."""
    return f"{package} is not installed: pip install 'echannel-ray[{EXTRA_OF.get(package, 'bench')}]'"


def missing_package(error: BaseException) -> str | None:
    """The package whose absence the error tells, if it is one of these; an actor's error is in Ray's as `cause`."""
    cause = getattr(error, "cause", None) or error
    if not isinstance(cause, ModuleNotFoundError) or cause.name is None:
        return None
    return PACKAGES.get(cause.name.partition(".")[0])


def versions() -> dict[str, str]:
    """Of all that is measured, and of what it stands beside."""
    packages = {package: _package_version(package) for package in (*ALWAYS_THERE, *PACKAGES.values())}
    packages["echannel_ray"] = "compiled" if is_compiled() else "pure Python"
    return packages | {server: _server_version(server) for server in SERVERS}


def _package_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _server_version(server: str) -> str:
    # PyPI's MPI has its program beside Python's.
    program = shutil.which(server) or shutil.which(server, path=str(Path(sys.executable).parent))
    if program is None:
        return "not installed"
    try:
        answer = subprocess.run(
            [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ANSWER_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    number = re.search(r"\d+(\.\d+)+", answer.stdout + answer.stderr)
    return number.group() if number else "unknown"
