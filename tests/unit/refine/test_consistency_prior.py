# SPDX-License-Identifier: Apache-2.0
"""On both sides of listed cells: the projection, and how much of other estimates is mixed in."""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.planning.forecast import drawn_noise, noise_covariance, noise_variance
from sfumato.random import Draws
from sfumato.refine import consistency
from sfumato.refine.cells import fit_explicit
from sfumato.refine.consistency import Refined, objective_fit, refined
from sfumato.refine.problem import Grid
from sfumato.refine.reconstruct import fit_answers, released_tables
from sfumato.refine.refine_limits import LIMITS
from sfumato.refine.row_problem import problem
from sfumato.refine.rows import fit_rows
from sfumato.refine.shrink import (
    EVEN,
    INDEPENDENT,
    LOCAL,
    PRIOR,
    HeldOut,
    held_out_count,
    held_out_noise,
    with_prior,
)
from sfumato.release.estimates import cell_table
from tests.shared.made_releases import planned

DOMAIN = sf.Domain({f"x{i}": 8 for i in range(8)})  # 16 million cells
WORK = sf.marginals(DOMAIN, 2)
BUDGET = sf.Budget(epsilon=1, delta=1e-6)
ROWS = 3000
DRAWS = 2


def _chain(rng):
    codes = rng.integers(8, size=(ROWS, len(DOMAIN)))
    for a in range(1, len(DOMAIN)):
        follows = rng.random(ROWS) < 0.8
        codes[follows, a] = codes[follows, a - 1]
    return codes


def _independent(rng):
    shares = [rng.dirichlet(np.ones(8)) for _ in DOMAIN]
    return np.column_stack([rng.choice(8, ROWS, p=p) for p in shares])


def _clustered(rng):
    centres = rng.integers(8, size=(3, len(DOMAIN)))
    codes = centres[rng.choice(3, ROWS, p=(0.5, 0.3, 0.2))]
    return np.where(rng.random(codes.shape) < 0.05, rng.integers(8, size=codes.shape), codes)


def _sparse(rng):
    codes = rng.integers(8, size=(ROWS, len(DOMAIN)))
    return np.where(rng.random(codes.shape) < 0.05, codes, 0)


KINDS = {f.__name__.strip("_"): f for f in (_chain, _independent, _clustered, _sparse)}


def _truth(codes):
    out = []
    for term in WORK.terms:
        table = np.zeros(term.shape)
        np.add.at(table, tuple(codes[:, DOMAIN.index(n)] for n in term.attributes), 1)
        out.append(table.reshape(-1))
    return np.concatenate(out)


def _split(answers):
    return np.split(answers, np.cumsum([t.rows for t in WORK.terms])[:-1])


@lru_cache
def _forecast():
    return planned(WORK, "factorization", budget=BUDGET, neighbours="replace-one")


@lru_cache
def _cases(kind):
    """Noisy answers, the truth, and the answers of projection, prior and default, by draw."""
    forecast, rng = _forecast(), np.random.default_rng(len(kind))
    out = []
    for noise in drawn_noise(forecast, Draws(f"test {kind}"), DRAWS):
        truth = _truth(KINDS[kind](rng))
        noisy = _split(truth + noise)
        seen = SimpleNamespace(rows=ROWS)
        both = [refined(forecast, seen, noisy, shrinks=shrinks) for shrinks in (False, True)]
        assert all(isinstance(r, Refined) and r.method == "rows" for r in both)
        errors = [np.full(t.rows, 1 / forecast.groups[0].rmse ** 2) for t in WORK.terms]
        fit = with_prior(
            fit_answers(WORK, noisy, errors), released_tables(forecast, noisy), float(ROWS)
        )
        prior = np.concatenate(fit_rows(fit, ROWS, draws=Draws("prior")).answers()[: len(noisy)])
        nearest, default = (np.concatenate(r.answers) for r in both)
        out.append((np.concatenate(noisy), truth, nearest, prior, default, both))
    return out


