# SPDX-License-Identifier: Apache-2.0
"""``sf.project`` onto every body: against convex solvers, and against everything hostile."""

from __future__ import annotations

import re

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import TooLarge, WorkloadError
from sfumato.refine import local_consistency
from sfumato.refine.reconstruct import fit_answers
from tests.unit.refine.test_local_consistency import by_convex_program
from tests.unit.refine.test_semidefinite import by_conic_solver

BODIES = ("exact", "local", "semidefinite")
YES_NO = sf.Domain({f"x{i}": 2 for i in range(4)})
PAIRS = sf.marginals(YES_NO, 2)
RECORDS = np.random.default_rng(1).multinomial(60, np.full(16, 1 / 16)).reshape(2, 2, 2, 2)
TRUTH = PAIRS.evaluate(RECORDS)
NOISY = TRUTH + 6 * np.random.default_rng(2).normal(size=len(PAIRS))


def groups(work: sf.Workload, y: np.ndarray) -> list[np.ndarray]:
    return np.split(y, np.cumsum([t.rows for t in work.terms])[:-1])


@pytest.mark.parametrize("n", [60.0, None, (63.0, 2.0)], ids=["known", "unknown", "noisy"])
def test_local_projections_are_those_of_a_convex_solver(n: float | tuple[float, float] | None):
    found = sf.project(NOISY, PAIRS, n, onto="local", gap=1e-8)
    fit = fit_answers(PAIRS, groups(PAIRS, NOISY))
    assert found.converged
    assert found.onto == "local"
    if not isinstance(n, tuple):
        best, _ = by_convex_program(fit, n)
        assert found.value == pytest.approx(best, rel=1e-6)
        assert found.value - found.gap <= best * (1 + 1e-7)
    assert found.answers.min() >= -1e-9
    if n == 60.0:
        assert found.total == pytest.approx(60)
    for term, group in zip(PAIRS.terms, found.groups, strict=True):
        table = found.tables[term.attributes]
        np.testing.assert_allclose(table.reshape(-1), group, atol=1e-9)
        assert table.sum() == pytest.approx(found.total)
    ends = [found.tables[t.attributes].sum(axis=1) for t in PAIRS.terms if t.attributes[0] == "x0"]
    for end in ends[1:]:
        np.testing.assert_allclose(end, ends[0], atol=1e-7)


def test_a_noisy_number_of_records_is_one_more_answer_of_the_relaxations() -> None:
    exact = sf.project(NOISY, sf.marginals(YES_NO, 2), (63.0, 2.0))
    for onto in ("local", "semidefinite"):
        sure = sf.project(NOISY, PAIRS, (63.0, 1e-4), onto=onto)
        assert sure.total == pytest.approx(63.0, abs=1e-3)
        found = sf.project(NOISY, PAIRS, (63.0, 2.0), onto=onto)
        assert found.value <= exact.value * (1 + 1e-6)


@pytest.mark.parametrize("n", [60.0, None])
def test_semidefinite_projections_are_those_of_a_conic_solver(n: float | None) -> None:
    found = sf.project(NOISY, PAIRS, n, onto="semidefinite", gap=1e-8)
    best = by_conic_solver(fit_answers(PAIRS, groups(PAIRS, NOISY)), n, True)[0]
    assert found.converged
    assert found.value == pytest.approx(best, rel=1e-6)
    assert found.answers.min() >= -1e-7


def test_bodies_hold_each_other_so_their_values_are_in_order() -> None:
    y = TRUTH + 60 * np.random.default_rng(1).normal(size=len(PAIRS))
    values = {onto: sf.project(y, PAIRS, 60, onto=onto) for onto in BODIES}
    assert values["local"].value <= values["exact"].value * (1 + 2e-6)
    assert values["semidefinite"].value <= values["exact"].value * (1 + 2e-6)
    # Non-negative tables that agree are what both relaxations ask for; moments ask for more.
    assert values["local"].value <= values["semidefinite"].value * (1 + 2e-6)
    assert values["exact"].value > 1.0001 * values["local"].value  # K is smaller than L here


