# SPDX-License-Identifier: Apache-2.0
"""What answers can be: bounds that hold for all data, intervals that lose no possible truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

import sfumato as sf
from sfumato.errors import WorkloadError
from sfumato.measurement import Measured
from sfumato.planning.forecast import drawn_noise
from sfumato.random import Draws
from sfumato.refine.consistency import Refined, refined
from sfumato.refine.intervals import Bounds, ErrorLaw, calibrated, check_intervals, sure_bounds
from sfumato.release.linear_estimates import LinearEstimates
from tests.shared.dense import dense_workload

DOMAIN = sf.Domain({"a": 3, "b": 4, "c": 2})
WORKS = {
    "tables": lambda: sf.marginals(DOMAIN, 2),
    "prefixes": lambda: sf.prefixes(DOMAIN, "b", by=["a"]),
    "ranges": lambda: sf.ranges(DOMAIN, "b", by=["c"]),
    "conditions": lambda: sf.predicates(DOMAIN, ["a = 1 and b in (0, 2)", "a = 0 and b >= 2"]),
    "signed": lambda: sf.product(DOMAIN, {"a": [[1.0, -1.0, 0.5]], "b": "identity"}),
    "halves": lambda: sf.product(DOMAIN, {"a": [[0.5, 2.0, 1.0]], "c": "identity"}),
    "total": lambda: sf.marginals(DOMAIN, 0),
}
CONDITIONS = [[], ["a = 0 and b >= 2"], ["a = 0 and b >= 2", "b = 3 and c = 1"]]
TABLES = [[], [[]], [["c"]], [["a", "b"]], [["a"], ["b", "c"]]]


def margin(h: np.ndarray, names) -> np.ndarray:
    return h.sum(axis=tuple(i for i, n in enumerate(DOMAIN.names) if n not in names))


def made(seed: int, conditions, tables) -> tuple[np.ndarray, sf.Constraints]:
    """Records that meet some constraints, and the constraints."""
    h = np.random.default_rng(seed).poisson(2.0, DOMAIN.shape) * 1.0
    h *= sf.Constraints(DOMAIN, conditions).possible(DOMAIN.names)
    return h, sf.Constraints(DOMAIN, conditions, [(t, margin(h, t)) for t in tables])


@pytest.mark.parametrize("asked", WORKS)
@pytest.mark.parametrize("tables", TABLES, ids=str)
@pytest.mark.parametrize("conditions", CONDITIONS, ids=len)
def test_bounds_hold_for_every_data_set_that_meets_the_constraints(asked, tables, conditions):
    """They enclose the least and the greatest answer, which a linear program finds."""
    work = WORKS[asked]()
    h, known = made(3, conditions, tables)
    term, F = work.terms[0], dense_workload(work)
    found = sure_bounds(term, None, known)
    A = [dense_workload(sf.marginals(DOMAIN, [list(t)])) for t in tables]
    b = [margin(h, t).reshape(-1) for t in tables]
    possible = known.possible(DOMAIN.names).reshape(-1)
    ends = [(0, None if p else 0) for p in possible]
    for q in (0, term.rows - 1):
        for sign, bound in ((1, found.low[q]), (-1, found.high[q])):
            least = linprog(
                sign * F[q],
                A_eq=np.concatenate(A) if A else None,
                b_eq=np.concatenate(b) if b else None,
                bounds=ends,
            )
            if least.status == 0:
                assert sign * bound <= least.fun + 1e-7
            else:
                assert least.status == 3, "without a published total nothing bounds the answer"
                assert not np.isfinite(bound)


def test_impossible_cells_are_zero_and_published_answers_known():
    h, known = made(5, ["a = 0 and b >= 2"], [["a"]])
    term = sf.marginals(DOMAIN, [["a", "b"]]).terms[0]
    found = sure_bounds(term, None, known)
    low, high = found.low.reshape(3, 4), found.high.reshape(3, 4)
    assert (high[0, 2:] == 0).all()
    assert (low == 0).all()
    assert (high[1] == h[1].sum()).all()
    one = sure_bounds(sf.prefixes(DOMAIN, "a").terms[0], None, known)
    assert (one.low == one.high).all()
    assert one.low.tolist() == np.cumsum(margin(h, ["a"])).tolist()


def test_counts_are_whole_and_other_sums_are_not():
    assert sure_bounds(WORKS["tables"]().terms[0], None).is_whole
    assert sure_bounds(WORKS["conditions"]().terms[0], None).is_whole
    assert not sure_bounds(WORKS["halves"]().terms[0], None).is_whole


numbers = st.floats(-20, 20)
cases = st.tuples(
    numbers, st.floats(0, 5), st.floats(0, 5), st.integers(-5, 5), st.integers(0, 8), st.booleans()
)


def ends_of(case, value=None):
    centre, half, more, first, length, is_whole = case
    bounds = Bounds(np.array([float(first)]), np.array([float(first + length)]), is_whole)
    at = bounds.clamp(np.array([centre]) if value is None else np.array([value]))
    middle = np.array([centre])
    halves = (half, half + more)
    given = [bounds.interval(middle - h, middle + h, middle, at) for h in halves]
    return bounds, at, [(float(low[0]), float(high[0])) for low, high in given]


@given(cases, numbers)
def test_a_value_lies_in_its_interval_and_higher_levels_enclose_lower_ones(case, value):
    _, at, ((low, high), (lower, higher)) = ends_of(case, value)
    assert low <= at[0] <= high
    assert lower <= low
    assert high <= higher


@given(cases)
def test_no_possible_truth_is_lost(case):
    bounds, _, ends = ends_of(case)
    centre, half, more, *_ = case
    possible = np.arange(bounds.low[0], bounds.high[0] + 1)
    for reach, (low, high) in zip((half, half + more), ends, strict=True):
        inside = possible[np.abs(possible - centre) <= reach]
        assert ((low <= inside) & (inside <= high)).all()
        assert bounds.low[0] <= low
        assert high <= bounds.high[0]


def test_a_count_between_two_whole_numbers_keeps_the_nearer_one_at_every_level():
    """At a low level no whole number is inside; the ends must not move outwards for it."""
    bounds = Bounds(np.zeros(1), np.full(1, np.inf), True)
    centre, value = np.array([2.4]), np.array([2.4])
    widths = []
    for half in (0.1, 0.3, 0.41, 0.7, 2.0):
        low, high = bounds.interval(centre - half, centre + half, centre, value)
        assert low[0] <= 2 <= high[0]
        widths.append(float(high[0] - low[0]))
    assert widths == sorted(widths)
    # The twin: rounding outwards where nothing is inside would give 1 at the lowest level.
    assert widths[0] < 1


def test_published_counts_that_are_no_whole_numbers_are_left_alone():
    bounds = Bounds(np.array([2.5]), np.array([2.5]), True)
    at = np.array([4.0])
    low, high = bounds.interval(at - 1, at + 1, at, np.array([2.5]))
    assert (low[0], high[0]) == (2.5, 2.5)


def test_no_interval_starts_at_minus_zero():
    bounds, centre = Bounds(np.zeros(1), np.full(1, np.inf), True), np.array([0.2])
    low, _ = bounds.interval(centre - 3, centre + 3, centre, centre)
    assert np.signbit(np.ceil(-1e-9))  # what rounding alone would give
    assert not np.signbit(low).any()


# Calibrated intervals

LONG = sf.Domain({f"x{i}": size for i, size in enumerate((4, 5, 6, 3, 7, 10, 9, 5, 2, 2, 8))})


def test_an_error_is_that_of_the_noise_or_of_the_count_whichever_is_less():
    law = ErrorLaw(tau=4.0, floor=1.0, estimate=1.0, raised=1.0)
    values, noise = np.array([0.0, 10.0, 1000.0, 5.0]), np.array([20.0, 20.0, 20.0, 0.0])
    errors = law.errors(values, noise)
    assert (errors <= noise).all()
    assert (errors <= np.sqrt(4 * (values + 1))).all()
    assert np.all(np.diff(errors[:3]) > 0)


def test_calibrated_intervals_need_estimates_that_are_weighed():
    forecast = sf.plan(WORKS["tables"](), sf.Budget(epsilon=1, delta=1e-6)).forecast
    with pytest.raises(WorkloadError, match="leave project out"):
        check_intervals("calibrated", forecast, "nearest", None)
    with pytest.raises(WorkloadError, match="calibrated"):
        check_intervals("sharp", forecast, True, None)


def kinds_of_records(seed: int) -> np.ndarray:
    """Three thousand records of six kinds, each with skewed attributes."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(6, 3000, p=1 / np.arange(1, 7) / (1 / np.arange(1, 7)).sum())
    columns = []
    for size in LONG.shape:
        shares = rng.dirichlet(np.full(size, 0.5), 6).cumsum(axis=1)
        columns.append((rng.random((3000, 1)) > shares[kind]).sum(axis=1).clip(0, size - 1))
    return np.column_stack(columns)


