"""The manifests against the schemas of Kubernetes and KubeRay; each check also refuses something."""

from __future__ import annotations

import kubernetes_validate
import pytest

from tests.k8s import schemas
from tests.k8s.rendered import OVERLAYS, changed, manifests, of_kind, only, templates

KUBERNETES = ("1.29", "1.37")  # the oldest with containers that run beside others from the start, and the newest known
CUSTOM = {"RayCluster", "RayJob", "Certificate", "Issuer", "PodMonitor", "PrometheusRule"}


def validate(document, version):
    kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
def test_what_is_for_kuberay_is_as_its_definitions_say(overlay, kind):
    assert schemas.problems(only(manifests(overlay), kind)) == []


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_is_for_kubernetes_is_as_its_schemas_say(overlay, version):
    for document in manifests(overlay):
        if document["kind"] not in CUSTOM:
            validate(document, version)


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_of_all_templates_are_as_kubernetes_says(overlay, version):
    named = dict(templates(manifests(overlay)))
    assert set(named) == {"echannel head", "echannel workers", "echannel-bootstrap submitter", "echannel-page"}
    for name, template in named.items():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **template["metadata"]}}
        validate({**pod, "spec": template["spec"]}, version)


WORKER = "spec/workerGroupSpecs/0"
BROKEN = [
    ("RayCluster", "spec/rayversion", "2.60.0", "rayversion"),
    ("RayCluster", "spec/rayVersion", 2.6, "is not of type 'string'"),
    ("RayCluster", "spec/headGroupSpec", ..., "headGroupSpec"),
    ("RayCluster", "spec/upgradeStrategy/type", "RollingUpdate", "RollingUpdate"),
    ("RayCluster", "spec/authOptions/mode", "mtls", "mtls"),
    ("RayCluster", f"{WORKER}/replicas", "2", "is not of type 'integer'"),
    ("RayCluster", f"{WORKER}/maxReplicas", 1 << 31, "is no int32"),
    ("RayCluster", f"{WORKER}/template/spec/containers/0/lifecycle/prestop", {}, "prestop"),
    ("RayCluster", f"{WORKER}/template/spec/containers/0/resources/limits/memory", "6 GB", "does not match"),
    ("RayCluster", f"{WORKER}/template/spec/volumes/1/name", "tmp", "two entries of a list are the same"),
    ("RayJob", "spec/backofflimit", 1, "backofflimit"),
    ("RayJob", "spec/clusterSelector", "echannel", "is not of type 'object'"),
    ("RayJob", "spec", ..., "'spec' is a required property"),
]


@pytest.mark.parametrize(("kind", "path", "value", "said"), BROKEN)
def test_what_the_definitions_do_not_allow_is_found(kind, path, value, said):
    broken = changed(only(manifests("production"), kind), path, value)
    assert any(said in problem for problem in schemas.problems(broken)), schemas.problems(broken)


def test_defaults_are_applied():
    cluster = changed(only(manifests("dev"), "RayCluster"), f"{WORKER}/minReplicas", ...)
    assert schemas.with_defaults(cluster)["spec"]["workerGroupSpecs"][0]["minReplicas"] == 0
    assert schemas.problems(cluster) == []


@pytest.mark.parametrize(
    ("kind", "name", "path", "value"),
    [
        ("Deployment", "echannel-page", "spec/template/spec/containers/0/livenessprobe", {}),
        ("NetworkPolicy", "echannel-dns", "spec/egress/0/ports/0/port", 5.3),
        ("Service", "echannel-page", "spec/ports/0/targetport", "page"),
        ("PodDisruptionBudget", "echannel-head", "spec/minAvailable", [1]),
    ],
)
def test_what_kubernetes_does_not_know_is_found(kind, name, path, value):
    broken = changed(only(manifests("production"), kind, name), path, value)
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(broken, KUBERNETES[-1])


def test_rules_in_cel_are_not_evaluated_and_concern_nothing_that_we_set():
    """A field that appears here with newer definitions has rules to be read."""
    schema = schemas.schema_of("RayCluster"), schemas.schema_of("RayJob")
    found = set().union(*(schemas.fields_with_rules(each) for each in schema))
    assert found == {"backend", "managedBy", "deletionStrategy", "condition"}
    for overlay in OVERLAYS:
        for document in of_kind(manifests(overlay), "RayCluster", "RayJob"):
            assert found & set(names(document)) == set()


def names(at):
    """The names of all fields, anywhere in a document."""
    if isinstance(at, dict):
        for key, value in at.items():
            yield key
            yield from names(value)
    elif isinstance(at, list):
        for value in at:
            yield from names(value)
