"""What `kubectl kustomize` makes of our files, where there is none: the features that these use, and no others."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]

_KNOWN = {
    "apiVersion", "kind", "namespace", "resources", "patches", "configMapGenerator", "generatorOptions", "images",
}  # fmt: skip
_CLUSTER_WIDE = {"Namespace"}


def render(directory: Path) -> list[Document]:
    """The documents of a kustomization; `NotImplementedError` where it uses something that this does not know."""
    directory = directory.resolve()
    kustomization = yaml.safe_load((directory / "kustomization.yaml").read_text())
    _only(kustomization, _KNOWN, directory)
    documents: list[Document] = []
    for resource in kustomization.get("resources", []):
        path = directory / resource
        documents += render(path) if path.is_dir() else load(path)
    options = kustomization.get("generatorOptions", {})
    _only(options, {"disableNameSuffixHash"}, directory)
    for generator in kustomization.get("configMapGenerator", []):
        if not options.get("disableNameSuffixHash"):
            raise NotImplementedError(f"{directory}: names with hashes")
        documents.append(_config_map(generator, directory))
    for patch in kustomization.get("patches", []):
        _apply_patch(patch, documents, directory)
    for image in kustomization.get("images", []):
        _only(image, {"name", "newName", "newTag"}, directory)
        for document in documents:
            _set_image(document, image)
    if namespace := kustomization.get("namespace"):
        for document in documents:
            if document["kind"] == "Namespace":
                document["metadata"]["name"] = namespace
            elif document["kind"] not in _CLUSTER_WIDE:
                document["metadata"]["namespace"] = namespace
    return documents


def load(path: Path) -> list[Document]:
    """The documents of a file."""
    # Anchors become one object in several places: a patch of one would change the others.
    return [json.loads(json.dumps(each)) for each in yaml.safe_load_all(path.read_text()) if each is not None]


def _only(given: Document, known: set[str], where: Path) -> None:
    if unknown := given.keys() - known:
        raise NotImplementedError(f"{where}: {', '.join(sorted(unknown))}")


def _config_map(generator: Document, directory: Path) -> Document:
    _only(generator, {"name", "files", "options"}, directory)
    _only(generator.get("options", {}), {"labels"}, directory)
    files = [directory / name for name in generator["files"]]
    metadata: Document = {"name": generator["name"]}
    if labels := generator.get("options", {}).get("labels"):
        metadata["labels"] = labels
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {file.name: file.read_text() for file in files},
    }


def _apply_patch(patch: Document, documents: list[Document], directory: Path) -> None:
    _only(patch, {"path", "target"}, directory)
    _only(patch["target"], {"kind", "name"}, directory)
    chosen = [
        document
        for document in documents
        if document["kind"] == patch["target"]["kind"]
        and patch["target"].get("name", document["metadata"]["name"]) == document["metadata"]["name"]
    ]
    if not chosen:
        raise LookupError(f"{directory}/{patch['path']} has no target")
    operations = yaml.safe_load((directory / patch["path"]).read_text())
    if not isinstance(operations, list):
        raise NotImplementedError(f"{directory}/{patch['path']}: a patch that is no list of operations")
    for document in chosen:
        for operation in operations:
            _operate(document, operation)


def _operate(document: Document, operation: Document) -> None:
    """One operation of RFC 6902."""
    *way, last = operation["path"].removeprefix("/").replace("~1", "/").replace("~0", "~").split("/")
    at: Any = document
    for step in way:
        at = at[int(step)] if isinstance(at, list) else at[step]
    value = copy.deepcopy(operation.get("value"))
    match operation["op"], at:
        case "add", list():
            at.insert(len(at) if last == "-" else int(last), value)
        case "add", _:
            at[last] = value
        case "replace", list():
            at[int(last)] = value
        case "replace", _ if last in at:
            at[last] = value
        case "remove", list():
            del at[int(last)]
        case "remove", _:
            del at[last]
        case _:
            raise NotImplementedError(f"{operation}")


def _set_image(at: Any, image: Document) -> None:
    """Wherever there are containers, in resources of any kind."""
    if isinstance(at, list):
        for each in at:
            _set_image(each, image)
    elif isinstance(at, dict):
        for key, value in at.items():
            if key in ("containers", "initContainers") and isinstance(value, list):
                for container in value:
                    name, _, tag = container["image"].partition(":")
                    if name == image["name"]:
                        tag = image.get("newTag", tag)
                        container["image"] = f"{image.get('newName', name)}:{tag}"
            else:
                _set_image(value, image)
