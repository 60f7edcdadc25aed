"""What KubeRay's operator would refuse, or do otherwise than the manifests say."""

from __future__ import annotations

import pytest

from tests.k8s.operating import pods_of, refusals
from tests.k8s.rendered import OVERLAYS, changed, manifests, of_kind, only, selects

WORKER = "spec/workerGroupSpecs/0"
HEAD = "spec/headGroupSpec"
ENVIRONMENT = f"{HEAD}/template/spec/containers/0/env/0"
OF_CLUSTER = [
    ("metadata/name", "echannel-" + "x" * 45, "more than 53"),
    ("metadata/name", "2-echannel", "DNS-1035"),
    (f"{HEAD}/template/spec/containers", [], "head has no container"),
    (f"{WORKER}/template/spec/containers", [], "workers has no container"),
    (f"{HEAD}/resources", {"CPU": "1"}, "in rayStartParams and in resources"),
    (f"{WORKER}/rayStartParams/labels", "zone=a", "has labels in rayStartParams"),
    (f"{WORKER}/labels", {"zone": "a b"}, "a label that is none"),
    (f"{WORKER}/minReplicas", 30, "a minimum above its maximum"),
    (f"{WORKER}/maxReplicas", -1, "a negative number"),
    (f"{WORKER}/suspend", True, "is suspended"),
    (f"{WORKER}/idleTimeoutSeconds", -1, "idleTimeoutSeconds"),
    ("spec/historyServerOptions", {"collectorOptions": {"image": "a:1"}}, "behind a feature gate"),
    ("spec/networkPolicy", {"mode": "DenyAll"}, "behind a feature gate"),
    ("spec/tlsOptions", {"enabled": True}, "behind a feature gate"),
    (f"{HEAD}/rayStartParams/redis-password", "secret", "belong into gcsFaultToleranceOptions"),
    (f"{HEAD}/rayStartParams/redis-username", "default", "the user of Redis"),
    (ENVIRONMENT, {"name": "REDIS_PASSWORD", "value": "secret"}, "belong into gcsFaultToleranceOptions"),
    (ENVIRONMENT, {"name": "RAY_REDIS_ADDRESS", "value": "redis:6379"}, "belong into gcsFaultToleranceOptions"),
    ("metadata/annotations", {"ray.io/ft-enabled": "true"}, "an annotation says"),
    ("metadata/annotations", {"ray.io/external-storage-namespace": "a"}, "an annotation says"),
    ("spec/gcsFaultToleranceOptions/backend", "rocksdb", "behind a feature gate"),
    ("spec/gcsFaultToleranceOptions/storage", {"size": "1Gi"}, "is for the backend rocksdb"),
    ("spec/autoscalerOptions/idleTimeoutSeconds", -1, "a negative idleTimeoutSeconds"),
    ("spec/autoscalerOptions/env/0", {"name": "KUBERAY_GEN_AUTOSCALER_START_CMD"}, "is the operator's"),
    (ENVIRONMENT, {"name": "RAY_enable_autoscaler_v2", "value": "1"}, "is said twice"),
    (f"{HEAD}/template/spec/restartPolicy", "Always", "restartPolicy is Never"),
    (f"{WORKER}/template/spec/restartPolicy", "OnFailure", "restartPolicy is Never"),
    ("spec/rayVersion", ..., "tokens need a rayVersion"),
    ("spec/rayVersion", "latest", "tokens need a rayVersion"),
    ("spec/rayVersion", "2.51.0", "no such tokens"),
    ("spec/authOptions", {"mode": "disabled", "enableK8sTokenAuth": True}, "is for the mode token"),
    ("spec/authOptions", {"mode": "token", "enableK8sTokenAuth": True, "secretName": "a"}, "one in a Secret"),
]
OF_JOB = [
    ("metadata/name", "echannel-" + "x" * 39, "more than 47"),
    ("metadata/name", "Bootstrap", "DNS-1035"),
    ("spec/suspend", True, "can be suspended"),
    ("spec/ttlSecondsAfterFinished", -1, "a negative ttlSecondsAfterFinished"),
    ("spec/ttlSecondsAfterFinished", 60, "without shutdownAfterJobFinishes"),
    ("spec/deletionStrategy", {"deletionRules": []}, "behind a feature gate"),
    ("spec/backoffLimit", -1, "a negative backoffLimit"),
    ("spec/backoffLimit", 2, "no retries"),
    ("spec/activeDeadlineSeconds", 0, "is not positive"),
    ("spec/submissionMode", "SidecarMode", "in SidecarMode"),
    ("spec/clusterSelector", ..., "neither a clusterSelector"),
    ("spec/clusterSelector", {"ray.io/name": "echannel"}, "without ray.io/cluster"),
    ("spec/runtimeEnvYAML", "env_vars: {", "is no YAML"),
]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_operator_takes_what_is_deployed(overlay):
    for document in of_kind(manifests(overlay), "RayCluster", "RayJob"):
        assert refusals(document) == []


@pytest.mark.parametrize(("path", "value", "why"), OF_CLUSTER)
def test_what_it_refuses_of_a_cluster_is_found(path, value, why):
    broken = changed(only(manifests("production"), "RayCluster"), path, value)
    assert [each for each in refusals(broken) if why in each], refusals(broken)


@pytest.mark.parametrize(("path", "value", "why"), OF_JOB)
def test_what_it_refuses_of_a_job_is_found(path, value, why):
    broken = changed(only(manifests("production"), "RayJob"), path, value)
    assert [each for each in refusals(broken) if why in each], refusals(broken)