def test_the_repr_names_the_body_and_the_proof() -> None:
    text = repr(sf.project(NOISY, PAIRS, 60, onto="local"))
    assert "on tables of 4 attributes" in text
    assert "locally consistent" in text
    assert "of the value, proved by multipliers" in text
    assert "slopes of all cells" in repr(sf.project(NOISY, PAIRS, 60))


@pytest.mark.parametrize("onto", BODIES)
def test_answers_of_data_stay_as_they_are(onto: str) -> None:
    """Zero noise: K is inside every body."""
    found = sf.project(TRUTH, PAIRS, 60, onto=onto)
    np.testing.assert_allclose(found.answers, TRUTH, atol=0.02)
    assert found.converged


@pytest.mark.parametrize("onto", BODIES)
def test_hopeless_answers_have_a_certified_projection(onto: str) -> None:
    for y in (np.full(len(PAIRS), -5.0), np.full(len(PAIRS), 1e9), 1e12 * NOISY, 1e-30 * NOISY):
        for n in (60.0, None):
            found = sf.project(y, PAIRS, n, onto=onto)
            assert np.isfinite(found.answers).all()
            assert np.isfinite(found.gap)
            assert found.converged
            slack = found.distance_bound + 1e-6 * float(np.linalg.norm(y) + 60)
            truth = TRUTH if n is not None else np.zeros(len(PAIRS))
            assert np.linalg.norm(found.answers - truth) <= np.linalg.norm(y - truth) + slack


@pytest.mark.parametrize("onto", BODIES)
def test_no_records_one_pair_and_duplicated_queries(onto: str) -> None:
    nothing = sf.project(NOISY, PAIRS, 0, onto=onto)
    assert np.abs(nothing.answers).max() <= 1e-9
    assert nothing.total == pytest.approx(0, abs=1e-9)
    single = sf.marginals(sf.Domain({"a": 2}), 1)
    one = sf.project([7.0, -1.0], single, 3, onto=onto)
    assert one.answers == pytest.approx([3.0, 0.0], abs=1e-4)
    twice = sf.project([4.0, 0.0, 1.0, 0.0], single | single, None, onto=onto)
    assert twice.answers == pytest.approx([2.5, 0.0, 2.5, 0.0], abs=1e-4)


@pytest.mark.parametrize("onto", ["exact", "local"])
def test_a_domain_of_one_cell(onto: str) -> None:
    single = sf.marginals(sf.Domain({"a": 1}), 1)
    assert sf.project([7.5], single, 3, onto=onto).answers == pytest.approx([3.0])
    assert sf.project([7.5], single, onto=onto).answers == pytest.approx([7.5])
    assert sf.project([-7.5], single, onto=onto).answers == pytest.approx([0.0], abs=1e-9)


@pytest.mark.parametrize("onto", BODIES)
def test_what_is_no_number_is_refused(onto: str) -> None:
    for wrong in (np.nan, np.inf):
        y = NOISY.copy()
        y[3] = wrong
        with pytest.raises(WorkloadError, match="not a finite number"):
            sf.project(y, PAIRS, 60, onto=onto)
        with pytest.raises(WorkloadError, match="0 or more"):
            sf.project(NOISY, PAIRS, wrong, onto=onto)
        with pytest.raises(WorkloadError, match="0 or more"):
            sf.project(NOISY, PAIRS, 60, np.full(len(PAIRS), wrong), onto=onto)
    with pytest.raises(WorkloadError, match="beyond"):
        sf.project(1e101 * NOISY, PAIRS, 60, onto=onto)
    for seconds in (0, -1, np.nan, "5"):
        with pytest.raises(WorkloadError, match="seconds"):
            sf.project(NOISY, PAIRS, 60, onto=onto, seconds=seconds)  # type: ignore[arg-type]


