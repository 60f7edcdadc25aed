"""Debian's Chromium, headless, and what tests ask of a page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.clusters import wait_until

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--window-size=1280,1000",
)  # fmt: skip

# Texts with their colours and what is behind them, of all that can be seen.
_COLOURS = """
const seen = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const text = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
  if (!text || !element.checkVisibility({visibilityProperty: true})) continue;
  if (element.closest('.visually-hidden, title')) continue;
  const style = getComputedStyle(element), inDrawing = element instanceof SVGElement;
  let behind = null;
  const box = inDrawing && element.closest('.box');
  if (box) behind = getComputedStyle(box.querySelector('rect')).fill;
  for (let each = element; each && !behind; each = each.parentElement) {
    const colour = getComputedStyle(each).backgroundColor;
    if (colour !== 'rgba(0, 0, 0, 0)') behind = colour;
  }
  seen.push([text, inDrawing ? style.fill : style.color, behind]);
}
return seen;
"""


@contextmanager
def chromium(profile: Path) -> Iterator[webdriver.Chrome]:
    """A browser with an empty profile, until the end."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


class Viewer:
    """Who looks at the page."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver = driver
        self.url = url

    def go(self, path: str = "#/") -> None:
        """To a part of the page, when it has figures."""
        self.driver.get(self.url + path)
        wait_until(lambda: self.state() == "Live")

    def state(self) -> str:
        """What the line at the top says."""
        return self.text("#state")

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements("css selector", selector)

    def text(self, selector: str) -> str:
        """As it is in the document; an element may be replaced meanwhile."""
        return str(self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector))

    def texts(self, selector: str) -> list[str]:
        return list(self.run("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector))

    def figure(self, name: str) -> str:
        """Of a channel's page."""
        return self.text(f"[data-figure='{name}']")

    def row(self, channel: str) -> list[str]:
        """A line of the table, cell by cell; nothing where there is none."""
        script = """for (const row of document.querySelectorAll('.channels tbody tr'))
          if (row.children[0].textContent === arguments[0]) return [...row.children].map(cell => cell.textContent);
          return []"""
        return list(self.run(script, channel))

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def focused(self) -> str:
        """The name of what has the focus."""
        return str(
            self.run("return document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent")
        )

    def tab_to(self, name: str, most: int = 60) -> None:
        """Press Tab until it is reached."""
        for _ in range(most):
            self.press(Keys.TAB)
            if self.focused() == name:
                return
        raise AssertionError(f"{name!r} was not reached by {most} times Tab")

    def prefer(self, **features: str) -> None:
        """Media features: prefers_color_scheme="dark", say."""
        wanted = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})

    def resize(self, width: int, height: int = 900) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def complaints(self) -> list[str]:
        """What the console has got since the last time."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def accessible(self) -> list[tuple[str, str]]:
        """Roles and names, as a screen reader has them."""
        tree = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        shown = [node for node in tree if not node["ignored"]]
        return [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in shown]

    def too_faint(self, least: float = 4.5) -> list[tuple[str, float]]:
        """Texts with less contrast than that."""
        found = [(text, contrast(_rgb(fore), _rgb(behind))) for text, fore, behind in self.run(_COLOURS)]
        assert len(found) > 20
        return [(text, ratio) for text, ratio in found if ratio < least]


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """As WCAG defines it: from 1 to 21."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(rgb: tuple[float, ...]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _rgb(text: str) -> tuple[float, ...]:
    numbers = text[text.index("(") + 1 : -1].split(",")
    return tuple(float(number) / 255 for number in numbers[:3])
