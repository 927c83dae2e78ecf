"""Rows that know impossible combinations and published tables; raking."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import WorkloadError
from sfumato.random import Draws
from sfumato.refine import feasibility
from sfumato.refine.reconstruct import Fit, ReleasedTable, fit_answers
from sfumato.refine.refine_limits import LIMITS
from sfumato.refine.row_problem import make_possible, meet_published, problem
from sfumato.refine.rows import WeightedRows, fit_rows
from sfumato.refine.synthesize import synthesize
from sfumato.solve.nonnegative import rake
from tests.shared.words import SeededWords

IMPOSSIBLE = ["x0 = 1 and x1 >= 1", "x2 = 0 and x3 = 1 and x4 = 1", "x5 = 2"]


class Case:
    """Records of some attributes of equal size that meet the constraints, and noisy pairs."""

    def __init__(self, width: int, size: int, published: list[list[str]], seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.domain = sf.Domain({f"x{i}": size for i in range(width)})
        free = sf.Constraints(self.domain, IMPOSSIBLE)
        shared = rng.integers(0, size, size=(1, 1500))
        own = rng.integers(0, size, size=(width, 1500))
        rows = np.where(rng.random((width, 1500)) < 0.5, shared, own)
        self.rows = rows[:, free.are_possible(rows)]
        self.total = float(self.rows.shape[1])
        tables = [(names, self.margin(names)) for names in published]
        self.known = sf.Constraints(self.domain, IMPOSSIBLE, tables)
        self.work = sf.marginals(self.domain, 2)
        truth = [self.margin(t.attributes).reshape(-1) for t in self.work.terms]
        self.noisy = [t + 10 * rng.normal(size=len(t)) for t in truth]

    @property
    def fit(self) -> Fit:
        return fit_answers(self.work, self.noisy)

    def margin(self, names: list[str] | tuple[str, ...]) -> np.ndarray:
        out = np.zeros([self.domain[n].size for n in names])
        np.add.at(out, tuple(self.rows[self.domain.index(n)] for n in names), 1)
        return out

    def rows_of(self, known: sf.Constraints | None, **more: object) -> WeightedRows:
        return fit_rows(self.fit, self.total, draws=Draws("rows"), constraints=known, **more)


@pytest.mark.parametrize("published", [[], [["x0"], ["x1", "x2"]], [[f"x{i}"] for i in range(6)]])
def test_rows_come_near_the_constrained_projection(published: list[list[str]]) -> None:
    case = Case(6, 3, published)
    found = case.rows_of(case.known, gap=0.01)
    assert case.known.are_possible(found.codes).all()
    exact = sf.project(np.concatenate(case.noisy), case.work, case.total, constraints=case.known)
    assert exact.value - exact.gap - 1e-6 <= found.value <= 1.02 * exact.value
    assert found.bound <= exact.value + 1e-6
    assert found.value - found.gap <= exact.value + 1e-6
    assert found.weights.sum() == pytest.approx(case.total)
    for names in published:
        assert np.abs(found.table(tuple(names)) - case.margin(names)).max() <= 1e-9 * case.total


def test_rows_without_the_constraints_break_them() -> None:
    """The twin: what is checked above does not hold by itself."""
    case = Case(6, 3, [["x0"]])
    found = case.rows_of(None)
    assert not case.known.are_possible(found.codes).all()
    assert np.abs(found.table(("x0",)) - case.margin(["x0"])).max() > 1


def test_no_row_is_impossible_on_a_domain_that_cannot_be_listed() -> None:
    case = Case(20, 5, [["x0"], ["x1", "x2"], ["x0", "x7"]])
    answers = np.concatenate(case.noisy)
    found = sf.project(answers, case.work, constraints=case.known)
    assert found.method == "rows"
    assert found.attributes == case.domain.names
    assert case.known.are_possible(found.cells.T).all()
    for names in (["x0"], ["x1", "x2"], ["x0", "x7"]):
        table = np.zeros([5] * len(names))
        columns = tuple(found.cells[:, case.domain.index(n)] for n in names)
        np.add.at(table, columns, found.weights)
        assert np.abs(table - case.margin(names)).max() <= 1e-9 * case.total


def test_rows_given_to_start_from_are_made_possible() -> None:
    case = Case(6, 3, [])
    rng = np.random.default_rng(1)
    start = {n: rng.integers(0, 3, size=200) for n in case.domain.names}
    given = np.array(list(start.values()))
    assert not case.known.are_possible(given).all()
    found = case.rows_of(case.known, start=start, rounds=0)
    assert case.known.are_possible(found.codes).all()


def test_wide_conditions_and_impossible_ones_are_told_apart() -> None:
    """Conditions over 3^20 cells are asked, others are impossible; equal ones may be both."""
    domain = sf.Domain({f"x{i}": 3 for i in range(20)})
    some_high = " or ".join(f"x{i} = 2" for i in range(20))
    asked_for = ["x0 = 0 and x5 = 1", "x1 = 2 or x18 = 1", some_high, "x0 = 1 and x1 >= 1"]
    work = sf.predicates(domain, asked_for)
    assert work.terms[0].is_wide
    known = sf.Constraints(domain, ["x0 = 1 and x1 >= 1", "x19 = 0 and x18 = 0"])
    fit = fit_answers(work, [np.array([30.0, 70.0, 100.0, 50.0])])
    asked = problem(fit, 100.0, known)
    assert asked.guarded.count == asked.conditions.count + 2
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, size=(20, 300))
    truth = asked.guarded.truth(codes)[:, asked.conditions.count :]
    assert np.array_equal(~truth.any(axis=1), known.are_possible(codes))
    found = fit_rows(fit, 100.0, draws=Draws("rows"), constraints=known, rows=500, rounds=3)
    assert known.are_possible(found.codes).all()
    assert np.allclose(found.answers()[0], [30, 70, 100, 0], atol=0.5)


def test_rows_are_added_where_published_counts_need_them() -> None:
    domain = sf.Domain({"a": 3, "b": 3, "c": 4})
    h = np.zeros((3, 3, 4))
    h[2, 0, 1], h[1, 2, 3], h[0, 1, 0] = 5, 3, 2
    tables = [("a", h.sum(axis=(1, 2))), (("b", "c"), h.sum(axis=0))]
    known = sf.Constraints(domain, ["a = 0 and b = 2"], tables)
    codes = np.zeros((3, 1), dtype=np.int64)
    found = meet_published(known, codes, np.array([10.0]))
    assert found.off <= 1e-12
    assert known.are_possible(found.codes).all()
    made = np.zeros((3, 3, 4))
    np.add.at(made, tuple(found.codes), found.weights)
    assert np.allclose(made.sum(axis=(1, 2)), tables[0][1])
    assert np.allclose(made.sum(axis=0), tables[1][1])


def test_rows_refuse_tables_that_no_data_has() -> None:
    domain = sf.Domain({f"x{i}": 3 for i in range(20)})
    tables = [("x0", [9, 1, 0]), ("x1", [9, 1, 0])]
    known = sf.Constraints(domain, ["x0 = 0 and x1 = 0"], tables)
    work = sf.marginals(domain, [["x2", "x3"]])
    with pytest.raises(WorkloadError, match="no data set has the published x0 and x1 without"):
        fit_rows(fit_answers(work, [np.zeros(9)]), 10.0, draws=Draws("rows"), constraints=known)
    with pytest.raises(WorkloadError, match="given as 11, but the published"):
        fit_rows(fit_answers(work, [np.zeros(9)]), 11.0, draws=Draws("rows"), constraints=known)


def test_what_is_missed_is_said_where_cells_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feasibility, "LIMITS", replace(LIMITS, cells_listed=5))
    domain = sf.Domain({"a": 3, "b": 3})
    known = sf.Constraints(domain, ["a = 0 and b = 0"], [("a", [9, 1, 0]), ("b", [9, 1, 0])])
    found = meet_published(known, np.array([[0, 1], [1, 0]]), np.ones(2))
    assert found.off > 0.1


def test_redrawn_rows_follow_the_shares_given_that_they_are_possible() -> None:
    domain = sf.Domain({"a": 2, "b": 3, "c": 2})
    known = sf.Constraints(domain, ["a = 0 and b = 0", "a = 0 and b = 1"])
    shares = [np.array([0.5, 0.5]), np.array([0.5, 0.3, 0.2]), np.array([1.0, 0.0])]
    codes = np.zeros((3, 40_000), dtype=np.int64)
    codes[2] = 1
    found = make_possible(known, codes, shares, Draws("again").uniforms)
    assert (found[2] == 1).all()  # no condition looks at c
    counts = np.zeros((2, 3))
    np.add.at(counts, tuple(found[:2]), 1)
    joint = np.outer(shares[0], shares[1]) * known.possible(("a", "b"))
    joint = 40_000 * joint / joint.sum()
    assert counts[joint == 0].sum() == 0
    assert np.abs(counts - joint).max() < 5 * np.sqrt(joint.max())
    assert np.abs(counts - joint[::-1]).max() > 5 * np.sqrt(joint.max())


def test_raking_is_the_nearest_in_divergence() -> None:
    """Against proportional fitting of the table, run long."""
    rng = np.random.default_rng(0)
    table = rng.random((4, 5))
    rows, columns = rng.random(4), rng.random(5)
    columns *= rows.sum() / columns.sum()
    at, to = np.indices((4, 5)).reshape(2, -1)
    found = rake(table.reshape(-1), [at, to], [rows, columns])
    for _ in range(2000):
        table *= (rows / table.sum(axis=1))[:, None]
        table *= columns / table.sum(axis=0)
    assert found.off <= 1e-13
    assert np.allclose(found.weights, table.reshape(-1), atol=1e-12)


def test_raking_gets_there_where_scaling_alone_is_slow() -> None:
    """A corner that must be nearly empty: scaling needs thousands of sweeps."""
    places = [np.array([0, 0, 1]), np.array([0, 1, 0])]
    wanted = [np.array([1.0, 1.0 - 1e-5]), np.array([1.0, 1.0 - 1e-5])]
    found = rake(np.ones(3), places, wanted)
    assert found.off <= 1e-12
    assert np.allclose(found.weights, [1e-5, 1 - 1e-5, 1 - 1e-5], rtol=1e-6)


def test_raking_says_how_far_off_it_is_where_nothing_fits() -> None:
    found = rake(np.ones(2), [np.array([0, 1]), np.array([0, 1])], [np.ones(2), np.array([2.0, 0])])
    assert found.off > 0.1


def test_attributes_that_are_kept_stay_and_the_others_follow() -> None:
    domain = sf.Domain({"a": 2, "b": 3, "c": 2})
    conditions = ["a = 0 and b = 0", "a = 0 and b = 1 and c = 0", "a = 1 and b = 2"]
    known = sf.Constraints(domain, conditions)
    every = np.array(np.unravel_index(np.arange(12), (2, 3, 2)))
    codes = np.repeat(every, 50, axis=1)
    shares = [np.full(2, 0.5), np.full(3, 1 / 3), np.full(2, 0.5)]
    for kept in (("a",), ("b",), ("a", "c"), ()):
        found = make_possible(known, codes, shares, Draws("kept").uniforms, kept)
        assert known.are_possible(found).all()
        for name in kept:
            assert np.array_equal(found[domain.index(name)], codes[domain.index(name)])
        was = known.are_possible(codes)
        assert np.array_equal(found[:, was], codes[:, was])


def test_synthetic_records_are_possible_and_follow_published_tables() -> None:
    domain = sf.Domain({"a": 3, "b": 4, "c": 2})
    rng = np.random.default_rng(0)
    conditions = ["a = 0 and b >= 2", "b = 0 and c = 1 and a = 1"]
    free = sf.Constraints(domain, conditions)
    h = rng.multinomial(5000, rng.dirichlet(np.ones(24))).reshape(3, 4, 2) * 1.0
    h *= free.possible(domain.names)
    noisy = [
        ReleasedTable(("a", "b"), h.sum(axis=2) + 40 * rng.normal(size=(3, 4)), 40.0),
        ReleasedTable(("a", "c"), h.sum(axis=1) + 40 * rng.normal(size=(3, 2)), 40.0),
    ]
    known = sf.Constraints(domain, conditions, [(["c"], h.sum(axis=(0, 1)))])
    without = synthesize(domain, noisy, 5000.0, 4000, SeededWords(1))
    assert not known.are_possible(np.stack(list(without.codes.values()))).all()
    found = synthesize(domain, noisy, 5000.0, 4000, SeededWords(1), known)
    assert known.are_possible(np.stack(list(found.codes.values()))).all()
    # Only redrawing moves the margin of c from the published one.
    share = float((found.codes["c"] == 1).mean())
    assert abs(share - h[:, :, 1].sum() / h.sum()) < 0.03


def test_records_that_are_nearly_always_impossible_are_made_possible() -> None:
    """Redrawing finds hardly any; the last resort keeps the promise."""
    domain = sf.Domain({"a": 2, "b": 2, "c": 3})
    known = sf.Constraints(domain, ["a = 0", "a = 1 and b = 0"])
    tables = [
        ReleasedTable(("a",), np.array([1e6, 0.0]), 1.0),
        ReleasedTable(("b",), np.array([1e6, 0.0]), 1.0),
    ]
    found = synthesize(domain, tables, 1e6, 500, SeededWords(2), known)
    assert (found.codes["a"] == 1).all()
    assert (found.codes["b"] == 1).all()
