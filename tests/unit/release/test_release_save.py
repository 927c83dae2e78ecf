# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato.domain.attributes import Category, Numeric
from sfumato.domain.domain import Domain
from sfumato.errors import SfumatoError
from sfumato.release import export
from sfumato.release import release as release_module
from sfumato.release.release_limits import LIMITS
from tests.shared.made_releases import people, released, some_counts

FILES = {"answers.parquet", "provenance.json", "release.zip", "report.html"}


@pytest.fixture(scope="module")
def release():
    domain = people()
    work = (
        sf.marginals(domain, 2)
        | sf.prefixes(domain, "age", by=["sex"])
        | sf.ranges(domain, "income")
        | sf.means(domain, "age", by=["sex"])
        | sf.predicates(domain, [sf.attribute(domain, "age") < 25])
    )
    return released(work, some_counts(domain))


@pytest.fixture
def plain_report(monkeypatch):
    """Bundling the charting library takes seconds and is tested elsewhere."""
    monkeypatch.setattr("sfumato.release.report.library", lambda: "")


def test_parquet_holds_the_long_frame_with_typed_labels(release, tmp_path):
    path = tmp_path / "answers.parquet"
    release.to_parquet(path)
    frame, long = pd.read_parquet(path), release.answers()
    assert frame["group"].astype(str).tolist() == long["group"].astype(str).tolist()
    assert frame["query"].tolist() == long["query"].tolist()
    for column in ("value", "standard_error", "low", "high", "unbiased"):
        np.testing.assert_array_equal(frame[column], long[column])
    table = frame[frame["group"] == "age x sex"]
    assert table["age"].tolist() == release.answers(group="age x sex")["age"].tolist()
    assert table["income"].isna().all()
    ranges = frame[frame["group"] == "ranges income"]
    assert ranges["income_to"].tolist() == [10.0, 50.5, 90.0, 50.5, 90.0, 90.0]


def test_parquet_carries_its_provenance_and_fair_row_groups(release, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "LIMITS", replace(LIMITS, row_group=40))
    release.to_parquet(tmp_path / "a.parquet")
    file = pq.ParquetFile(tmp_path / "a.parquet")
    held = json.loads(file.schema_arrow.metadata[b"sfumato"])
    assert held == json.loads(json.dumps(release.provenance))
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    assert sum(sizes) == len(release.answers())
    assert max(sizes) <= 40
    assert len(sizes) < len(release.groups) + 3


def test_arrow_is_what_parquet_holds(release, tmp_path):
    release.to_parquet(tmp_path / "a.parquet")
    table = release.to_arrow()
    assert table.schema.field("age").type == "int64"
    stored = pq.read_table(tmp_path / "a.parquet")
    assert stored.schema.equals(table.schema, check_metadata=True)
    pd.testing.assert_frame_equal(stored.to_pandas(), table.to_pandas())
    assert stored["unbiased"].null_count == 3  # means have no unbiased answer


def test_the_level_of_the_intervals_is_the_one_asked_for(release, tmp_path):
    release.to_parquet(tmp_path / "a.parquet", level=0.5)
    assert (
        pd.read_parquet(tmp_path / "a.parquet")["low"].tolist()[:5]
        == (release.answers(level=0.5)["low"].tolist()[:5])
    )


def test_csv_never_starts_a_text_with_a_formula(tmp_path):
    values = ("=1+1", "+2", "-3", "@x", "\tt", "\rr", "fine", "a=b", '"=quoted"')
    domain = Domain([Category("=cmd", values), Numeric("n", (-5, 0, 5))])
    work = sf.marginals(domain, 1)
    path = tmp_path / "answers.csv"
    released(work, np.zeros(domain.shape, int), project=False).to_csv(path)
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header[:4] == ["group", "query", "'=cmd", "n"]
    texts = [cell for row in rows for cell in row[:4]]
    assert not any(cell[:1] in "=+-@\t\r" for cell in texts if cell)
    assert [row[2].removeprefix("'") for row in rows[:9]] == list(values)
    assert rows[6][2] == "fine"  # harmless texts stay as they are
    assert any(row[4].startswith("-") for row in rows)  # numbers below zero stay numbers


def test_csv_has_the_rows_of_the_long_frame(release, tmp_path):
    release.to_csv(tmp_path / "a.csv")
    frame = pd.read_csv(tmp_path / "a.csv")
    long = release.answers()
    assert frame["query"].tolist() == long["query"].tolist()
    np.testing.assert_allclose(frame["value"], long["value"], rtol=1e-12)


@pytest.mark.usefixtures("plain_report")
def test_save_writes_all_files_and_returns_their_paths(release, tmp_path):
    out = tmp_path / "new" / "folder"
    paths = release.save(out, synthetic=25)
    assert {p.name for p in out.iterdir()} == {
        *FILES,
        "synthetic.parquet",
        "synthetic-quality.csv",
        "synthetic-quality.png",
    }
    assert paths["report"] == out / "report.html"
    assert len(pd.read_parquet(paths["synthetic"])) == 25
    record = json.loads(paths["provenance"].read_text(encoding="utf-8"))
    assert record["mechanism"] == release.forecast.mechanism
    names = {"answers", "provenance", "release", "report"}
    assert set(release.save(tmp_path / "plain")) == names


@pytest.mark.usefixtures("plain_report")
def test_save_again_replaces_what_was_there(release, tmp_path):
    release.save(tmp_path)
    (tmp_path / "report.html").write_text("old")
    (tmp_path / "mine.txt").write_text("kept")
    release.save(tmp_path)
    assert (tmp_path / "report.html").read_text(encoding="utf-8") != "old"
    assert {p.name for p in tmp_path.iterdir()} == {*FILES, "mine.txt"}


