# SPDX-License-Identifier: Apache-2.0
"""Beyond listed cells: the projection itself, and how much of a prior held-out noise asks for."""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.planning.forecast import noise_variance
from sfumato.planning.public_draws import Draws, drawn_noise
from sfumato.refine.consistency import Refined, objective_fit, refined
from sfumato.refine.reconstruct import fit_answers, released_tables
from sfumato.refine.refine_limits import LIMITS
from sfumato.refine.rows import fit_rows
from sfumato.refine.shrink import (
    PRIOR,
    HeldOut,
    held_out_count,
    held_out_noise,
    with_prior,
)
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


def test_the_release_says_how_much_of_the_prior_is_in_it():
    for kind, least, most in (("chain", 0.0, 0.2), ("independent", 0.8, 1.0)):
        *_, (_, mixed) = _cases(kind)[0]
        weight = mixed.towards.get(PRIOR, 0.0)
        assert least <= weight <= most
        assert mixed.share == pytest.approx(1 - weight)
        words = f"around independence ({weight:.0%}, as held-out noise says)"
        assert (words in mixed.describe()) == (weight > 0)


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


def _evidence(seed, blind=False):
    """Two linear estimates of a made-up truth, and the weight that held-out noise gives."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=400)

    def pair(y):
        return np.stack([0.9 * y, 0.3 * y])

    y = truth + rng.normal(size=400)
    evidence = HeldOut(y, np.ones(400), pair(y))
    z = rng.normal(size=400)
    c = LIMITS.held_out_scale
    for noise in (z, -z):
        evidence.add(0 * noise if blind else noise, pair(y if blind else y + c * noise))
    # Of 0.9 y and 0.3 y the mixture of least error at noise 1 + c^2 is known.
    shrunk = 1 / (2 + c * c)
    return evidence.numerator / evidence.denominator, (0.9 - shrunk) / 0.6


def test_held_out_noise_finds_the_mixture_of_least_error():
    found = np.array([_evidence(seed) for seed in range(60)])
    assert found[:, 0].mean() == pytest.approx(found[0, 1], abs=0.03)


def test_evidence_from_noise_that_the_estimates_saw_is_wrong():
    """The twin: answers judged by the answers that they came from favour what follows noise."""
    found = np.array([_evidence(seed, blind=True) for seed in range(60)])
    assert abs(found[:, 0].mean() - found[0, 1]) > 0.3


def _held(w):
    """Evidence for the weight w of two points that are 1 apart."""
    return HeldOut(np.zeros(1), np.ones(1), np.array([[0.0], [1.0]]), w, 1.0)


def test_the_weight_goes_to_the_nearer_end_without_a_jump():
    def weight(w, variance=0.0):
        return _held(w).weight(variance)

    grid = np.linspace(-0.5, 1.5, 401)
    weights = np.array([weight(w) for w in grid])
    assert weight(0.5) == 0.5
    assert (weights.min(), weights.max()) == (0, 1)
    assert np.abs(np.diff(weights)).max() <= LIMITS.held_out_stretch * 0.005 + 1e-9
    # Never beyond the nearer end, never on the other side of one half.
    inside = np.clip(grid, 0, 1)
    assert (np.abs(weights - 0.5) >= np.abs(inside - 0.5) - 1e-12).all()
    assert ((weights - 0.5) * (grid - 0.5) >= 0).all()
    same = HeldOut(np.zeros(1), np.ones(1), np.zeros((2, 1)))
    assert same.weight(0.0) == 0
    # Evidence that is mostly noise moves it less, and not at all in the end.
    moved = [abs(weight(0.9, variance) - 0.5) for variance in (0.0, 0.05, 0.3, 1e9)]
    assert moved == sorted(moved, reverse=True)
    assert moved[-1] == pytest.approx(0, abs=1e-6)


def test_what_was_measured_is_split_more_often_where_the_evidence_is_noisy():
    counts = [held_out_count(error) for error in (0.0, 0.05, 0.12, 0.2, 1.0, 1e9)]
    assert counts == sorted(counts)
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
