# SPDX-License-Identifier: Apache-2.0
"""Few records and much noise: shrunk answers against the projection and the guesses."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.errors import TooLarge, WorkloadError
from sfumato.planning.forecast import drawn_noise
from sfumato.random import Draws
from sfumato.refine.consistency import Refined, objective_fit, refined, refined_listed
from sfumato.refine.problem import Grid, Quadratic
from sfumato.refine.shrink import (
    EVEN,
    INDEPENDENT,
    PUBLIC,
    Guesses,
    Prior,
    PublicRecords,
    mixture,
    product_answers,
)
from sfumato.release.release import Release
from sfumato.run.public_records import public_records
from sfumato.study.widths import Hull
from tests.shared.made_releases import measured, planned
from tests.shared.words import SeededWords

WORK = sf.marginals(sf.Domain({f"q{i}": 2 for i in range(6)}), 2)
WIDE = sf.marginals(sf.Domain({"a": 4, "b": 5, "c": 6, "d": 3}), 2)
MERGED = sf.Domain({"a": 5, "b": 4})
RUNS = 20


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
        "independent": _product(work, rng),
    }[kind]
    return Hull.of(work).matrix @ rng.multinomial(n, shares)


def _product(work, rng):
    out = np.ones(())
    for size in work.domain.shape:
        out = np.multiply.outer(out, rng.dirichlet(np.full(size, 0.7)))
    return out.reshape(-1)


def split(work, answers):
    return np.split(answers, np.cumsum([t.rows for t in work.terms])[:-1])


def shrunk_of(forecast, noisy, rows, public=None):
    """The projection and the mixture."""
    groups = split(forecast.workload, noisy)
    ways = [
        refined_listed(forecast, groups, rows, shrinks=shrinks, public=public)
        for shrinks in (False, True)
    ]
    assert all(isinstance(r, Refined) for r in ways)
    return ways


@lru_cache
def squares(work, kind, n, epsilon, neighbours="replace-one"):
    """Mean squared errors of the projection, of an even histogram of its total, and shrunk."""
    forecast, rng = forecast_of(work, epsilon, neighbours), np.random.default_rng(7)
    even = Hull.of(work).matrix.mean(axis=1)
    rows = n if neighbours == "replace-one" else None
    out = []
    for noise in drawn_noise(forecast, Draws(f"test {kind} {n}"), RUNS):
        truth = truth_of(work, kind, n, rng)
        plain, shrunk = shrunk_of(forecast, truth + noise, rows)
        projected, mixed = (np.concatenate(r.answers) for r in (plain, shrunk))
        tried = (projected, plain.weights.sum() * even, mixed)
        out.extend(np.mean((each - truth) ** 2) for each in tried)
    return np.reshape(out, (RUNS, 3)).mean(axis=0)


@pytest.mark.parametrize("kind", ["one", "even", "skewed"])
@pytest.mark.parametrize(("n", "neighbours"), [(5, "replace-one"), (40, "add-remove")])
def test_shrunk_answers_are_hardly_ever_worse_than_the_projection(kind, n, neighbours):
    projected, _, shrunk = squares(WORK, kind, n, 0.5, neighbours)
    assert shrunk <= 1.25**2 * projected


@pytest.mark.parametrize("kind", ["even", "skewed"])
def test_with_very_few_records_they_gain_much(kind):
    projected, even, shrunk = squares(WORK, kind, 5, 0.1)
    assert shrunk < 0.85**2 * projected
    assert even < projected  # where even counts are the better guess


def test_with_many_records_they_are_hardly_another_estimate():
    for kind in ("one", "skewed"):
        projected, even, shrunk = squares(WORK, kind, 100_000, 1.0)
        assert shrunk < 1.02**2 * projected
        assert even > 100 * projected  # the twin: an even histogram is far off


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_few_answers_that_stand_out_are_left_alone(epsilon):
    """Three or six answers hold little evidence; even counts are far away, and hardly mixed in."""
    for shares in ((0.55, 0.28, 0.17), (0.5, 0.2, 0.1, 0.1, 0.06, 0.04)):
        work = sf.marginals(sf.Domain({"a": len(shares)}), 1)
        forecast, truth = forecast_of(work, epsilon), 200 * np.array(shares)
        out = []
        for noise in drawn_noise(forecast, Draws("few"), 30):
            ways = shrunk_of(forecast, truth + noise, 200)
            answers = [np.concatenate(w.answers) for w in ways]
            answers.append((answers[0] + 200 / len(shares)) / 2)
            out.append([np.mean((a - truth) ** 2) for a in answers])
        projected, shrunk, half = np.mean(out, axis=0)
        assert shrunk <= 1.05**2 * projected
        assert half > 1.1**2 * projected  # the twin: half of the way to even counts


def test_independent_attributes_gain_where_even_counts_do_not_help():
    projected, even, shrunk = squares(WIDE, "independent", 1_000, 1.0)
    assert shrunk < 0.9**2 * projected
    assert even > projected


@pytest.mark.parametrize("seed", range(20))
def test_the_mixture_is_the_least_point_of_the_simplex(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 5))
    rows = rng.standard_normal((size, 6))
    wanted = rng.standard_normal(6)
    gram, pull = rows @ rows.T, rows @ wanted
    found = mixture(gram, pull)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    # The first-order conditions of a convex program: no corner is downhill from the point.
    slope = gram @ found - pull
    assert slope.min() >= slope @ found - 1e-9
    # The twin: another point of the simplex breaks them.
    even = np.full(size, 1 / size)
    if np.abs(found - even).max() > 1e-3:
        slope = gram @ even - pull
        assert slope.min() < slope @ even - 1e-9


def test_of_points_that_are_the_same_the_first_is_taken():
    assert mixture(np.ones((3, 3)), np.ones(3)).tolist() == [1.0, 0.0, 0.0]


def _guesses(work, public=None):
    fit = objective_fit(work, split(work, np.zeros(work.queries)))
    return Guesses(Quadratic(fit, Grid.of(fit)), public)


@pytest.mark.parametrize("work", [WORK, WIDE])
def test_guesses_are_the_answers_of_their_histograms(work):
    rng = np.random.default_rng(3)
    matrix = Hull.of(work).matrix
    counts = rng.multinomial(500, rng.dirichlet(np.full(matrix.shape[1], 0.3)))
    codes = np.column_stack(np.unravel_index(np.flatnonzero(counts), work.domain.shape))
    public = PublicRecords(work.domain.names, codes, counts[counts > 0].astype(float))
    table = counts.reshape(work.domain.shape) / 500
    margins, product = {}, np.ones(())
    for axis, name in enumerate(work.domain.names):
        others = tuple(a for a in range(table.ndim) if a != axis)
        margins[name] = table.sum(axis=others)
        product = np.multiply.outer(product, margins[name])
    prior, guesses = Prior(margins, (), 500.0), _guesses(work, public)
    by_name = dict(zip(guesses.names(has_prior=True), guesses.answers(prior), strict=True))
    for name, each in by_name.items():
        assert each == pytest.approx(matrix @ guesses.shares(name, prior))
    assert list(by_name) == [INDEPENDENT, EVEN, PUBLIC]
    assert 500 * by_name[PUBLIC] == pytest.approx(matrix @ counts)  # they are the data here
    assert by_name[EVEN] == pytest.approx(matrix.mean(axis=1))
    assert by_name[INDEPENDENT] == pytest.approx(matrix @ product.reshape(-1))
    # Without a grid the same numbers.
    assert product_answers(work, prior) == pytest.approx(by_name[INDEPENDENT])
    assert product_answers(work, None) == pytest.approx(by_name[EVEN])


def test_no_records_have_no_answers():
    forecast = forecast_of(WORK, 0.001, "add-remove")
    for noise in drawn_noise(forecast, Draws("none"), 4):
        for each in shrunk_of(forecast, noise - noise.max(), None):
            assert np.isfinite(np.concatenate(each.answers)).all()


def test_there_is_no_independence_of_one_attribute():
    work = sf.prefixes(sf.Domain({"a": 12}), "a")
    assert _guesses(work).names(has_prior=False) == (EVEN,)
    assert len(_guesses(work).answers(None)) == 1


def test_public_records_that_are_like_the_data_are_taken_up():
    forecast = forecast_of(WIDE, 0.3)
    rng = np.random.default_rng(5)
    matrix = Hull.of(WIDE).matrix
    shares = rng.dirichlet(np.full(matrix.shape[1], 0.05))
    truth = matrix @ rng.multinomial(400, shares)
    cells = np.flatnonzero(shares > 0)
    codes = np.column_stack(np.unravel_index(cells, WIDE.domain.shape))
    public = PublicRecords(WIDE.domain.names, codes, shares[cells])
    with_public, without = [], []
    for noise in drawn_noise(forecast, Draws("public"), 3):
        _, helped = shrunk_of(forecast, truth + noise, 400, public)
        _, alone = shrunk_of(forecast, truth + noise, 400)
        assert helped.towards[PUBLIC] > 0.2
        with_public.append(np.mean((np.concatenate(helped.answers) - truth) ** 2))
        without.append(np.mean((np.concatenate(alone.answers) - truth) ** 2))
    assert np.mean(with_public) < 0.8 * np.mean(without)


def test_public_records_that_the_answers_contradict_are_not_taken_up():
    forecast = forecast_of(WIDE, 1.0)
    truth = 2_000 * Hull.of(WIDE).matrix.mean(axis=1)
    wrong = PublicRecords(WIDE.domain.names, np.zeros((1, 4), dtype=np.int64), np.ones(1))
    for noise in drawn_noise(forecast, Draws("wrong"), 3):
        _, mixed = shrunk_of(forecast, truth + noise, 2_000, wrong)
        assert mixed.towards.get(PUBLIC, 0.0) < 0.02
        assert mixed.share < 0.5


def _few(neighbours="add-remove"):
    forecast = forecast_of(WORK, 0.1, neighbours)
    counts = np.zeros(WORK.domain.shape)
    counts[0, 0, 0, 0, 0, 0] = 5
    return forecast, measured(forecast, counts.astype(np.int64), SeededWords(2))


def test_a_release_says_that_it_shrank_and_need_not():
    forecast, seen = _few()
    shrunk, plain = Release.of(forecast, seen), Release.of(forecast, seen, project="nearest")
    assert "then shrunk towards" in str(shrunk.provenance["projection"])
    assert plain.provenance["projection"] == "projected onto the answers of histograms"
    found = shrunk.estimates.refined
    assert found is not None
    table = np.zeros(WORK.domain.shape)
    np.add.at(table, tuple(found.codes.T), found.weights)
    # Still answers of one histogram without negative counts, of the total of the projection.
    assert np.concatenate(found.answers) == pytest.approx(WORK.evaluate(table), abs=1e-6)
    assert table.min() >= 0
    assert found.total == pytest.approx(plain.estimates.refined.total)
    codes, one = np.zeros((1, 6), dtype=np.int64), np.ones(1)
    public = Release.of(forecast, seen, public=PublicRecords(WORK.domain.names, codes, one))
    assert public.estimates.refined.towards[PUBLIC] > 0
    again = Release.of(forecast, seen).estimates.refined
    assert np.array_equal(np.concatenate(again.answers), np.concatenate(found.answers))


def test_intervals_do_not_move_with_what_is_published():
    forecast, seen = _few()
    ends = [
        Release.of(forecast, seen, project=how).estimates.interval(0, 0.9)
        for how in (True, "nearest")
    ]
    hulls = [np.minimum(ends[0][0], ends[1][0]), np.maximum(ends[0][1], ends[1][1])]
    unbiased = Release.of(forecast, seen, project=False).estimates.interval(0, 0.9)
    for low, high in ends:
        # Cut to what is sure, or widened to hold the published value, never moved otherwise.
        assert (low >= np.minimum(unbiased[0], 0) - 1e-9).all()
        assert (high <= np.maximum(unbiased[1], hulls[1]) + 1e-9).all()


def test_biased_answers_and_constrained_histograms_are_left_alone():
    forecast, seen = _few("replace-one")
    groups = split(WORK, np.full(WORK.queries, 1.0))
    assert refined(forecast, seen, groups, shrinks=True).towards  # the twin
    biased = replace(forecast, strategy=replace(forecast.strategy, records=5))
    assert not refined(biased, seen, groups, shrinks=True).towards
    impossible = sf.Constraints(
        WORK.domain,
        [(sf.attribute(WORK.domain, "q0") == 0) & (sf.attribute(WORK.domain, "q1") == 0)],
    )
    assert not refined(forecast, seen, groups, shrinks=True, constraints=impossible).towards


def test_public_records_come_from_a_table_or_an_earlier_release():
    domain = sf.Domain({"a": 3, "b": 2})
    work = sf.marginals(domain, 2)
    frame = pd.DataFrame({"a": [0, 0, 2], "b": [1, 1, 0]})
    found = public_records(frame, work)
    assert found.attributes == ("a", "b")
    assert found.codes.tolist() == [[0, 1], [2, 0]]
    assert found.weights.tolist() == [2.0, 1.0]
    released = sf.plan(work, sf.Budget(epsilon=500)).release(frame, project="nearest")
    again = public_records(released, work)
    table = np.zeros((3, 2))
    table[tuple(again.codes.T)] = again.weights
    assert table == pytest.approx(np.array([[0, 2], [0, 0], [1, 0]]), abs=0.2)
    helped = sf.plan(work, sf.Budget(epsilon=500)).release(frame, public=frame.copy())
    assert helped.estimates.refined.total == pytest.approx(3, abs=0.2)


def test_an_earlier_release_shares_out_what_it_does_not_tell_apart():
    coarse = sf.predicates(MERGED, [sf.attribute(MERGED, "a") < 2, sf.attribute(MERGED, "a") >= 2])
    frame = pd.DataFrame({"a": [0] * 6 + [4] * 9, "b": [1] * 15})
    released = sf.plan(coarse, sf.Budget(epsilon=100)).release(frame)
    found = public_records(released, sf.prefixes(MERGED, "a"))
    shares = np.bincount(found.codes[:, 0], found.weights, minlength=5)
    assert shares == pytest.approx([3, 3, 3, 3, 3], abs=0.5)


def test_public_records_that_do_not_fit_are_refused():
    work = sf.marginals(sf.Domain({"a": 3, "b": 2}), 2)
    with pytest.raises(WorkloadError, match="no public record"):
        public_records(pd.DataFrame({"a": [7], "b": [9]}), work)
    other = sf.plan(sf.marginals(sf.Domain({"a": 3}), 1), sf.Budget(epsilon=1)).release(
        pd.DataFrame({"a": [0, 1]})
    )
    with pytest.raises(WorkloadError, match="same domain"):
        public_records(other, work)
    wide = sf.marginals(sf.Domain({f"x{i}": 10 for i in range(8)}), 2)
    with pytest.raises(TooLarge, match="cells together"):
        public_records(pd.DataFrame({f"x{i}": [0] for i in range(8)}), wide)