@pytest.mark.usefixtures("plain_report")
@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_while_saving_leaves_nothing_new(release, tmp_path, monkeypatch, failure):
    (tmp_path / "answers.parquet").write_text("old")

    def fail(*_):
        raise failure

    monkeypatch.setattr(release_module, "provenance_json", fail)
    expected = SfumatoError if isinstance(failure, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        release.save(tmp_path)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"answers.parquet": "old"}
    with pytest.raises(expected):
        release.save(tmp_path / "fresh")
    assert not (tmp_path / "fresh").exists()


def test_a_failure_while_writing_one_file_keeps_the_old_one(release, tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sfumato.release.release.write_csv", fail)
    with pytest.raises(SfumatoError, match=r"cannot write .*a\.csv: No space left.*; choose"):
        release.to_csv(path)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a.csv", "old")]


def test_a_folder_that_is_missing_or_is_a_file_is_one_clear_message(release, tmp_path):
    with pytest.raises(SfumatoError, match="cannot write"):
        release.to_parquet(tmp_path / "none" / "a.parquet")
    (tmp_path / "file").write_text("")
    with pytest.raises(SfumatoError, match="cannot write"):
        release.save(tmp_path / "file")


@pytest.mark.skipif(os.name != "posix", reason="POSIX only: Windows has no such file modes")
def test_files_get_the_usual_permissions(release, tmp_path):
    before = os.umask(0o022)
    try:
        release.to_csv(tmp_path / "a.csv")
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path(tmp_path / "a.csv").stat().st_mode) == 0o644


def test_parts_of_a_few_rows_make_the_same_files(release, tmp_path, monkeypatch):
    whole = release.to_arrow()
    release.to_csv(tmp_path / "whole.csv")
    monkeypatch.setattr(export, "LIMITS", replace(LIMITS, rows_at_once=7, row_group=10))
    assert release.to_arrow().equals(whole, check_metadata=True)
    release.to_csv(tmp_path / "parts.csv")
    assert (tmp_path / "parts.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    release.to_parquet(tmp_path / "parts.parquet")
    file = pq.ParquetFile(tmp_path / "parts.parquet")
    assert file.read().unify_dictionaries().equals(whole)
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    assert max(sizes) <= 10
    assert sum(sizes) == whole.num_rows


@pytest.mark.usefixtures("plain_report")
def test_a_folder_holds_one_release(release, tmp_path):
    domain = people()
    other = released(sf.marginals(domain, 1), some_counts(domain))
    release.save(tmp_path, csv=True, synthetic=10)
    (tmp_path / "mine.txt").write_text("kept")
    companions = {"answers.csv", "synthetic.parquet", "synthetic.csv"}
    companions |= {"synthetic-quality.csv", "synthetic-quality.png"}
    release.save(tmp_path)  # the same one: they still belong to it
    assert {p.name for p in tmp_path.iterdir()} == {*FILES, *companions, "mine.txt"}
    other.save(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {*FILES, "mine.txt"}


@pytest.fixture(scope="module")
def public_total():
    """A release of 200 records, their number public, and an attribute called like a column."""
    domain = sf.Domain({"share": 4, "sex": 2}, records="all-inside")
    work = sf.marginals(domain, 2) | sf.means(domain, "share", by=["sex"])
    table = pd.DataFrame({"share": [0, 1, 2, 3, 3] * 40, "sex": [0, 1] * 100})
    return sf.plan(work, sf.Budget(mu=1), "replace-one").release(table)


@pytest.mark.usefixtures("plain_report")
def test_shares_stand_beside_the_numbers_of_a_file(public_total, tmp_path):
    names = ["value", "standard_error", "low", "high", "unbiased"]
    shares = ["share", "share_standard_error", "share_low", "share_high", "share_unbiased"]
    public_total.save(tmp_path / "plain", csv=True)
    public_total.save(tmp_path / "shares", csv=True, shares=True)
    plain = pd.read_parquet(tmp_path / "plain" / "answers.parquet")
    both = pd.read_parquet(tmp_path / "shares" / "answers.parquet")
    assert both.columns.tolist() == ["group", "query", "share (attribute)", "sex", *names, *shares]
    assert plain.columns.tolist() == ["group", "query", "share", "sex", *names]
    pd.testing.assert_frame_equal(both[names], plain[names])
    is_mean = both["group"] == public_total.groups[-1]
    assert both.loc[is_mean, shares].isna().all().all()
    assert both.loc[~is_mean, shares].to_numpy() == pytest.approx(
        both.loc[~is_mean, names].to_numpy() / 200
    )
    written = pd.read_csv(tmp_path / "shares" / "answers.csv")
    assert written[shares].to_numpy() == pytest.approx(both[shares].to_numpy(), nan_ok=True)
    records = [(tmp_path / n / "provenance.json").read_text() for n in ("plain", "shares")]
    assert records[0] == records[1]
    assert public_total.to_arrow(shares=True).column_names == both.columns.tolist()


def test_files_with_shares_of_a_private_number_are_refused_and_not_written(release, tmp_path):
    path = tmp_path / "answers"
    for write in (release.to_csv, release.to_parquet, release.save):
        with pytest.raises(sf.WorkloadError, match="all-inside"):
            write(path, shares=True)
        assert not path.exists()
    for make in (release.to_arrow, release.report):
        with pytest.raises(sf.WorkloadError, match="all-inside"):
            make(shares=True)
