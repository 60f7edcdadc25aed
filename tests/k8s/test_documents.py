"""What k8s/README.md and docs/operations.md say, against the manifests and docs/design/failures.md."""

from __future__ import annotations

import json
import re

from echannel_ray.pod.bootstrap import Plan
from tests.k8s.kustomizing import render
from tests.k8s.rendered import FOLDER, ROOT, containers, manifests, of_kind, only, templates
from tests.k8s.test_checks import CHECKS

README = (FOLDER / "README.md").read_text()
OPERATIONS = (ROOT / "docs/operations.md").read_text()


def first_column(page, heading):
    """Of the first table below a heading."""
    lines = iter(page.partition(f"\n## {heading}\n")[2].splitlines())
    table = [line for line in lines if line.startswith(("|", "## "))]
    rows = table[2 : next((index for index, line in enumerate(table) if line.startswith("## ")), None)]
    return [row.split("|")[1].strip() for row in rows]


def test_each_failure_of_the_design_is_one_that_operators_read_of():
    design = first_column((ROOT / "docs/design/failures.md").read_text(), "What dies")
    assert "a concentrator" in design
    assert set(design) <= set(first_column(OPERATIONS, "When something fails"))


def test_the_example_of_channels_is_one():
    (example,) = re.findall(r"```json\n(.*?)```", README, re.DOTALL)
    plan = Plan.model_validate(json.loads(example))
    documents = manifests("production")
    ports = {port["name"]: port["port"] for port in only(documents, "Service", "echannel-gateway")["spec"]["ports"]}
    assert plan.gateway is not None
    assert (plan.gateway.port, plan.gateway.events_port) == (ports["batches"], ports["events"])
    service = only(documents, "Service", "echannel-gateway")["metadata"]
    assert plan.gateway.reached_as == f"{service['name']}.{service['namespace']}.svc"
    (head,) = [template for name, template in templates(documents) if name == "echannel head"]
    writable = [each["mountPath"] for each in containers(head)[0]["volumeMounts"] if not each.get("readOnly")]
    assert str(plan.gateway.endpoint_file.parent) in writable


def test_names_in_the_pages_are_those_of_the_manifests():
    names = {each["metadata"]["name"] for each in manifests("production")}
    for kind, pattern in (
        ("Service", r"service/(echannel[\w-]+)"),
        ("NetworkPolicy", r"NetworkPolicy `(echannel[\w-]+)`"),
    ):
        for name in re.findall(pattern, README + OPERATIONS):
            made_by_kuberay = name == "echannel-head-svc"
            assert made_by_kuberay or name in {
                each["metadata"]["name"] for each in of_kind(manifests("production"), kind)
            }
    assert {"echannel", "echannel-bootstrap"} <= names
    labels = {
        label
        for each in of_kind(manifests("production"), "NetworkPolicy")
        for label in re.findall(r"echannel/[\w-]+", json.dumps(each))
    }
    assert labels == set(re.findall(r"echannel/[a-z-]+-client", README))


def test_the_second_cluster_of_an_upgrade_is_a_whole_one(tmp_path):
    """As the page says to write it: all of it is in its namespace, and fits as the first one does."""
    (written,) = re.findall(r"^ +(namespace: \S+)\n +(resources: .*)$", OPERATIONS, re.MULTILINE)
    (tmp_path / "next").mkdir()
    (tmp_path / "next/kustomization.yaml").write_text("\n".join(written))
    (tmp_path / "production").symlink_to(FOLDER / "overlays/production")
    documents = render(tmp_path / "next")
    assert only(documents, "Namespace")["metadata"]["name"] == "echannel-next"
    assert {each["metadata"].get("namespace", "echannel-next") for each in documents} == {"echannel-next"}
    assert {name: faults for name, check in CHECKS.items() if (faults := [*check(documents)])} == {}


def test_figures_of_time_in_the_page_are_those_of_the_manifests():
    (head,) = [template for name, template in templates(manifests("production")) if name == "echannel head"]
    told = {each["name"]: each.get("value") for each in containers(head)[0]["env"]}
    assert f"`ECHANNEL_DRAIN_SECONDS` ({told['ECHANNEL_DRAIN_SECONDS']} s" in OPERATIONS
    assert f"the {head['spec']['terminationGracePeriodSeconds']} s\n" in OPERATIONS


def test_what_is_yours_is_marked():
    """The README says to look for it."""
    marked = [file.name for file in (FOLDER / "overlays/production").iterdir() if "# yours" in file.read_text()]
    assert sorted(marked) == ["fault-tolerance.yaml", "kustomization.yaml", "redis-policy.yaml", "size.yaml"]
