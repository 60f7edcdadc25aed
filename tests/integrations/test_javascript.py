"""The protocol for events, spoken by another language: a client in JavaScript against a cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

import echannel_ray as ec
from echannel_ray.gateway.address import Endpoint
from echannel_ray.gateway.identity import new_token
from tests.api.parties import SOON, Inbox, Party, ask
from tests.clusters import LocalCluster
from tests.integrations.javascript import MISSING, PROTOCOL, Node, installed

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {' and '.join(MISSING)}")


@dataclasses.dataclass
class Trade:
    price: float
    symbol: str


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where programs find the client."""
    return installed(tmp_path_factory.mktemp("javascript"))


@pytest.fixture(scope="module")
def endpoint(two_nodes: LocalCluster) -> Endpoint:
    return ec.connect("javascript").gateway(derive=("*",))


@pytest.fixture(scope="module")
def party(endpoint: Endpoint) -> Iterator[Any]:
    """An actor of the cluster."""
    actor: Any = ray.remote(Party).options(num_cpus=0).remote()
    yield actor
    ray.kill(actor)


def test_a_program_publishes_and_an_actor_gets_it(directory, endpoint, party):
    def consume(party: Party) -> None:
        party.kept["inbox"] = Inbox()
        channel = ec.channel("from-js", Trade, namespace="javascript")
        party.kept["subscription"] = channel.subscribe(party.kept["inbox"])

    ask(party, consume)
    program = """
    const client = await ec.Client.connect(process.argv[2]);
    const events = Array.from({ length: 3000 }, (_, i) => ({ price: i + 0.5, symbol: `Nº ${i}` }));
    say(await client.publish("from-js", events));
    client.close();
    """
    with Node(directory, program, str(endpoint)) as node:
        assert node.hear() == 3000
        node.end()

    def got(party: Party) -> Any:
        return party.kept["inbox"].wait(3000)

    assert ask(party, got) == [Trade(i + 0.5, f"Nº {i}") for i in range(3000)]


def test_an_actor_publishes_and_a_program_gets_it(directory, endpoint, party):
    class Opaque:
        """Only Python has a form for it."""

    def publish(party: Party) -> str:
        with ec.channel("to-js", namespace="javascript").producer() as producer:
            producer.publish_many([*range(3000), "text", None, 2.5, Opaque()])
            return producer.name

    program = """
    const client = await ec.Client.connect(process.argv[2]);
    await client.open("to-js", {});
    const messages = await client.subscribe("to-js");
    say("ready");
    const got = [];
    for await (const message of messages) {
      got.push(message);
      if (got.length === 3004) break;
    }
    say(got.map(({ event, opaque }) => (opaque ? Object.keys(opaque) : event)));
    say([got[0].producer, got[0].sequence, got[3003].sequence, Math.abs(got[0].publishedAt - Date.now() / 1000) < 60]);
    client.close();
    """
    with Node(directory, program, str(endpoint)) as node:
        assert node.hear() == "ready"
        producer = ask(party, publish)
        assert node.hear() == [*range(3000), "text", None, 2.5, ["type", "sizeBytes"]]
        assert node.hear() == [producer, 1, 3004, True]
        node.end()


@pytest.mark.parametrize("ends", ["await messages.return()", "client.close()"])
def test_what_a_program_of_a_group_has_not_handled_goes_to_another_member(directory, endpoint, party, ends):
    def publish(party: Party, name: str) -> None:
        with ec.channel(name, namespace="javascript").producer() as producer:
            producer.publish_many(range(3000))
            producer.drain(SOON)

    name = f"shared-js-{len(ends)}"
    program = f"""
    const client = await ec.Client.connect(process.argv[2]);
    await client.open({name!r}, {{}});
    const messages = await client.subscribe({name!r}, {{ group: "workers" }});
    say("ready");
    const got = [];
    while (got.length < 500) got.push((await messages.next()).value.event);
    say(got);
    await new Promise((resolve) => process.stdin.once("data", resolve));
    {ends};
    """
    with Node(directory, program, str(endpoint)) as node:
        assert node.hear() == "ready"
        publishing = party.run.remote(publish, name)
        handled = node.hear()
        with ec.channel(name, namespace="javascript").subscribe(group="workers") as other:
            node.go_on()
            rest = [other.get(SOON) for _ in range(2500)]
            ray.get(publishing)
    assert sorted([*handled, *rest]) == [*range(3000)]