@pytest.fixture(scope="module")
def calibrated_release() -> tuple[LinearEstimates, np.ndarray]:
    """A release of all pairs beyond listed cells, and the true answers."""
    work = sf.marginals(LONG, 2)
    budget = sf.Budget(epsilon=0.2, delta=1e-9)
    forecast = sf.plan(work, budget, mechanism="factorization").forecast.in_normal_form
    work = forecast.workload
    codes = kinds_of_records(3)
    truth = []
    for term in work.terms:
        shape = tuple(LONG[n].size for n in term.attributes)
        at = [codes[:, LONG.index(n)] for n in term.attributes]
        truth.append(np.bincount(np.ravel_multi_index(at, shape), minlength=int(np.prod(shape))))
    exact = np.concatenate(truth).astype(float)
    noisy = exact + next(drawn_noise(forecast, Draws("calibrated"), 1))
    parts = np.split(noisy, np.cumsum([t.rows for t in work.terms])[:-1])
    published = refined(forecast, Measured((), None), parts, shrinks=True)
    assert isinstance(published, Refined)
    laws = calibrated(forecast, published)
    assert laws is not None
    return LinearEstimates(
        forecast, parts, None, True, published, laws=laws, is_calibrated=True
    ), exact


def test_calibrated_intervals_hold_and_are_shorter_than_those_of_the_noise(calibrated_release):
    estimates, truth = calibrated_release
    plain = replace(estimates, is_calibrated=False)
    groups = range(len(estimates.workload.terms))
    ends = [np.concatenate([estimates.interval(t, 0.95)[i] for t in groups]) for i in (0, 1)]
    wide = [np.concatenate([plain.interval(t, 0.95)[i] for t in groups]) for i in (0, 1)]
    value = np.concatenate([estimates.value(t) for t in groups])
    held = (ends[0] <= truth) & (truth <= ends[1])
    assert held.mean() > 0.93
    by_size = np.array_split(held[np.argsort(truth, kind="stable")], 10)
    assert min(part.mean() for part in by_size) > 0.88
    # Taken to whole numbers one may be longer by less than one.
    assert (ends[1] - ends[0] <= wide[1] - wide[0] + 1 + 1e-9).all()
    assert ((ends[0] <= value) & (value <= ends[1])).all()
    error = np.sqrt(np.mean((value - truth) ** 2))
    assert np.median(ends[1] - ends[0]) / 2 < 2.5 * error
    assert np.median(ends[1] - ends[0]) < 0.8 * np.median(wide[1] - wide[0])
    estimate = estimates.laws.laws[0]
    assert estimate.estimate == pytest.approx(error, rel=0.25)


def test_a_third_of_a_calibrated_interval_would_be_noticed(calibrated_release):
    estimates, truth = calibrated_release
    groups = range(len(estimates.workload.terms))
    ends = [np.concatenate([estimates.interval(t, 0.95)[i] for t in groups]) for i in (0, 1)]
    value = np.concatenate([estimates.value(t) for t in groups])
    short = [value + (end - value) / 3 for end in ends]
    assert ((short[0] <= truth) & (truth <= short[1])).mean() < 0.9


def test_higher_levels_have_longer_calibrated_intervals(calibrated_release):
    estimates, _ = calibrated_release
    widths = [np.subtract(*estimates.interval(0, level)[::-1]).mean() for level in (0.5, 0.9, 0.99)]
    assert widths == sorted(widths)


def test_few_answers_keep_the_intervals_of_the_noise(calibrated_release):
    estimates, _ = calibrated_release
    published = estimates.refined
    one = sf.Workload(LONG, estimates.workload.terms[:1])
    few = replace(published, answers=published.answers[:1], squares=published.squares[:1])
    forecast = sf.plan(one, sf.Budget(epsilon=1, delta=1e-9)).forecast
    assert calibrated(forecast, few) is None
