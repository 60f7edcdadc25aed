"""Whether what refers to each other fits: Services, ports, probes, policies, ConfigMaps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from echannel_ray.pod.settings import Settings
from tests.k8s.kustomizing import Document
from tests.k8s.rendered import containers, of_kind, only, selects, templates

PROBES = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}


def ports_of(template: Document) -> dict[str, int]:
    """The ports of a pod, by their names."""
    return {
        port["name"]: port["containerPort"]
        for container in containers(template)
        for port in container.get("ports", [])
    }  # fmt: skip


def _selected(documents: list[Document], selector: dict[str, Any]) -> list[tuple[str, Document]]:
    return [each for each in templates(documents) if selects(selector, each[1]["metadata"]["labels"])]


def services_lead_somewhere(documents: list[Document]) -> Iterator[str]:
    """Services select pods that have their ports; probes ask for what is served, at ports of their containers."""
    for service in of_kind(documents, "Service"):
        name = service["metadata"]["name"]
        chosen = _selected(documents, {"matchLabels": service["spec"]["selector"]})
        if not chosen:
            yield f"Service {name} selects no pod"
        for pod, template in chosen:
            for port in service["spec"]["ports"]:
                if port["targetPort"] not in ports_of(template):
                    yield f"{pod} has no port {port['targetPort']} for Service {name}"
    for pod, template in templates(documents):
        for container in containers(template):
            if "ports" not in container:
                continue
            # One that runs beside the others is ready when it has started.
            wanted = PROBES if "restartPolicy" not in container else {"startupProbe", "livenessProbe"}
            for probe in wanted:
                asked = container.get(probe, {}).get("httpGet")
                if asked is None:
                    yield f"{container['name']} of {pod} has no {probe}"
                elif asked["path"] != PROBES[probe] or asked["port"] not in {
                    each["name"] for each in container["ports"]
                }:
                    yield f"{container['name']} of {pod} has a probe of something else: {asked}"
                elif (asked.get("scheme") == "HTTPS") != ("--tls-cert=" in " ".join(container["command"])):
                    yield f"{container['name']} of {pod} is asked with the wrong scheme"


def ports_are_the_codes(documents: list[Document]) -> Iterator[str]:
    """What containers are told to listen on is what they declare."""
    for pod, template in templates(documents):
        for container in containers(template):
            declared = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
            if "probes" in declared:
                told = {each["name"]: each["value"] for each in container["env"] if "value" in each}
                settings = Settings.of(told)
                if settings.port != declared["probes"]:
                    yield f"{container['name']} of {pod} has its probes elsewhere"
                if settings.host != "0.0.0.0":
                    yield f"{container['name']} of {pod} can't be asked by the machine that it is on"
            started = " ".join([*container.get("command", []), *container.get("args", [])])
            for option, name in (("--metrics-export-port=", "metrics"), ("--port ", "page")):
                for port in re.findall(rf"{option}(\d+)", started):
                    if declared.get(name) != int(port):
                        yield f"{container['name']} of {pod} has its port {name} elsewhere"
    cluster = only(documents, "RayCluster")["spec"]
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        parameters, ports = group["rayStartParams"], ports_of(group["template"])
        if parameters["metrics-export-port"] != str(ports["metrics"]):
            yield "Ray has its metrics elsewhere"


def nothing_is_open_by_default(documents: list[Document]) -> Iterator[str]:
    """One policy closes everything; the others name who may come, and to which ports."""
    policies = of_kind(documents, "NetworkPolicy")
    closing = [
        each
        for each in policies
        if each["spec"]["podSelector"] == {}
        and not each["spec"].get("ingress")
        and not each["spec"].get("egress")
        and set(each["spec"]["policyTypes"]) == {"Ingress", "Egress"}
    ]
    if not closing:
        yield "not everything is closed by default"
    names = [
        each
        for each in policies
        if each["spec"]["podSelector"] == {}
        for rule in each["spec"].get("egress", [])
        if {(port["protocol"], port["port"]) for port in rule["ports"]} == {("UDP", 53), ("TCP", 53)}
    ]
    if not names:
        yield "no pod can look names up"
    for policy in policies:
        name = policy["metadata"]["name"]
        for rule in policy["spec"].get("ingress", []):
            froms = rule.get("from", [])
            if not froms or any(not each or _is_anybody(each) for each in froms):
                yield f"{name} lets everybody in"
            if "ports" not in rule and froms != [{"podSelector": policy["spec"]["podSelector"]}]:
                yield f"{name} opens all ports to others than the pods themselves"


def _is_anybody(peer: Document) -> bool:
    return set(peer) == {"namespaceSelector"} and not peer["namespaceSelector"]


def policies_are_for_ports_that_there_are(documents: list[Document]) -> Iterator[str]:
    """And each port that somebody outside has to reach is in one."""
    admitted: set[tuple[str, int]] = set()
    for policy in of_kind(documents, "NetworkPolicy"):
        name, spec = policy["metadata"]["name"], policy["spec"]
        chosen = _selected(documents, spec["podSelector"])
        if not chosen:
            yield f"{name} is for no pod"
        for rule in spec.get("ingress", []):
            for port in rule.get("ports", []):
                having = [pod for pod, template in chosen if port["port"] in ports_of(template).values()]
                admitted |= {(pod, port["port"]) for pod in having}
                if not having:
                    yield f"{name}: there is no such port as {port['port']}"
    for service in of_kind(documents, "Service"):
        for pod, template in _selected(documents, {"matchLabels": service["spec"]["selector"]}):
            for port in service["spec"]["ports"]:
                if (pod, ports_of(template).get(port["targetPort"])) not in admitted:
                    yield f"{pod} can't be reached by Service {service['metadata']['name']}"
    for pod, template in templates(documents):
        if (metrics := ports_of(template).get("metrics")) and (pod, metrics) not in admitted:
            yield f"the metrics of {pod} can't be read"
    within = [
        each["spec"]
        for each in of_kind(documents, "NetworkPolicy")
        if each["spec"].get("ingress") == [{"from": [{"podSelector": each["spec"]["podSelector"]}]}]
        and each["spec"].get("egress") == [{"to": [{"podSelector": each["spec"]["podSelector"]}]}]
    ]
    if not any(len(_selected(documents, each["podSelector"])) == len([*templates(documents)]) for each in within):
        yield "the pods can't reach each other"


def configuration_is_mounted(documents: list[Document]) -> Iterator[str]:
    """ConfigMaps are there, and files where they are looked for; the cluster is found by its name."""
    maps = {each["metadata"]["name"]: each for each in of_kind(documents, "ConfigMap")}
    mounted: set[str] = set()
    for pod, template in templates(documents):
        volumes = {
            each["name"]: each["configMap"]["name"] for each in template["spec"]["volumes"] if "configMap" in each
        }
        for name in volumes.values():
            if name not in maps:
                yield f"{pod}: there is no such ConfigMap as {name}"
        if pod == "echannel head":
            for mount in containers(template)[0]["volumeMounts"]:
                files = maps.get(volumes.get(mount["name"], ""), {}).get("data", {})
                mounted |= {f"{mount['mountPath']}/{file}" for file in files}
    job = only(documents, "RayJob")["spec"]
    # Jobs run on the head.
    if job["entrypoint"].split()[-1] not in mounted:
        yield f"the bootstrap job: there is no such file on the head as {job['entrypoint'].split()[-1]}"
    name = only(documents, "RayCluster")["metadata"]["name"]
    if job["clusterSelector"] != {"ray.io/cluster": name}:
        yield f"the bootstrap job: there is no such cluster as {job['clusterSelector']}"
    for pod, template in templates(documents):
        for address in re.findall(r"--address[= ](\S+)", " ".join(_started(template))):
            if address != f"{name}-head-svc:6379":
                yield f"{pod} looks for the head at {address}"


def _started(template: Document) -> Iterator[str]:
    for container in containers(template):
        yield from [*container.get("command", []), *container.get("args", [])]
