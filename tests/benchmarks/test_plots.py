"""What is drawn, and how."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from echannel_ray.benchmarks.harness.rows import Figure, Row, skipped
from echannel_ray.benchmarks.harness.samples import Samples
from echannel_ray.benchmarks.panels import Line, panels
from tests.benchmarks.made import rates, seconds

FIGURE = Figure("sizes", "Rate by size", "bytes", "events/s", log_x=True, log_y=True)
SIZES = (10, 1004, 100_004)


def rows(placements: tuple[str, ...] = ("one",), series: str = "echannel_ray") -> list[Row]:
    """Points of a rate that falls with the size, against two baselines."""
    return [
        Row(
            *("publish", placement, rates(1e6 / size * place), against, rates(5e5 / size)),
            figure="sizes",
            x=size,
            series=series,
        )
        for place, placement in enumerate(placements, 1)
        for size in SIZES
        for against in ("pyzmq", "NATS")
    ]


def test_lines_are_ours_and_the_baselines():
    (panel,) = panels([FIGURE], [*rows(), Row("other", "one", rates(1.0)), skipped("Zenoh", "not installed")])
    assert panel.lines == [
        Line("echannel_ray", True, [(size, 1e6 / size) for size in SIZES]),
        Line("pyzmq", False, [(size, 5e5 / size) for size in SIZES]),
        Line("NATS", False, [(size, 5e5 / size) for size in SIZES]),
    ]
    assert panel.file_name("fanout") == "fanout-sizes.svg"


def test_placements_that_collide_have_a_plot_each():
    one, two = panels([FIGURE], rows(("one", "two")))
    assert one.lines[0].points[0] == (10.0, 1e5)
    assert two.lines[0].points[0] == (10.0, 2e5)
    assert (two.figure.title, two.file_name("fanout")) == ("Rate by size (two cores)", "fanout-sizes-two.svg")


def test_series_that_name_their_placement_share_a_plot():
    apart = [*rows(series="on one core"), *rows(("two",), series="on two cores")]
    (panel,) = panels([FIGURE], apart)
    assert [line.label for line in panel.lines if line.is_ours] == ["on one core", "on two cores"]


def test_nothing_is_overwritten_in_one_placement_either():
    (panel,) = panels([FIGURE], [Row(name, "", rates(value), figure="sizes") for name, value in (("a", 1), ("b", 2))])
    assert [(line.label, line.points) for line in panel.lines] == [
        ("echannel_ray, a", [(0.0, 1)]),
        ("echannel_ray, b", [(0.0, 2)]),
    ]


def test_a_figure_without_points_is_not_drawn_and_one_that_was_not_declared_is():
    (panel,) = panels([FIGURE], [Row("m", "", rates(1.0), figure="new one")])
    assert panel.file_name("fanout") == "fanout-new-one.svg"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("by size", "sinks-by-size.svg"),
        ("sinks-null", "sinks-null.svg"),
        ("sinks", "sinks-figure.svg"),
        ("../../x", "sinks-x.svg"),
    ],
)
def test_names_of_files(name, file):
    (panel,) = panels([], [Row("m", "", rates(1.0), figure=name)])
    assert panel.file_name("sinks") == file


class TestDrawing:
    @pytest.fixture(autouse=True)
    def _matplotlib(self):
        pytest.importorskip("matplotlib")

    def drawn(self, figure: Figure, points: list[Row]) -> bytes:
        from echannel_ray.benchmarks.plots import draw

        (panel,) = panels([figure], points)
        return draw(panel)

    def test_the_names_are_texts_of_the_svg(self):
        root = ElementTree.fromstring(self.drawn(FIGURE, rows()))
        texts = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
        assert {"echannel_ray", "pyzmq", "NATS", "Rate by size", "bytes", "events/s", "1 k", "100 k"} <= texts

    def test_hostile_names_stay_text(self):
        hostile = '<script>alert("1")</script> & $x^2$'
        root = ElementTree.fromstring(self.drawn(FIGURE, rows(series=hostile)))
        assert hostile in {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}

    def test_equal_rows_give_equal_bytes(self):
        assert self.drawn(FIGURE, rows()) == self.drawn(FIGURE, rows())

    def test_times_have_their_units(self):
        points = [Row("m", "", seconds(value * 1e-6), figure="sizes", x=value) for value in (100, 200, 300)]
        text = self.drawn(Figure("sizes", "t", "x", "y"), points).decode()
        assert "100 µs" in text
        assert ">0 s<" in text  # linear axes begin at nothing

    def test_figures_without_a_unit_have_no_thousandths(self):
        points = [Row("m", "", Samples("x", False, [value]), figure="sizes", x=value) for value in (0.2, 0.4, 0.6)]
        text = self.drawn(Figure("sizes", "t", "x", "y"), points).decode()
        assert ">0.4<" in text
        assert " m<" not in text

    def test_one_point_and_nothings_can_be_drawn(self):
        assert self.drawn(FIGURE, [Row("m", "", rates(1.0), figure="sizes", x=1)])
        assert self.drawn(FIGURE, [Row("m", "", rates(0.0), figure="sizes", x=0)])

    def test_more_lines_than_looks_can_be_drawn(self):
        many = [
            Row("m", "", rates(2.0), f"baseline {number}", rates(number + 1.0), figure="sizes", x=x)
            for number in range(20)
            for x in (1, 2)
        ]
        drawn = self.drawn(FIGURE, many).decode()
        assert len(set(re.findall(r"stroke-dasharray: [^;]+; stroke-dashoffset: 0; stroke: #\w+", drawn))) >= 20

    def test_contrasts(self):
        from echannel_ray.benchmarks.plots import COLOURS, INK, PAPER

        for ink, paper in zip(INK, PAPER, strict=True):
            assert contrast(ink, paper) >= 4.5
            assert all(contrast(colour, paper) >= 3 for colour in COLOURS)

    def test_dark_pages_replace_every_colour_but_the_lines(self):
        from echannel_ray.benchmarks.plots import COLOURS, GRID, INK, PAPER

        text = self.drawn(FIGURE, rows()).decode()
        css, _, body = text.partition("</style>")
        assert "prefers-color-scheme: dark" in css
        used = set(re.findall(r"(?:fill|stroke): (#\w+)", body))
        assert used <= {*COLOURS, INK[0], PAPER[0], GRID[0]}
        assert all(dark in css for dark in (INK[1], PAPER[1], GRID[1]))


def contrast(one: str, other: str) -> float:
    """As WCAG defines it."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    """As WCAG defines it, of #rrggbb."""
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
