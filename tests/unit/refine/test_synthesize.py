# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import datetime

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import sfumato as sf
from sfumato.domain.attributes import Boolean, Category, DateTime, Integer, Level, Numeric
from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge, WorkloadError
from sfumato.refine.reconstruct import ReleasedTable, reconstruct, released_tables, released_total
from sfumato.refine.synthesize import _information, draw_columns, synthesize
from sfumato.release.labels import record_frame
from tests.shared.made_releases import measured, people, planned, released, some_counts
from tests.shared.words import SeededWords


def exact_tables(workload, counts):
    """The tables of a workload without noise, and their forecast errors."""
    release = released(workload, counts, seed=None)
    return released_tables(release.forecast, release.estimates.unbiased)


def chain() -> tuple[Domain, np.ndarray]:
    """a -> b -> c: a and c are independent given b."""
    domain = Domain({"a": 3, "b": 4, "c": 2})
    rng = np.random.default_rng(5)
    a = rng.dirichlet(np.ones(3))
    b = rng.dirichlet(np.full(4, 0.4), size=3)
    c = rng.dirichlet(np.full(2, 0.4), size=4)
    joint = np.einsum("a,ab,bc->abc", a, b, c)
    return domain, rng.multinomial(200_000, joint.reshape(-1)).reshape(3, 4, 2)


def test_tables_come_back_from_cells_prefixes_ranges_and_windows():
    domain = Domain([Integer("age", 0, 4), Boolean("b")])
    counts = some_counts(domain)
    for asked in ("identity", "prefix", "ranges", "windows(1)"):
        work = sf.product(domain, {"age": asked, "b": "identity"})
        (table,) = exact_tables(work, counts)
        assert table.attributes == ("age", "b")
        np.testing.assert_allclose(table.values, counts, atol=1e-6)


def test_groups_are_shared_out_evenly_and_wider_windows_give_no_table():
    level = Level("size", ("small", "large"), (0, 0, 1))
    domain = Domain([Category("town", ("A", "B", "C"), levels=(level,), nulls="missing")])
    counts = np.array([10, 30, 50, 7])
    (table,) = exact_tables(sf.product(domain, {"town": "groups(size)"}), counts)
    assert table.is_spread
    np.testing.assert_allclose(table.values, [20, 20, 50, 0], atol=1e-6)
    ages = Domain({"age": 5})
    assert exact_tables(sf.product(ages, {"age": "windows(2)"}), np.ones(5, int)) == []


def test_the_total_is_public_or_the_mean_of_the_tables():
    close, far = (
        ReleasedTable(("a",), np.array([60.0, 41.0]), 1.0),
        ReleasedTable(("b",), np.array([100.0, 99.0]), 10.0),
    )
    assert released_total([close, far], 77) == 77.0
    # Weights 1 : 1/100 on the totals 101 and 199.
    assert released_total([close, far], None) == pytest.approx((101 + 1.99) / 1.01)
    assert released_total([ReleasedTable(("a",), np.array([-5.0]), 1.0)], None) == 0.0


def test_the_tree_follows_the_dependence_and_reproduces_every_pair():
    domain, counts = chain()
    tables = exact_tables(sf.marginals(domain, 2), counts)
    drawn = synthesize(domain, tables, counts.sum(), 200_000, SeededWords("chain"))
    assert drawn.notes == ("drawn by the tree: b given a; c given b",)
    seen = np.zeros_like(counts)
    np.add.at(seen, tuple(drawn.codes[n] for n in "abc"), 1)
    # The joint law is that of the tree, so it is reproduced, not only its pairs.
    expected = counts / counts.sum() * seen.sum()
    kept = expected > 5
    statistic = ((seen - expected)[kept] ** 2 / expected[kept]).sum()
    # Expected counts are those of a sample of the same size: twice the variance of a fixed law.
    assert stats.chi2.sf(statistic / 2, kept.sum() - 1) > 1e-6


def test_independent_records_would_not_pass_for_the_tree():
    domain, counts = chain()
    tables = exact_tables(sf.marginals(domain, 1), counts)
    drawn = synthesize(domain, tables, counts.sum(), 200_000, SeededWords("apart"))
    assert drawn.notes == ("all attributes drawn independently",)
    seen = np.zeros_like(counts)
    np.add.at(seen, tuple(drawn.codes[n] for n in "abc"), 1)
    kept = counts > 5
    statistic = ((seen - counts)[kept] ** 2 / counts[kept]).sum()
    assert stats.chi2.sf(statistic / 2, kept.sum() - 1) < 1e-6


def test_a_pair_that_is_no_more_than_noise_is_left_out():
    """Independent attributes, large table, small count: raw mutual information would be large."""
    domain = Domain({"a": 40, "b": 40})
    rng = np.random.default_rng(2)
    counts = rng.multinomial(3000, np.full(1600, 1 / 1600)).reshape(40, 40)
    release = released(sf.marginals(domain, 2), counts, "gaussian", seed=3)
    (table,) = released_tables(release.forecast, release.estimates.unbiased)
    assert _information(np.maximum(table.values, 0)) > 0.2
    drawn = synthesize(domain, [table], 3000.0, 10, SeededWords(1))
    assert drawn.notes == ("all attributes drawn independently",)


