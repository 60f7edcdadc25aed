"""Alerts, the dashboard, what is scraped, certificates: against the code, the pods and the runbook."""

from __future__ import annotations

import json
import re

import pytest
from pydantic import ValidationError

from tests.k8s import checking
from tests.k8s.customs import MODELS
from tests.k8s.queries import exported, faults, metrics_in
from tests.k8s.rendered import FOLDER, ROOT, changed, containers, manifests, of_kind, only, selects, templates
from tests.k8s.wiring import ports_of

DASHBOARD = json.loads((FOLDER / "monitoring/echannel.json").read_text())
RUNBOOK = (ROOT / "docs/operations.md").read_text()


def alerts():
    return [
        rule for group in only(manifests("production"), "PrometheusRule")["spec"]["groups"] for rule in group["rules"]
    ]


def test_resources_of_other_operators_are_as_we_know_them():
    found = {each["kind"] for each in manifests("production")} & MODELS.keys()
    assert found == MODELS.keys()
    for document in of_kind(manifests("production"), *MODELS):
        MODELS[document["kind"]].model_validate(document)


@pytest.mark.parametrize(
    ("kind", "name", "path", "value"),
    [
        ("PodMonitor", "", "spec/podMetricsEndpoints/0/ports", "metrics"),
        ("PodMonitor", "", "spec/podMetricsEndpoints", []),
        ("PrometheusRule", "", "spec/groups/0/rules/0/For", "5m"),
        ("PrometheusRule", "", "spec/groups/0/rules/0/for", "5 minutes"),
        ("PrometheusRule", "", "spec/groups/0/rules/0/annotations/runbook", ...),
        ("Certificate", "echannel-nodes", "spec/duration", "30d"),
        ("Certificate", "echannel-nodes", "spec/issuerRef/kind", "issuer"),
        ("Issuer", "echannel-authority", "spec/ca/secret", "a"),
    ],
)
def test_what_we_do_not_know_of_them_is_found(kind, name, path, value):
    broken = changed(only(manifests("production"), kind, name), path, value)
    with pytest.raises(ValidationError):
        MODELS[kind].model_validate(broken)


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_alerts_ask_for_what_there_is(alert):
    assert list(faults(alert["expr"])) == []
    used = set(re.findall(r"\$labels\.(\w+)", alert["annotations"]["summary"]))
    assert all(re.search(rf"\b{label}\b", alert["expr"]) or label in ("pod", "node") for label in used)


def test_alerts_tell_clusters_apart():
    """One Prometheus may watch several, as while one is drained to the next."""
    ours = [alert for alert in alerts() if "ray_" in alert["expr"]]
    assert len(ours) > 5
    assert [alert["alert"] for alert in ours if "by (namespace" not in alert["expr"]] == []


def test_alerts_and_the_runbook_have_the_same_entries():
    named = [alert["alert"] for alert in alerts()]
    section = RUNBOOK.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    assert named == re.findall(r"^### (\w+)$", section, re.MULTILINE)
    for alert in alerts():
        assert alert["annotations"]["runbook"] == f"docs/operations.md#{alert['alert'].lower()}"
    assert set(re.findall(r"\bEChannel\w+", RUNBOOK)) == set(named)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("rate(ray_echannel_events_published_total[5m]) > 0)", "parentheses"),
        ("rate(ray_echannel_events_published[5m]) > 0", "no metric ray_echannel_events_published"),
        ("rate(echannel_events_published_total[5m]) > 0", "no metric echannel_events_published_total"),
        ("sum by (chanel) (ray_echannel_queue_depth)", "no label chanel"),
        ('ray_echannel_queue_depth{chanel="a"}', "no label chanel"),
        ("ray_echannel_events_published_total > 5", "take its rate"),
        ("rate(ray_echannel_queue_depth[5m])", "is no counter that grows"),
        ("increase(ray_echannel_concentrator_restarts_total[30m]) > 2", "is no counter that grows"),
        ("summ(ray_echannel_queue_depth)", "no function summ"),
        ("1 > 0", "no metric"),
    ],
)
def test_what_is_wrong_with_an_expression_is_found(expression, said):
    assert any(said in each for each in faults(expression)), list(faults(expression))


