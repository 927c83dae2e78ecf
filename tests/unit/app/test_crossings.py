# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from sfumato.app.comparison import Point
from sfumato.app.crossings import crossings

XS = [0.1 * 10 ** (i / 5) for i in range(11)]  # 0.1 to 10


def test_two_lines_cross_where_they_are_equal() -> None:
    points = [Point("flat", x, 2.0) for x in XS] + [Point("falling", x, 3 / x) for x in XS]
    (found,) = crossings(points)
    assert (found.before, found.after) == ("flat", "falling")
    assert found.at == pytest.approx(1.5)
    assert found.error == pytest.approx(2.0)


def test_only_changes_of_the_best_count() -> None:
    """The two worse lines cross as well."""
    points = [Point("best", x, 0.1) for x in XS]
    points += [Point("flat", x, 2.0) for x in XS] + [Point("falling", x, 3 / x) for x in XS]
    assert crossings(points) == ()


def test_a_third_line_between_two_points_is_found() -> None:
    points = [Point("a", x, x) for x in (1.0, 100.0)] + [Point("b", x, 10.0) for x in (1.0, 100.0)]
    points += [Point("c", 1.0, 30.0), Point("c", 100.0, 1.0)]
    found = crossings(points)
    assert [(c.before, c.after) for c in found] == [("a", "c")]
    # ln x = ln 30 - ln x ln 30 / ln 100
    assert found[0].at == pytest.approx(30 ** (1 / (1 + 0.7385606)), rel=1e-3)


def test_lines_that_run_together_do_not_cross() -> None:
    points = [Point("a", x, 1 / x) for x in XS]
    points += [Point("b", x, (1 + 1e-9 * (-1) ** i) / x) for i, x in enumerate(XS)]
    assert crossings(points) == ()


def test_a_line_that_begins_later_is_waited_for() -> None:
    points = [Point("a", x, 5.0) for x in XS] + [Point("b", x, 1 / x) for x in XS[4:]]
    assert crossings(points)[0].after == "b"
    assert crossings([]) == ()
