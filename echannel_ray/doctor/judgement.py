"""What the facts of machines mean. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from rich.filesize import decimal

from echannel_ray.doctor.findings import Finding, by_outcome, fine, problem, warning
from echannel_ray.doctor.machine_facts import OURS, REQUIRED, Facts

_PYTHON = (3, 10)
_RAY = (2, 53)
_MIN_MEMORY_BYTES = 512 << 20
_MIN_SHM_BYTES = 64 << 20
_INSTALL = "pip install echannel-ray, on every node in one version"
# extra: its packages, and what it is for
_EXTRAS = {
    "native": (("llvmlite",), "filters as machine code"),
    "arrow": (("pyarrow",), "Arrow types, and the gateway"),
    "spark": (("pyspark", "pyarrow"), "Spark's sources and sinks"),
    "serve": (("aiohttp",), "the live page and probes"),
    "tracing": (("opentelemetry-api",), "traces"),
}
_LONG_CLOCK_SECONDS = 0.5


def judge(machines: Sequence[Facts]) -> list[Finding]:
    """What these machines are like, each by itself; equal findings are one."""
    checks = (_installed, _packages, _extras, _sockets, _sandbox, _memory, _loopback, _tokens)
    return by_outcome({name_of(each): [*chain.from_iterable(_judged(each, checks))] for each in machines})


def compare(machines: Sequence[Facts]) -> Iterator[Finding]:
    """Whether machines go together: versions, and where processes of one look for each other."""
    whole = [each for each in machines if each.import_error is None]
    python = _values(whole, lambda each: each.python)
    if len(python) > 1:
        minors = {version.rpartition(".")[0] for version in python}
        differ = problem if len(minors) > 1 else warning
        yield differ("versions", f"Python differs: {_listed(python)}", "run one version of Python on all nodes")
    wire = _values(whole, lambda each: str(each.wire_version))
    if len(wire) > 1:
        says = f"{OURS} speaks different wire versions: {_listed(wire)}"
        yield problem("versions", says, f"{_INSTALL}; parts of different ones refuse each other")
    for package in (OURS, *REQUIRED, "pyarrow"):
        found = _values(whole, lambda each, name=package: each.packages.get(name) or "none")  # type: ignore[misc]
        if len(found) > 1:
            yield warning("versions", f"{package} differs: {_listed(found)}", "install one version on all nodes")
    if len(python) == len(wire) == 1 and len(whole) > 1:
        yield fine("versions", f"Python {whole[0].python}, wire version {whole[0].wire_version} everywhere")
    here = [each for each in whole if not each.node]
    there = [each for each in whole if each.node and here and each.host == here[0].host]
    if here and there and (here[0].tmpdir, here[0].uid) not in {(each.tmpdir, each.uid) for each in there}:
        says = f"TMPDIR is {here[0].tmpdir} here, and {there[0].tmpdir} for Ray on this machine"
        if here[0].uid != there[0].uid:
            says = f"this is user {here[0].uid}, and Ray on this machine runs as user {there[0].uid}"
        yield warning("sockets", says, "start Ray and programs as one user and with one TMPDIR: they meet there")


def judge_clocks(offsets: Mapping[str, tuple[float, float]]) -> Iterator[Finding]:
    """Judge each node's clock by how much, at least and at most, it is ahead of the clock here."""
    # The distance of 0 from what lies between the two.
    distances = {node: max(least, -most, 0.0) for node, (least, most) in offsets.items()}
    wrong = {node: seconds for node, seconds in distances.items() if seconds > _LONG_CLOCK_SECONDS}
    for node, seconds in sorted(wrong.items()):
        advice = "have chrony or ntpd set it: latencies, ages and certificates go by clocks"
        yield warning("clocks", f"differs from the clock here by {seconds:,.1f} s or more", advice, [node])
    if offsets and not wrong:
        yield fine("clocks", f"within {_LONG_CLOCK_SECONDS:g} s of the clock here, as far as can be told")


def name_of(facts: Facts) -> str:
    """The name of a machine as people read it."""
    return facts.node[:8] or "here"


def _judged(facts: Facts, checks: Sequence[Callable[[Facts], Iterator[Finding]]]) -> Iterator[Iterator[Finding]]:
    if facts.import_error is not None:
        says = f"tasks can't import echannel_ray: {facts.import_error}"
        yield iter([problem("package", says, _INSTALL)])
    else:
        yield from (check(facts) for check in checks)


