"""Custom resources against the schemas of their definitions, more strictly than the API server is with them.

Fields that the schema does not know are refused here; a server would remove them, with a warning or without a word.
Rules in CEL (`x-kubernetes-validations`) are not evaluated: `fields_with_rules` lists the fields that have any, and a
test says that we set none of these.
"""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

_VARIABLE = "ECHANNEL_K8S_CRDS"  # a directory with the definitions, else where CI lays them out
_BESIDE = Path(__file__).parents[3] / "shared/k8s-crds"
_FILES = {"RayCluster": "ray.io_rayclusters.yaml", "RayJob": "ray.io_rayjobs.yaml"}
_INT_BITS = {"int32": 31, "int64": 63}

Schema = dict[str, Any]


def definitions() -> Path:
    """The directory with the definitions of KubeRay's resources; skips the test where there is none."""
    directory = Path(os.environ.get(_VARIABLE, _BESIDE))
    if not all((directory / file).is_file() for file in _FILES.values()):
        pytest.skip(f"KubeRay's definitions (CRDs) are not in {directory}; {_VARIABLE} may name another directory")
    return directory


@functools.cache
def schema_of(kind: str, version: str = "v1") -> Schema:
    """The schema of a kind of KubeRay's, as it is."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # a second in the place of fifteen
    definition = yaml.load((definitions() / _FILES[kind]).read_text(), Loader=loader)
    (schema,) = [each["schema"] for each in definition["spec"]["versions"] if each["name"] == version]
    structural: Schema = schema["openAPIV3Schema"]
    return structural


def problems(document: dict[str, Any]) -> list[str]:
    """All that is wrong with a resource, defaults applied."""
    complete = with_defaults(document)
    errors = _validator(document["kind"]).iter_errors(complete)
    found = [f"{error.json_path}: {error.message}" for error in errors]
    return [*found, *_beyond(complete, schema_of(document["kind"]), "$")]


def with_defaults(document: dict[str, Any]) -> dict[str, Any]:
    """The resource as a server keeps it."""
    complete = copy.deepcopy(document)
    _fill(complete, schema_of(document["kind"]))
    return complete


def fields_with_rules(schema: Schema, name: str = "") -> set[str]:
    """The names of the fields, anywhere in a schema, that have rules in CEL."""
    found = {name} if "x-kubernetes-validations" in schema else set()
    for each, part in schema.get("properties", {}).items():
        found |= fields_with_rules(part, each)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found |= fields_with_rules(schema[key], name)
    return found


def _parts(schema: Schema) -> Iterator[Schema]:
    yield from schema.get("properties", {}).values()
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield schema[key]


@functools.cache
def _validator(kind: str) -> jsonschema.Draft7Validator:
    schema = copy.deepcopy(schema_of(kind))
    schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    schema["properties"]["metadata"] = {"type": "object"}  # what a server knows of it stands in no definition
    _close(schema)
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def _close(schema: Schema) -> None:
    """Refuse what is not named, in each object that names anything."""
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        schema["type"] = ["integer", "string"]
    elif schema.get("nullable"):
        schema["type"] = [schema["type"], "null"]
    for each in _parts(schema):
        _close(each)


def _fill(at: Any, schema: Schema) -> None:
    if isinstance(at, dict):
        for name, part in schema.get("properties", {}).items():
            if name not in at and "default" in part:
                at[name] = copy.deepcopy(part["default"])
            if name in at:
                _fill(at[name], part)
    elif isinstance(at, list):
        for each in at:
            _fill(each, schema.get("items", {}))


def _beyond(at: Any, schema: Schema, where: str) -> Iterator[str]:
    """What Kubernetes checks and JSON Schema has no words for: keys of lists, sets, widths of integers."""
    if isinstance(at, dict):
        for name, value in at.items():
            part = schema.get("properties", {}).get(name) or schema.get("additionalProperties")
            if isinstance(part, dict):
                yield from _beyond(value, part, f"{where}.{name}")
    elif isinstance(at, list):
        keys = schema.get("x-kubernetes-list-map-keys")
        if keys:
            seen = [tuple(str(each.get(key)) for key in keys) for each in at]
        else:
            seen = at if schema.get("x-kubernetes-list-type") == "set" else []
        if len(seen) != len({str(each) for each in seen}):
            yield f"{where}: two entries of a list are the same: {seen}"
        for index, each in enumerate(at):
            yield from _beyond(each, schema.get("items", {}), f"{where}[{index}]")
    elif type(at) is int:
        bits = _INT_BITS.get(schema.get("format", ""), 64)
        if not -(2**bits) <= at < 2**bits:
            yield f"{where}: {at} is no {schema['format']}"
