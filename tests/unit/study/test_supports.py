# SPDX-License-Identifier: Apache-2.0
"""Bounds on the score of one record against all cells and against a linear program."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, nnls

import sfumato as sf
from sfumato.errors import WorkloadError
from sfumato.refine.local_consistency import project_locally
from sfumato.refine.reconstruct import fit_answers
from sfumato.refine.residuals import maximal
from sfumato.study.supports import row_certificate, support_bound

DOMAIN = sf.Domain({"a": 3, "b": 2, "c": 4, "d": 3})
TREE = [("a", "b"), ("b", "c"), ("b", "d")]
PAIRS = list(combinations(DOMAIN.names, 2))
TRIPLES = list(combinations(DOMAIN.names, 3))


def every_score(domain, scores):
    """The sum for every cell, all cells at once."""
    total = np.zeros(domain.shape)
    for names, table in scores.items():
        kept = [n if a in names else 1 for a, n in zip(domain.names, domain.shape, strict=True)]
        total = total + np.asarray(table).reshape(kept)
    return total


def random_scores(sets, seed, domain=DOMAIN):
    rng = np.random.default_rng(seed)
    return {s: rng.normal(size=[domain[a].size for a in s]) for s in sets}


def by_linear_program(scores, domain=DOMAIN):
    """The greatest score over tables of total 1 that agree pair by pair."""
    tops = maximal(scores)
    shape = {s: [domain[a].size for a in s] for s in tops}
    ends = np.cumsum([0, *(int(np.prod(shape[s])) for s in tops)])
    place = {s: slice(ends[i], ends[i + 1]) for i, s in enumerate(tops)}

    def summing(whole, part):
        cells = np.indices(shape[whole]).reshape(len(whole), -1)
        kept = [whole.index(a) for a in part]
        sizes = [shape[whole][i] for i in kept]
        codes = (
            np.ravel_multi_index(cells[kept], sizes)
            if kept
            else np.zeros(cells.shape[1], dtype=int)
        )
        return np.equal.outer(np.arange(int(np.prod(sizes))), codes).astype(float)

    rows, right = [], []
    for s in tops:
        row = np.zeros((1, ends[-1]))
        row[0, place[s]] = 1
        rows.append(row)
        right.append(1.0)
    for s, t in combinations(tops, 2):
        shared = tuple(a for a in s if a in t)
        row = np.zeros((len(summing(s, shared)), ends[-1]))
        row[:, place[s]] += summing(s, shared)
        row[:, place[t]] -= summing(t, shared)
        rows.append(row)
        right += [0.0] * len(row)
    costs = np.concatenate([scores[s].ravel() for s in tops])
    return -linprog(-costs, A_eq=np.vstack(rows), b_eq=right).fun


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([PAIRS, TRIPLES, TREE, [*PAIRS, ("a",), ()], [("a", "b", "c"), ("c", "d")]]),
    st.sampled_from([1, 7, 60]),
)
def test_no_cell_scores_above_the_bound_however_few_steps_were_made(seed, sets, steps):
    scores = random_scores(sets, seed)
    found = support_bound(DOMAIN, scores, steps=steps)
    assert found.bound >= every_score(DOMAIN, scores).max()
    # The tables that prove it have the same sum in every cell.
    assert every_score(DOMAIN, found.tables) == pytest.approx(every_score(DOMAIN, scores), abs=1e-9)
    assert sum(t.max() for t in found.tables.values()) == pytest.approx(found.bound)


@pytest.mark.parametrize("seed", range(3))
def test_on_a_tree_the_bound_is_the_greatest_score(seed):
    scores = random_scores(TREE, seed)
    best = every_score(DOMAIN, scores).max()
    assert best <= support_bound(DOMAIN, scores).bound <= best + 1e-3


@pytest.mark.parametrize("sets", [PAIRS, [("a", "b", "c"), ("b", "c", "d"), ("a", "d")]])
def test_elsewhere_it_is_that_of_the_linear_program(sets):
    scores = random_scores(sets, 4)
    best = by_linear_program(scores)
    found = support_bound(DOMAIN, scores, steps=600)
    assert best - 1e-9 <= found.bound <= best + 2e-2


def test_the_search_beats_the_sum_of_greatest_entries():
    scores = random_scores(PAIRS, 5)
    plain = sum(t.max() for t in scores.values())
    assert support_bound(DOMAIN, scores).bound < 0.9 * plain


def test_tables_of_other_sums_would_lie():
    """The broken twin: tables that only have the same mean do not bound the score."""
    scores = random_scores(PAIRS, 6)
    flat = {s: np.full_like(t, t.mean()) for s, t in scores.items()}
    assert sum(t.max() for t in flat.values()) < every_score(DOMAIN, scores).max()


def test_scores_that_are_no_numbers_are_refused():
    with pytest.raises(WorkloadError, match="not a finite number"):
        support_bound(DOMAIN, {("a",): np.array([1.0, np.nan, 0.0])})


def test_constant_scores_and_the_total_alone():
    assert support_bound(DOMAIN, {(): np.array(3.0)}).bound == pytest.approx(3)
    scores = {("a", "b"): np.zeros((3, 2)), ("c",): np.full(4, -2.0)}
    assert support_bound(DOMAIN, scores).bound == pytest.approx(-2, abs=1e-9)


def exact_projection(fit, n):
    """The least f over all histograms, by non-negative least squares with a heavy total."""
    cells = np.eye(DOMAIN.size).reshape(-1, *DOMAIN.shape)
    rows = []
    for part in fit.parts:
        rest = [i for i, a in enumerate(DOMAIN.names) if a not in part.term.attributes]
        tables = cells.sum(axis=tuple(i + 1 for i in rest))
        rows.append(np.stack([part.term.answer(t) for t in tables], axis=1))
    matrix, wanted = np.vstack(rows), np.concatenate([p.values for p in fit.parts])
    heavy = 1e4
    system = np.vstack([matrix, heavy * np.ones(DOMAIN.size)])
    h, _ = nnls(system, np.append(wanted, heavy * n), maxiter=20000)
    h *= n / h.sum()
    return h, 0.5 * float(((matrix @ h - wanted) ** 2).sum()), matrix


def margins(fit, histogram):
    out = {}
    for names in fit.sets:
        rest = tuple(i for i, a in enumerate(DOMAIN.names) if a not in names)
        out[names] = histogram.reshape(DOMAIN.shape).sum(axis=rest)
    return out


@pytest.mark.parametrize("scale", [2.0, 20.0])
def test_the_certificate_of_rows_covers_their_distance_from_the_projection(scale):
    rng = np.random.default_rng(7)
    histogram = rng.multinomial(300, rng.dirichlet(np.full(DOMAIN.size, 0.1))).astype(float)
    work = sf.marginals(DOMAIN, 2)
    exact = [t.answer(margins_of(histogram, t.attributes)) for t in work.terms]
    fit = fit_answers(work, [a + scale * rng.normal(size=a.shape) for a in exact])
    best, least, matrix = exact_projection(fit, 300.0)
    known = project_locally(fit, 300.0)
    for estimate in (histogram, best, np.full(DOMAIN.size, 300 / DOMAIN.size)):
        proved = row_certificate(fit, margins(fit, estimate), 300.0, local=known, steps=100)
        assert proved.lower <= least * (1 + 1e-6)
        assert proved.value - proved.gap <= least * (1 + 1e-6)
        assert np.linalg.norm(matrix @ (estimate - best)) <= proved.distance * (1 + 1e-6) + 1e-3
        assert proved.lower >= known.lower
    # At the projection itself only the difference of the two bodies is left.
    assert row_certificate(fit, margins(fit, best), 300.0, steps=100).gap <= 0.15 * least


def margins_of(histogram, names):
    rest = tuple(i for i, a in enumerate(DOMAIN.names) if a not in names)
    return histogram.reshape(DOMAIN.shape).sum(axis=rest)


def test_without_a_total_the_relaxation_alone_is_the_certificate():
    work = sf.marginals(DOMAIN, 2)
    rng = np.random.default_rng(8)
    fit = fit_answers(work, [rng.normal(10, 5, size=t.rows) for t in work.terms])
    known = project_locally(fit, None)
    guess = np.full(DOMAIN.size, 1.0)
    proved = row_certificate(fit, margins(fit, guess), None)
    assert proved.lower == pytest.approx(known.lower)
    assert proved.distance == pytest.approx(np.sqrt(2 * (proved.value - proved.lower)))


def test_the_separation_oracle_proves_either_side():
    """Against a linear program: a point is in the hull if weights of columns mix to it."""
    rng = np.random.default_rng(5)
    matrix = (rng.random((5, 8)) < 0.5).astype(float)
    inside = outside = 0
    for _ in range(30):
        point = matrix @ rng.dirichlet(np.ones(8) / 2) + rng.normal(0, 0.1, 5) * rng.integers(0, 2)
        mixed = linprog(
            np.zeros(8),
            A_eq=np.vstack([matrix, np.ones(8)]),
            b_eq=[*point, 1],
            bounds=(0, None),
        )
        answer = sf.study.separation_oracle(matrix, point)
        assert answer.is_inside == (mixed.status == 0)
        assert bool(answer) == answer.is_inside
        if answer:
            inside += 1
            columns = matrix[:, answer.cells[:, 0]]
            assert answer.weights.sum() == pytest.approx(1)
            np.testing.assert_allclose(columns @ answer.weights, point, atol=1e-5)
        else:
            outside += 1
            assert np.linalg.norm(answer.normal) == pytest.approx(1)
            assert (answer.normal @ matrix).max() <= answer.offset + 1e-12
            assert answer.normal @ point > answer.offset
            assert answer.margin <= answer.distance + 1e-9
    assert inside >= 5
    assert outside >= 5


def test_the_separation_oracle_takes_workloads_and_tolerances():
    work = sf.marginals(sf.Domain({"a": 3, "b": 4}), 2)
    even = np.full(12, 1 / 12)
    assert sf.study.separation_oracle(work, even)
    away = even + 1e-3 * np.eye(12)[0]
    assert "hyperplane" in repr(sf.study.separation_oracle(work, away))
    assert sf.study.separation_oracle(work, away, tolerance=0.01)
    with pytest.raises(WorkloadError):
        sf.study.separation_oracle(work, [0.5])
