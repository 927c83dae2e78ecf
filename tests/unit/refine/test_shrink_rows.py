# SPDX-License-Identifier: Apache-2.0
"""The prior around independence: what it estimates, and what it gains."""

from __future__ import annotations

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.random import Draws
from sfumato.refine.reconstruct import ReleasedTable, fit_answers
from sfumato.refine.rows import fit_rows
from sfumato.refine.shrink import _even_pull, dispersion, find_prior, with_prior

DOMAIN = sf.Domain({"a": 12, "b": 10, "c": 8})
WORK = sf.marginals(DOMAIN, 2)
TOTAL = 2000


def _shares(seed):
    draw = np.random.default_rng(seed)
    return {a.name: draw.dirichlet(np.full(a.size, 0.7)) for a in DOMAIN}


def _tables(histogram, error, seed):
    """Noisy two-way tables, as released."""
    draw = np.random.default_rng(seed)
    out = []
    for term in WORK.terms:
        axes = tuple(i for i, n in enumerate(DOMAIN.names) if n not in term.attributes)
        exact = histogram.sum(axis=axes)
        noisy = exact + error * draw.normal(size=exact.shape)
        out.append((ReleasedTable(term.attributes, noisy, error), exact))
    return [t for t, _ in out], [e for _, e in out]


def _independent(seed):
    p = _shares(seed)
    cells = np.einsum("i,j,k->ijk", *p.values()).reshape(-1)
    drawn = np.random.default_rng(seed).multinomial(TOTAL, cells / cells.sum())
    return drawn.reshape(DOMAIN.shape).astype(float), p


def _dependent(seed):
    draw = np.random.default_rng(seed)
    cells = draw.dirichlet(np.full(int(np.prod(DOMAIN.shape)), 0.02))
    return draw.multinomial(TOTAL, cells).reshape(DOMAIN.shape).astype(float)


def test_the_dispersion_of_drawn_differences_is_found():
    draw = np.random.default_rng(0)
    expected = draw.gamma(0.5, 100, size=4000)
    for tau in (5.0, 300.0):
        differences = np.sqrt(tau * expected + 50.0) * draw.normal(size=4000)
        assert dispersion(differences, expected, 50.0) == pytest.approx(tau, rel=0.15)
    assert dispersion(np.sqrt(50.0) * draw.normal(size=4000), expected, 50.0) < 1.5


def test_shares_of_noise_become_even_and_shares_that_stand_out_stay():
    """Ten shares of 1,000 records, each seen with a standard error of 30 records."""
    draw = np.random.default_rng(1)
    bend = np.full(10, (1000 / 30) ** 2)
    noise = 30 / 1000 * draw.normal(size=10)
    kept = {}
    for name, truth in (("even", np.full(10, 0.1)), ("one", np.eye(10)[0])):
        pull = _even_pull(truth + noise - 0.1, bend, 1000.0)
        kept[name] = float(bend[0] / (bend[0] + pull))
    assert kept["even"] < 0.5
    assert kept["one"] > 0.999
    # The twin: the share of noise itself, not its square, moves a share of 1 by more than that.
    tau = dispersion(1000 * (np.eye(10)[0] + noise - 0.1), np.full(10, 100.0), 900.0)
    assert 900 / (tau * 100 + 900) > 0.005


def test_a_dispersion_blind_to_the_noise_would_be_too_large():
    """The twin of the test above: leaving the variance out takes noise for dependence."""
    draw = np.random.default_rng(0)
    expected = draw.gamma(0.5, 100, size=4000)
    assert dispersion(np.sqrt(50.0) * draw.normal(size=4000), expected, 1e-9) > 1.5


def test_tables_of_a_product_give_back_its_shares():
    shares = _shares(1)
    histogram = TOTAL * np.einsum("i,j,k->ijk", *shares.values())
    tables, _ = _tables(histogram, 1e-6, 0)
    prior = find_prior(DOMAIN, tables, TOTAL)
    for name, share in shares.items():
        assert prior.shares[name] == pytest.approx(share, abs=1e-4)
    assert prior.expected(("a", "b")).sum() == pytest.approx(TOTAL)


def test_shares_are_sharper_than_the_margins_they_come_from():
    """Every table that holds an attribute helps, and frequent cells of the others most."""
    better = 0
    for seed in range(10):
        histogram, shares = _independent(seed)
        tables, _ = _tables(histogram, 30.0, seed)
        prior = find_prior(DOMAIN, tables, TOTAL)
        margin = tables[0].margin(("a",))
        plain = np.maximum(margin, 0) / np.maximum(margin, 0).sum()
        found = np.abs(prior.shares["a"] - shares["a"]).sum()
        better += found < np.abs(plain - shares["a"]).sum()
    assert better >= 9


def test_independent_tables_have_little_dispersion_and_dependent_ones_much():
    calm, _ = _tables(_independent(3)[0], 20.0, 1)
    wild, _ = _tables(_dependent(3), 20.0, 1)
    assert max(find_prior(DOMAIN, calm, TOTAL).tau) < 10
    assert min(find_prior(DOMAIN, wild, TOTAL).tau) > 20


def _errors(histogram, error, seed):
    tables, exact = _tables(histogram, error, seed)
    weights = [np.full(t.values.size, error**-2) for t in tables]
    fit = fit_answers(WORK, [t.values.reshape(-1) for t in tables], weights)
    out = []
    for asked in (fit, with_prior(fit, tables, TOTAL)):
        rows = fit_rows(asked, TOTAL, draws=Draws(f"{seed}"), rows=1000, rounds=2)
        found = [rows.table(t.attributes) for t in tables]
        out.append(sum(float(np.abs(f - e).sum()) for f, e in zip(found, exact, strict=True)))
    return out


@pytest.mark.parametrize("seed", range(3))
def test_where_noise_is_large_the_prior_lowers_the_error(seed):
    plain, with_prior = _errors(_independent(seed)[0], 40.0, seed)
    assert with_prior < 0.7 * plain


def test_where_noise_is_small_the_prior_does_no_harm():
    """Strong dependence, noise of one record: the measured cells decide."""
    plain, with_prior = _errors(_dependent(1), 1.0, 1)
    assert with_prior < 1.1 * plain


def test_an_attribute_that_no_table_holds_stays_uniform():
    tables, _ = _tables(_independent(0)[0], 5.0, 0)
    prior = find_prior(DOMAIN, [t for t in tables if "c" not in t.attributes], TOTAL)
    assert prior.shares["c"] == pytest.approx(np.full(8, 1 / 8))


def test_a_total_that_is_no_number_above_zero_is_refused():
    for total in (0, -1, np.nan, np.inf):
        with pytest.raises(PlanError, match="total above 0"):
            find_prior(DOMAIN, [], total)
