"""The small stand-in for `kubectl kustomize` renders as that does, and says so when it can't."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
import yaml

from tests.k8s.kustomizing import render
from tests.k8s.rendered import FOLDER, OVERLAYS, ROOT

_OLDEST = 5  # kubectl 1.27 has Kustomize 5.0; Debian's kubectl 1.20 has 2.0


def kubectl():
    found = shutil.which("kubectl")
    if found is None:
        pytest.skip("kubectl is not at hand")
    said = subprocess.run([found, "version", "--client", "--output=json"], capture_output=True, text=True, timeout=60)
    version = json.loads(said.stdout or "{}").get("kustomizeVersion", "")
    if not (match := re.match(r"v(\d+)", version)) or int(match[1]) < _OLDEST:
        pytest.skip(f"kubectl is not a modern one: its Kustomize is {version or 'older than 4.2'}")
    return found


def by_name(documents):
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


@pytest.mark.parametrize("folder", ["base", *(f"overlays/{each}" for each in OVERLAYS)])
def test_it_renders_as_kubectl_does(folder):
    command = [kubectl(), "kustomize", str(FOLDER / folder)]
    theirs = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert by_name(render(FOLDER / folder)) == by_name(yaml.safe_load_all(theirs))


def kustomization(folder, text):
    (folder / "kustomization.yaml").write_text(text)
    (folder / "service.yaml").write_text("{apiVersion: v1, kind: Service, metadata: {name: a}}")
    (folder / "merge.yaml").write_text("{apiVersion: v1, kind: Service, metadata: {name: a, labels: {b: c}}}")
    return folder


@pytest.mark.parametrize(
    "text",
    [
        "{resources: [service.yaml], namePrefix: a-}",
        "{resources: [service.yaml], patches: [{path: merge.yaml, target: {kind: Service}}]}",
        "{resources: [service.yaml], patches: [{patch: '[]', target: {kind: Service}}]}",
        "{configMapGenerator: [{name: a, files: [service.yaml]}]}",
        "{configMapGenerator: [{name: a, literals: [b=c]}], generatorOptions: {disableNameSuffixHash: true}}",
    ],
)
def test_what_it_does_not_know_it_refuses(tmp_path, text):
    with pytest.raises(NotImplementedError):
        render(kustomization(tmp_path, text))


def test_a_patch_without_a_target_is_an_error(tmp_path):
    text = "{resources: [service.yaml], patches: [{path: merge.yaml, target: {kind: Deployment}}]}"
    with pytest.raises(LookupError, match="has no target"):
        render(kustomization(tmp_path, text))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_second_cluster_is_the_same_in_another_namespace(tmp_path, overlay):
    """As docs/operations.md has it: what an upgrade drains to."""
    second = tmp_path / "second"
    second.mkdir()
    copy = shutil.copytree(FOLDER, tmp_path / "k8s")
    (second / "kustomization.yaml").write_text(f"{{namespace: echannel-next, resources: [../k8s/overlays/{overlay}]}}")
    first, then = by_name(render(copy / f"overlays/{overlay}")), by_name(render(second))
    assert len(first) == len(then)
    assert {each["metadata"].get("namespace", each["metadata"]["name"]) for each in then.values()} == {"echannel-next"}
    (cluster,) = [each for each in then.values() if each["kind"] == "RayCluster"]
    # Redis has the state of both: KubeRay tells them apart by the number of the cluster, unless a name is given.
    assert "externalStorageNamespace" not in cluster["spec"].get("gcsFaultToleranceOptions", {})


def test_the_files_name_no_registry_of_packages():
    for file in FOLDER.rglob("*"):
        assert not file.is_file() or "index-url" not in file.read_text(), file.relative_to(ROOT)
