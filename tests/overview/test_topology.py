"""The graph of a namespace, from what its parts say."""

from __future__ import annotations

from echannel_ray.models import ChannelStats, ConcentratorPart, Manager, Node, NodeShare, Part, Status
from echannel_ray.overview.readings import ChannelLine
from echannel_ray.overview.topology import Edge, topology_of, with_derived

ONE, OTHER, GONE = "a" * 56, "b" * 56, "c" * 56


def status(**parts):
    settings = {
        "namespace": "default",
        "name_server": Part(name="default:name-server"),
        "managers": [Manager(name="default:manager-0")],
        "concentrators": [
            ConcentratorPart(name=f"default:concentrator-{ONE[:16]}", node_id=ONE, endpoints=3, restarts=1),
            ConcentratorPart(name=f"default:concentrator-{OTHER[:16]}", error="TimeoutError: 2 s"),
        ],
        "channels": [],
        "nodes": [
            Node(node_id=ONE, alive=True, joined=True, suspected=False),
            Node(node_id=OTHER, alive=True, joined=True, suspected=True),
            Node(node_id=GONE, alive=False, joined=False, suspected=False),
        ],
    }
    return Status(**{**settings, **parts})


def line():
    return ChannelLine(
        channel="trades",
        event_type="market:Trade",
        producers=3,
        consumers=1,
        nodes={
            OTHER[:16]: NodeShare(producers=1, consumers=1, events_published=5, events_delivered=14, queue_depth=1),
            ONE[:16]: NodeShare(producers=2, events_published=10, blocked_producers=1),
        },
        derived={
            "k2": ChannelStats(channel="trades~2", parent="trades~1", modulator="EveryNth", consumers=1),
            "k1": ChannelStats(channel="trades~1", parent="trades", modulator="price > 3"),
            "k0": ChannelStats(channel="trades~0", parent="trades~that has ended"),
        },
    )


def test_nodes_with_their_concentrators():
    first, second = topology_of(status(), []).nodes  # the dead one without a concentrator is left out
    assert (first.node, first.processes, first.restarts, first.error) == (ONE[:16], 3, 1, None)
    assert (second.node, second.suspected, second.error) == (OTHER[:16], True, "TimeoutError: 2 s")


def test_edges_are_between_nodes_and_channels():
    edges = topology_of(status(), [line()]).edges_of("trades")
    assert edges == [
        Edge(kind="produces", node=ONE[:16], channel="trades", ends=2, events=10, blocked_producers=1),
        Edge(kind="produces", node=OTHER[:16], channel="trades", ends=1, events=5),
        Edge(kind="consumes", node=OTHER[:16], channel="trades", ends=1, events=14, queue_depth=1),
    ]


def test_what_is_derived_follows_its_parent():
    assert [each.channel for each in with_derived(line())] == ["trades", "trades~0", "trades~1", "trades~2"]
    spots = topology_of(status(), [line()]).channels
    assert [(spot.channel, spot.parent, spot.modulator) for spot in spots] == [
        ("trades", None, None),
        ("trades~0", "trades", None),
        ("trades~1", "trades", "price > 3"),
        ("trades~2", "trades~1", "EveryNth"),
    ]
    assert [spot.event_type for spot in spots] == ["market:Trade", None, None, None]


def test_every_edge_has_its_node():
    topology = topology_of(status(nodes=[], concentrators=[]), [line()])
    assert {edge.node for edge in topology.edges} == {spot.node for spot in topology.nodes}
