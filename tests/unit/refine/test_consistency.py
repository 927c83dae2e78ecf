# SPDX-License-Identifier: Apache-2.0
"""Published answers that agree: against the truth they were made from, and against each other."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import WorkloadError
from sfumato.refine import consistency as module
from sfumato.refine.consistency import Refined, Unrefined, check_projection, refined, refined_listed
from sfumato.refine.reconstruct import reconstruct
from sfumato.refine.refine_limits import LIMITS
from sfumato.refine.synthesize import draw_records
from sfumato.release.release import Release
from tests.shared.made_releases import measured, planned, some_counts
from tests.shared.words import SeededWords

DOMAIN = sf.Domain({"a": 6, "b": 4, "c": 3})
WORK = sf.marginals(DOMAIN, 2) | sf.prefixes(DOMAIN, "a") | sf.marginals(DOMAIN, 1)
SMALL = sf.Budget(epsilon=0.2, delta=1e-6)


@lru_cache
def plan_of(work, neighbours):
    return planned(work, "factorization", budget=SMALL, neighbours=neighbours)


def made(
    work, counts, seed, neighbours="add-remove"
) -> tuple[Refined | Unrefined, np.ndarray, np.ndarray]:
    forecast = plan_of(work, neighbours)
    seen = measured(forecast, counts, SeededWords(seed))
    unbiased = reconstruct(forecast, seen)
    found = refined(forecast, seen, unbiased, shrinks=False)
    return found, np.concatenate(list(unbiased)), work.evaluate(counts)


def norm(work, difference) -> float:
    weights = np.concatenate([np.full(t.rows, t.weight**2) for t in work.terms])
    return float(np.sqrt(weights @ difference**2))


@pytest.mark.parametrize("rows", [20, 400, 20_000])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("work", [WORK, sf.marginals(DOMAIN, 1) * 10 | sf.marginals(DOMAIN, 2)])
def test_answers_that_agree_are_never_farther_from_the_truth(work, neighbours, rows):
    counts = some_counts(DOMAIN, rows)
    for seed in range(5):
        found, unbiased, truth = made(work, counts, seed, neighbours=neighbours)
        assert isinstance(found, Refined)
        assert found.method == "histogram"
        before = norm(work, unbiased - truth)
        after = norm(work, np.concatenate(found.answers) - truth)
        assert after <= before + found.distance


def test_answers_of_some_other_table_are_farther_from_the_truth():
    """The twin: what is no projection fails the same comparison."""
    counts = some_counts(DOMAIN, 20_000)
    found, unbiased, truth = made(WORK, counts, 0)
    assert isinstance(found, Refined)
    other = WORK.evaluate(some_counts(DOMAIN, 20_000, seed=9))
    assert norm(WORK, other - truth) > norm(WORK, unbiased - truth) + found.distance


def test_groups_agree_with_each_other_and_nothing_is_negative():
    found, unbiased, _ = made(WORK, some_counts(DOMAIN, 50), 3)
    assert isinstance(found, Refined)
    ab, ac, bc, prefixes, a, b, c = found.answers
    ab, ac, bc = ab.reshape(6, 4), ac.reshape(6, 3), bc.reshape(4, 3)
    for margin, single in [
        (ab.sum(1), a), (ac.sum(1), a), (ab.sum(0), b), (bc.sum(1), b), (bc.sum(0), c),
        (np.cumsum(a), prefixes), (np.array([found.total]), np.array([a.sum()])),
    ]:  # fmt: skip
        assert margin == pytest.approx(single, abs=1e-6)
    assert min(x.min() for x in found.answers) > -1e-9
    assert unbiased.min() < 0


def test_a_public_number_of_records_is_kept():
    found, _, _ = made(WORK, some_counts(DOMAIN, 77), 1, neighbours="replace-one")
    assert isinstance(found, Refined)
    assert found.total == pytest.approx(77)


def many() -> sf.Domain:
    return sf.Domain({f"x{i}": 8 for i in range(8)})


def some_records(domain: sf.Domain, rows: int) -> np.ndarray:
    rng = np.random.default_rng(5)
    codes = np.minimum(rng.geometric(0.4, (rows, len(domain))) - 1, 7)
    codes[:, 1] = np.where(rng.random(rows) < 0.8, codes[:, 0], codes[:, 1])
    return codes


def tables(domain: sf.Domain, work, codes: np.ndarray) -> list[np.ndarray]:
    out = []
    for term in work.terms:
        table = np.zeros(term.shape, dtype=np.int64)
        np.add.at(table, tuple(codes[:, domain.names.index(n)] for n in term.attributes), 1)
        out.append(term.answer(table))
    return out


def rows_made(epsilon: float):
    """All pairs of eight attributes: 16 million cells, too many to be listed."""
    domain = many()
    work, codes = sf.marginals(domain, 2), some_records(domain, 3000)
    plan = planned(work, budget=sf.Budget(epsilon=epsilon, delta=1e-9))
    release = plan_release(plan, codes)
    return work, plan, release, tables(domain, work, codes)


def plan_release(plan, codes):
    import pandas as pd

    names = plan.workload.domain.names
    frame = pd.DataFrame({n: codes[:, i] for i, n in enumerate(names)})
    whole = sf.plan(plan.workload, plan.budget, mechanism=plan.mechanism)
    return whole.release(frame)


@pytest.mark.parametrize("epsilon", [0.5, 5])
def test_rows_take_over_where_cells_cannot_be_listed_and_lower_the_error(epsilon):
    _, _, release, truth = rows_made(epsilon)
    found = release.estimates.refined
    assert isinstance(found, Refined)
    assert found.method == "rows"
    exact = np.concatenate(truth)
    before = np.concatenate(list(release.estimates.unbiased)) - exact
    after = np.concatenate(found.answers) - exact
    assert (after**2).mean() < (before**2).mean()
    for answers, table in zip(found.answers, truth, strict=True):
        assert answers.sum() == pytest.approx(found.total)
        assert len(answers) == len(table)
    seen, unbiased = release.estimates.measured, release.estimates.unbiased
    again = refined(release.forecast, seen, unbiased, shrinks=True)
    assert isinstance(again, Refined)
    assert all((x == y).all() for x, y in zip(again.answers, found.answers, strict=True))


def test_rows_that_miss_more_than_noise_explains_are_not_used(monkeypatch):
    """The twin: with hardly any effort the rows are far off, and the answers are only cut."""
    _, _, release, _ = rows_made(5)
    monkeypatch.setattr(module, "LIMITS", replace(LIMITS, rows_misfit=1e-3))
    outcome = refined(release.forecast, release.estimates.measured, release.estimates.unbiased)
    assert outcome is Unrefined.NOT_EXPLAINED


def test_records_answer_like_the_cells_they_are_drawn_from():
    found, _, _ = made(WORK, some_counts(DOMAIN, 20_000), 2)
    assert isinstance(found, Refined)
    drawn = draw_records(WORK, found, 100_000, SeededWords(4))
    assert drawn is not None
    codes = np.stack([drawn.codes[n] for n in DOMAIN.names], axis=1)
    own = np.concatenate(tables(DOMAIN, WORK, codes)) * (found.total / 100_000)
    # Systematic sampling: less than a record per cell in use.
    most = len(found.weights) * found.total / 100_000
    assert np.abs(own - np.concatenate(found.answers)).max() < most
    assert "differ from the published ones by" in drawn.notes[1]


def test_records_are_spread_over_cells_that_no_query_tells_apart():
    domain = sf.Domain({"a": 6, "free": 5})
    low = sf.attribute(domain, "a") < 3
    work = sf.predicates(domain, [low, ~low])
    found = Refined((np.array([30.0, 10.0]),), ("a",), np.array([[0], [3]]), np.array([30.0, 10.0]),
                    "histogram", 0.0, {"a": np.array([0, 0, 0, 1, 1, 1])})  # fmt: skip
    drawn = draw_records(work, found, 40_000, SeededWords(1))
    assert drawn is not None
    counts = np.bincount(drawn.codes["a"], minlength=6)
    assert counts[:3].sum() == 30_000
    assert np.abs(counts[:3] - 10_000).max() < 500
    assert np.abs(np.bincount(drawn.codes["free"]) - 8000).max() < 500
    assert "free" in drawn.notes[-1]
    bare = replace(found, alike={})
    alone = draw_records(work, bare, 100, SeededWords(1))
    assert alone is not None
    assert set(alone.codes["a"]) == {0, 3}


def test_nothing_is_drawn_from_no_weight():
    found = Refined((np.zeros(2),), ("a",), np.zeros((0, 1), dtype=np.int64), np.zeros(0), "", 0.0)
    assert draw_records(sf.marginals(DOMAIN, 1), found, 5, SeededWords(1)) is None


@pytest.mark.parametrize("wrong", ["yes", 1, None, "Bounds"])
def test_what_is_no_projection_is_refused(wrong):
    with pytest.raises(WorkloadError, match="project is true"):
        check_projection(wrong)


def test_bounds_cut_every_answer_by_itself():
    counts = some_counts(DOMAIN, 50)
    forecast = planned(WORK, "factorization", budget=SMALL)
    seen = measured(forecast, counts, SeededWords(1))
    release = Release.of(forecast, seen, project="bounds")
    unbiased = np.concatenate(list(release.estimates.unbiased))
    values = np.concatenate([release.estimates.value(t) for t in range(len(WORK.terms))])
    assert (values == np.maximum(unbiased, 0)).all()
    assert release.provenance["projection"] == "cut to the feasible range"


def test_a_plan_for_the_largest_error_is_projected_in_the_largest_difference():
    """No histogram is nearer in the largest difference, by more than the certified hundredth."""
    work = sf.ranges(sf.Domain({"a": 12}), "a")
    rng = np.random.default_rng(4)
    truth = work.evaluate(rng.multinomial(200, np.full(12, 1 / 12)))
    forecast = planned(work, objective="max")
    noisy = truth + 15 * rng.standard_normal(len(truth))
    found = refined_listed(forecast, [noisy], None, shrinks=True)
    plain = refined_listed(forecast, [noisy], None)
    assert isinstance(found, Refined)
    assert isinstance(plain, Refined)
    assert "largest difference" in found.describe()
    assert "largest" not in plain.describe()
    farthest = [float(np.abs(f.answers[0] - noisy).max()) for f in (found, plain)]
    least = sf.project(noisy, work, objective="max").value
    assert farthest[0] <= 1.02 * least
    assert farthest[1] > 1.05 * least  # the twin: least squares is not the least largest one
    table = np.zeros(12)
    np.add.at(table, found.codes[:, 0], found.weights)
    assert found.answers[0] == pytest.approx(work.evaluate(table), abs=1e-6)


def test_answers_that_are_not_made_to_agree_say_why(monkeypatch):
    """One case after the other of the table that chooses an estimate is closed."""
    forecast = plan_of(WORK, "add-remove")
    seen = measured(forecast, some_counts(DOMAIN, 400), SeededWords(1))
    unbiased = reconstruct(forecast, seen)
    assert isinstance(refined(forecast, seen, unbiased), Refined)
    limits = replace(LIMITS, projection_error_published=-1.0)
    with monkeypatch.context() as patch:
        patch.setattr(module, "LIMITS", limits)
        for shrinks in (False, True):
            outcome = refined(forecast, seen, unbiased, shrinks=shrinks)
            assert outcome is Unrefined.TOO_FAR
    planning = replace(module.PLANNING_LIMITS, histogram_cells=0)
    monkeypatch.setattr(module, "PLANNING_LIMITS", planning)
    assert refined(forecast, seen, [-a for a in unbiased]) is Unrefined.NO_RECORDS
    planning = replace(planning, fitted_table_cells=WORK.queries - 1)
    monkeypatch.setattr(module, "PLANNING_LIMITS", planning)
    assert refined(forecast, seen, unbiased) is Unrefined.TOO_MANY_ANSWERS


# Many queries on few cells: the error of the exact program (Nikolov, Talwar, Zhang 2013)


def _exact_program(matrix: np.ndarray, answers: np.ndarray, total: float | None) -> np.ndarray:
    """The nearest answers of histograms, by non-negative least squares on the Gram matrix."""
    from scipy.optimize import nnls

    values, vectors = np.linalg.eigh(matrix.T @ matrix)
    used = values > 1e-9 * values[-1]
    root = (vectors[:, used] * np.sqrt(values[used])).T
    aim = (vectors.T @ (matrix.T @ answers))[used] / np.sqrt(values[used])
    if total is None:
        return matrix @ nnls(root, aim, maxiter=10_000)[0]
    moved = root - (aim / total)[:, None]
    heavy = 10 * np.abs(moved).max()
    rows = np.concatenate([moved, np.full((1, len(matrix.T)), heavy)])
    shares = nnls(rows, np.append(np.zeros(len(moved)), heavy), maxiter=10_000)[0]
    return matrix @ (shares / shares.sum() * total)


def _many_queries(seed: int, signed: bool, neighbours: str, epsilon: float):
    r = np.random.default_rng(seed)
    matrix = r.uniform(-1, 1, (3000, 16)) if signed else r.integers(0, 2, (3000, 16))
    domain = sf.Domain([sf.Integer("x", 0, 14, outside="clamp", nulls="missing")])
    work = sf.explicit(domain, ["x"], matrix)
    budget = sf.Budget(epsilon=epsilon, delta=1e-6)
    forecast = planned(work, "gaussian", budget=budget, neighbours=neighbours)
    counts = np.bincount(r.integers(0, 15, 60) ** 2 // 15, minlength=16)
    seen = measured(forecast, counts, SeededWords(seed))
    unbiased = reconstruct(forecast, seen)
    total = seen.rows if forecast.total_is_public else None
    rows = np.concatenate([t.dense() for t in forecast.workload.terms])
    exact = _exact_program(rows, np.concatenate(list(unbiased)), total)
    return forecast, seen, unbiased, exact, rows @ counts


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_many_noisy_answers_are_projected_as_by_the_exact_program(neighbours, signed):
    for seed, epsilon in ((1, 1.0), (2, 0.1)):
        made = _many_queries(seed, signed, neighbours, epsilon)
        forecast, seen, unbiased, exact, truth = made
        found = refined(forecast, seen, unbiased)
        assert isinstance(found, Refined)
        off = np.linalg.norm(np.concatenate(found.answers) - exact)
        assert off <= 0.02 * np.linalg.norm(exact - truth)


def test_a_tolerance_in_parts_of_the_noise_is_caught(monkeypatch):
    """A twin: with a gap that is small beside the noise the error is not that of the program."""
    whole = module.expected_square
    monkeypatch.setattr(module, "projected_square", lambda forecast, *_: 1e4 * whole(forecast))
    forecast, seen, unbiased, exact, truth = _many_queries(1, True, "replace-one", 1.0)
    found = refined(forecast, seen, unbiased)
    assert isinstance(found, Refined)
    off = np.linalg.norm(np.concatenate(found.answers) - exact)
    assert off > 0.02 * np.linalg.norm(exact - truth)


def test_the_gram_matrix_of_many_queries_is_made_some_at_a_time(monkeypatch):
    from sfumato.refine import problem

    forecast, _, unbiased, _, _ = _many_queries(1, True, "replace-one", 1.0)
    fit = module.objective_fit(forecast.workload, unbiased)
    grid = problem.Grid.of(fit)
    whole = problem.Quadratic(fit, grid)
    wanted = whole.gram(whole.places(np.arange(16)), whole.places(np.arange(16)))
    monkeypatch.setattr(problem, "LIMITS", replace(problem.LIMITS, gram_coefficients=1000))
    parts = problem.Quadratic(fit, grid)
    made = parts.gram(parts.places(np.arange(16)), parts.places(np.arange(16)))
    np.testing.assert_allclose(made, wanted, rtol=1e-12, atol=1e-9)
    # What no histogram can change is the part of the answers beyond the span of the queries.
    rows = np.concatenate([t.dense() for t in forecast.workload.terms])
    y = np.concatenate(list(unbiased))
    rest = y - rows @ np.linalg.lstsq(rows, y, rcond=None)[0]
    assert parts.unreachable == pytest.approx(0.5 * rest @ rest, rel=1e-9)
