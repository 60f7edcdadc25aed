"""`graph` and `tree`: who is connected with whom, as trees for terminals and as text for Graphviz."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.filesize import decimal
from rich.text import Text
from rich.tree import Tree

from echannel_ray.cli.tables import short, type_name
from echannel_ray.cli.terminal_text import cell, console, safe
from echannel_ray.overview.phrases import counted
from echannel_ray.overview.topology import ChannelSpot, DerivationTree, Edge, NodeSpot, Topology


def print_graph(topology: Topology) -> None:
    """Nodes, and each channel with its producers and consumers and what is derived from it."""
    root = Tree(cell(f"namespace {topology.namespace}", "bold"))
    nodes = root.add(Text("nodes", "bold"))
    for node in topology.nodes:
        nodes.add(_node(node))
    channels = root.add(Text("channels", "bold") if topology.channels else "no channels")
    branches: dict[str, Tree] = {}
    for spot in topology.channels:
        above = branches[spot.parent] if spot.parent is not None else channels
        branch = branches[spot.channel] = above.add(_channel(spot))
        for edge in topology.edges_of(spot.channel):
            branch.add(_edge(edge))
    console().print(root)


def print_trees(branches: Iterable[DerivationTree]) -> None:
    """Channels with what is derived from them."""
    out = console()
    for branch in branches:
        root = Tree(Text.assemble(cell(branch.channel, "bold"), f"  {_published(branch)}"))
        _grow(root, branch)
        out.print(root)


def dot(topology: Topology) -> str:
    """The graph in the language of Graphviz: `echannel graph --dot | dot -Tsvg`."""
    return "\n".join(["digraph echannel {", *(f"  {line}" for line in _dot_lines(topology)), "}"])


def _node(node: NodeSpot) -> Text:
    text = cell(short(node.node), "cyan")
    if node.error is not None:
        return text + Text("  concentrator does not answer: ", "red") + cell(node.error)
    facts = [counted(node.processes, "process", "es")] if node.joined else ["no concentrator"]
    if node.restarts:
        facts.append(counted(node.restarts, "restart"))
    if node.queued_bytes:
        facts.append(f"{decimal(node.queued_bytes)} queued")
    text += Text(f"  {', '.join(facts)}")
    if node.suspected:
        text += Text("  suspected", "yellow")
    return text if node.alive else text + Text("  dead", "red")


def _channel(spot: ChannelSpot) -> Text:
    what = spot.modulator if spot.parent is not None else type_name(spot.event_type)
    return Text.assemble(cell(spot.channel, "bold"), "  ", cell(what or ""))


def _edge(edge: Edge) -> Text:
    node = cell(short(edge.node), "cyan")
    if edge.kind == "produces":
        text = Text.assemble(node, f" →  {counted(edge.ends, 'producer')}, {edge.events:,} published")
        return text + Text(f", {edge.blocked_producers:,} waiting", "yellow") if edge.blocked_producers else text
    text = Text.assemble("→ ", node, f"  {counted(edge.ends, 'consumer')}, {edge.events:,} handled")
    return text + Text(f", {edge.queue_depth:,} queued", "yellow") if edge.queue_depth else text


def _published(branch: DerivationTree) -> str:
    facts = [f"{branch.events_out:,} published", counted(branch.consumers, "consumer")]
    if branch.total_saved_bytes:
        facts.append(f"{decimal(branch.total_saved_bytes)} saved")
    return ", ".join(facts)


def _grow(tree: Tree, branch: DerivationTree) -> None:
    for each in branch.derived:
        passed = f" ({each.events_out / each.events_in:.1%})" if each.events_in else ""
        facts = [f"{each.events_in:,} in → {each.events_out:,} out{passed}", f"{decimal(each.saved_bytes)} saved"]
        facts.append(counted(each.consumers, "consumer"))
        text = Text.assemble(cell(each.channel, "bold"), "  ", cell(each.modulator or ""), "\n", ", ".join(facts))
        if each.modulator_errors:
            text += Text(f", {counted(each.modulator_errors, 'error')}", "red")
        _grow(tree.add(text), each)


def _dot_lines(topology: Topology) -> Iterator[str]:
    yield f"label={_quoted(f'namespace {topology.namespace}')}; rankdir=LR;"
    for node in topology.nodes:
        colour = "red" if not node.alive or node.error else "orange" if node.suspected else "black"
        label = _quoted(f"node {short(node.node)}")
        # What a node publishes is at the left, what it consumes at the right: one box would make a ball of wool.
        for side in ("produces", "consumes"):
            if any(edge.node == node.node and edge.kind == side for edge in topology.edges):
                yield f"{_quoted(f'{side} {node.node}')} [shape=box, color={colour}, label={label}];"
    for spot in topology.channels:
        what = spot.modulator if spot.parent is not None else type_name(spot.event_type)
        label = _quoted(f"{spot.channel}\n{what or ''}")
        yield f"{_quoted(f'channel {spot.channel}')} [shape=ellipse, label={label}];"
        if spot.parent is not None:
            yield f"{_quoted(f'channel {spot.parent}')} -> {_quoted(f'channel {spot.channel}')} [style=dashed];"
    for edge in topology.edges:
        box, oval = _quoted(f"{edge.kind} {edge.node}"), _quoted(f"channel {edge.channel}")
        ends = f"{box} -> {oval}" if edge.kind == "produces" else f"{oval} -> {box}"
        colour = "orange" if edge.blocked_producers or edge.queue_depth else "black"
        yield f'{ends} [color={colour}, label="{edge.ends} / {edge.events:,}"];'


def _quoted(text: str) -> str:
    lines = (safe(line).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n"))
    return '"' + "\\n".join(lines) + '"'
