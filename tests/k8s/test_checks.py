"""The checks of the manifests, on what is deployed, and on what is broken."""

from __future__ import annotations

import copy
import re
from functools import partial
from importlib import metadata

import pytest

from tests.k8s import checking, wiring
from tests.k8s.rendered import OVERLAYS, ROOT, changed, manifests, of_kind

VERSION = metadata.version("echannel-ray")
(RAY_VERSION,) = re.findall(r"^ray==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
CHECKS: dict[str, checking.Check] = {
    "restricted": checking.pods_are_restricted,
    "secrets": checking.no_secrets_are_written_down,
    "variables": checking.variables_are_read,
    "commands": checking.commands_are_known,
    "resources": checking.requests_are_limits,
    "volumes": checking.volumes_fit,
    "logs": checking.logs_of_ray_have_room,
    "temporary": checking.temporary_files_are_shared,
    "images": partial(checking.images_are_pinned, version=VERSION),
    "leaving": checking.pods_leave_in_order,
    "budgets": checking.budgets_can_be_kept,
    "spread": checking.workers_are_spread,
    "ray": partial(checking.changes_are_asked_for, ray_version=RAY_VERSION),
    "services": wiring.services_lead_somewhere,
    "ports": wiring.ports_are_the_codes,
    "closed": wiring.nothing_is_open_by_default,
    "policies": wiring.policies_are_for_ports_that_there_are,
    "configuration": wiring.configuration_is_mounted,
}


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("check", CHECKS)
def test_what_is_deployed_passes(check, overlay):
    assert list(CHECKS[check](manifests(overlay))) == []


CLUSTER, JOB, PAGE = ("RayCluster", "echannel"), ("RayJob", "echannel-bootstrap"), ("Deployment", "echannel-page")
HEAD, WORKER = "spec/headGroupSpec/template/spec", "spec/workerGroupSpecs/0/template/spec"
RAY = f"{WORKER}/containers/0"
BROKEN = [
    ("restricted", CLUSTER, f"{HEAD}/securityContext/runAsNonRoot", False, "may run as root"),
    ("restricted", CLUSTER, f"{WORKER}/securityContext/seccompProfile", ..., "seccomp"),
    ("restricted", CLUSTER, f"{WORKER}/hostNetwork", True, "reaches into its host"),
    ("restricted", PAGE, "spec/template/spec/automountServiceAccountToken", ..., "token of Kubernetes"),
    (
        "restricted",
        CLUSTER,
        f"{RAY}/securityContext/readOnlyRootFilesystem",
        False,
        "wait-gcs-ready of echannel workers",
    ),
    (
        "restricted",
        JOB,
        "spec/submitterPodTemplate/spec/containers/0/securityContext/allowPrivilegeEscalation",
        True,
        "more rights",
    ),
    ("restricted", CLUSTER, "spec/autoscalerOptions/securityContext", ..., "autoscaler of echannel head keeps"),
    ("restricted", CLUSTER, f"{RAY}/securityContext/capabilities/add", ["SYS_ADMIN"], "keeps capabilities"),
    ("restricted", CLUSTER, f"{RAY}/securityContext/runAsUser", 0, "another user"),
    (
        "restricted",
        ("Namespace", ""),
        "metadata/labels/pod-security.kubernetes.io~1enforce",
        "baseline",
        "the namespace",
    ),
    ("secrets", ("ConfigMap", "echannel-channels"), "kind", "Secret", "is in a file"),
    ("secrets", CLUSTER, f"{RAY}/env/0", {"name": "RAY_AUTH_TOKEN", "value": "abc"}, "RAY_AUTH_TOKEN"),
    ("secrets", CLUSTER, "spec/gcsFaultToleranceOptions/redisPassword/value", "abc", "password of Redis"),
    ("secrets", ("ConfigMap", "echannel-channels"), "data/a", "x" * 43, "looks like a key"),
    ("variables", CLUSTER, f"{RAY}/env/2/name", "ECHANNEL_LOG", "nothing reads"),
    ("commands", PAGE, "spec/template/spec/containers/0/command/1", "server", "called wrongly"),
    ("commands", PAGE, "spec/template/spec/containers/0/command/2", "--hostname", "called wrongly"),
    ("resources", CLUSTER, f"{RAY}/resources/limits/cpu", "8", "more than it asks for"),
    ("resources", CLUSTER, "spec/autoscalerOptions/resources/requests/memory", "512Mi", "autoscaler"),
    ("resources", PAGE, "spec/template/spec/containers/0/resources", {}, "does not say"),
    ("volumes", CLUSTER, f"{HEAD}/volumes/0/name", "temp", "which is no volume"),
    ("volumes", CLUSTER, f"{HEAD}/volumes/0/emptyDir", {}, "without a limit"),
    ("volumes", CLUSTER, f"{HEAD}/volumes/0/emptyDir/sizeLimit", "90Gi", "would be evicted"),
    ("volumes", CLUSTER, f"{HEAD}/volumes/2/emptyDir/sizeLimit", "6Gi", "half of its memory"),
    ("volumes", CLUSTER, "spec/headGroupSpec/rayStartParams/object-store-memory", str(1 << 31), "/dev/shm"),
    ("volumes", CLUSTER, f"{RAY}/volumeMounts/0/mountPath", "/dev/shm", "twice"),
    ("volumes", PAGE, "spec/template/spec/volumes/1/emptyDir/sizeLimit", "64Mi", "does not fit into /dev/shm"),
    ("logs", CLUSTER, f"{RAY}/env/6/name", "RAY_ROTATION", "ray-worker of echannel workers has logs without bounds"),
    ("logs", CLUSTER, "spec/autoscalerOptions/env", [], "autoscaler of echannel head has logs without bounds"),
    ("logs", CLUSTER, f"{RAY}/env/6/value", "536870912", "no room for the logs of Ray"),
    ("temporary", CLUSTER, f"{RAY}/env/0/value", "/tmp/a/directory/that/is/too/long", "no TMPDIR that is short"),
    ("temporary", CLUSTER, "spec/autoscalerOptions/env", ..., "autoscaler"),
    ("temporary", PAGE, "spec/template/spec/containers/0/volumeMounts/0/name", "shared-mem", "several directories"),
    ("images", CLUSTER, f"{RAY}/image", "echannel-ray:latest", "is not of version"),
    ("images", PAGE, "spec/template/spec/containers/0/image", "echannel-ray:0.0.9", "several images"),
    ("leaving", CLUSTER, f"{RAY}/lifecycle", ..., "does not drain"),
    ("leaving", CLUSTER, f"{RAY}/args/0", "$KUBERAY_GEN_RAY_START_CMD", "does not start by echannel_ray.pod"),
    ("leaving", CLUSTER, f"{WORKER}/terminationGracePeriodSeconds", 120, "no time to drain"),
    ("leaving", PAGE, "spec/template/spec/terminationGracePeriodSeconds", ..., "no time to drain"),
    ("leaving", CLUSTER, "spec/workerGroupSpecs/0/template/metadata/annotations", {}, "may be evicted"),
    ("budgets", ("PodDisruptionBudget", "echannel-workers"), "spec/minAvailable", "50%", "as a number only"),
    ("budgets", ("PodDisruptionBudget", "echannel-workers"), "spec/minAvailable", 3, "no worker that may go"),
    ("budgets", ("PodDisruptionBudget", "echannel-head"), "spec/selector/matchLabels", {"a": "b"}, "for nobody"),
    ("budgets", ("PodDisruptionBudget", "echannel-head"), "kind", "Budget", "a budget each"),
    ("spread", CLUSTER, f"{WORKER}/topologySpreadConstraints/1", ..., "are not spread"),
    ("spread", CLUSTER, f"{WORKER}/topologySpreadConstraints/0/labelSelector/matchLabels", {"a": "b"}, "other pods"),
    ("ray", CLUSTER, "spec/rayVersion", "2.59.0", "rayVersion"),
    ("ray", CLUSTER, "spec/upgradeStrategy", ..., "all pods at once"),
    ("ray", CLUSTER, "spec/authOptions", ..., "whoever reaches"),
    ("ray", CLUSTER, "spec/enableInTreeAutoscaling", False, "nothing scales"),
    ("services", ("Service", "echannel-page"), "spec/selector", {"app": "page"}, "no pod"),
    ("services", ("Service", "echannel-gateway"), "spec/ports/0/targetPort", "flight", "has no port"),
    ("services", PAGE, "spec/template/spec/containers/0/readinessProbe/httpGet/port", "probes", "a probe"),
    ("services", CLUSTER, f"{RAY}/livenessProbe/httpGet/path", "/api/healthz", "a probe"),
    ("services", CLUSTER, f"{RAY}/readinessProbe", ..., "no readinessProbe"),
    ("services", PAGE, "spec/template/spec/containers/0/livenessProbe/httpGet/scheme", "HTTP", "wrong scheme"),
    ("ports", CLUSTER, f"{RAY}/env/4/value", "8471", "probes"),
    ("ports", CLUSTER, f"{RAY}/env/3/value", "127.0.0.1", "can't be asked"),
    ("ports", PAGE, "spec/template/spec/containers/0/ports/0/containerPort", 8270, "port page elsewhere"),
    ("ports", CLUSTER, "spec/workerGroupSpecs/0/rayStartParams/metrics-export-port", "9090", "metrics"),
    ("closed", ("NetworkPolicy", "echannel-default-deny"), "spec/podSelector/matchLabels", {"a": "b"}, "by default"),
    ("closed", ("NetworkPolicy", "echannel-default-deny"), "spec/policyTypes", ["Ingress"], "by default"),
    ("closed", ("NetworkPolicy", "echannel-dns"), "spec/egress/0/ports", [{"protocol": "TCP", "port": 53}], "names"),
    ("closed", ("NetworkPolicy", "echannel-page"), "spec/ingress/0/from", [{}], "everybody"),
    ("closed", ("NetworkPolicy", "echannel-page"), "spec/ingress/0/from", ..., "everybody"),
    ("closed", ("NetworkPolicy", "echannel-page"), "spec/ingress/0/ports", ..., "all ports"),
    ("policies", ("NetworkPolicy", "echannel-page"), "spec/ingress/0/ports/0/port", 8270, "no such port"),
    ("policies", ("NetworkPolicy", "echannel-gateway"), "spec/podSelector/matchLabels", {"a": "b"}, "no pod"),
    ("policies", ("NetworkPolicy", "echannel-gateway"), "spec/ingress", [], "can't be reached"),
    ("policies", ("NetworkPolicy", "echannel-within"), "spec/ingress", [], "each other"),
    ("configuration", CLUSTER, f"{HEAD}/volumes/4/configMap/name", "channels", "no such ConfigMap"),
    ("configuration", JOB, "spec/entrypoint", "python -m echannel_ray.pod.bootstrap /etc/plan.json", "no such file"),
    ("configuration", JOB, "spec/clusterSelector/ray.io~1cluster", "other", "no such cluster"),
    ("configuration", PAGE, "spec/template/spec/initContainers/0/args/0", "ray start --address=head:6379", "head"),
]


@pytest.mark.parametrize(("check", "which", "path", "value", "said"), BROKEN, ids=str)
def test_what_is_broken_is_found(check, which, path, value, said):
    kind, name = which
    documents = manifests("production")
    (index,) = [
        index for index, each in enumerate(documents) if each["kind"] == kind and name in ("", each["metadata"]["name"])
    ]
    documents[index] = changed(documents[index], path, value)
    found = list(CHECKS[check](documents))
    assert any(said in each for each in found), found


def test_each_check_is_tried_on_something_broken():
    assert {each[0] for each in BROKEN} == set(CHECKS)


def test_changing_what_is_checked_changes_nothing_for_others():
    before = copy.deepcopy(manifests("dev"))
    of_kind(manifests("dev"), "RayCluster")[0]["spec"].clear()
    assert manifests("dev") == before
