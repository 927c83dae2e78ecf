# SPDX-License-Identifier: Apache-2.0
"""What holds for every release: exactness without noise, nested intervals, harmless texts."""

from __future__ import annotations

import csv
import html
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.domain.attributes import Category, Integer
from sfumato.domain.domain import Domain
from sfumato.release.report import _table
from tests.shared.made_releases import released

QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SETS = st.sampled_from(["total", "identity", "prefix", "ranges", "windows(2)"])
MECHANISMS = st.sampled_from([None, "gaussian", "laplace", "gaussian-table", "laplace-table"])
TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=12
)


@st.composite
def questions(draw):
    """A small domain, counts, and a union of one to three products of query sets."""
    sizes = draw(st.lists(st.integers(2, 5), min_size=1, max_size=3))
    domain = Domain({f"a{i}": n for i, n in enumerate(sizes)})
    counts = np.array(
        draw(st.lists(st.integers(0, 500), min_size=domain.size, max_size=domain.size))
    ).reshape(domain.shape)
    work = None
    for _ in range(draw(st.integers(1, 3))):
        product = sf.product(domain, {name: draw(SETS) for name in domain.names})
        work = product if work is None else work | product
    return work, counts


@QUICK
@given(questions(), MECHANISMS, st.sampled_from(["add-remove", "replace-one"]))
def test_without_noise_every_answer_is_the_true_one(question, mechanism, neighbours):
    work, counts = question
    release = released(work, counts, mechanism, seed=None, neighbours=neighbours, project="bounds")
    truth = work.evaluate(counts)
    np.testing.assert_allclose(release.answers()["value"], truth, atol=1e-6)
    parts = [release.answers(group=name)["value"] for name in release.groups]
    np.testing.assert_allclose(np.concatenate(parts), truth, atol=1e-6)


@QUICK
@given(questions(), st.integers(0, 99), st.sampled_from([(0.1, 0.5), (0.5, 0.95), (0.95, 0.999)]))
def test_a_higher_level_widens_every_interval_and_all_hold_the_value(question, seed, levels):
    work, counts = question
    release = released(work, counts, seed=seed, project="bounds")
    narrow, wide = (release.answers(level=level) for level in levels)
    assert (wide["low"] <= narrow["low"]).all()
    assert (narrow["low"] <= narrow["value"]).all()
    assert (narrow["value"] <= narrow["high"]).all()
    assert (narrow["high"] <= wide["high"]).all()


@QUICK
@given(
    st.lists(st.integers(0, 300), min_size=3, max_size=12).filter(any),
    st.lists(st.floats(0.01, 0.99), min_size=1, max_size=4),
    st.sampled_from(["gaussian", "gaussian-tree", "gaussian-table"]),
)
def test_quantiles_of_exact_totals_are_exact_and_rise_with_their_probability(
    counts, probabilities, mechanism
):
    domain = Domain([Integer("age", 0, len(counts) - 1)])
    ordered = sorted(probabilities)
    release = released(sf.prefixes(domain, "age"), np.array(counts), mechanism, seed=None)
    frame = release.quantiles("age", ordered)
    running = np.cumsum(counts)
    for p, row in zip(ordered, frame.itertuples(), strict=True):
        # Rounding of the reconstruction may decide an exact tie either way.
        truths = {int(np.argmax(running >= q * running[-1])) for q in (p - 1e-9, p, p + 1e-9)}
        assert int(row.value) in truths
        assert row.low <= min(truths) <= max(truths) <= row.high
    assert frame["value"].is_monotonic_increasing


@QUICK
@given(st.lists(TEXTS, min_size=1, max_size=5, unique=True), TEXTS)
def test_no_text_of_a_csv_file_is_a_formula_and_none_is_lost(values, name):
    domain = Domain([Category(name, tuple(values))])
    release = released(sf.marginals(domain, 1), np.ones(len(values), dtype=int))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        release.to_csv(path)
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
    for cell in [*header, *(c for row in rows for c in row[:3])]:
        assert cell[:1] not in ("=", "+", "-", "@", "\t", "\r")
    for row, value in zip(rows, values, strict=True):
        assert row[2] in (value, "'" + value)


@QUICK
@given(st.lists(TEXTS, min_size=1, max_size=5, unique=True))
def test_labels_survive_parquet_as_they_are(values):
    domain = Domain([Category("x", tuple(values))])
    table = released(sf.marginals(domain, 1), np.ones(len(values), dtype=int)).to_arrow()
    assert table["x"].to_pylist() == values
    assert table["query"].to_pylist() == [f"x = {v}" for v in values]


@QUICK
@given(st.lists(TEXTS, min_size=1, max_size=4, unique=True), st.sampled_from([None, 100]))
def test_tables_of_a_report_hold_no_markup_but_their_own(values, records):
    domain = Domain([Category("x", tuple(values))])
    release = released(sf.marginals(domain, 1), np.ones(len(values), dtype=int))
    shown = _table(release.answers("x"), len(values), records)
    for known in ("div", "table", "thead", "tbody", "tr", "th", "td"):
        for mark in (f"<{known}>", f"</{known}>", f'<{known} class="label">'):
            shown = shown.replace(mark, "")
    shown = shown.replace('<div class="wide tall">', "")
    assert "<" not in shown
    assert all(html.escape(v) in shown for v in values)


def test_a_table_that_does_not_escape_would_be_noticed(monkeypatch):
    monkeypatch.setattr("sfumato.release.report.escape", lambda text: text)
    with pytest.raises(AssertionError):
        test_tables_of_a_report_hold_no_markup_but_their_own.hypothesis.inner_test(["<b>"], None)
