# SPDX-License-Identifier: Apache-2.0
"""Polynomials for conjunctions against every point of the cube."""

from __future__ import annotations

from itertools import combinations, product
from math import comb, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import PlanError
from sfumato.strategy.conjunctions import (
    chebyshev,
    chebyshev_error,
    conjunction,
    gamma_of,
    krawtchouk,
    least_cost,
    mean_square_error,
    shrunk,
    sup_error,
)


def on_the_cube(width: int, coefficients: np.ndarray) -> dict[int, float]:
    """``sum_S c_|S| chi_S`` at every point of the cube, by the number of true literals."""
    found: dict[int, float] = {}
    for point in product([-1, 1], repeat=width):
        value = 0.0
        for level in range(width + 1):
            value += coefficients[level] * sum(
                np.prod([point[i] for i in chosen]) for chosen in combinations(range(width), level)
            )
        true = sum(p == 1 for p in point)
        assert value == pytest.approx(found.setdefault(true, value))
    return found


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_coefficients_on_characters_give_a_function_of_the_true_literals(width: int) -> None:
    c = np.random.default_rng(width).normal(size=width + 1)
    found = on_the_cube(width, c)
    assert krawtchouk(width, c) == pytest.approx([found[s] for s in range(width + 1)])


@pytest.mark.parametrize("width", [0, 1, 4, 9, 20])
def test_the_conjunction_has_all_coefficients(width: int) -> None:
    assert sup_error(width, conjunction(width)) < 1e-9
    assert mean_square_error(width, conjunction(width)) == 0


@pytest.mark.parametrize("width", [2, 3, 8, 16, 30])
def test_chebyshev_polynomials_err_as_the_closed_form_says(width: int) -> None:
    for degree in range(width + 1):
        c = chebyshev(width, degree)
        assert not c[degree + 1 :].any()
        assert sup_error(width, c) <= chebyshev_error(width, degree) + 1e-9
    # The degree grows with the root of the width: 3 sqrt(w) is enough for an error of 1 percent.
    assert chebyshev_error(width, int(np.ceil(3 * sqrt(width)))) < 0.01


def test_linear_programs_are_never_worse_than_chebyshev_polynomials() -> None:
    width, d = 8, 12
    for degree in range(1, width):
        reached = sup_error(width, chebyshev(width, degree))
        costs = np.array([sqrt(comb(d, i) * comb(width, i)) for i in range(width + 1)])
        limited = np.where(np.arange(width + 1) <= degree, costs, np.inf)
        best = least_cost(width, limited, reached)
        assert best is not None
        assert not best[degree + 1 :].any()
        assert sup_error(width, best) <= reached + 1e-6
        assert gamma_of(d, width, best) <= gamma_of(d, width, chebyshev(width, degree)) + 1e-6


def test_an_error_that_the_degree_cannot_reach_is_told() -> None:
    costs = np.array([1.0, 1.0, np.inf, np.inf, np.inf])
    assert least_cost(4, costs, 0.01) is None
    assert least_cost(4, costs, 0.45) is not None
    assert not np.any(least_cost(4, costs, 1.0))


@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_the_mean_square_error_is_that_over_the_cube(width: int, seed: int) -> None:
    c = np.random.default_rng(seed).normal(size=width + 1) * 2.0**-width
    aim = np.zeros(width + 1)
    aim[-1] = 1
    shares = np.array([comb(width, s) for s in range(width + 1)]) / 2**width
    expected = shares @ (krawtchouk(width, c) - aim) ** 2
    assert mean_square_error(width, c) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("tau", [1e-6, 1e-3, 0.1, 10.0])
def test_shrunk_coefficients_are_the_best(tau: float) -> None:
    width, d = 6, 10
    costs = np.array([sqrt(comb(d, i) * comb(width, i)) for i in range(width + 1)])

    def value(c: np.ndarray) -> float:
        return mean_square_error(width, c) + tau * gamma_of(d, width, c) ** 2

    best = shrunk(width, costs, tau)
    rng = np.random.default_rng(3)
    for _ in range(300):
        other = best + rng.normal(size=width + 1) * rng.choice([1e-2, 1e-3, 1e-4]) * 2.0**-width
        assert value(best) <= value(other) + 1e-15
    assert value(best) <= min(value(conjunction(width)), value(np.zeros(width + 1)))


def test_widths_beyond_exact_floats_are_refused() -> None:
    with pytest.raises(PlanError, match="41 literals"):
        chebyshev_error(41, 3)
