"""All checks, in an order in which each is worth more for those before it."""

from __future__ import annotations

import os
from datetime import datetime, timezone

from echannel_ray.doctor import judgement
from echannel_ray.doctor.findings import Finding, Report, problem
from echannel_ray.doctor.machine_facts import look
from echannel_ray.errors import Disconnected, EChannelError

_OF_A_RAY = ("nodes", "clocks", "wire version", "parts", "links", "certificates", "channels")


def examine(namespace: str, address: str | None) -> Report:
    """What is wrong here and, where a Ray runs, on its nodes and in a namespace. Starts nothing but tasks."""
    here = look()
    if here.packages.get("ray") is None:
        return Report(namespace=namespace, findings=[*judgement.judge([here]), *_left_out("Ray is not installed")])
    from echannel_ray.overview.ray_connection import running_ray

    try:
        with running_ray(address):
            from echannel_ray.doctor.survey import ask_clocks, ask_nodes, living_nodes

            nodes = living_nodes()
            facts, failed = ask_nodes(nodes)
            machines = [here, *facts]
            findings = [*judgement.judge(machines), *judgement.compare(machines), *failed]
            answered = {each.node for each in facts}
            findings += judgement.judge_clocks(dict(ask_clocks([node for node in nodes if node[:16] in answered])))
            findings += _of_namespace(namespace)
    except Disconnected as error:
        findings = judgement.judge([here])
        wanted = address or os.environ.get("RAY_ADDRESS")
        if wanted is not None:
            findings.append(problem("ray", error.message, "see that Ray runs there, and that this machine reaches it"))
        findings += _left_out("no Ray was reached" if wanted is not None else "no Ray runs on this machine")
    return Report(namespace=namespace, findings=findings)


def _of_namespace(namespace: str) -> list[Finding]:
    from echannel_ray.doctor.namespace import judge_certificates, judge_channels, judge_parts
    from echannel_ray.overview.readings import read_channels, read_status

    try:
        status = read_status(namespace)
        findings = [*judge_parts(status)]
        findings += judge_certificates(status.concentrators, datetime.now(timezone.utc))
        if status.managers:
            findings += judge_channels(read_channels(namespace))
        return findings
    except (EChannelError, TimeoutError, RuntimeError) as error:
        advice = "look at `ray list actors` and the worker logs of Ray's session directory"
        return [problem("parts", f"a part of namespace {namespace} does not answer: {error}", advice)]


def _left_out(why: str) -> list[Finding]:
    return [Finding(check=check, state="left out", says=why) for check in _OF_A_RAY]