def _ratios(kind, which):
    """Errors over that of the better of projection and prior, means over draws."""
    squares = np.array(
        [[np.mean((a - truth) ** 2) for a in answers] for _, truth, *answers, _ in _cases(kind)]
    ).mean(axis=0)
    return float(np.sqrt(squares[which] / squares[:2].min()))


@pytest.mark.parametrize("kind", KINDS)
def test_the_default_is_hardly_behind_the_better_of_projection_and_prior(kind):
    assert _ratios(kind, 2) <= 1.03


def test_neither_projection_nor_prior_is_the_better_one_for_all_data():
    """The twins: whoever always takes one of the two is far behind on some data."""
    assert _ratios("chain", 1) > 1.1
    assert _ratios("independent", 0) > 1.5


@pytest.mark.parametrize("kind", KINDS)
def test_nearest_is_the_projection_at_any_size(kind):
    noisy, _, nearest, prior, _, (plain, _) = _cases(kind)[0]
    assert not plain.towards
    assert plain.describe() == "projected onto the answers of weighted records"
    value = 0.5 * float(np.sum((nearest - noisy) ** 2))
    assert value < 0.5 * float(np.sum((prior - noisy) ** 2))
    fit = objective_fit(WORK, _split(noisy))
    least = fit_rows(fit, ROWS, draws=Draws("other"), gap=1e-4, rounds=60)
    assert np.sqrt(value) <= 1.02 * np.sqrt(least.value)
    # Proved: no answers of data are nearer than the certified distance allows.
    assert 0.5 * plain.distance**2 >= value - least.value
    assert np.isfinite(plain.distance)
    # The twin: rows with a prior are not the projection.
    assert np.sqrt(np.sum((prior - noisy) ** 2)) > 1.02 * np.sqrt(2 * least.value)


def test_the_release_says_how_much_of_each_estimate_is_in_it():
    for kind, least, most in (("chain", 0.0, 0.2), ("independent", 0.8, 1.0)):
        *_, (_, mixed) = _cases(kind)[0]
        weight = sum(mixed.towards.values())
        assert least <= weight <= most
        assert set(mixed.towards) <= {PRIOR, INDEPENDENT, EVEN}
        assert mixed.share == pytest.approx(1 - weight)
        for name, share in mixed.towards.items():
            assert f"{name} ({share:.0%})" in mixed.describe()
        assert mixed.describe().endswith("as held-out noise says") == (weight > 0)


@pytest.mark.parametrize("kind", ["chain", "independent"])
def test_a_mixture_is_answered_by_its_rows(kind):
    *_, (_, mixed) = _cases(kind)[0]
    assert mixed.total == pytest.approx(ROWS)
    assert mixed.weights.min() >= 0
    term = WORK.terms[3]
    table = np.zeros(term.shape)
    places = [mixed.attributes.index(n) for n in term.attributes]
    np.add.at(table, tuple(mixed.codes[:, places].T), mixed.weights)
    assert table.reshape(-1) == pytest.approx(mixed.answers[3], abs=1e-6)


@pytest.mark.parametrize("kind", ["chain", "clustered"])
def test_intervals_hold_the_truth_whatever_the_prior_does_to_correlated_answers(kind):
    codes = KINDS[kind](np.random.default_rng(9))
    frame = pd.DataFrame(dict(zip(DOMAIN.names, codes.T, strict=True)))
    plan = sf.plan(WORK, BUDGET, "replace-one", mechanism="factorization", seconds=None)
    release = plan.release(frame)
    truth, held, narrow = _split(_truth(codes)), [], []
    for t, exact in enumerate(truth):
        low, high = release.estimates.interval(t, 0.95)
        held.append((low <= exact + 1e-9) & (exact - 1e-9 <= high))
        # The twin: ends at half the width around the unbiased answer do not hold.
        unbiased, half = release.estimates.unbiased[t], 0.98 * release.forecast.standard_errors(t)
        narrow.append(np.abs(unbiased - exact) <= half)
    assert np.mean(np.concatenate(held)) >= 0.93
    assert np.mean(np.concatenate(narrow)) < 0.8


