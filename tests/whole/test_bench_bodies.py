# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of cells, bodies and metrics: small versions of what they print."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import sfumato as sf
from bench import adult, bodies, cells, metric


def test_every_solver_of_listed_cells_gets_the_same_problem() -> None:
    problem = replace(cells.PROBLEMS[0], make=cells.yes_no(5), records=100)
    ours, *others = cells.run(problem)
    assert ours.way == "sfumato"
    assert {f.way for f in others} == {"scipy", "cvxpy"}
    assert ours.gap < 1e-5
    assert ours.after < ours.before
    for other in others:
        assert other.gap == pytest.approx(ours.gap, abs=1e-5)
        assert other.after == pytest.approx(ours.after, rel=1e-2)


def test_the_sparse_matrix_holds_the_queries_that_sfumato_answers() -> None:
    domain = sf.Domain({"a": 4, "b": 3, "c": 2})
    work = sf.marginals(domain, [("a", "c")]) | sf.prefixes(domain, "b", by=["c"])
    units = np.eye(24).reshape(24, 4, 3, 2)
    expected = np.array([work.evaluate(e) for e in units]).T
    assert np.array_equal(cells._matrix(work).toarray(), expected)


def test_the_names_of_problems_say_how_many_cells_there_are() -> None:
    sizes = {p.name: p.make().domain.size for p in cells.PROBLEMS if "cells" in p.name}
    assert sizes["pairs, 106,560 cells, noise 3"] == 106_560
    assert sizes["a table of a million cells"] == 10**6


def test_bodies_prove_what_they_say() -> None:
    found = {f.onto: f for f in bodies.yes_no(25, 60, 60.0, ("local", "semidefinite", "exact"))}
    for f in found.values():
        assert f.error < f.before
        assert 0 <= f.gap < 1
    assert found["rows"].proof == "moments"
    assert found["semidefinite"].error < found["local"].error


def test_metrics_are_compared_on_one_draw_of_the_noise() -> None:
    few = ("marital-status", "race", "sex")
    domain = sf.Domain({name: adult.domain()[name].size for name in few})
    table = adult.coded()[list(few)].iloc[:1_000]
    even = metric.tables("gaussian", 0.5, domain, table).by_metric
    # Evenly measured cells have one variance: both metrics are the Euclidean one.
    assert even["covariance"] == pytest.approx(even["objective"], rel=1e-2)
    assert even["objective"] < even["nothing"]
    listed = metric.listed(60, attributes=4, draws=1).by_metric
    assert listed["objective"] < listed["nothing"]
    assert listed["covariance"] < listed["nothing"]
