"""Whether the manifests agree with each other, with the code, and with what a careful operator expects.

Each check takes all documents of an overlay and yields a sentence for each thing that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import typer

from echannel_ray.cli import app
from echannel_ray.pod.settings import Settings
from tests.k8s.kustomizing import Document
from tests.k8s.operating import pods_of
from tests.k8s.rendered import ROOT, containers, of_kind, only, selects, templates, words

Check = Callable[[list[Document]], Iterator[str]]

_UNITS = {"": 1, "m": 0.001, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_LONGEST_TMPDIR = 20  # with it begin the paths of Unix sockets, which have 107 bytes at most
_TO_END = 60.0
_RAY_LOGS = 60  # files that Ray writes to on a node: its own, and three for each worker
_SECRET_NAME = re.compile(r"(?i)token|password|secret|credential|_key$")
_KEPT_OUT = re.compile(r"-----BEGIN|[A-Za-z0-9+/_-]{43,}={0,2}$")
_IMAGE = re.compile(r"(?P<name>[a-z0-9.:/_-]+?):(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]*)")


def quantity(text: str | int) -> float:
    """A quantity of Kubernetes as a number: cores or bytes."""
    number, unit = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text)).groups()
    return float(number) * _UNITS[unit]


def all_pods(documents: list[Document]) -> Iterator[tuple[str, Document]]:
    """The specs of all pods that there will be, with the containers that KubeRay adds."""
    for name, template in templates(documents):
        if not name.startswith("echannel "):
            yield name, template["spec"]
    for name, pod in pods_of(only(documents, "RayCluster")).items():
        yield f"echannel {name}", pod


def all_containers(documents: list[Document]) -> Iterator[tuple[str, Document]]:
    """Those of all pods."""
    for name, pod in all_pods(documents):
        for container in containers({"spec": pod}):
            yield f"{container['name']} of {name}", container


# ---- rights ----


def pods_are_restricted(documents: list[Document]) -> Iterator[str]:
    """Kubernetes' "restricted" standard, and file systems that can't be written to."""
    for name, pod in all_pods(documents):
        context = pod.get("securityContext", {})
        if context.get("runAsNonRoot") is not True or not context.get("runAsUser"):
            yield f"{name} may run as root"
        if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{name} has no seccomp profile"
        if pod.keys() & {"hostNetwork", "hostPID", "hostIPC"} or "hostPath" in str(pod.get("volumes")):
            yield f"{name} reaches into its host"
        if pod.get("automountServiceAccountToken") is not False and name != "echannel head":
            yield f"{name} has a token of Kubernetes that it does not need"
    for name, container in all_containers(documents):
        context = container.get("securityContext", {})
        if context.get("readOnlyRootFilesystem") is not True:
            yield f"{name} can write to its image"
        if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
            yield f"{name} may get more rights"
        if context.get("capabilities") != {"drop": ["ALL"]}:
            yield f"{name} keeps capabilities"
        if context.keys() & {"runAsUser", "runAsNonRoot", "seccompProfile"}:
            yield f"{name} has another user or profile than its pod"
    labels = only(documents, "Namespace")["metadata"]["labels"]
    if labels.get("pod-security.kubernetes.io/enforce") != "restricted":
        yield "the namespace does not enforce the restricted standard"


def no_secrets_are_written_down(documents: list[Document]) -> Iterator[str]:
    """Secrets are made by cert-manager, by KubeRay, or by who installs it."""
    for document in of_kind(documents, "Secret"):
        yield f"Secret {document['metadata']['name']} is in a file"
    for name, container in all_containers(documents):
        for variable in container.get("env", []):
            # A name of a file or a port is none.
            named = _SECRET_NAME.search(variable["name"]) and not re.search("_(FILE|DIR|PORT)$", variable["name"])
            if named and "value" in variable:
                yield f"{variable['name']} of {name} has its value in a file"
    redis = only(documents, "RayCluster")["spec"].get("gcsFaultToleranceOptions", {})
    if any("value" in redis.get(key, {}) for key in ("redisPassword", "redisUsername")):
        yield "the password of Redis is in a file"
    for document in documents:
        if found := [word for word in words(document) if _KEPT_OUT.search(word)]:
            yield f"{document['kind']} {document['metadata']['name']} has what looks like a key: {found[0][:20]}..."


def secrets_of(documents: list[Document]) -> set[str]:
    """The Secrets that pods and KubeRay refer to."""
    found: set[str] = set()

    def look(at: Any, above: str = "") -> None:
        if isinstance(at, dict):
            if above == "secretKeyRef":
                found.add(at["name"])
            if above == "secret":
                found.add(at["secretName"])
            for key, value in at.items():
                look(value, key)
        elif isinstance(at, list):
            for value in at:
                look(value)

    for document in of_kind(documents, "RayCluster", "RayJob", "Deployment"):
        look(document)
    return found


def variables_are_read(documents: list[Document]) -> Iterator[str]:
    """What containers are told by our variables is something that the code asks for."""
    code = "".join(file.read_text() for file in (ROOT / "echannel_ray").rglob("*.py"))
    for name, container in all_containers(documents):
        for variable in container.get("env", []):
            if variable["name"].startswith("ECHANNEL_") and f'"{variable["name"]}"' not in code:
                yield f"{name} has {variable['name']}, which nothing reads"


def commands_are_known(documents: list[Document]) -> Iterator[str]:
    """The page's command is one of ours, with options that it has."""
    commands: Any = typer.main.get_command(app)
    for name, container in all_containers(documents):
        called = container.get("command", [])
        if called[:1] == ["echannel"]:
            command = commands.commands.get(called[1])
            known = {option for each in command.params for option in each.opts} if command else set()
            if unknown := {word.partition("=")[0] for word in called if word.startswith("--")} - known:
                yield f"{name} is called wrongly: {called[1]} has no {', '.join(unknown)}"


