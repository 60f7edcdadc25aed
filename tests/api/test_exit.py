"""The end of a process: nothing hangs, nothing stays behind, and nothing that was published is lost."""

from __future__ import annotations

import os
from pathlib import Path

import ray

from echannel_ray.ids import node_number
from echannel_ray.transport.unix import SocketDirectory
from tests.api.parties import Inbox, ask
from tests.api.scripts import run

JOIN = "ray.init(address=sys.argv[1], log_to_driver=False)\nchannel = ec.channel(sys.argv[2])\n"


def notes(nodes):
    """The files that stand for linked endpoints."""
    path = SocketDirectory("default", node_number(nodes.nodes[0].node_id))
    return {name for name in os.listdir(path) if name.startswith("endpoint-")}


def test_published_and_gone(nodes, channel):
    before = notes(nodes)
    inbox = Inbox()
    with channel.subscribe(inbox):
        ended = run(
            JOIN
            + """
producer = channel.producer()
for number in range(50_000):
    producer.publish(number)
print("done", flush=True)
            """,
            nodes.address,
            channel.name,
        )
        assert ended.code == 0, ended.output
        assert ended.seconds_after_last_line < 8
        assert inbox.wait(50_000) == [*range(50_000)]
        # Its counts are those of one who left in order.
        assert channel.stats().events_published == 50_000
    assert notes(nodes) == before


def test_with_everything_left_open(nodes, near, channel):
    ended = run(
        JOIN
        + """
import asyncio

async def handle(event):
    await asyncio.sleep(60)

entered = threading.Event()
def stuck(event):
    entered.set()
    threading.Event().wait(60)

pushed, pulled, coroutine = channel.subscribe(stuck), channel.subscribe(), channel.subscribe(handle)
threading.Thread(target=lambda: pulled.get(), daemon=True).start()
producer = channel.producer()
delivery = producer.deliver("x")
producer.publish("y")
assert entered.wait(10)
print("done", flush=True)
        """,
        nodes.address,
        channel.name,
    )
    assert ended.code == 0, ended.output
    assert ended.seconds_after_last_line < 8
    assert "Traceback" not in ended.output


def test_with_a_consumer_that_takes_nothing(nodes, near, channel):
    """It drains for 5 s at most; a full window is not waited for, since what is in it has arrived."""
    ask(near, lambda party: party.kept.update(subscription=channel.subscribe()))
    ended = run(
        JOIN
        + """
producer = channel.producer(overflow="raise")
try:
    while True:
        producer.publish(bytes(1 << 20))
except ec.Overloaded:
    print("done", flush=True)
        """,
        nodes.address,
        channel.name,
    )
    assert ended.code == 0, ended.output
    assert ended.seconds_after_last_line < 8


def test_an_exception_ends_it_as_well(nodes, channel):
    inbox = Inbox()
    with channel.subscribe(inbox):
        ended = run(
            JOIN + "channel.producer().publish('last words')\nprint('done', flush=True)\nraise SystemExit(3)",
            nodes.address,
            channel.name,
        )
        assert ended.code == 3, ended.output
        assert inbox.wait(1) == ["last words"]


def test_classes_of_main(nodes, channel, near):
    """A class of the script itself arrives as what it is in actors, and comes back as the script's own."""
    ended = run(
        JOIN
        + """
import dataclasses, enum

class Side(enum.Enum):
    BUY = 1

@dataclasses.dataclass
class Trade:
    side: Side
    def price(self): return 42

def relay(party, channel, answers):
    subscription = party.kept["subscription"] = channel.subscribe()

def forward(party, answers):
    trade = party.kept["subscription"].get(timeout=20)
    with answers.producer() as producer:
        producer.publish((trade, trade.price(), trade.side.name))

answers = ec.channel(sys.argv[2] + "-answers")
actor = PartyActor.remote()
ask(actor, relay, channel, answers)
with answers.subscribe() as subscription, channel.producer() as producer:
    producer.publish(Trade(Side.BUY))
    ask(actor, forward, answers)
    trade, price, name = subscription.get(timeout=20)
assert type(trade) is Trade and trade.side is Side.BUY and (price, name) == (42, "BUY")
print("done", flush=True)
        """,
        nodes.address,
        channel.name,
    )
    assert ended.code == 0, ended.output


