# SPDX-License-Identifier: Apache-2.0
"""Least squares from released moments: numpy's numbers without noise, clear words without sense."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import sfumato as sf

DOMAIN = sf.Domain(
    [
        sf.Numeric("x", (0, 10), outside="clamp", nulls="missing"),
        sf.Numeric("z", (100, 120), outside="clamp", nulls="missing"),
        sf.Numeric("y", (-50, 50), outside="clamp", nulls="missing"),
        sf.Category("c", ("a", "b")),
    ]
)
WORK = sf.moments(DOMAIN, ["x", "z", "y"], by=["c"]) | sf.marginals(DOMAIN, [("c",)])


def people() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    x, z = rng.uniform(0, 10, 5000), rng.uniform(100, 120, 5000)
    y = 3 * x - 2 * (z - 110) + rng.normal(0, 3, 5000)
    return pd.DataFrame({"x": x, "z": z, "y": y, "c": rng.choice(["a", "b"], 5000)})


def test_hardly_any_noise_gives_the_fit_on_the_table_by_group():
    table = people()
    release = sf.plan(WORK, sf.Budget(mu=1000)).release(table)
    fit = sf.regress(release, "y", ["x", "z"], by="c")
    assert fit.problems == ()
    for group in ("a", "b"):
        some = table[table["c"] == group]
        design = np.column_stack([np.ones(len(some)), some["x"], some["z"]])
        y = some["y"].clip(-50, 50)
        b, *_ = np.linalg.lstsq(design, y.to_numpy(), rcond=None)
        rows = fit.coefficients[fit.coefficients["c"] == group]
        assert rows["term"].tolist() == ["(intercept)", "x", "z"]
        assert rows["coefficient"].to_numpy() == pytest.approx(b, rel=0.01)
        share = 1 - (y - design @ b).var(ddof=0) / y.var(ddof=0)
        (own,) = fit.fits[fit.fits["c"] == group]["r_squared"]
        assert own == pytest.approx(share, abs=0.01)
    assert "(intercept)" in repr(fit)
    assert "calibrated by simulation, not proved" in repr(fit)


def test_fewer_columns_than_were_released_can_be_fitted():
    fit = sf.regress(sf.plan(WORK, sf.Budget(mu=1000)).release(people()), "y", "x", by=["c"])
    assert fit.coefficients["term"].tolist() == ["(intercept)", "x"] * 2


def test_noise_that_outweighs_the_table_is_said_and_nothing_is_claimed():
    few = people().iloc[:2]
    problems = 0
    for _ in range(6):
        fit = sf.regress(sf.plan(WORK, sf.Budget(mu=0.01)).release(few), "y", ["x", "z"], by="c")
        problems += len(fit.problems)
        for text in fit.problems:
            assert "those of no table" in text
        unknown = fit.coefficients[fit.coefficients["coefficient"].isna()]
        assert np.isinf(unknown["low"]).all()
    assert problems


@pytest.mark.parametrize(
    ("y", "x", "by", "message"),
    [
        ("y", ["x", "y"], "c", "each named once"),
        ("y", [], "c", "each named once"),
        ("y", ["x"], None, "were not released"),
        ("y", ["k"], "c", "were not released"),
    ],
)
def test_what_was_not_released_is_asked_for_in_words(y, x, by, message):
    release = sf.plan(WORK, sf.Budget(mu=1)).release(people())
    with pytest.raises(sf.WorkloadError, match=message):
        sf.regress(release, y, x, by=by)
