# SPDX-License-Identifier: Apache-2.0
"""Bootstrap intervals: repeatable, labelled as approximate, refused where they cannot be had."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.errors import SfumatoError, TooLarge, WorkloadError
from sfumato.ledger.ledger import Ledger
from sfumato.refine import intervals
from sfumato.refine.intervals import Bootstrap, check_intervals
from sfumato.refine.refine_limits import LIMITS
from sfumato.release.release import Release
from tests.shared.made_releases import measured, planned
from tests.shared.words import SeededWords

DOMAIN = sf.Domain({"a": 4, "b": 3})
WORK = sf.marginals(DOMAIN, 2) | sf.marginals(DOMAIN, 1)


def released(work: sf.Workload, counts: np.ndarray, mechanism: str, **options: object) -> Release:
    forecast = planned(work, mechanism)
    noisy = measured(forecast, counts, SeededWords(3))
    return Release.of(forecast, noisy, **options)


@pytest.fixture(scope="module")
def few() -> dict[str, Release]:
    counts = np.random.default_rng(2).multinomial(30, np.full(12, 1 / 12)).reshape(4, 3)
    kinds = ("noise", "bootstrap")
    return {
        kind: released(WORK, counts, "gaussian-table", project="nearest", intervals=kind)
        for kind in kinds
    }


def test_intervals_hold_their_values_and_are_repeatable(few):
    frame = few["bootstrap"].answers()
    assert (frame["low"] <= frame["value"]).all()
    assert (frame["value"] <= frame["high"]).all()
    again = Release.of(
        few["bootstrap"].forecast, few["bootstrap"].estimates.measured, intervals="bootstrap"
    ).answers()
    assert again.equals(frame)
    wider = few["bootstrap"].answers(level=0.99)
    assert (wider["low"] <= frame["low"]).all()
    assert (frame["high"] <= wider["high"]).all()


def test_answers_stay_the_same_and_intervals_do_not(few):
    plain, repeated = few["noise"].answers(), few["bootstrap"].answers()
    assert plain["value"].equals(repeated["value"])
    assert plain["unbiased"].equals(repeated["unbiased"])
    assert not plain["high"].equals(repeated["high"])


def test_where_nothing_is_projected_they_are_those_of_the_noise():
    """A table of large counts is its own projection, so the errors repeated are the noise."""
    work = sf.marginals(sf.Domain({"cell": 200}), 1)
    counts = np.full(200, 10_000)
    found = released(work, counts, "gaussian", intervals="bootstrap")
    half = found.estimates.bootstrap.half_widths(0, 0.9)
    exact = found.forecast.half_widths(0, 0.9)
    assert half.mean() == pytest.approx(exact.mean(), rel=0.05)
    # The twin: noise of half the size would be noticed.
    assert half.mean() != pytest.approx(exact.mean() / 2, rel=0.2)


def test_they_are_labelled_as_approximate(few, tmp_path):
    said = few["bootstrap"].provenance["intervals"]
    assert said.startswith("approximate: a bootstrap of 200 draws")
    assert "approximate: a bootstrap" in few["bootstrap"].report()
    assert "approximate" not in few["noise"].report()
    few["bootstrap"].to_parquet(tmp_path / "a.parquet")
    import pyarrow.parquet as pq

    assert (
        b"approximate: a bootstrap" in pq.read_schema(tmp_path / "a.parquet").metadata[b"sfumato"]
    )


def test_half_widths_are_order_statistics_up_to_the_last():
    sizes = np.sort(np.arange(LIMITS.bootstrap_draws, dtype=np.float32)[:, None], axis=0)
    found = Bootstrap((sizes,))
    assert found.half_widths(0, 0.5)[0] == np.ceil(201 * 0.5) - 1
    assert found.half_widths(0, 0.995)[0] == 199
    with pytest.raises(WorkloadError, match=r"levels up to 0\.9950"):
        found.half_widths(0, 0.999)


def test_what_cannot_be_repeated_is_refused_before_anything_is_spent(tmp_path, monkeypatch):
    plan = sf.plan(WORK, sf.Budget(epsilon=1, delta=1e-9))
    book = Ledger.open_or_create(tmp_path / "l", "t", "add-remove", plan.budget)
    table = pd.DataFrame({"a": [0, 1], "b": [1, 2]})

    def refused(words: str, kind: type[SfumatoError], **options: object) -> None:
        with pytest.raises(kind, match=words):
            plan.release(table, ledger=book, name="t", **options)
        assert book.remaining().share == 1

    refused("approximate", WorkloadError, intervals="guessed")
    for project in (False, "bounds"):
        refused("repeats a projection", WorkloadError, intervals="bootstrap", project=project)
    few = replace(intervals.PLANNING_LIMITS, histogram_cells=11)
    monkeypatch.setattr(intervals, "PLANNING_LIMITS", few)
    refused("at most 11", TooLarge, intervals="bootstrap")
    monkeypatch.undo()
    monkeypatch.setattr(intervals, "LIMITS", replace(LIMITS, bootstrap_errors=100))
    refused("queries are too many", TooLarge, intervals="bootstrap")


def test_biased_plans_have_none():
    plan = sf.plan(
        sf.prefixes(sf.Domain({"a": 6}), "a"),
        sf.Budget(epsilon=0.1, delta=1e-9),
        mechanism="approximate",
        allow_bias=True,
        records=10,
    )
    with pytest.raises(WorkloadError, match="have a bias"):
        check_intervals("bootstrap", plan.forecast, True, None)
