# SPDX-License-Identifier: Apache-2.0
"""Few records and much noise: shrunk answers against the projection and an even histogram."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

import sfumato as sf
from sfumato.refine import towards_even as module
from sfumato.refine.cells.explicit import fit_explicit
from sfumato.refine.cells.grid import Grid
from sfumato.refine.cells.quadratic import Quadratic
from sfumato.refine.draws import Draws
from sfumato.refine.refined import objective_fit
from sfumato.refine.widths.geometry import Hull
from sfumato.refine.widths.projected_noise import drawn_noise
from sfumato.release import Release
from tests.unit.release.made import measured, planned
from tests.words import SeededWords

WORK = sf.marginals(sf.Domain({f"q{i}": 2 for i in range(6)}), 2)
LONG = sf.marginals(sf.Domain({"a": 3, "b": 4, "c": 2}), 2) | sf.prefixes(
    sf.Domain({"a": 3, "b": 4, "c": 2}), "b"
)
RUNS = 12


@lru_cache
def forecast_of(work, epsilon, neighbours="replace-one"):
    budget = sf.Budget(epsilon=epsilon, delta=1e-6)
    return planned(work, "gaussian", budget=budget, neighbours=neighbours)


def truth_of(work, kind, n, rng):
    cells = Hull.of(work).matrix.shape[1]
    shares = {
        "one": np.eye(cells)[rng.integers(cells)],
        "even": np.full(cells, 1 / cells),
        "skewed": rng.dirichlet(np.full(cells, 0.1)),
    }[kind]
    return Hull.of(work).matrix @ rng.multinomial(n, shares)


def split(work, answers):
    return np.split(answers, np.cumsum([t.rows for t in work.terms])[:-1])


@lru_cache
def squares(work, kind, n, epsilon, neighbours="replace-one"):
    """Mean squared errors of the projection, of an even histogram of its total, and shrunk."""
    forecast, rng = forecast_of(work, epsilon, neighbours), np.random.default_rng(7)
    even = Hull.of(work).matrix.mean(axis=1)
    total = float(n) if neighbours == "replace-one" else None
    out = []
    for noise in drawn_noise(forecast, Draws(f"test {kind} {n}"), RUNS):
        truth = truth_of(work, kind, n, rng)
        fit = objective_fit(work, split(work, truth + noise))
        plain = fit_explicit(fit, Grid.of(fit), total, gap=1e-3)
        found = module.shrunk_to_even(forecast, fit, plain, total is not None)
        shrunk = plain.answers if found is None else found.answers
        tried = (plain.answers, plain.weights.sum() * even, shrunk)
        out.extend(np.mean((each - truth) ** 2) for each in tried)
    return np.reshape(out, (RUNS, 3)).mean(axis=0)


@pytest.mark.parametrize("kind", ["one", "even", "skewed"])
@pytest.mark.parametrize("n", [5, 40])
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_shrunk_answers_are_hardly_ever_worse_than_the_projection(kind, n, neighbours):
    projected, _, shrunk = squares(WORK, kind, n, 0.5, neighbours)
    assert shrunk <= 1.1**2 * projected


@pytest.mark.parametrize("kind", ["one", "even", "skewed"])
def test_with_very_few_records_they_are_about_as_good_as_an_even_histogram(kind):
    projected, even, shrunk = squares(WORK, kind, 5, 0.1)
    assert shrunk <= 1.15**2 * even
    assert even < projected / 1.2**2  # the twin: the projection itself is not


def test_with_many_records_they_are_the_projection():
    for kind in ("one", "skewed"):
        projected, even, shrunk = squares(WORK, kind, 100_000, 1.0)
        assert shrunk == projected
        assert even > 100 * projected  # the twin: an even histogram is far off


def test_even_data_gain_much():
    projected, _, shrunk = squares(WORK, "even", 150, 0.5)
    assert shrunk < 0.6**2 * projected


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("work", [WORK, LONG])
def test_the_derivative_of_the_shrunk_part_is_that_of_differences(work, is_known):
    """``d = p - N even`` moves with y as the face says, by finite differences of projections."""
    rng = np.random.default_rng(5)
    matrix = Hull.of(work).matrix
    even = matrix.mean(axis=1)
    truth = matrix @ rng.multinomial(200, rng.dirichlet(np.full(matrix.shape[1], 0.3)))
    values = truth + 20 * rng.standard_normal(len(truth))

    def projected(answers):
        fit = objective_fit(work, split(work, answers))
        total = 200.0 if is_known else None
        return fit, fit_explicit(fit, Grid.of(fit), total, gap=1e-11)

    fit, found = projected(values)
    used = found.cells[found.weights > module.IN_USE * found.weights.sum()]
    face = module._Face.of(Quadratic(fit, found.grid), used, np.ones(len(even)), even, is_known)
    for _ in range(3):
        z = rng.standard_normal(len(truth))
        step = 1e-3
        _, after = projected(values + step * z)
        away = found.answers - found.weights.sum() * even
        moved = (after.answers - after.weights.sum() * even - away) / step
        assert face.trace(z[None, :]) == pytest.approx(float(z @ moved), rel=0.02)
        # The twin: noise that all stays is another number.
        assert float(z @ z) != pytest.approx(float(z @ moved), rel=0.02)


def test_how_much_is_kept_follows_the_estimate_and_its_error():
    assert module._share(1.0, 0.01) is None
    assert module._share(0.5, 1e-6) == pytest.approx(0.5)
    assert module._share(-2.0, 0.3) == 0.0
    assert module._share(3.0, 100.0) == pytest.approx(0.0, abs=1e-3)
    assert module._share(0.95, 0.3) is None  # the projection is within a standard error
    assert module._share(0.5, 0.1) == pytest.approx(0.5 / 1.03)


def test_a_release_says_that_it_shrank_and_need_not():
    forecast = forecast_of(WORK, 0.1, "add-remove")
    counts = np.zeros(WORK.domain.shape)
    counts[0, 0, 0, 0, 0, 0] = 5
    seen = measured(forecast, counts.astype(np.int64), SeededWords(2))
    shrunk, plain = Release.of(forecast, seen, project="shrunk"), Release.of(forecast, seen)
    assert "shrunk towards an even histogram" in str(shrunk.provenance["projection"])
    assert plain.provenance["projection"] == "projected onto the answers of histograms"
    found = shrunk.estimates.refined
    assert found is not None
    table = np.zeros(WORK.domain.shape)
    np.add.at(table, tuple(found.codes.T), found.weights)
    # Still answers of one histogram without negative counts, of the total of the projection.
    assert np.concatenate(found.answers) == pytest.approx(WORK.evaluate(table), abs=1e-6)
    assert table.min() >= 0
    assert found.total == pytest.approx(plain.estimates.refined.total)


def test_few_directions_of_noise_are_left_alone():
    work = sf.marginals(sf.Domain({"a": 3}), 1)
    projected, _, shrunk = squares(work, "skewed", 20, 0.1)
    assert shrunk == projected