def _installed(facts: Facts) -> Iterator[Finding]:
    if _numbers(facts.python) < _PYTHON:
        yield problem("python", f"Python {facts.python}", "use Python 3.10 or newer")
    else:
        yield fine("python", f"Python {facts.python} on {facts.architecture}")


def _packages(facts: Facts) -> Iterator[Finding]:
    missing = [name for name in REQUIRED if facts.packages.get(name) is None]
    ray = facts.packages.get("ray")
    if missing:
        yield problem("package", f"not installed: {', '.join(missing)}", _INSTALL)
    elif ray is not None and _numbers(ray) < _RAY:
        yield problem("package", f"Ray {ray}", "install Ray 2.53 or newer")
    else:
        ours = facts.packages.get(OURS) or "from a directory"
        kind = "compiled" if facts.compiled else "pure Python"
        yield fine("package", f"{OURS} {ours}, {kind}, wire version {facts.wire_version}; Ray {ray}")


def _extras(facts: Facts) -> Iterator[Finding]:
    there = []
    for extra, (packages, purpose) in _EXTRAS.items():
        missing = [name for name in packages if facts.packages.get(name) is None]
        if missing:
            # Nobody needs all of them: it is no fault.
            advice = f"if you want that: pip install 'echannel-ray[{extra}]'"
            yield fine("extras", f"no {' and '.join(missing)}, so without {purpose}", advice)
        else:
            there.append(extra)
    if "spark" in there and facts.java is None:
        yield warning("extras", "pyspark is there, and no Java", "install Java 17, or set JAVA_HOME")
    if there:
        yield fine("extras", f"there: {', '.join(there)}")


def _sockets(facts: Facts) -> Iterator[Finding]:
    if facts.sockets_problem is not None:
        advice = "set TMPDIR to a short path of a directory that is yours or the system's, also where Ray is started"
        yield problem("sockets", facts.sockets_problem, advice)
    else:
        yield fine("sockets", f"can be made below {facts.tmpdir}")


def _sandbox(facts: Facts) -> Iterator[Finding]:
    if facts.sandbox_problem is not None:
        advice = "allow seccomp and prlimit64 in the container's profile; until then only trusted inline modulators run"
        yield problem("sandbox", f"none can be made: {facts.sandbox_problem}", advice)
    else:
        yield fine("sandbox", f"made one, with {len(facts.sandbox_layers)} layers of defence")


def _memory(facts: Facts) -> Iterator[Finding]:
    if facts.memory_available_bytes < _MIN_MEMORY_BYTES:
        says = f"{decimal(facts.memory_available_bytes)} of memory available"
        yield warning("memory", says, "free some, or move work to other nodes: Ray kills workers where it ends")
    if facts.shm_total_bytes < _MIN_SHM_BYTES or facts.shm_free_bytes < _MIN_SHM_BYTES // 4:
        says = f"/dev/shm has {decimal(facts.shm_total_bytes)}, of which {decimal(facts.shm_free_bytes)} are free"
        yield warning("memory", says, "give the container more (--shm-size, or an emptyDir of medium Memory)")
    elif facts.memory_available_bytes >= _MIN_MEMORY_BYTES:
        yield fine("memory", "more than 512 MiB available, and /dev/shm has room")


def _loopback(facts: Facts) -> Iterator[Finding]:
    if facts.loopback_problem is not None:
        says = f"127.0.0.1 can't be used: {facts.loopback_problem}"
        yield problem("loopback", says, "bring the loopback interface up, and let no firewall filter it")
    else:
        yield fine("loopback", "127.0.0.1 works")


def _tokens(facts: Facts) -> Iterator[Finding]:
    if facts.has_tokens:
        yield fine("tokens", "Ray's token authentication is on")
    else:
        says = "Ray's token authentication is off: who reaches Ray's ports can run anything, and reach every channel"
        yield warning("tokens", says, "start Ray with RAY_AUTH_MODE=token, or keep its ports on loopback")


def _values(machines: Sequence[Facts], get: Callable[[Facts], str]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for each in machines:
        values.setdefault(get(each), []).append(name_of(each))
    return values


def _listed(values: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{value} at {', '.join(names)}" for value, names in values.items())


def _numbers(version: str) -> tuple[int, int]:
    major, minor, *_ = [*version.split("."), "0"]
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)
