# SPDX-License-Identifier: Apache-2.0
"""Random unions of terms against their dense matrices."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.workload import sensitivity
from sfumato.workload.predicates import canonical_bytes, indicator
from sfumato.workload.sensitivity import greatest_column_power
from sfumato.workload.terms import Predicates
from tests.shared.dense import cells_of, dense_queries, dense_term, dense_workload, holds
from tests.shared.strategies import conditions, counts, domains, query_sets, terms, workloads


def exact_power(work: sf.Workload, scales: list[float], p: int) -> Fraction:
    """The greatest column power in exact arithmetic: all coefficients are dyadic."""
    scale = [Fraction(scales[i]) for i, t in enumerate(work.terms) for _ in range(t.rows)]
    best = Fraction(0)
    for column in dense_workload(work).T:
        powers = [abs(Fraction(float(v))) ** p for v in column]
        best = max(best, sum((s * v for s, v in zip(scale, powers, strict=True)), Fraction(0)))
    return best


@given(st.data(), st.integers(1, 9))
@settings(max_examples=150, deadline=None)
def test_query_sets_are_their_matrices(data: st.DataObject, size: int) -> None:
    q = data.draw(query_sets(size))
    dense = dense_queries(q)
    rng = np.random.default_rng(size)
    x, y = rng.normal(size=(size, 2)), rng.normal(size=(q.rows, 2))
    np.testing.assert_allclose(q.apply(x), dense @ x, atol=1e-9)
    np.testing.assert_allclose(q.adjoint(y), dense.T @ y, atol=1e-9)
    np.testing.assert_allclose(q.gram_apply(x), dense.T @ dense @ x, atol=1e-8)
    assert np.vdot(q.apply(x), y) == pytest.approx(np.vdot(x, q.adjoint(y)), abs=1e-9)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_terms_are_their_matrices_and_pass_the_dot_test(data: st.DataObject) -> None:
    domain = data.draw(domains())
    term = data.draw(terms(domain))
    dense = dense_term(term)
    rng = np.random.default_rng(0)
    table, y = rng.normal(size=term.shape), rng.normal(size=term.rows)
    np.testing.assert_allclose(term.apply(table), dense @ table.reshape(-1), atol=1e-9)
    assert term.apply(table) @ y == pytest.approx(float((table * term.adjoint(y)).sum()), abs=1e-8)
    whole = rng.integers(0, 1000, size=term.shape)
    scaled = np.rint(np.ldexp(dense, term.fraction_bits)).astype(np.int64)
    np.testing.assert_array_equal(term.apply(whole), scaled @ whole.reshape(-1))
    np.testing.assert_array_equal(
        term.apply(whole.astype(object) if whole.ndim else np.array(int(whole), dtype=object)),
        scaled @ whole.reshape(-1),
    )
    low, high = term.coefficient_bounds()
    np.testing.assert_allclose(low, dense.min(axis=1), atol=1e-12)
    np.testing.assert_allclose(high, dense.max(axis=1), atol=1e-12)
    for p in (1, 2):
        np.testing.assert_allclose(term.row_powers(p), (np.abs(dense) ** p).sum(axis=1))


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_evaluation_and_gram_are_those_of_the_dense_matrix(data: st.DataObject) -> None:
    work = data.draw(workloads())
    table = data.draw(counts(work.domain))
    dense = dense_workload(work)
    assert len(work) == len(dense)
    np.testing.assert_allclose(work.evaluate(table), dense @ table.reshape(-1), rtol=1e-12)
    weights = np.concatenate([np.full(t.rows, t.weight**2) for t in work.terms])
    gram = dense.T @ (weights[:, None] * dense)
    np.testing.assert_allclose(work.gram().dense(), gram, atol=1e-8)
    assert work.gram().trace() == pytest.approx(np.trace(gram))


@given(st.data(), st.sampled_from([1, 2]))
@settings(max_examples=200, deadline=None)
def test_column_norms_are_never_below_and_equal_when_exact(data: st.DataObject, p: int) -> None:
    work = data.draw(workloads())
    scales = data.draw(
        st.just([1.0] * len(work.terms))
        | st.lists(
            st.sampled_from([0.1, 1.0, 2.5, 1 / 3]),
            min_size=len(work.terms),
            max_size=len(work.terms),
        )
    )
    exact = exact_power(work, scales, p)
    norm = greatest_column_power(work.terms, scales, p)
    assert Fraction(norm.power) >= exact
    assert norm.is_exact
    assert norm.power <= float(exact) * (1 + 2.0**-29)
    bits = p * max(t.fraction_bits for t in work.terms)
    if all(float(s).is_integer() for s in scales) and bits <= 20 and exact < 2**30:
        assert Fraction(norm.power) == exact


@given(st.data(), st.sampled_from([1, 2]), st.sampled_from([1, 40, 400]))
@settings(max_examples=100, deadline=None)
def test_bounds_that_are_not_searched_are_never_below(
    data: st.DataObject, p: int, searched: int
) -> None:
    work = data.draw(workloads())
    exact = exact_power(work, [1.0] * len(work.terms), p)
    with patch.object(sensitivity, "LIMITS", replace(sensitivity.LIMITS, column_numbers=searched)):
        norm = work.column_norm(p)
    assert Fraction(norm.power) >= exact
    assert not norm.is_exact or norm.power <= float(exact) * (1 + 2.0**-29)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_conditions_hold_where_their_parts_say(data: st.DataObject) -> None:
    domain = data.draw(domains())
    condition = data.draw(conditions(domain))
    term = Predicates(domain, "w", 1.0, (condition,))
    cells = [dict(zip(term.attributes, c, strict=True)) for c in cells_of(term)]
    expected = [holds(condition, cell) for cell in cells]
    found = indicator(condition, domain, term.attributes)
    assert found.reshape(-1).tolist() == expected
    merged = term.classes.expand(term.classes.truth(condition))
    assert merged.reshape(-1).tolist() == expected


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_conditions_have_one_digest_exactly_when_they_mean_the_same(data: st.DataObject) -> None:
    domain = data.draw(domains(most_attributes=2, most_values=2))
    left, right = data.draw(conditions(domain)), data.draw(conditions(domain))
    names = domain.names
    same = (indicator(left, domain, names) == indicator(right, domain, names)).all()
    forms = [canonical_bytes([Predicates(domain, "w", 1.0, (c,))]) for c in (left, right)]
    assert (forms[0] == forms[1]) == bool(same)