def test_a_program_derives_by_ecode(directory, endpoint, party):
    def publish(party: Party) -> None:
        with ec.channel("derived-js", Trade, namespace="javascript").producer() as producer:
            producer.publish_many([Trade(float(i), "RAY") for i in range(100)])

    program = """
    const client = await ec.Client.connect(process.argv[2]);
    await client.open("derived-js", { price: "float", symbol: "str" });
    const some = await client.subscribe("derived-js", { where: "price >= param.low", params: { low: 97.0 } });
    say("ready");
    for (let i = 0; i < 3; i++) say((await some.next()).value.event);
    const wrong = await client.derive("derived-js", "prize > 3").catch((error) => error);
    say([wrong.name, wrong.message]);
    client.close();
    """
    with Node(directory, program, str(endpoint)) as node:
        assert node.hear() == "ready"
        ask(party, publish)
        assert [node.hear()["price"] for _ in range(3)] == [97, 98, 99]
        name, message = node.hear()
        assert name == "ModulatorRefused"
        assert "prize" in message
        node.end()


def test_wrong_tokens_and_missing_rights_are_told(directory, endpoint):
    session = ec.connect("javascript")
    stranger = dataclasses.replace(endpoint, token=new_token())
    reader = session.grant(subscribe=("prices/*",))
    program = """
    const stranger = await ec.Client.connect(process.argv[2]).catch((error) => error);
    say([stranger.name, stranger.message, stranger.attributes.reason]);
    const reader = await ec.Client.connect(process.argv[3]);
    const refused = await reader.publish("prices/a", [1]).catch((error) => error);
    say([refused.name, refused.attributes.right]);
    say((await reader.open("other").catch((error) => error)).name);
    for await (const message of await reader.subscribe("prices/a")) say(message);
    """
    ec.channel("prices/a", namespace="javascript")
    with Node(directory, program, str(stranger), str(reader)) as node:
        name, message, reason = node.hear()
        assert (name, reason) == ("NotAuthorised", "wrong_token")
        assert "does not know this token" in message
        assert node.hear() == ["NotAuthorised", "publish"]
        assert node.hear() == "NotAuthorised"
        session.revoke(reader)
        with pytest.raises(AssertionError, match=r"NotAuthorised|revoked"):
            node.hear()


def test_the_vectors_of_the_page(directory):
    program = """
    import fs from "node:fs";
    const text = fs.readFileSync(process.argv[2], "utf8").split("```json\\n")[1].split("```")[0];
    const wrong = [];
    let checked = 0;
    for (const vector of JSON.parse(text).filter((each) => !each.bad)) {
      const bytes = Buffer.from(vector.hex, "hex");
      const reader = new ec.FrameReader();
      const whole = [...reader.feed(bytes)];
      const inPieces = [];
      for (const byte of bytes) inPieces.push(...reader.feed(Buffer.from([byte])));
      const meant = JSON.stringify([[vector.frame, bytes.length]]);
      if (JSON.stringify(whole) !== meant || JSON.stringify(inPieces) !== meant) wrong.push(["decoded", vector, whole]);
      if (!ec.encodeFrame(vector.frame).equals(bytes)) wrong.push(["encoded", vector, ec.encodeFrame(vector.frame)]);
      checked += 1;
    }
    say([checked, wrong]);
    """
    with Node(directory, program, str(PROTOCOL)) as node:
        checked, wrong = node.hear()
        assert checked > 20
        assert wrong == []
        node.end()
