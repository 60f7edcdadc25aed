"""The manifests as they are applied, and the pods that are in them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.k8s.kustomizing import Document, render

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "k8s"
OVERLAYS = ("dev", "production")


def manifests(overlay: str) -> list[Document]:
    """A fresh copy of what an overlay deploys: a test may break it."""
    return copy.deepcopy(_rendered(overlay))


@functools.cache
def _rendered(overlay: str) -> list[Document]:
    return render(FOLDER / "overlays" / overlay)


def of_kind(documents: list[Document], *kinds: str) -> list[Document]:
    """Those of these kinds."""
    return [each for each in documents if each["kind"] in kinds]


def only(documents: list[Document], kind: str, name: str = "") -> Document:
    """The one of this kind, or of this kind and name."""
    (document,) = [each for each in of_kind(documents, kind) if name in ("", each["metadata"]["name"])]
    return document


def templates(documents: list[Document]) -> Iterator[tuple[str, Document]]:
    """The templates of all pods, each by a name; KubeRay's labels are there as in the pods that it makes."""
    for document in documents:
        name, spec = document["metadata"]["name"], document.get("spec", {})
        match document["kind"]:
            case "RayCluster":
                yield f"{name} head", _of_ray(spec["headGroupSpec"]["template"], name, "head", "headgroup")
                for group in spec["workerGroupSpecs"]:
                    template = _of_ray(group["template"], name, "worker", group["groupName"])
                    yield f"{name} {group['groupName']}", template
            case "RayJob":
                yield f"{name} submitter", spec["submitterPodTemplate"]
            case "Deployment":
                yield name, spec["template"]


def _of_ray(template: Document, cluster: str, node_type: str, group: str) -> Document:
    labels = {
        "ray.io/cluster": cluster,
        "ray.io/node-type": node_type,
        "ray.io/group": group,
        "ray.io/is-ray-node": "yes",
    }
    template = copy.deepcopy(template)
    template["metadata"]["labels"] = {**template["metadata"].get("labels", {}), **labels}
    return template


def containers(template: Document) -> list[Document]:
    """All of a pod's, those that run first included."""
    spec = template["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a selector of labels (the empty one selects everything) is met."""
    if unknown := selector.keys() - {"matchLabels"}:
        raise NotImplementedError(f"selectors with {unknown}")
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


def words(at: Any) -> Iterator[str]:
    """All texts, anywhere in a document."""
    if isinstance(at, dict):
        for value in at.values():
            yield from words(value)
    elif isinstance(at, list):
        for value in at:
            yield from words(value)
    elif isinstance(at, str):
        yield at


def changed(document: Document, path: str, value: Any) -> Document:
    """A copy with one field set (or removed, for `...`), which may not have been there: `spec/containers/0/image`.

    A slash within a name is written `~1`.
    """
    result = copy.deepcopy(document)
    *way, last = (step.replace("~1", "/") for step in path.split("/"))
    at: Any = result
    for step in way:
        at = at[int(step)] if isinstance(at, list) else at.setdefault(step, {})
    key = int(last) if isinstance(at, list) else last
    if value is ...:
        del at[key]
    else:
        at[key] = value
    return result
