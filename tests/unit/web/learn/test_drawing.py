# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from xml.etree import ElementTree

import pytest

from sfumato_web.learn.drawing import Axis, Plot, picture


def test_axes_place_their_ends_and_keep_what_lies_beyond():
    linear, powers = Axis("", -1, 3), Axis("", 1, 10_000, is_log=True)
    assert [linear.place(x) for x in (-1, 1, 3, 99)] == [0, 0.5, 1, 1]
    assert [powers.place(x) for x in (1, 100, 10_000, 1e9)] == [0, 0.5, 1, 1]


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis("", 0, 60), [0, 20, 40, 60]),
        (Axis("", -0.6, 1.6), [-0.5, 0, 0.5, 1, 1.5]),
        (Axis("", 1, 1000, is_log=True), [1, 10, 100, 1000]),
        (Axis("", 0, 8, is_bare=True), []),
    ],
)
def test_ticks_are_round_numbers(axis, ticks):
    assert axis.ticks() == ticks


def test_axes_write_numbers_as_people_do():
    assert Axis("", 0, 1, is_share=True).text(0.00001) == "0.001%"
    assert Axis("", 1, 1e6, is_log=True).text(1e5) == "10⁵"
    assert Axis("", 1, 1e6, is_log=True).text(1000) == "1,000"


def test_words_are_escaped_and_the_picture_is_well_formed():
    plot = Plot(Axis("<x>", 0, 1), Axis('"y" & z', 0, 1))
    plot.line([(0, 0), (1, 1)], "blue", "a < b", "dashed")
    plot.steps([(0, 0), (0.5, 1)], "red")
    plot.dots([(0.5, 0.5)], "gold", look="hollow", name="dots")
    plot.area([(0, 0), (1, 0), (1, 1)], "grey")
    plot.bar((0, 0.5), (0, 1), "violet", "outline")
    plot.rule(x=0.9, name="<here>")
    plot.rule(y=0.1, name="there")
    plot.say((0, 0), "<&>")
    root = ElementTree.fromstring(plot.svg('shows "<this>"'))  # noqa: S314  our own text
    assert root.get("role") == "img"
    assert root.get("aria-label") == 'shows "<this>"'
    words = [e.text for e in root.iter("text")]
    assert {"<x>", '"y" & z', "a < b", "<here>", "<&>"} <= set(words)


def test_a_legend_takes_as_many_rows_as_it_needs():
    def height(names: list[str]) -> float:
        plot = Plot(Axis("", 0, 1), Axis("", 0, 1))
        for name in names:
            plot.name(name, "blue")
        return float(plot.svg("").split('viewBox="0 0 ')[1].split('"')[0].split()[1])

    none, one, two = height([]), height(["short"]), height(["a rather long name " * 2] * 2)
    assert none < one < two


def test_a_picture_says_what_it_shows():
    assert 'aria-label="a &lt; b"' in picture(1, 1, [], "a < b")


def test_a_line_ends_where_it_leaves_the_figure():
    plot = Plot(Axis("", 0, 4), Axis("", 0, 1), left=0, right=0, top=0, bottom=0)
    plot.line([(0, -1), (2, 1), (3, 1), (4, 5)], "blue")
    width, height = plot.width, plot.height
    drawn = plot.svg("").split(' d="')[-1].split('"')[0]
    assert drawn == f"M{width / 4:.1f},{height:.1f}L{width / 2:.1f},0.0L{0.75 * width:.1f},0.0"
