"""What KubeRay's operator 1.7 does with a RayCluster or a RayJob beyond its schema: what it refuses, what it adds.

Written from what its validation does, with its feature gates as they are by default. A resource that is refused here
would be accepted by the API server, and then nothing would happen but an event.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.k8s.kustomizing import Document

_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_LONGEST_CLUSTER = 53  # the longest suffix of its services has 10 characters
_LONGEST_JOB = 47  # clusters of jobs get 6 more
_AUTOSCALER_V2 = "RAY_enable_autoscaler_v2"


def refusals(document: Document) -> list[str]:
    """Why the operator would not act on it; nothing where it would."""
    by_kind = {"RayCluster": _of_cluster, "RayJob": _of_job}
    return list(by_kind[document["kind"]](document))


def _of_name(document: Document, longest: int) -> Iterator[str]:
    name = document["metadata"]["name"]
    if len(name) > longest:
        yield f"the name has more than {longest} characters"
    if not _LABEL_1035.fullmatch(name):
        yield "the name is no DNS-1035 label"


def _of_cluster(cluster: Document) -> Iterator[str]:
    yield from _of_name(cluster, _LONGEST_CLUSTER)
    yield from _of_spec(cluster["spec"], cluster["metadata"].get("annotations", {}))


def _of_spec(spec: Document, annotations: dict[str, str]) -> Iterator[str]:
    head, workers = spec["headGroupSpec"], spec.get("workerGroupSpecs", [])
    for group in [head, *workers]:
        yield from _of_group(group)
    if not head["template"]["spec"].get("containers"):
        return
    for group in workers:
        yield from _of_workers(group, spec)
    yield from _of_fault_tolerance(spec, annotations)
    yield from _of_autoscaling(spec)
    yield from _of_authentication(spec)
    for field in ("historyServerOptions", "networkPolicy", "tlsOptions"):
        if field in spec:
            yield f"{field} is behind a feature gate"


def _of_group(group: Document) -> Iterator[str]:
    name, parameters = group.get("groupName", "head"), group.get("rayStartParams", {})
    if not group["template"]["spec"].get("containers"):
        yield f"{name} has no container"
    if group.get("resources") and parameters.keys() & {"num-cpus", "num-gpus", "memory", "resources"}:
        yield f"{name} has its resources in rayStartParams and in resources"
    if "labels" in parameters:
        yield f"{name} has labels in rayStartParams"
    if not all(_LABEL_VALUE.fullmatch(value) for value in group.get("labels", {}).values()):
        yield f"{name} has a label that is none"


def _of_workers(group: Document, spec: Document) -> Iterator[str]:
    name, least, most = group["groupName"], group.get("minReplicas"), group.get("maxReplicas")
    if not spec.get("enableInTreeAutoscaling") and None in (least, most):
        yield f"{name} needs minReplicas and maxReplicas where nothing scales"
    if (least or 0) < 0 or (most or 0) < 0:
        yield f"{name} has a negative number of replicas"
    if None not in (least, most) and least > most:  # type: ignore[operator]
        yield f"{name} has a minimum above its maximum"
    if group.get("suspend"):
        yield f"{name} is suspended"
    idle = group.get("idleTimeoutSeconds")
    if idle is not None and (idle < 0 or not _is_v2(spec)):
        yield f"{name} has an idleTimeoutSeconds, which is for autoscaler v2, and not negative"


def _of_fault_tolerance(spec: Document, annotations: dict[str, str]) -> Iterator[str]:
    options = spec.get("gcsFaultToleranceOptions")
    parameters, environment = spec["headGroupSpec"].get("rayStartParams", {}), _environment(spec["headGroupSpec"])
    if "redis-username" in parameters or "REDIS_USERNAME" in environment:
        yield "the user of Redis belongs into gcsFaultToleranceOptions"
    if options is None:
        if "RAY_REDIS_ADDRESS" in environment and annotations.get("ray.io/ft-enabled", "").lower() != "true":
            yield "RAY_REDIS_ADDRESS without gcsFaultToleranceOptions"
        return
    if "redis-password" in parameters or environment.keys() & {"REDIS_PASSWORD", "RAY_REDIS_ADDRESS"}:
        yield "address and password of Redis belong into gcsFaultToleranceOptions"
    if annotations.keys() & {"ray.io/ft-enabled", "ray.io/external-storage-namespace"}:
        yield "an annotation says what gcsFaultToleranceOptions says"
    if options.get("backend") == "rocksdb":
        yield "the backend rocksdb is behind a feature gate"
    elif "storage" in options:
        yield "storage is for the backend rocksdb"


def _of_autoscaling(spec: Document) -> Iterator[str]:
    options, environment = spec.get("autoscalerOptions", {}), _environment(spec["headGroupSpec"])
    if options.get("idleTimeoutSeconds", 0) < 0:
        yield "a negative idleTimeoutSeconds"
    if "KUBERAY_GEN_AUTOSCALER_START_CMD" in {each["name"] for each in options.get("env", [])}:
        yield "KUBERAY_GEN_AUTOSCALER_START_CMD is the operator's"
    if not spec.get("enableInTreeAutoscaling"):
        if environment.get(_AUTOSCALER_V2) in ("1", "true"):
            yield "autoscaler v2 is asked for, and autoscaling is off"
        return
    if "version" in options and _AUTOSCALER_V2 in environment:
        yield "the autoscaler's version is said twice"
    if _is_v2(spec):
        for group in [spec["headGroupSpec"], *spec.get("workerGroupSpecs", [])]:
            if group["template"]["spec"].get("restartPolicy", "Never") != "Never":
                yield "with autoscaler v2 no pod is started again in its place: restartPolicy is Never"


def _of_authentication(spec: Document) -> Iterator[str]:
    options = spec.get("authOptions", {})
    if options.get("mode") != "token":
        if options.get("enableK8sTokenAuth"):
            yield "enableK8sTokenAuth is for the mode token"
        return
    version = re.match(r"(\d+)\.(\d+)", spec.get("rayVersion", ""))
    if version is None:
        yield "tokens need a rayVersion"
    elif (int(version[1]), int(version[2])) < (2, 55 if options.get("enableK8sTokenAuth") else 52):
        yield "this Ray has no such tokens"
    if options.get("enableK8sTokenAuth") and options.get("secretName"):
        yield "a token of Kubernetes and one in a Secret"


def _of_job(job: Document) -> Iterator[str]:
    yield from _of_name(job, _LONGEST_JOB)
    spec = job["spec"]
    shuts_down, mode = spec.get("shutdownAfterJobFinishes", False), spec.get("submissionMode", "K8sJobMode")
    if spec.get("suspend") and (not shuts_down or "clusterSelector" in spec):
        yield "only a job that has a cluster of its own, and ends it, can be suspended"
    if spec.get("ttlSecondsAfterFinished", 0) < 0:
        yield "a negative ttlSecondsAfterFinished"
    if spec.get("ttlSecondsAfterFinished", 0) > 0 and not shuts_down:
        yield "ttlSecondsAfterFinished without shutdownAfterJobFinishes"
    if "deletionStrategy" in spec:
        yield "deletionStrategy is behind a feature gate"
    if spec.get("backoffLimit", 0) < 0:
        yield "a negative backoffLimit"
    if spec.get("backoffLimit", 0) > 0 and ("clusterSelector" in spec or mode == "InteractiveMode"):
        yield "no retries with a clusterSelector or in InteractiveMode"
    for field in ("activeDeadlineSeconds", "preRunningDeadlineSeconds"):
        if spec.get(field, 1) <= 0:
            yield f"{field} is not positive"
    if mode == "SidecarMode" and spec.keys() & {"clusterSelector", "submitterPodTemplate", "submitterConfig"}:
        yield "in SidecarMode the submitter is in the head of the job's own cluster"
    if "clusterSelector" not in spec and "rayClusterSpec" not in spec:
        yield "neither a clusterSelector nor a rayClusterSpec"
    if "clusterSelector" in spec and not spec["clusterSelector"].get("ray.io/cluster"):
        yield "a clusterSelector without ray.io/cluster"
    try:
        yaml.safe_load(spec.get("runtimeEnvYAML", ""))
    except yaml.YAMLError:
        yield "runtimeEnvYAML is no YAML"
    if "rayClusterSpec" in spec:
        yield from _of_spec(spec["rayClusterSpec"], job["metadata"].get("annotations", {}))
        if spec["rayClusterSpec"].get("upgradeStrategy", {}).get("type"):
            yield "upgradeStrategy is for clusters that are no job's"


def _environment(group: Document) -> dict[str, Any]:
    (container, *_) = group["template"]["spec"]["containers"]
    return {each["name"]: each.get("value") for each in container.get("env", [])}


def _is_v2(spec: Document) -> bool:
    version = spec.get("autoscalerOptions", {}).get("version")
    return bool(version == "v2" or _environment(spec["headGroupSpec"]).get(_AUTOSCALER_V2) in ("1", "true"))


def pods_of(cluster: Document) -> dict[str, Document]:
    """The specs of the pods that the operator makes, with the containers that it adds; the commands are left out."""
    spec = cluster["spec"]
    head = copy.deepcopy(spec["headGroupSpec"]["template"]["spec"])
    ray = head["containers"][0]
    if spec.get("enableInTreeAutoscaling"):
        options = spec.get("autoscalerOptions", {})
        few = {"cpu": "500m", "memory": "512Mi"}
        head["containers"].append({
            "name": "autoscaler", "image": options.get("image", ray["image"]), "env": options.get("env", []),
            "resources": options.get("resources", {"requests": few, "limits": few}),
            "securityContext": options.get("securityContext", {}), "volumeMounts": options.get("volumeMounts", []),
        })  # fmt: skip
        for container in head["containers"]:
            _mount(head, container, "ray-logs", "/tmp/ray", {})
    pods = {"head": head}
    for group in spec["workerGroupSpecs"]:
        pod = copy.deepcopy(group["template"]["spec"])
        ray, few = pod["containers"][0], {"cpu": "200m", "memory": "256Mi"}
        waiting = {key: ray[key] for key in ("image", "env", "volumeMounts", "securityContext") if key in ray}
        resources = {"requests": few, "limits": few}
        pod.setdefault("initContainers", []).append({"name": "wait-gcs-ready", "resources": resources, **waiting})
        pods[group["groupName"]] = pod
    for pod in pods.values():
        _mount(pod, pod["containers"][0], "shared-mem", "/dev/shm", {"medium": "Memory"})
    return pods


def _mount(pod: Document, container: Document, name: str, path: str, volume: Document) -> None:
    """As it adds a volume where nothing is mounted: one without a limit."""
    mounts = container.setdefault("volumeMounts", [])
    if path in {each["mountPath"] for each in mounts}:
        return
    if name not in {each["name"] for each in pod.setdefault("volumes", [])}:
        pod["volumes"].append({"name": name, "emptyDir": volume})
    mounts.append({"name": name, "mountPath": path})
