"""Panels as SVG, for print and for bright and dark pages: each line has its own marker, dash pattern and colour.

An SVG follows the reader's colour scheme by itself, background included. (On a transparent one no grey would do: none
has a contrast of 4.5 to white and to the black of dark pages.)
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from itertools import cycle
from typing import TYPE_CHECKING

from echannel_ray.benchmarks import extras
from echannel_ray.benchmarks.panels import Line, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.ticker import Formatter

# As drawn, and instead on dark pages. The lines' colours do on both.
INK, PAPER, GRID = ("#24292f", "#e6edf3"), ("#ffffff", "#0d1117"), ("#d0d7de", "#30363d")
COLOURS = ("#0969da", "#bc4c00", "#1a7f37", "#8250df", "#bf3989", "#9a6700", "#1b7c83", "#6e7781")
MARKERS = "osD^vPX<"
BASELINE_DASHES = ((0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (6, 2, 1, 2, 1, 2)), (0, (10, 3)))
STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "echannel_ray",  # else each run gives other ids
    "text.parse_math": False,  # a name with dollars is a name
    "font.size": 10,
    "text.color": INK[0],
    "axes.labelcolor": INK[0],
    "axes.edgecolor": INK[0],
    "xtick.color": INK[0],
    "ytick.color": INK[0],
    "grid.color": GRID[0],
    "figure.facecolor": PAPER[0],
    "axes.facecolor": PAPER[0],
    "axes.spines.top": False,
    "axes.spines.right": False,
}
MAX_TICKS = 12
LEGEND_COLUMNS = 2
MANY_DECADES = 1e4


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return extras.is_installed("matplotlib")


def draw(panel: Panel) -> bytes:
    """The SVG; equal panels give equal bytes."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context([STYLE], after_reset=True):
        height = 3.6 + 0.22 * math.ceil(len(panel.lines) / LEGEND_COLUMNS)
        canvas = Figure(figsize=(7, height), layout="constrained")
        axes = canvas.subplots()
        _draw_lines(axes, panel.lines)
        _label(axes, panel)
        canvas.legend(loc="outside lower center", ncols=LEGEND_COLUMNS, frameon=False, fontsize=9, handlelength=4)
        buffer = io.BytesIO()
        canvas.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Title": panel.figure.title})
    return _with_dark_colours(buffer.getvalue().decode()).encode()


def _draw_lines(axes: Axes, lines: list[Line]) -> None:
    ours_first = sorted(lines, key=lambda line: not line.is_ours)  # so that we look the same in all plots
    looks = dict(zip((line.label for line in ours_first), cycle(zip(MARKERS, COLOURS, strict=False)), strict=False))
    dashes = cycle(BASELINE_DASHES)
    # From top to bottom, as they end: the legend has them in the same order.
    for line in sorted(lines, key=lambda line: -line.points[-1][1]):
        marker, colour = looks[line.label]
        axes.plot(
            *zip(*line.points, strict=True),
            label=line.label,
            color=colour,
            marker=marker,
            markersize=6,
            linestyle="-" if line.is_ours else next(dashes),
            linewidth=2.2 if line.is_ours else 1.4,
            markerfacecolor=colour if line.is_ours else PAPER[0],
            clip_on=False,
        )


def _label(axes: Axes, panel: Panel) -> None:
    from matplotlib import ticker

    figure = panel.figure
    axes.set_title(figure.title, loc="left", fontsize=11, wrap=True)
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    places = sorted({x for line in panel.lines for x, _ in line.points})
    heights = [y for line in panel.lines for _, y in line.points]
    has_log_x = figure.log_x and places[0] > 0  # nothing has no logarithm
    if has_log_x:
        axes.set_xscale("log")
    if figure.log_y and min(heights) > 0:
        axes.set_yscale("log")
        lowest, highest = axes.get_ylim()
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if highest < MANY_DECADES * lowest else (1,)))
        axes.yaxis.set_minor_locator(ticker.NullLocator())
    else:
        axes.set_ylim(bottom=0)
    if has_log_x and len(places) <= MAX_TICKS:
        axes.xaxis.set_major_locator(ticker.FixedLocator(places))
        axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.xaxis.set_major_formatter(_ticks(places, ""))
    axes.yaxis.set_major_formatter(_ticks(heights, {"s": "s", "bytes": "B"}.get(panel.unit, "")))


def _ticks(values: Iterable[float], unit: str) -> Formatter:
    """`20 k` and `20 µs`; but no thousandths of what has no unit."""
    from matplotlib import ticker

    if not unit and max(values) < 1000:
        return ticker.StrMethodFormatter("{x:g}")
    engineers = ticker.EngFormatter(unit)
    return ticker.FuncFormatter(lambda value, _: engineers(float(f"{value:.3g}")))  # 1 k for 1,004


def _with_dark_colours(drawn: str) -> str:
    """Rules that say `!important` win over the style that each element has; programs that know no CSS ignore them."""
    rules = [
        f'[style*="{kind}: {bright}"] {{ {kind}: {dark} !important }}'
        for bright, dark in (INK, PAPER, GRID)
        for kind in ("fill", "stroke")
    ]
    css = f"<style>@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}</style>"
    return drawn.replace("</metadata>", f"</metadata>\n {css}", 1)