SMALL = sf.Domain({f"x{i}": 8 for i in range(4)})  # 4,096 cells: listed
FEW = sf.marginals(SMALL, 2)
RECORDS = 1000


@lru_cache
def _listed_squares(kind):
    """Mean squared errors over listed cells: projection, prior, even counts, default."""
    forecast = planned(FEW, "factorization", budget=BUDGET, neighbours="replace-one")
    rng, out = np.random.default_rng(len(kind)), []
    for noise in drawn_noise(forecast, Draws(f"listed {kind}"), 3):
        codes = KINDS[kind](rng)[:RECORDS, : len(SMALL)]
        truth = []
        for term in FEW.terms:
            table = np.zeros(term.shape)
            np.add.at(table, tuple(codes[:, SMALL.index(n)] for n in term.attributes), 1)
            truth.append(table.reshape(-1))
        exact = np.concatenate(truth)
        noisy = np.split(exact + noise, np.cumsum([t.rows for t in FEW.terms])[:-1])
        seen = SimpleNamespace(rows=RECORDS)
        both = [refined(forecast, seen, noisy, shrinks=shrinks) for shrinks in (False, True)]
        assert all(isinstance(r, Refined) and r.method == "histogram" for r in both)
        precisions = [forecast.standard_errors(t) ** -2 for t in range(len(FEW.terms))]
        fit = with_prior(
            fit_answers(FEW, noisy, precisions), released_tables(forecast, noisy), float(RECORDS)
        )
        prior = fit_explicit(fit, Grid.of(fit), float(RECORDS), gap=1e-3).answers[: len(exact)]
        even = np.full(len(exact), RECORDS / 64)
        near, default = (np.concatenate(r.answers) for r in both)
        out.append([np.mean((a - exact) ** 2) for a in (near, prior, even, default)])
    return np.mean(out, axis=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_rule_holds_where_cells_can_be_listed(kind):
    *others, default = _listed_squares(kind)
    assert default <= 1.03**2 * min(others)


def test_where_cells_can_be_listed_neither_is_always_the_better_one():
    """The twins: to project always, or to follow the prior always, is far behind on some data."""
    chain, independent = _listed_squares("chain"), _listed_squares("independent")
    assert chain[1] > 1.1**2 * chain[0]
    assert independent[0] > 1.3**2 * independent[1]


def _white(rows):
    """The covariance of combinations of independent noise of variance 1."""
    return rows @ rows.T


def _evidence(seed, blind=False):
    """Two linear estimates of a made-up truth, and the share that held-out noise gives one."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=400)

    def pair(y):
        return np.stack([0.9 * y, 0.3 * y])

    y = truth + rng.normal(size=400)
    evidence = HeldOut(y, np.ones(400), pair(y), np.ones(2), 400.0, _white)
    z = rng.normal(size=400)
    c = LIMITS.held_out_scale
    for noise in (z, -z):
        evidence.add(0 * noise if blind else noise, pair(y if blind else y + c * noise))
    # Of 0.9 y and 0.3 y the mixture of least error at noise 1 + c^2 is known.
    return evidence.shares()[1], (0.9 - 1 / (2 + c * c)) / 0.6


def test_held_out_noise_finds_the_mixture_of_least_error():
    weights = np.array([_evidence(seed) for seed in range(60)])
    assert weights[:, 0].mean() == pytest.approx(weights[0, 1], abs=0.03)


def test_evidence_from_noise_that_the_estimates_saw_is_wrong():
    """The twin: answers judged by the answers that they came from favour what follows noise."""
    weights = np.array([_evidence(seed, blind=True) for seed in range(60)])
    assert abs(weights[:, 0].mean() - weights[0, 1]) > 0.3


def _surprise(seed):
    """How far evidence on a projection was off, and the variances that it states, of two parts.

    The projection onto what is not negative is weighed against zero, truth is mostly zero.
    """
    rng = np.random.default_rng(seed)
    truth = np.where(np.arange(300) < 20, 3.0, 0.0)
    y = truth + rng.normal(size=300)

    def pair(y):
        return np.stack([np.maximum(y, 0.0), np.zeros(300)])

    evidence = HeldOut(y, np.ones(300), pair(y), np.ones(2), 300.0, _white)
    z, off = rng.normal(size=300), 0.0
    for noise in (z, -z):
        points = pair(y + LIMITS.held_out_scale * noise)
        evidence.add(noise, points)
        off += (points[0] - points[1]) @ truth / 2
    pull = evidence.pull / 2
    return pull[0] - pull[1] - off, evidence.noise()[0, 0], evidence.own[0, 0]


def test_the_noise_of_the_evidence_is_what_it_is_taken_for():
    off, stated, own = np.array([_surprise(seed) for seed in range(400)]).T
    assert abs(off.mean()) < 4 * off.std() / 20  # unbiased
    # The sample variance of 400 nearly normal numbers has a standard error of 7%.
    assert stated.mean() == pytest.approx(off.var(), rel=0.25)
    # The twin: without the noise of the derivative it would be taken for half of what it is.
    assert own.mean() < 0.6 * off.var()


def _shares(w, variance=0.0, points=((0.0,), (1.0,))):
    """The shares after evidence that w of the second of two points has least error."""
    values, points = np.array([w]), np.array(points)
    evidence = HeldOut(values, np.ones(1), points, np.ones(2), 9.0, lambda c: variance * _white(c))
    evidence.add(np.zeros(1), points)
    return evidence.shares()


def test_the_shares_follow_the_evidence_as_far_as_its_noise_allows():
    grid = np.linspace(-0.5, 1.5, 401)
    weights = np.array([_shares(w)[1] for w in grid])
    # Without noise the best share itself, within 0 and 1, but for what is left out.
    assert weights == pytest.approx(np.clip(grid, 0, 1), abs=LIMITS.held_out_ignored + 1e-9)
    assert _shares(0.004).tolist() == [1, 0]
    # Evidence that is mostly noise moves them less, and not at all in the end.
    moved = [abs(_shares(0.9, variance)[1] - 0.5) for variance in (0.0, 0.05, 0.3, 1e9)]
    assert moved == sorted(moved, reverse=True)
    assert moved[-1] == pytest.approx(0, abs=1e-6)
    # Of estimates that are the same the first is taken.
    assert _shares(0.7, points=((0.3,), (0.3,))).tolist() == [1, 0]


def test_shares_of_many_estimates_are_those_of_a_mixture():
    rng = np.random.default_rng(8)
    points, best = rng.normal(size=(4, 30)), np.array([0.4, 0.1, 0.3, 0.2])
    points[1] = points[0] + np.sign(points[1])  # all differences are of one size
    noise = 0.0

    def shares():
        evidence = HeldOut(
            best @ points, np.ones(30), points, np.ones(4), 1e3, lambda c: noise * np.eye(len(c))
        )
        evidence.add(np.zeros(30), points)
        return evidence.shares()

    assert shares() == pytest.approx(best, abs=1e-6)
    # The twin: noise without end leaves equal shares.
    noise = 1e12
    assert shares() == pytest.approx(np.full(4, 0.25), abs=1e-3)


def test_estimates_that_differ_in_few_answers_are_mixed_less():
    """Mean absolute errors of a mixture that is the best one in squares, and of the shares."""
    truth, away = np.zeros(400), np.zeros((2, 400))
    away[0, :20], away[1, 20:40] = 1.0, 0.8  # wrong in cells that are not the same ones

    def shares(points):
        evidence = HeldOut(truth, np.ones(400), points, np.ones(2), 1e4, lambda c: 0 * _white(c))
        evidence.add(np.zeros(400), points)
        return evidence.shares()

    chosen, squares = shares(away), 0.8**2 / (1 + 0.8**2)
    assert chosen[0] < 0.02 < squares
    assert np.abs(chosen @ away).mean() < 0.95 * np.abs([squares, 1 - squares] @ away).mean()
    # The twin: the same errors, spread over all cells, are mixed as squares ask.
    even = np.random.default_rng(3).normal(size=(2, 400)) * [[1.0], [0.8]]
    square, within = (even**2).sum(axis=1), even[0] @ even[1]
    best = (square[1] - within) / (square.sum() - 2 * within)
    assert shares(even)[0] == pytest.approx(best, abs=0.03)


def test_estimates_far_away_do_not_decide_between_near_ones():
    rng = np.random.default_rng(9)
    truth = rng.normal(size=500)
    near = truth + rng.normal(size=(2, 500)) * [[0.1], [0.3]]
    points = np.vstack([near, truth + 1e4 * rng.normal(size=(2, 500))])
    evidence = HeldOut(
        truth, np.ones(500), points, np.ones(4), 1e3, lambda c: 1e-9 * np.eye(len(c))
    )
    evidence.add(np.zeros(500), points)
    # The best of the two nearby: inverse squares of their errors, 0.9 and 0.1.
    shares = evidence.shares()
    assert shares == pytest.approx([0.9, 0.1, 0, 0], abs=0.03)


SHARP = sf.Budget(epsilon=30, delta=1e-6)


def _mended(steps):
    """Little noise: errors of what is published after a search of so many steps, and of noise."""
    forecast = planned(WORK, "factorization", budget=SHARP, neighbours="replace-one")
    truth = _truth(KINDS["chain"](np.random.default_rng(1)))
    noise = next(drawn_noise(forecast, Draws("local"), 1))
    both = [
        refined(forecast, SimpleNamespace(rows=ROWS), _split(truth + noise), shrinks=s, steps=steps)
        for s in (False, True)
    ]
    errors = [np.inf, np.inf]
    for i, each in enumerate(both):
        if isinstance(each, Refined):
            errors[i] = float(np.sqrt(np.mean((np.concatenate(each.answers) - truth) ** 2)))
    return both[1], errors, float(np.sqrt(np.mean(noise**2)))


@pytest.mark.parametrize("steps", [1e5, 3e7])
def test_what_a_short_search_misses_is_mended_before_it_is_published(steps):
    mended, (rows, published), noise = _mended(steps)
    assert rows > 1.2 * noise  # the twin: rows by themselves publish worse than was measured
    assert published < 1.01 * noise
    assert mended.towards[LOCAL] > 0.5


def test_tables_that_only_agree_are_answered_by_themselves_and_by_their_margins():
    mended, _, _ = _mended(3e7)
    assert set(mended.tables) == {t.attributes for t in WORK.terms}
    for term, answers in zip(WORK.terms, mended.answers, strict=True):
        table = cell_table(mended, DOMAIN, term.attributes)
        assert table.reshape(-1) == pytest.approx(answers, abs=1e-6)
        assert table.min() >= 0
    one = cell_table(mended, DOMAIN, ("x3",))
    for names in (("x0", "x3"), ("x3", "x7")):
        pair = cell_table(mended, DOMAIN, names)
        assert pair.sum(axis=1 - names.index("x3")) == pytest.approx(one, abs=1e-4)
    turned = cell_table(mended, DOMAIN, ("x7", "x3"))
    assert turned == pytest.approx(cell_table(mended, DOMAIN, ("x3", "x7")).T)
    # Three together are in no table: the weighted rows behind answer, of the same total.
    assert cell_table(mended, DOMAIN, ("x0", "x1", "x2")).sum() == pytest.approx(ROWS)


def test_what_was_measured_is_split_more_often_where_the_evidence_is_noisy():
    counts = [held_out_count(error, 5000) for error in (0.0, 0.05, 0.12, 0.2, 1.0, 1e9)]
    assert counts == sorted(counts)
    few = [held_out_count(0.0, queries) for queries in (5000, 400, 100, 1)]
    assert few == sorted(few)
    assert (few[0], few[-1]) == (1, 2 * LIMITS.held_out_draws)
    assert counts[0] == 1
    assert counts[-1] == 2 * LIMITS.held_out_draws
    forecast = _forecast()
    drawn = list(held_out_noise(forecast, 4))
    assert len(drawn) == 4
    assert drawn[1] == pytest.approx(-drawn[0])
    assert np.abs(drawn[2] - drawn[0]).max() > 0
    assert len(list(held_out_noise(forecast, 1))) == 1


def test_the_variance_of_a_combination_of_answers_is_that_of_drawn_noise():
    forecast = _forecast()
    along = np.random.default_rng(4).normal(size=WORK.queries)
    drawn = [along @ z for z in drawn_noise(forecast, Draws("variance"), 400)]
    # The sample variance of 400 normal draws has a standard error of 7%.
    assert noise_variance(forecast, along) == pytest.approx(np.var(drawn), rel=0.25)


def test_covariances_of_combinations_are_those_of_their_sums():
    forecast, rng = _forecast(), np.random.default_rng(5)
    along = rng.normal(size=(3, WORK.queries))
    along[2] = along[0]
    covariance = noise_covariance(forecast, along)
    assert covariance[0, 2] == pytest.approx(noise_variance(forecast, along[0]))
    c = np.array([1.0, -2.0, 0.5])
    assert c @ covariance @ c == pytest.approx(noise_variance(forecast, c @ along))


def _large(kind):
    """Squared errors of counts that stand out: as published, and where none is held."""
    forecast, out = _forecast(), []
    for noisy, truth, _, _, default, _ in _cases(kind):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(consistency, "_held", lambda *parts: parts[-1])
            free = refined(forecast, SimpleNamespace(rows=ROWS), _split(noisy), shrinks=True)
        stands_out = noisy > LIMITS.count_stands_out * forecast.groups[0].rmse
        assert stands_out.any()
        pair = (default, np.concatenate(free.answers))
        out.append([np.mean((a - truth)[stands_out] ** 2) for a in pair])
    return np.mean(out, axis=0)


def test_counts_that_stand_out_are_nearer_to_the_truth_where_they_are_held():
    held, free = _large("chain")
    assert held < 0.95 * free


def _numbers():
    noisy, _, _, _, _, both = _cases("chain")[0]
    numbers = consistency._Numbers(_forecast(), _split(noisy))
    rows = both[1]
    return numbers, np.ascontiguousarray(rows.codes.T), rows.weights


def test_counts_stay_where_their_noise_explains_how_far_they_are_from_what_was_measured():
    numbers, codes, weights = _numbers()
    variances = np.full(len(numbers.values), _forecast().groups[0].rmse ** 2)
    # Answers that ran away from the noise: V - X above D.
    assert consistency._held(numbers, -4 * variances, codes, weights) is weights
    # The twin: answers that follow the noise wholly have nothing to lose, V = X.
    moved = consistency._held(numbers, variances, codes, weights)
    assert moved is not weights
    assert moved.sum() == pytest.approx(weights.sum())
    fit = numbers.by_objective
    before, after = (
        np.concatenate(problem(fit, float(w.sum())).answers(codes, w)) for w in (weights, moved)
    )
    large = numbers.values > LIMITS.count_stands_out * np.sqrt(variances)
    off = [np.abs(a - numbers.values)[large].mean() for a in (before, after)]
    assert off[1] < 0.7 * off[0]