# ---- resources ----


def requests_are_limits(documents: list[Document]) -> Iterator[str]:
    """So that no pod is evicted for what another one takes, or throttled by surprise."""
    for name, container in all_containers(documents):
        resources = container.get("resources", {})
        if not {"cpu", "memory"} <= resources.get("requests", {}).keys():
            yield f"{name} does not say what it needs"
        if resources.get("requests") != resources.get("limits"):
            yield f"{name} may take more than it asks for"


def volumes_fit(documents: list[Document]) -> Iterator[str]:
    """Mounts have volumes, these have limits, and the limits of disks and memory are those of the containers."""
    for name, pod in all_pods(documents):
        volumes = {each["name"]: each for each in pod.get("volumes", [])}
        for container in containers({"spec": pod}):
            paths = [each["mountPath"] for each in container.get("volumeMounts", [])]
            if len(paths) != len(set(paths)):
                yield f"{container['name']} of {name} mounts twice in one place"
            for mount in container.get("volumeMounts", []):
                if mount["name"] not in volumes:
                    yield f"{container['name']} of {name} mounts {mount['name']}, which is no volume"
        empty = [each["emptyDir"] for each in volumes.values() if "emptyDir" in each]
        if any("sizeLimit" not in each for each in empty):
            yield f"{name} has a volume without a limit"
            continue
        on_disk = sum(quantity(each["sizeLimit"]) for each in empty if each.get("medium") != "Memory")
        in_memory = sum(quantity(each["sizeLimit"]) for each in empty if each.get("medium") == "Memory")
        limits = [each["resources"]["limits"] for each in containers({"spec": pod})]
        if on_disk > sum(quantity(each.get("ephemeral-storage", 0)) for each in limits):
            yield f"{name} would be evicted before its volumes are full"
        if in_memory > 0.5 * max(quantity(each["memory"]) for each in limits):
            yield f"{name} gives half of its memory, or more, to files"
        for container in containers({"spec": pod}):
            for size in re.findall(r"--object-store-memory=(\d+)", " ".join(container.get("args", []))):
                if int(size) > in_memory:
                    yield f"{name} has an object store that does not fit into /dev/shm"
    cluster = only(documents, "RayCluster")["spec"]
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        (shared,) = [each for each in group["template"]["spec"]["volumes"] if each["name"] == "shared-mem"]
        if int(group["rayStartParams"]["object-store-memory"]) > quantity(shared["emptyDir"]["sizeLimit"]):
            yield "an object store does not fit into /dev/shm"


def logs_of_ray_have_room(documents: list[Document]) -> Iterator[str]:
    """Each of Ray's processes has its logs, workers too; without these variables those have no end."""
    for name, pod in all_pods(documents):
        volumes = {each["name"]: each.get("emptyDir", {}) for each in pod.get("volumes", [])}
        for container in containers({"spec": pod}):
            if container["name"] not in ("ray-head", "ray-worker", "ray-node", "autoscaler"):
                continue
            told = {each["name"]: each.get("value") for each in container["env"]}
            if not {"RAY_ROTATION_MAX_BYTES", "RAY_ROTATION_BACKUP_COUNT"} <= told.keys():
                yield f"{container['name']} of {name} has logs without bounds"
                continue
            mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
            room = quantity(volumes[mounts.get("/tmp/ray", mounts.get("/tmp"))]["sizeLimit"])
            if int(told["RAY_ROTATION_MAX_BYTES"]) * (int(told["RAY_ROTATION_BACKUP_COUNT"]) + 1) * _RAY_LOGS > room:
                yield f"{container['name']} of {name} has no room for the logs of Ray"


