"""What a channel's logs hold, in its stats and on a terminal."""

from __future__ import annotations

import io

import pyarrow as pa
from rich.console import Console

import echannel_ray as ec
from echannel_ray.gateway.client import GatewayClient
from echannel_ray.logs.entries import Chosen, WriteAttempt

SCHEMA = pa.schema([("number", pa.int64())])


def rows(count):
    return [pa.record_batch([pa.array(range(count))], schema=SCHEMA)]


def test_stats_of_a_log(nodes, name):
    with GatewayClient(str(ec.connect().gateway())) as client:
        client.channel(name, SCHEMA, {"disk": True})
        client.publish(name, rows(100))
        staged = client.stage(name, WriteAttempt("w", 0, 0), rows(50))
        client.group(name, "query", "earliest", 60)
        stats = ec.channel(name).stats()
        assert (stats.producers, stats.events_published, stats.retained_events) == (0, 100, 100)
        assert stats.staged_bytes > 0
        assert stats.lag == {"query": 100}
        client.commit(name, "w", [Chosen(0, 0, staged)])
        stats = ec.channel(name).stats()
        assert (stats.events_published, stats.retained_events, stats.staged_bytes) == (150, 150, 0)
        assert stats.bytes_published == stats.retained_bytes > 1000


def test_a_bar_where_there_is_a_terminal(nodes, name):
    channel = ec.channel(name, retain=ec.Retention())
    shown, hidden = io.StringIO(), io.StringIO()
    with ec.watch(channel, Console(file=shown, force_terminal=True, width=150)), channel.producer() as producer:
        producer.publish_many(range(1000))
        producer.drain()
    with ec.watch(channel, Console(file=hidden)):
        pass
    assert "1,000 in" in shown.getvalue()
    assert hidden.getvalue() == ""
