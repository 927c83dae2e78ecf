# SPDX-License-Identifier: Apache-2.0
"""Roots of random chains: the stated accuracy, the slack between neighbours, exact inverses."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.domain.domain import Domain
from sfumato.solve.tridiagonal import Chain, inverse_fourth_root
from sfumato.strategy.one_attribute.ordered import GRID_BITS, Points, Rooted, column_bounds

SOME = st.floats(1e-3, 1e3)


@st.composite
def rooted(draw: st.DrawFn) -> Rooted:
    n = draw(st.integers(2, 12))
    links = np.array(draw(st.lists(SOME, min_size=n - 1, max_size=n - 1)))
    mass = np.array(draw(st.lists(SOME, min_size=n, max_size=n)))
    ground = np.zeros(n)
    ground[-1] = draw(SOME)
    ground[0] = draw(st.sampled_from([0.0, 0.7]))
    chain = Chain(links, ground)
    spread = np.linalg.eigvalsh(chain.dense() / np.sqrt(np.outer(mass, mass)))
    root = inverse_fourth_root(max(float(spread[0]), spread[-1] * 1e-14), float(spread[-1]))
    return Rooted(Domain({"x": n}), "root", 1.0, "x", (), chain, mass, root)


def exact_matrix(term: Rooted) -> list[list[object]]:
    """M in balls of 400 bits, from the floats that define it."""
    from flint import arb, arb_mat

    n = term.chain.nodes
    total = arb_mat(n, n)
    for s, c in zip(term.root.shifts, term.root.weights, strict=True):
        shifted = arb_mat(n, n)
        for i in range(n):
            shifted[i, i] = arb(float(s)) * arb(float(term.mass[i])) + arb(
                float(term.chain.ground[i])
            )
        for i, b in enumerate(term.chain.links):
            link = arb(float(b))
            shifted[i, i] += link
            shifted[i + 1, i + 1] += link
            shifted[i, i + 1] -= link
            shifted[i + 1, i] -= link
        total += shifted.inv() * arb(float(c))
    width = np.sqrt(term.mass)
    return [[total[i, j] * arb(float(width[i])) for j in range(n)] for i in range(n)]


@settings(max_examples=40, deadline=None)
@given(rooted(), st.data())
def test_two_tables_are_no_farther_apart_than_the_slack_allows(
    term: Rooted, data: st.DataObject
) -> None:
    """Claim 1 of docs/proofs/rational-root.md, in balls of 400 bits."""
    from flint import arb, ctx

    n = term.chain.nodes
    cells = st.lists(st.integers(0, 2**40), min_size=n, max_size=n)
    first, second = np.array(data.draw(cells)), np.array(data.draw(cells))
    moved = [int(a) - int(b) for a, b in zip(term.apply(first), term.apply(second), strict=True)]
    with ctx.workprec(400):
        apart = arb(0)
        for row, steps in zip(exact_matrix(term), moved, strict=True):
            exact = sum((m * int(d) for m, d in zip(row, first - second, strict=True)), arb(0))
            apart += (arb(steps) / 2**GRID_BITS - exact) ** 2
        assert apart <= arb(term.slack) ** 2


@settings(max_examples=40, deadline=None)
@given(rooted())
def test_column_bounds_are_never_below_the_exact_norms(term: Rooted) -> None:
    """Claim 2 of docs/proofs/rational-root.md."""
    from flint import ctx

    bounds = column_bounds(term.chain, term.mass, term.root)
    with ctx.workprec(400):
        matrix = exact_matrix(term)
        for j, bound in enumerate(bounds):
            norm = sum(row[j] ** 2 for row in matrix)
            assert norm <= float(bound)
            assert float(bound) <= norm * (1 + 2.0**-36)


@settings(max_examples=40, deadline=None)
@given(rooted(), st.data())
def test_running_totals_of_measured_cells_are_those_of_the_cells(
    term: Rooted, data: st.DataObject
) -> None:
    n = term.chain.nodes
    cells = np.array(data.draw(st.lists(st.integers(0, 10**6), min_size=n, max_size=n)), float)
    found = Points(term.chain, term.mass, term.root).running_totals(term.apply(cells))
    expected = np.concatenate([[0.0], np.cumsum(cells)])
    np.testing.assert_allclose(found, expected, atol=1e-9 * (1 + expected[-1]))
