"""What matters here of resources whose definitions are not at hand, as small models that know no other fields."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_Duration = Annotated[str, Field(pattern=r"^\d+(ms|s|m|h|d)$")]
_Hours = Annotated[str, Field(pattern=r"^\d+h$")]
_Labels = dict[str, str]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Metadata(_Strict):
    name: str
    namespace: str
    labels: _Labels


class _Selector(_Strict):
    matchLabels: _Labels  # noqa: N815 - Kubernetes' name, as all below


class _Endpoint(_Strict):
    port: str
    path: str
    interval: _Duration


class _Monitored(_Strict):
    selector: _Selector
    podMetricsEndpoints: Annotated[list[_Endpoint], Field(min_length=1)]  # noqa: N815


class PodMonitor(_Strict):
    """Of the Prometheus operator."""

    apiVersion: Literal["monitoring.coreos.com/v1"]  # noqa: N815
    kind: Literal["PodMonitor"]
    metadata: _Metadata
    spec: _Monitored


class _AlertLabels(_Strict):
    severity: Literal["warning", "critical"]


class _Annotations(_Strict):
    summary: str
    runbook: str


class Alert(_Strict):
    """One of its rules."""

    alert: Annotated[str, Field(pattern=r"^EChannel[A-Z][A-Za-z]+$")]
    expr: str
    for_: Annotated[_Duration | None, Field(alias="for")] = None
    labels: _AlertLabels
    annotations: _Annotations


class _Group(_Strict):
    name: str
    rules: Annotated[list[Alert], Field(min_length=1)]


class _Groups(_Strict):
    groups: list[_Group]


class PrometheusRule(_Strict):
    """Of the Prometheus operator."""

    apiVersion: Literal["monitoring.coreos.com/v1"]  # noqa: N815
    kind: Literal["PrometheusRule"]
    metadata: _Metadata
    spec: _Groups


class _IssuerReference(_Strict):
    name: str
    kind: Literal["Issuer"]
    group: Literal["cert-manager.io"]


class _Key(_Strict):
    algorithm: Literal["ECDSA"]
    size: Literal[256, 384]
    rotationPolicy: Literal["Always"] | None = None  # noqa: N815


class _Certified(_Strict):
    secretName: str  # noqa: N815
    commonName: str  # noqa: N815
    dnsNames: list[str] = []  # noqa: N815
    isCA: bool = False  # noqa: N815
    usages: list[Literal["digital signature", "server auth", "client auth"]] = []
    duration: _Hours
    renewBefore: _Hours  # noqa: N815
    privateKey: _Key  # noqa: N815
    issuerRef: _IssuerReference  # noqa: N815


class Certificate(_Strict):
    """Of cert-manager."""

    apiVersion: Literal["cert-manager.io/v1"]  # noqa: N815
    kind: Literal["Certificate"]
    metadata: _Metadata
    spec: _Certified


class _OfAuthority(_Strict):
    secretName: str  # noqa: N815


class _Issuing(_Strict):
    selfSigned: dict[str, Any] | None = None  # noqa: N815
    ca: _OfAuthority | None = None


class Issuer(_Strict):
    """Of cert-manager."""

    apiVersion: Literal["cert-manager.io/v1"]  # noqa: N815
    kind: Literal["Issuer"]
    metadata: _Metadata
    spec: _Issuing


MODELS: dict[str, type[BaseModel]] = {
    each.__name__: each for each in (PodMonitor, PrometheusRule, Certificate, Issuer)
}  # fmt: skip