def test_what_it_refuses_where_nothing_scales_is_found():
    fixed = changed(only(manifests("dev"), "RayCluster"), "spec/enableInTreeAutoscaling", False)
    without = changed(fixed, f"{WORKER}/minReplicas", ...)
    assert any("where nothing scales" in each for each in refusals(without))
    v2 = changed(fixed, ENVIRONMENT, {"name": "RAY_enable_autoscaler_v2", "value": "true"})
    assert any("autoscaling is off" in each for each in refusals(v2))


def test_redis_without_fault_tolerance_is_found():
    redis = changed(
        only(manifests("dev"), "RayCluster"), ENVIRONMENT, {"name": "RAY_REDIS_ADDRESS", "value": "redis:6379"}
    )
    assert any("without gcsFaultToleranceOptions" in each for each in refusals(redis))


def test_what_it_refuses_of_a_cluster_of_a_job_is_found():
    documents = manifests("dev")
    job = changed(only(documents, "RayJob"), "spec/clusterSelector", ...)
    job = changed(job, "spec/rayClusterSpec", only(documents, "RayCluster")["spec"])
    assert refusals(job) == ["upgradeStrategy is for clusters that are no job's"]


def replaced(cluster):
    """What the operator would do otherwise than the manifest says, without a word."""
    if cluster["metadata"].get("annotations", {}).get("ray.io/overwrite-container-cmd") != "true":
        yield "its own start command"
    head = cluster["spec"]["headGroupSpec"]
    if cluster["spec"]["enableInTreeAutoscaling"] and "serviceAccountName" in head["template"]["spec"]:
        yield "its own service account for the head, or none that may scale"
    if head["template"]["spec"].get("automountServiceAccountToken") is False:
        yield "an autoscaler without credentials"
    for group in [head, *cluster["spec"]["workerGroupSpecs"]]:
        container = group["template"]["spec"]["containers"][0]
        for probe in ("livenessProbe", "readinessProbe"):
            if probe not in container:
                yield f"its own {probe}"
        if set(group.get("rayStartParams", {})) & {"block", "address"}:
            yield "its own --block and --address"
        owned = {"RAY_CLUSTER_NAME", "KUBERAY_GEN_RAY_START_CMD", "FQ_RAY_IP", "RAY_IP", "RAY_CLOUD_INSTANCE_ID"}
        if owned & {each["name"] for each in container["env"]}:
            yield "its own environment"
        if "ray.io/cluster" in group["template"]["metadata"]["labels"]:
            yield "its own labels"
        if not group.get("minReplicas", 0) <= group.get("replicas", 0) <= group.get("maxReplicas", 0):
            yield "another number of replicas"
    for name, pod in pods_of(cluster).items():
        unlimited = [each["name"] for each in pod["volumes"] if each.get("emptyDir") in ({}, {"medium": "Memory"})]
        if unlimited:
            yield f"volumes without a limit in {name}: {unlimited}"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_operator_replaces_nothing(overlay):
    assert list(replaced(only(manifests(overlay), "RayCluster"))) == []


@pytest.mark.parametrize(
    ("path", "value", "what"),
    [
        ("metadata/annotations", {}, "start command"),
        (f"{HEAD}/template/spec/serviceAccountName", "mine", "service account"),
        (f"{HEAD}/template/spec/automountServiceAccountToken", False, "without credentials"),
        (f"{WORKER}/template/spec/containers/0/readinessProbe", ..., "readinessProbe"),
        (f"{HEAD}/template/spec/containers/0/livenessProbe", ..., "livenessProbe"),
        (f"{WORKER}/rayStartParams/address", "elsewhere:6379", "--address"),
        (f"{WORKER}/template/spec/containers/0/env/0", {"name": "RAY_IP", "value": "a"}, "environment"),
        (f"{WORKER}/template/metadata/labels/ray.io~1cluster", "other", "labels"),
        (f"{WORKER}/replicas", 99, "replicas"),
        (f"{HEAD}/template/spec/volumes/0/emptyDir", {}, "without a limit"),
    ],
)
def test_what_the_operator_would_replace_is_found(path, value, what):
    broken = changed(only(manifests("dev"), "RayCluster"), path, value)
    assert any(what in each for each in replaced(broken)), list(replaced(broken))


def test_a_volume_that_the_operator_would_add_is_found():
    pod = f"{WORKER}/template/spec"
    broken = changed(only(manifests("dev"), "RayCluster"), f"{pod}/containers/0/volumeMounts/2/mountPath", "/dev/other")
    broken = changed(broken, f"{pod}/volumes/2/name", "other")
    assert any("without a limit in workers: ['shared-mem']" in each for each in replaced(broken))


@pytest.mark.parametrize("name", ["kuberay", "kuberay-operator"], ids=["kustomize", "helm"])
def test_the_operator_may_ask_the_dashboard_however_it_was_installed(name):
    """Its name differs, and pods of clusters have one of the two as well."""
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/component": "kuberay-operator"}
    of_a_cluster = {"app.kubernetes.io/name": "kuberay", "app.kubernetes.io/created-by": "kuberay-operator"}
    policy = only(manifests("production"), "NetworkPolicy", "echannel-head")["spec"]
    (rule,) = policy["ingress"]
    (peer,) = rule["from"]
    assert selects(peer["podSelector"], labels)
    assert not selects(peer["podSelector"], of_a_cluster)
    assert rule["ports"] == [{"protocol": "TCP", "port": 8265}]
