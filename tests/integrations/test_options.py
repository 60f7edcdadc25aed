"""Options of sources and sinks: what is wrong is said before anything starts."""

from __future__ import annotations

import pytest

from echannel_ray.gateway.address import Endpoint
from echannel_ray.gateway.identity import Identity
from echannel_ray.integrations.spark.options import SinkOptions, SourceOptions

_IDENTITY = Identity.generate(["127.0.0.1"])
ENDPOINT = str(Endpoint("127.0.0.1", 1, "default", _IDENTITY.token, _IDENTITY.certificate_der, 2))
BASE = {"channel": "c", "endpoint": ENDPOINT}


def test_what_is_not_said_is_safe():
    sink = SinkOptions.of(BASE)
    assert sink.is_exactly_once
    assert sink.retain == {"disk": True}
    source = SourceOptions.of(BASE)
    assert source.fails_on_data_loss
    assert source.starting == "earliest"
    assert source.lease_seconds == 3600


@pytest.mark.parametrize(
    ("options", "unknown", "nearest"),
    [
        (SinkOptions, "writeIdd", "writeId"),
        (SinkOptions, "retention", "retainSeconds"),
        (SourceOptions, "maxRows", "maxRowsPerEpoch"),
    ],
)
def test_an_option_that_nobody_reads_is_refused(options, unknown, nearest):
    with pytest.raises(ValueError, match=f"no option '{unknown}' .* nearest is '{nearest}'"):
        options.of({**BASE, unknown: "1"})


@pytest.mark.parametrize("options", [SinkOptions, SourceOptions])
def test_what_spark_adds_is_no_unknown_option(options):
    options.of({**BASE, "checkpointlocation": "/c", "queryname": "q", "path": "/p", "spark.some.setting": "1"})


def test_retention_of_a_channel_that_is_made():
    options = {**BASE, "retainBytes": "1e9", "retainSeconds": "60"}
    assert SinkOptions.of(options).retain == {"disk": True, "max_bytes": 10**9, "max_age_seconds": 60}
    assert SinkOptions.of({**BASE, "delivery": "at_least_once"}).retain is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"channel": ""}, "'channel' is missing"),
        ({"endpoint": ""}, r"session\.gateway\(\)"),
        ({"endpoint": "nonsense"}, "no gateway's endpoint"),
        ({"namespace": "other"}, "namespace 'default'.*'other'"),
        ({"delivery": "at_most_once"}, "exactly_once or at_least_once"),
        ({"transfer": "files"}, "a directory that both sides can read"),
        ({"transfer": "files", "path": "/p", "delivery": "at_least_once"}, "needs delivery=exactly_once"),
        ({"retainBytes": "-1"}, "a number above 0"),
    ],
)
def test_what_a_sink_refuses(changed, said):
    with pytest.raises(ValueError, match=said):
        SinkOptions.of({**BASE, **changed})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"maxRowsPerEpoch": "many"}, "'maxRowsPerEpoch' is 'many'"),
        ({"leaseSeconds": "0"}, "a number above 0"),
        ({"startingOffsets": "sometime"}, "earliest, latest or JSON"),
        ({"startingOffsets": '{"a": -1}'}, "earliest, latest or JSON"),
        ({"endingOffsets": "[1]"}, "earliest, latest or JSON"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
    ],
)
def test_what_a_source_refuses(changed, said):
    with pytest.raises(ValueError, match=said):
        SourceOptions.of({**BASE, **changed})