def test_larger_tables_give_their_pairs():
    domain, counts = chain()
    tables = exact_tables(sf.marginals(domain, 3), counts)
    drawn = synthesize(domain, tables, counts.sum(), 100, SeededWords(0))
    assert drawn.notes == ("drawn by the tree: b given a; c given b",)


def test_uncovered_attributes_are_uniform_and_named():
    domain, counts = chain()
    tables = exact_tables(sf.marginals(domain, [("a", "b")]), counts)
    drawn = synthesize(domain, tables, counts.sum(), 20_000, SeededWords(0))
    assert drawn.notes[0] == "no released table holds c: drawn uniformly, which says nothing"
    assert stats.binomtest(int(drawn.codes["c"].sum()), 20_000, 0.5).pvalue > 1e-6


def test_draws_have_exactly_the_given_weights():
    """Weights in eighths, of which 2^40 is a multiple: empty cells are never drawn."""
    table = np.array([[1.0, 0.0, 7.0], [0.0, 8.0, 0.0], [0.0, 0.0, 0.0]])
    given = np.repeat([0, 1, 2], 40_000)
    found = draw_columns(table, given, SeededWords("weights"))
    first = np.bincount(found[given == 0], minlength=3)
    assert first[1] == 0
    assert stats.binomtest(int(first[0]), 40_000, 1 / 8).pvalue > 1e-6
    assert (found[given == 1] == 1).all()
    assert np.bincount(found[given == 2], minlength=3).min() > 0  # nothing known: even
    assert stats.binomtest(int(first[0]), 40_000, 1 / 8 * 0.9).pvalue < 1e-6


def test_records_hold_values_of_the_schema():
    domain = Domain(
        [
            Integer("age", 17, 30),
            Integer("rooms", 1, 9, 5),
            Category("sex", ("F", "M"), nulls="missing"),
            Numeric("income", (0, 10, 50.5), outside="other"),
            DateTime("day", datetime(2024, 1, 1), datetime(2024, 3, 10), "month"),
            DateTime("time", datetime(2024, 1, 1), datetime(2024, 1, 1, 3), "hour"),
            Boolean("works"),
        ]
    )
    tables = [ReleasedTable((a.name,), np.full(a.size, 100.0), 1.0) for a in domain]
    words = SeededWords("records")
    drawn = synthesize(domain, tables, 1000.0, 2000, words)
    frame = record_frame(domain, drawn, words)
    assert list(frame.columns) == list(domain.names)
    assert frame["age"].between(17, 30).all()
    assert set(frame["rooms"]) == set(range(1, 10))
    assert set(frame["sex"].dropna()) == {"F", "M"}
    assert (frame["sex"].isna() == (drawn.codes["sex"] == 2)).all()
    assert frame["income"].dropna().between(0, 50.5).all()
    assert (frame["income"].isna() == (drawn.codes["income"] == 2)).all()
    months = frame["day"].dt.month - 1
    assert (months == drawn.codes["day"]).all()
    assert frame["day"].max() <= pd.Timestamp("2024-03-09")
    assert (frame["time"].dt.hour == drawn.codes["time"]).all()
    assert frame["works"].dtype == bool


def test_a_release_draws_as_many_records_as_it_counts(monkeypatch):
    domain = people()
    release = released(sf.marginals(domain, 2), some_counts(domain, rows=5000))
    monkeypatch.setattr("sfumato.random.system_words", lambda: SeededWords(9))
    frame = release.synthetic()
    assert len(frame) == round(release.total)
    assert abs(len(frame) - 5000) < 200
    assert frame.attrs["notes"][0].startswith("drawn from published answers")
    unprojected = released(sf.marginals(domain, 2), some_counts(domain, rows=5000), project=False)
    assert unprojected.synthetic(10).attrs["notes"][0].startswith("drawn by the tree")
    assert len(release.synthetic(3)) == 3
    assert len(release.synthetic(0)) == 0


def test_records_of_nobody_are_none():
    domain = people()
    release = released(sf.marginals(domain, 1), np.zeros(domain.shape, int), seed=None)
    assert len(release.synthetic()) == 0
    assert len(release.synthetic(5)) == 5


def test_wrong_numbers_of_records_are_refused():
    domain = Domain({"a": 2})
    for wrong in (-1, 2.5, True, "3"):
        with pytest.raises(WorkloadError, match="must be 0 or more"):
            synthesize(domain, [], 1.0, wrong, SeededWords(0))
    with pytest.raises(TooLarge, match="draw them in parts"):
        synthesize(domain, [], 1.0, 10**9, SeededWords(0))


def test_more_budget_gives_records_nearer_to_the_table():
    domain, counts = chain()
    distances = []
    for epsilon in (0.01, 10):
        forecast = planned(sf.marginals(domain, 2), budget=sf.Budget(epsilon=epsilon, delta=1e-9))
        seen = measured(forecast, counts // 100, SeededWords("near"))
        tables = released_tables(forecast, reconstruct(forecast, seen))
        drawn = synthesize(domain, tables, 2000.0, 50_000, SeededWords("draw"))
        made = np.zeros_like(counts)
        np.add.at(made, tuple(drawn.codes[n] for n in "abc"), 1)
        distances.append(np.abs(made / made.sum() - counts / counts.sum()).sum())
    assert distances[1] < 0.1 < distances[0]