def test_fork(nodes, near, channel):
    """The child of a fork works by itself, or fails in an orderly way; its parent notices nothing."""
    ray.get(near.consume.remote(channel))
    ended = run(
        JOIN
        + """
import multiprocessing
inbox = Inbox()
subscription = channel.subscribe(inbox)
async def coroutine(event): inbox(event)
other = channel.subscribe(coroutine)
producer = channel.producer()
for number in range(500):
    producer.publish(number)
producer.drain(20)

def child(outcomes):
    for name, call in {
        "publish": lambda: producer.publish("from the child"),
        "drain": lambda: producer.drain(1),
        "get": lambda: producer.deliver(1),
    }.items():
        try:
            call()
            outcomes.put((name, "worked"))
        except ec.EChannelError as error:
            outcomes.put((name, type(error).__name__))
    with channel.producer() as mine:  # joins anew
        mine.publish("child's own")
    outcomes.put(("own", "worked"))

context = multiprocessing.get_context("fork")
stop = threading.Event()
def busy():
    while not stop.is_set():
        producer.publish("busy")
thread = threading.Thread(target=busy)
thread.start()
for _ in range(3):
    outcomes = context.Queue()
    process = context.Process(target=child, args=[outcomes])
    process.start()
    got = [outcomes.get(timeout=20) for _ in range(4)]
    process.join(20)
    assert process.exitcode == 0, process.exitcode
    assert got[-1] == ("own", "worked") and {kind for _, kind in got[:3]} == {"Closed"}, got
stop.set()
thread.join(20)
producer.publish("end")
producer.drain(20)
subscription.drain(20)
assert inbox.items.count("child's own") == 6 and "from the child" not in inbox.items
assert producer.deliver("delivered").result(20).consumers == 3
print("done", flush=True)
        """,
        nodes.address,
        channel.name,
    )
    assert ended.code == 0, ended.output
    assert ended.seconds_after_last_line < 8


def test_ray_shut_down_and_started_again():
    """In one driver process, which starts Ray itself and never calls `connect`."""
    ended = run(
        """
for turn in range(2):
    inbox = Inbox()
    channel = ec.channel("x")  # starts Ray, the first time
    subscription = channel.subscribe(inbox)
    pulled = channel.subscribe()
    producer = channel.producer()
    producer.publish(turn)
    assert pulled.get(timeout=10) == turn and inbox.wait(1) == [turn]
    ray.shutdown()
    began = time.monotonic()
    for call in (
        lambda: producer.publish("x"),
        lambda: producer.publish(b"x"),
        producer.drain,
        lambda: pulled.get(timeout=20),
    ):
        try:
            call()
        except ec.EChannelError as error:
            assert isinstance(error, (ec.Disconnected, ec.Closed)), error
        else:
            raise AssertionError("it should have failed")
    assert time.monotonic() - began < 5
    if turn == 0:
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
print("done", flush=True)
        """,
        finds_no_ray=True,
    )
    assert ended.code == 0, ended.output
    assert ended.seconds_after_last_line < 10


def test_a_driver_that_leaves_ray_and_comes_back(nodes, channel):
    """The cluster goes on meanwhile: what was open stays so."""
    inbox = Inbox()
    with channel.subscribe(inbox):
        ended = run(
            JOIN
            + """
producer = channel.producer()
producer.publish("before")
ray.shutdown()
ray.init(address=sys.argv[1], log_to_driver=False)
producer.publish("after")
publish_all(None, ec.channel(sys.argv[2]), ["again"])
print("done", flush=True)
            """,
            nodes.address,
            channel.name,
        )
        assert ended.code == 0, ended.output
        assert sorted(inbox.wait(3)) == ["after", "again", "before"]


def test_the_directory_is_private(nodes):
    for node in nodes.nodes:
        path = Path(SocketDirectory("default", node_number(node.node_id)))
        assert path.stat().st_mode & 0o777 == 0o700
