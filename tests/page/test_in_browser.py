"""The page in Chromium, on two nodes under load."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import psutil
import pytest
import ray
from selenium.webdriver.common.keys import Keys

import echannel_ray as ec
from echannel_ray.modulators import EveryNth
from tests.clusters import wait_until
from tests.faults.scene import kill
from tests.page.conftest import NAMESPACE
from tests.page.serving import TOKEN, Server

HOSTILE = (
    '"><img src=x onerror="window.hacked=1">',
    "<script>window.hacked=2<",
    "__proto__",
    "javascript:window.hacked=3",
    "a%2Fb/#/channel/x?&amp;'",
    "right\u202eto left",
    "x" * 255,
)
INTRUDERS = "return [typeof window.hacked, document.images.length, document.scripts.length]"
EVENT = {"<img src=x onerror='window.hacked=4'>": "</code></li><script>window.hacked=5</script>\u202e\x1b[31m"}


class Load:
    """What runs meanwhile."""

    def __init__(self, scene: Any) -> None:
        first, second = scene.cluster.nodes
        self.channel = ec.channel("trades", namespace=NAMESPACE)
        self.consumers = [scene.consumer(second, "trades"), scene.consumer(first, "trades")]
        self.producers = [scene.load(first, 1, "trades", burst=5), scene.load(second, 2, "trades", burst=2)]
        self.derived = self.channel.subscribe(lambda event: None, modulator=EveryNth(10))
        self.hostile = [ec.channel(name, namespace=NAMESPACE) for name in HOSTILE]


@pytest.fixture(scope="module")
def load(scene):
    return Load(scene)


@pytest.fixture
def page(load, viewer):
    return viewer


def number(text: str) -> int:
    """1,234 events"""
    return int(text.split()[0].replace(",", ""))


def delivered_of(stats: ec.ChannelStats) -> int:
    """To all that listen, also to what is derived."""
    return stats.events_delivered + sum(each.events_delivered for each in stats.derived.values())


def open_channel(page: Any, name: str) -> None:
    script = "for (const a of document.querySelectorAll('.channels a')) if (a.textContent === arguments[0]) a.click()"
    wait_until(lambda: page.row(name))
    page.run(script, name)
    wait_until(lambda: page.text("h1") == name)


def test_figures_are_true_while_load_runs_and_after(page, load):
    open_channel(page, "trades")
    for _ in range(3):
        before = load.channel.stats()
        shown = number(page.figure("Published"))
        wait_until(lambda: number(page.figure("Published")) not in (shown, 0))  # noqa: B023
        published, delivered = number(page.figure("Published")), number(page.figure("Delivered"))
        after = load.channel.stats()
        assert published <= after.events_published
        assert delivered <= delivered_of(after)
        wait_until(lambda: number(page.figure("Published")) >= before.events_published)  # noqa: B023
    assert "flowing" in page.text(".level")
    # By what each chart says of itself, there is something to see on it.
    labels = page.run("return [...document.querySelectorAll('svg.chart')].map(e => e.getAttribute('aria-label'))")
    assert [label.split(":")[0] for label in labels] == ["Events", "Latency", "Packing degree"]
    wait_until(lambda: "now \u2013" not in page.find("svg.chart").get_attribute("aria-label"))
    ray.get([producer.stop.remote() for producer in load.producers])
    stats = load.channel.stats()
    wait_until(lambda: number(page.figure("Published")) == stats.events_published)
    wait_until(lambda: number(page.figure("Delivered")) == delivered_of(load.channel.stats()))
    (derived,) = load.channel.stats().derived.values()
    assert page.text(".tree li li .name") == "EveryNth"
    wait_until(lambda: number(page.find(".tree .saved").get_attribute("title")) == derived.saved_bytes > 0)


def test_the_map_has_nodes_channels_and_what_is_between(page, scene, load):
    ids = [node.node_id[:8] for node in scene.cluster.nodes]
    wait_until(lambda: sorted(page.texts(".map .node .name")) == sorted(2 * ids))
    assert "EveryNth" in page.texts(".map .channel .name")
    kinds = {kind: len(page.all(f".map .link.{kind}")) for kind in ("produces", "consumes", "derives")}
    assert kinds == {"produces": 2, "consumes": 3, "derives": 1}
    told = [text for text in page.texts("details li") if text.startswith("trades is")]
    assert told
    assert all(f"1 producer on node {each}" in told[0] for each in ids)


def test_back_pressure_is_told_in_words_and_colour(page, scene):
    first, second = scene.cluster.nodes
    slow = scene.consumer(second, "slow", hold=True)
    load = scene.load(first, 9, "slow", size_bytes=100_000, burst=5, pause_seconds=0.1)  # once released it keeps up
    wait_until(lambda: page.row("slow")[1:2] == ["■ blocked"])
    assert "slow" in page.text(".verdict")
    assert "producers wait for a consumer" in page.text(".verdict")
    wait_until(lambda: page.all(".map .link.produces.blocked"))
    ray.get(slow.release.remote())
    wait_until(lambda: page.row("slow")[1:2] == ["● flowing"])
    ray.get(load.stop.remote())


def test_the_table_is_sorted_by_what_is_asked_for(page):
    heading = page.find("thead th:nth-child(1) button")
    heading.click()
    names = page.texts(".channels tbody th")
    assert names == sorted(names)
    assert page.find("thead th:nth-child(1)").get_attribute("aria-sort") == "ascending"
    heading.click()
    assert page.texts(".channels tbody th") == sorted(names, reverse=True)
    page.find("#filter").send_keys("TRAD")
    assert page.texts(".channels tbody th") == ["trades"]


def test_a_concentrator_that_is_killed_comes_back_on_the_page(page, scene, load):
    node = scene.cluster.nodes[1]
    name = f"{NAMESPACE}:concentrator-{node.node_id[:16]}"
    part = scene.concentrator(node)
    row = f"[data-part='{name}']"
    wait_until(lambda: page.text(f"{row} .restarts") == str(part.restarts))
    kill(part.pid)
    wait_until(lambda: page.text(f"{row} .restarts") == str(part.restarts + 1))
    wait_until(lambda: "answers" in page.text(f"{row} .level"))
    wait_until(lambda: page.state() == "Live")
    before = delivered_of(load.channel.stats())
    with load.channel.producer() as producer:
        producer.deliver(b"\x07\0\0\0\x01\0\0\0\0\0\0\0").result(timeout=30)
    open_channel(page, "trades")
    wait_until(lambda: number(page.figure("Delivered")) >= before + 2)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_texts(page, load, name):
    shown = name.replace("\u202e", "\\u{202e}")
    page.run(
        "for (const a of document.querySelectorAll('.channels a')) if (a.textContent === arguments[0]) a.click()", shown
    )
    wait_until(lambda: page.text("h1") == shown)
    assert "idle" in page.text(".level")
    assert page.run("return [typeof window.hacked, document.images.length, document.scripts.length]") == [
        "undefined",
        0,
        1,
    ]
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")


def test_hostile_events_are_texts_and_a_tap_is_a_sample(page, load):
    channel = load.hostile[0]
    open_channel(page, channel.name)
    page.find(".tools button").click()
    wait_until(lambda: page.texts("[role=status]")[-1].startswith("Listening"))
    with channel.producer() as producer:
        for _ in range(200):
            producer.publish(EVENT)
        wait_until(lambda: page.texts(".tap code"))
        (sampled,) = channel.stats().derived.values()
        assert sampled.consumers == 1
        wait_until(lambda: [each.events_in for each in channel.stats().derived.values()] == [200])
        assert [each.events_out for each in channel.stats().derived.values()] < [20]
    assert page.texts(".tap code")[0] == repr(EVENT)
    assert page.run("return [typeof window.hacked, document.images.length, document.scripts.length]") == [
        "undefined",
        0,
        1,
    ]
    page.find(".tools button").click()
    wait_until(lambda: channel.stats().derived == {})  # nothing is sampled any more
    assert page.text(".tools button") == "Start the tap"


def test_a_tap_ends_with_its_viewer(page, load):
    open_channel(page, "trades")
    page.find(".tools button").click()
    wait_until(lambda: len(load.channel.stats().derived) == 2)
    page.driver.get("about:blank")
    wait_until(lambda: len(load.channel.stats().derived) == 1)


def test_a_tap_that_can_not_be_says_why(page, load):
    with load.hostile[2].producer(admission=ec.Admission(tiers=())):
        open_channel(page, "__proto__")
        page.find(".tools button").click()
        wait_until(lambda: page.texts("[role=status]")[-1].startswith("Ended: "))
        assert "isolated" in page.texts("[role=status]")[-1]


def test_by_keyboard_from_the_table_to_a_channel_and_back(page):
    page.driver.refresh()
    wait_until(lambda: page.row("trades"))
    page.press(Keys.TAB)
    assert page.focused() == "Skip to the content"
    page.press(Keys.ENTER)
    assert page.run("return document.activeElement.id") == "main"
    page.tab_to("trades", 200)
    assert page.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.press(Keys.ENTER)
    wait_until(lambda: page.text("h1") == "trades")
    assert page.focused() == "trades"
    page.tab_to("← All channels")
    page.press(Keys.ENTER)
    wait_until(lambda: page.focused() == "Channels")
    assert page.run("return document.activeElement.tagName") == "H2"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["", "trades"], ids=["overview", "channel"])
def test_contrast(page, path, scheme):
    if path:
        open_channel(page, path)
    page.prefer(prefers_color_scheme=scheme)
    assert page.run("return matchMedia('(prefers-color-scheme: dark)').matches") is (scheme == "dark")
    assert page.too_faint() == []


@pytest.mark.parametrize("path", ["", "trades"], ids=["overview", "channel"])
def test_everything_has_a_name_and_a_place(page, path):
    if path:
        open_channel(page, path)
        wait_until(lambda: page.all("svg.chart[aria-label]"))
    found = page.accessible()
    roles = [role for role, _ in found]
    for landmark in ("banner", "navigation", "main", "contentinfo"):
        assert roles.count(landmark) == 1, landmark
    needing = ("button", "link", "combobox", "searchbox", "image", "img", "region", "table", "meter", "figure", "group")
    assert [(role, name) for role, name in found if role in needing and not name] == []
    levels = page.run("return [...document.querySelectorAll('h1,h2,h3')].map(e => Number(e.tagName[1]))")
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip([0, *levels], levels, strict=False))
    tables = page.run("return [...document.querySelectorAll('table')].map(t => [t.caption?.textContent ?? '', "
                      "[...t.querySelectorAll('th')].every(e => e.scope)])")  # fmt: skip
    assert tables
    assert all(caption and scoped for caption, scoped in tables)


@pytest.mark.parametrize("path", ["", "trades"], ids=["overview", "channel"])
def test_it_fits_into_400_pixels(page, path):
    if path:
        open_channel(page, path)
    page.resize(400)
    wait_until(lambda: page.run("return document.documentElement.scrollWidth") <= 400)


def test_nothing_moves_for_who_does_not_want_it(page, scene):
    load = scene.load(scene.cluster.nodes[0], 3, "trades")
    motion = "return getComputedStyle(document.querySelector('.link.produces.moves')).animationName"
    wait_until(lambda: page.all(".link.produces.moves"))
    assert page.run(motion) == "flow"
    page.prefer(prefers_reduced_motion="reduce")
    assert page.run(motion) == "none"
    ray.get(load.stop.remote())


def test_when_ray_is_lost_the_page_says_so_and_comes_back(page, server):
    (looker,) = server.lookers()
    looker.send_signal(signal.SIGKILL)
    wait_until(lambda: "has ended" in page.state())
    wait_until(lambda: page.state() == "Live")
    assert page.row("trades")


def test_when_the_server_is_restarted_the_page_says_so_and_comes_back(viewer, scene, server):
    other = Server(scene.cluster.address, NAMESPACE)
    page = viewer
    page.driver.get(f"{other.url}?token={TOKEN.replace(' ', '+')}")
    wait_until(lambda: page.state() == "Live")
    port = int(other.url.rstrip("/").rpartition(":")[2])
    (looker,) = other.lookers()
    assert other.end() == 0
    wait_until(lambda: not looker.is_running() or looker.status() == psutil.STATUS_ZOMBIE)
    wait_until(lambda: page.state().startswith("Connection lost, trying again. The figures are from"))
    other = Server(scene.cluster.address, NAMESPACE, port)
    try:
        wait_until(lambda: page.state() == "Live")
    finally:
        other.end()
    page.complaints()  # of the browser, that nobody answered


def test_logging_in(viewer, server):
    page = viewer
    page.driver.delete_all_cookies()
    page.driver.get(server.url)
    assert page.text("h1") == "Event channels"
    page.find("#token").send_keys("wrong", Keys.ENTER)
    wait_until(lambda: page.text("[role=alert]") == "That is not the token.")
    assert page.accessible().count(("textbox", "Token")) == 1
    page.find("#token").send_keys(TOKEN, Keys.ENTER)
    wait_until(lambda: page.text("#state") == "Live")
    assert page.driver.current_url == server.url
    assert page.run("return document.cookie") == ""
    assert [complaint for complaint in page.complaints() if "401" not in complaint] == []


def test_what_the_command_prints(scene):
    server = Server(scene.cluster.address, NAMESPACE)
    assert json.loads(json.dumps(server.url)).startswith("http://127.0.0.1:")
    listening = psutil.Process(server.process.pid).net_connections("inet")
    assert {each.laddr.ip for each in listening if each.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
    os.kill(server.process.pid, signal.SIGINT)
    assert server.process.wait(timeout=30) == 130
