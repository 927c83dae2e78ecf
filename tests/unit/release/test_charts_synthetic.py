# SPDX-License-Identifier: Apache-2.0
"""What is said of synthetic records: against numbers by hand, and nothing about what is unknown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.release.charts import association

DOMAIN = sf.Domain({"a": 3, "b": 3, "c": 2})


def released(work: sf.Workload, project: bool = True) -> sf.Release:
    """A release of 900 records in which b follows a, and c is independent."""
    a = np.repeat(np.arange(3), 300)
    table = pd.DataFrame({"a": a, "b": a, "c": np.tile([0, 1], 450)})
    return sf.plan(work, sf.Budget(epsilon=20)).release(table, project=project)


def test_measures_are_those_of_the_records_beside_the_published_table() -> None:
    release = released(sf.marginals(DOMAIN, [("a", "b"), ("c",)]))
    records = release.synthetic(90)
    frame = sf.synthetic_quality(records).set_index("table")
    assert frame["asked"].tolist() == [True, True, False, False]
    own = pd.crosstab(records["a"], records["b"]).reindex(index=range(3), columns=range(3))
    own_table = own.fillna(0).to_numpy() * (release.total / 90)
    published = np.asarray(release.answers("a", by="b")["value"]).reshape(3, 3)
    expected = 0.5 * np.abs(own_table / own_table.sum() - published / published.sum()).sum()
    assert frame.loc["a x b", "distance"] == pytest.approx(expected, abs=1e-12)
    assert frame.loc["a x b", "largest"] == pytest.approx(np.abs(own_table - published).max())
    assert frame.loc["a x b", "association"] == pytest.approx(1, abs=0.02)
    assert frame.loc["a x b", "published_association"] == pytest.approx(1, abs=0.02)


def test_what_was_not_asked_has_an_association_and_no_distance() -> None:
    frame = sf.synthetic_quality(released(sf.marginals(DOMAIN, 1)).synthetic(900))
    others = frame[~frame["asked"]].set_index("table")
    assert sorted(others.index) == ["a x b", "a x c", "b x c"]
    assert others[["distance", "largest", "inside", "published_association"]].isna().all(axis=None)
    assert others["association"].notna().all()


def test_groups_that_are_no_tables_have_differences_alone() -> None:
    frame = sf.synthetic_quality(released(sf.prefixes(DOMAIN, "a")).synthetic(300))
    asked = frame[frame["asked"]]
    assert asked["distance"].isna().all()
    assert asked["largest"].notna().all()


def test_records_of_another_distribution_are_seen_to_be_outside() -> None:
    release = released(sf.marginals(DOMAIN, [("a", "b")]))
    from sfumato.refine.synthesize import Synthetic
    from sfumato.release.charts import quality_rows

    even = {n: np.arange(900) // d % DOMAIN[n].size for n, d in (("a", 3), ("b", 1), ("c", 9))}
    (asked, *_) = quality_rows(release.estimates, Synthetic(even, ()))
    assert asked["inside"] == 0
    assert asked["distance"] == pytest.approx(2 / 3, abs=0.01)


def test_association_is_that_of_the_formula_and_zero_for_independent_columns() -> None:
    table = np.array([[30.0, 10.0], [10.0, 50.0]])
    square = (30 * 50 - 10 * 10) ** 2 / (40 * 60 * 40 * 60)  # phi^2 of a 2 x 2 table
    width = 2 - 1 / 99
    assert association(table) == pytest.approx(((square - 1 / 99) / (width - 1)) ** 0.5)
    assert association(np.outer([3.0, 7.0], [4.0, 6.0])) == 0
    assert association(np.array([[5.0, 9.0], [0.0, 0.0]])) is None


def test_measures_without_records_are_empty_and_other_frames_are_refused() -> None:
    empty = released(sf.marginals(DOMAIN, 1)).synthetic(0)
    assert sf.synthetic_quality(empty).empty
    with pytest.raises(sf.WorkloadError, match="as it came"):
        sf.synthetic_quality(pd.DataFrame({"a": [1]}))


@pytest.mark.parametrize("project", [True, False])
def test_a_saved_release_holds_measures_and_their_picture(tmp_path: Path, project: bool) -> None:
    work = sf.marginals(DOMAIN, 2)
    paths = released(work, project).save(tmp_path, synthetic=50)
    saved = pd.read_csv(paths["synthetic_quality"])
    assert saved["table"].tolist() == ["a x b", "a x c", "b x c"]
    assert paths["synthetic_quality_chart"].read_bytes().startswith(b"\x89PNG")