def expressions():
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_the_dashboard_shows_each_figure_and_no_other():
    shown = set()
    for expression in expressions():
        assert list(faults(expression.replace("$__rate_interval", "5m"))) == []
        shown |= metrics_in(expression)
    assert shown == {name for name in exported() if not re.search("_seconds_(sum|count)$", name)}


def test_the_dashboard_is_one():
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)\}?", json.dumps(DASHBOARD))) - variables <= {"__rate_interval", "__all"}
    for each in DASHBOARD["templating"]["list"]:
        if each["type"] == "query":
            assert metrics_in(each["query"]["query"].partition("(")[2].partition(",")[0]) <= exported().keys()
    dashboard = only(manifests("production"), "ConfigMap", "echannel-dashboard")
    assert json.loads(dashboard["data"]["echannel.json"]) == DASHBOARD
    assert dashboard["metadata"]["labels"] == {"grafana_dashboard": "1"}


def test_all_nodes_are_scraped():
    monitor = only(manifests("production"), "PodMonitor")["spec"]
    chosen = [
        name
        for name, template in templates(manifests("production"))
        if selects(monitor["selector"], template["metadata"]["labels"])
        and {each["port"] for each in monitor["podMetricsEndpoints"]} <= ports_of(template).keys()
    ]
    assert sorted(chosen) == ["echannel head", "echannel workers", "echannel-page"]


def hours(text):
    return int(text.removesuffix("h"))


def test_certificates_are_what_concentrators_and_the_page_need():
    documents = manifests("production")
    issuers = {each["metadata"]["name"]: each["spec"] for each in of_kind(documents, "Issuer")}
    certificates = {each["metadata"]["name"]: each["spec"] for each in of_kind(documents, "Certificate")}
    for name, spec in certificates.items():
        assert spec["issuerRef"]["name"] in issuers
        assert 0 < hours(spec["renewBefore"]) < hours(spec["duration"])
        # The alert has to come after renewal should have been tried, and before the end.
        if not spec.get("isCA"):
            assert hours(spec["renewBefore"]) > 5 * 24, name
    assert issuers["echannel-authority"]["ca"]["secretName"] == certificates["echannel-authority"]["secretName"]
    page = containers(only(documents, "Deployment", "echannel-page")["spec"]["template"])[-1]
    (names,) = [each["value"] for each in page["env"] if each["name"] == "ECHANNEL_PAGE_HOSTS"]
    assert names.split() == certificates["echannel-page"]["dnsNames"]
    # Peers know each other by a name that all certificates have, and each is client and server.
    assert certificates["echannel-nodes"]["dnsNames"]
    assert {"client auth", "server auth"} <= set(certificates["echannel-nodes"]["usages"])
    for name, template in templates(documents):
        for container in containers(template):
            told = {each["name"]: each.get("value") for each in container.get("env", [])}
            if container["name"] in ("ray-head", "ray-worker", "ray-node"):
                mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
                volume = mounts[told["ECHANNEL_TLS_DIR"]]
                (secret,) = [each["secret"] for each in template["spec"]["volumes"] if each["name"] == volume]
                assert secret["secretName"] == certificates["echannel-nodes"]["secretName"], name


def test_all_secrets_come_from_somewhere():
    documents = manifests("production")
    issued = {each["spec"]["secretName"] for each in of_kind(documents, "Certificate")}
    by_kuberay = {only(documents, "RayCluster")["metadata"]["name"]}
    readme = (FOLDER / "README.md").read_text()
    by_hand = set(re.findall(r"kubectl create secret generic (\S+) --namespace echannel ", readme))
    assert checking.secrets_of(documents) == (issued - {"echannel-authority"}) | by_kuberay | by_hand
    assert checking.secrets_of(manifests("dev")) == by_kuberay | {"echannel-page"}