def test_bodies_that_do_not_apply_are_refused_in_words() -> None:
    wide = sf.marginals(sf.Domain({"a": 3, "b": 2}), 2)
    known = sf.Constraints(YES_NO, impossible=["x0 = 1 and x1 = 1"])
    cases: list[tuple[dict[str, object], str]] = [
        ({"onto": "cone"}, "'exact', 'local'"),
        ({"onto": "local", "objective": "max"}, 'the objective "max"'),
        ({"onto": "local", "weights": np.eye(len(PAIRS))}, "inverse variances"),
        ({"onto": "semidefinite", "weights": np.eye(len(PAIRS))}, "inverse variances"),
        ({"onto": "semidefinite", "constraints": known}, "no constraints"),
        ({"onto": "semidefinite", "weights": np.arange(len(PAIRS))}, "one weight per group"),
    ]
    for given, text in cases:
        with pytest.raises(WorkloadError, match=re.escape(text)):
            sf.project(NOISY, PAIRS, 60, **given)  # type: ignore[arg-type]
    with pytest.raises(WorkloadError, match="'a' has 3 cells"):
        sf.project(np.ones(6), wide, 6, onto="semidefinite")
    three = sf.marginals(YES_NO, 3)
    with pytest.raises(WorkloadError, match="use local consistency"):
        sf.project(np.ones(len(three)), three, 6, onto="semidefinite")


def test_constraints_hold_for_local_tables() -> None:
    known = sf.Constraints(YES_NO, impossible=["x0 = 1 and x1 = 1"])
    found = sf.project(NOISY, PAIRS, 60, onto="local", constraints=known)
    assert found.tables["x0", "x1"][1, 1] == 0
    assert found.gap <= 1e-4 * found.value


WIDE = sf.Domain({f"a{i}": 64 for i in range(10)})  # 2^60 cells


def wide_problem() -> tuple[sf.Workload, np.ndarray, np.ndarray]:
    work = sf.marginals(WIDE, [[f"a{i}", f"a{i + 1}"] for i in range(9)])
    rng = np.random.default_rng(5)
    rows = rng.integers(0, 4, size=(500, 10)) * 16
    truth = np.concatenate(
        [np.bincount(64 * rows[:, i] + rows[:, i + 1], minlength=4096) for i in range(9)]
    ).astype(float)
    return work, truth, truth + 3 * rng.normal(size=len(truth))


def test_a_domain_of_a_quintillion_cells_has_rows_with_a_proved_gap() -> None:
    work, truth, y = wide_problem()
    nearest = sf.project(y, work, 500, onto="local")
    assert nearest.converged
    found = sf.project(y, work, 500, seconds=600)
    assert found.method == "rows"
    assert found.certified_by == "local consistency"
    assert "proved by local consistency" in repr(found)
    # The sets form a chain, where local consistency is exact: the bound is a true one.
    assert found.value - found.gap <= nearest.value * (1 + 1e-9)
    assert found.value >= nearest.value - nearest.gap
    assert found.gap <= 0.2 * found.value
    for projected in (nearest, found):
        before, after = np.linalg.norm(y - truth), np.linalg.norm(projected.answers - truth)
        assert after < before
    with pytest.raises(WorkloadError, match="64 cells"):
        sf.project(y, work, 500, onto="semidefinite")


def test_tables_too_large_for_the_relaxation_leave_rows_their_own_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work, _, y = wide_problem()

    def refuse(*_: object, **__: object) -> None:
        raise TooLarge("no")

    monkeypatch.setattr(local_consistency, "project_locally", refuse)
    found = sf.project(y, work, 500)
    assert found.certified_by == "the least slopes of all tables"
    assert found.gap <= found.value
    with pytest.raises(TooLarge):
        sf.project(y, work, 500, onto="local")


def test_pairs_of_yes_no_attributes_are_proved_by_moments() -> None:
    domain = sf.Domain({f"x{i}": 2 for i in range(26)})
    work = sf.marginals(domain, 2)
    rng = np.random.default_rng(3)
    rows = (rng.random((200, 26)) < rng.random(26)).astype(int)
    at = [[domain.names.index(a) for a in t.attributes] for t in work.terms]
    truth = np.concatenate([np.bincount(2 * rows[:, i] + rows[:, j], minlength=4) for i, j in at])
    y = truth + 60 * rng.normal(size=len(truth))
    found = sf.project(y, work, 200, seconds=600)
    assert found.method == "rows"
    assert found.certified_by == "moments"
    body = sf.project(y, work, 200, onto="semidefinite")
    assert found.value - found.gap <= body.value
    assert body.value <= found.value