def temporary_files_are_shared(documents: list[Document]) -> Iterator[str]:
    """All containers of a pod have one TMPDIR, which is short and a volume: sockets are there."""
    for name, pod in all_pods(documents):
        seen = set()
        for container in containers({"spec": pod}):
            directory = {each["name"]: each.get("value") for each in container.get("env", [])}.get("TMPDIR", "")
            mounts = {each["mountPath"]: each["name"] for each in container.get("volumeMounts", [])}
            seen.add((directory, mounts.get(directory)))
            if not directory or len(directory) > _LONGEST_TMPDIR or directory not in mounts:
                yield f"{container['name']} of {name} has no TMPDIR that is short and can be written to"
        if len(seen) > 1:
            yield f"the containers of {name} have several directories for temporary files"


def images_are_pinned(documents: list[Document], version: str) -> Iterator[str]:
    """One image, of this version."""
    images = {container["image"] for _, container in all_containers(documents)}
    if len(images) > 1:
        yield f"there are several images: {images}"
    for image in images:
        match = _IMAGE.fullmatch(image)
        if match is None or match["tag"] != version:
            yield f"{image} is not of version {version}"


# ---- staying and going ----


def pods_leave_in_order(documents: list[Document]) -> Iterator[str]:
    """What has a concentrator drains it first, has time for that, and is not evicted to save a machine."""
    for name, template in templates(documents):
        spec = template["spec"]
        nodes = [each for each in containers(template) if each["name"] in ("ray-head", "ray-worker", "ray-node")]
        for container in nodes:
            drain = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])
            if drain != ["python", "-m", "echannel_ray.pod", "drain"]:
                yield f"{name} does not drain before it stops"
            if "exec python -m echannel_ray.pod start" not in str(container["args"]):
                yield f"{name} does not start by echannel_ray.pod, or leaves a shell in between that gets the signal"
            told = {each["name"]: each["value"] for each in container["env"] if "value" in each}
            # It is drained first; then Ray ends, in its own time, and what is left is killed.
            if spec.get("terminationGracePeriodSeconds", 30) < Settings.of(told).drain_seconds + _TO_END:
                yield f"{name} has no time to drain"
        evictable = template["metadata"].get("annotations", {}).get("cluster-autoscaler.kubernetes.io/safe-to-evict")
        if name in ("echannel head", "echannel workers") and evictable != "false":
            yield f"{name} may be evicted to save a machine"


def budgets_can_be_kept(documents: list[Document]) -> Iterator[str]:
    """A budget that Kubernetes can't compute, or that nothing satisfies, stops every drain of a node."""
    cluster = only(documents, "RayCluster")["spec"]
    named = dict(templates(documents))
    budgets = of_kind(documents, "PodDisruptionBudget")
    for budget in budgets:
        name, spec = budget["metadata"]["name"], budget["spec"]
        if type(spec.get("minAvailable")) is not int:
            yield f"{name}: of pods whose owner has no scale, Kubernetes computes minAvailable as a number only"
            continue
        chosen = [who for who, each in named.items() if selects(spec["selector"], each["metadata"]["labels"])]
        if chosen == ["echannel workers"]:
            if spec["minAvailable"] >= cluster["workerGroupSpecs"][0]["minReplicas"]:
                yield f"{name} leaves no worker that may go"
        elif chosen != ["echannel head"]:
            yield f"{name} is for {chosen or 'nobody'}"
    if len(budgets) != 2:
        yield "the head and the workers need a budget each"


def workers_are_spread(documents: list[Document]) -> Iterator[str]:
    """Over machines and zones."""
    for group in only(documents, "RayCluster")["spec"]["workerGroupSpecs"]:
        template = group["template"]
        constraints = template["spec"].get("topologySpreadConstraints", [])
        if {each["topologyKey"] for each in constraints} != {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}:
            yield "workers are not spread over machines and zones"
        for each in constraints:
            if not selects(each["labelSelector"], template["metadata"]["labels"]):
                yield f"the spread over {each['topologyKey']} counts other pods than the workers"


def changes_are_asked_for(documents: list[Document], ray_version: str) -> Iterator[str]:
    """Ray is the one of the lock, with tokens, scales, and is not replaced by a change of its spec."""
    spec = only(documents, "RayCluster")["spec"]
    if spec["rayVersion"] != ray_version:
        yield f"rayVersion is {spec['rayVersion']}, and the image has {ray_version}"
    if spec.get("upgradeStrategy") != {"type": "None"}:
        yield "a change of the spec would replace all pods at once"
    if spec.get("authOptions", {}).get("mode") != "token":
        yield "whoever reaches the cluster may use it"
    if spec.get("enableInTreeAutoscaling") is not True:
        yield "nothing scales"
