# SPDX-License-Identifier: Apache-2.0
"""A release in the hands of other libraries: frames, streams, charts."""

from __future__ import annotations

import sys

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.errors import SfumatoError, WorkloadError
from sfumato.release.release import Release
from tests.shared.made_releases import people, released, some_counts


@pytest.fixture(scope="module")
def release() -> Release:
    domain = people()
    return released(sf.marginals(domain, 3) | sf.prefixes(domain, "age"), some_counts(domain))


def test_frames_of_other_libraries_hold_the_arrow_table(release: Release) -> None:
    table = release.to_arrow()
    pd.testing.assert_frame_equal(release.to_pandas(), table.to_pandas())
    polars = release.to_polars()
    assert polars.columns == table.column_names
    assert polars["value"].to_list() == table["value"].to_pylist()
    narrow = release.to_pandas(level=0.5)
    assert (
        (narrow["high"] - narrow["low"]) <= (table.to_pandas()["high"] - table.to_pandas()["low"])
    ).all()


def test_whoever_reads_arrow_reads_a_release_and_its_frames(release: Release) -> None:
    assert pa.table(release).equals(release.to_arrow())
    assert pl.DataFrame(release).shape == (len(release.workload), 10)
    frame = release.answers("sex")
    assert pa.table(frame).num_rows == len(frame)


def test_without_polars_a_sentence_says_what_to_do(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(SfumatoError, match="pip install polars"):
        release.to_polars()


def _marks(chart: object) -> set[str]:
    document = chart.to_dict()  # type: ignore[attr-defined]
    return {layer["mark"]["type"] for layer in document.get("layer", [document])}


def test_the_chart_suits_the_answers(release: Release) -> None:
    assert _marks(release.plot("sex")) == {"bar", "rule"}
    assert _marks(release.plot("age", by="sex")) == {"rect", "point"}
    assert _marks(release.plot(group="prefix age")) == {"area", "line"}
    assert release.plot("sex").to_dict()["title"] == "sex"


def test_bare_the_charts_of_a_report_stand_under_one_another() -> None:
    domain = people()
    both = released(sf.marginals(domain, 1) | sf.prefixes(domain, "age"), some_counts(domain))
    assert len(both.plot().to_dict()["vconcat"]) == 4


def test_where_no_chart_suits_a_table_is_offered(release: Release) -> None:
    with pytest.raises(WorkloadError, match="no chart suits"):
        release.plot("age", by=["sex", "income"])
    with pytest.raises(WorkloadError, match="unknown attribute"):
        release.plot("agee")


def test_a_notebook_shows_what_can_be_done_with_it(release: Release) -> None:
    page = release._repr_html_()
    assert ".plot(" in page
    assert ".sql(" in page
