# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import io
import zlib

import numpy as np
import pandas as pd
import pytest
import vl_convert

import sfumato as sf
from sfumato.domain.attributes import Category
from sfumato.domain.domain import Domain
from sfumato.errors import SfumatoError
from sfumato.release.charts import (
    candidates_chart,
    cdf_band,
    chart_of,
    chosen_groups,
    error_against_alpha,
    heat_map,
    interval_bars,
    smaller_png,
    write_chart,
)
from tests.shared.made_releases import people, planned, released, some_counts


@pytest.fixture(scope="module")
def release():
    domain = people()
    work = (
        sf.marginals(domain, [["age"], ["sex"], ["age", "sex"]])
        | sf.prefixes(domain, "age", by=["sex"])
        | sf.ranges(domain, "income")
        | sf.means(domain, "age", by=["sex"])
        | sf.marginals(domain, 3)
    )
    return released(work, some_counts(domain))


def rows_of(chart: dict) -> list[dict[str, str]]:
    (text,) = chart["datasets"].values()
    return list(csv.DictReader(io.StringIO(text)))


def test_bars_carry_every_answer_with_both_ends_of_its_interval(release):
    frame = release.answers("sex")
    chart = interval_bars(frame, "sex", is_upright=False).to_dict()
    rows = rows_of(chart)
    assert [r["x"] for r in rows] == ["Female", "Male", "(missing)"]
    for column, name in (("v", "value"), ("l", "low"), ("h", "high")):
        assert [float(r[column]) for r in rows] == pytest.approx(frame[name].tolist(), rel=1e-5)
    bars, whiskers = chart["layer"]
    assert bars["mark"]["type"] == "bar"
    assert (whiskers["encoding"]["x"]["field"], whiskers["encoding"]["x2"]["field"]) == ("l", "h")


def test_a_cdf_is_a_step_line_in_its_band(release):
    chart = cdf_band(release.answers(group="prefix age by sex"), "age", "sex").to_dict()
    band, line = chart["layer"]
    assert band["mark"]["interpolate"] == line["mark"]["interpolate"] == "step-after"
    assert line["encoding"]["x"]["type"] == "quantitative"
    assert {r["s"] for r in rows_of(chart)} == {"Female", "Male", "(missing)"}


def test_a_cdf_of_times_has_a_time_axis():
    frame = pd.DataFrame({"day": pd.to_datetime(["2024-01-01", "2024-01-02"])})
    frame = frame.assign(value=[1.0, 2.0], low=0.5, high=3.0)
    chart = cdf_band(frame, "day").to_dict()
    assert chart["layer"][1]["encoding"]["x"]["type"] == "temporal"


def test_a_heat_map_keeps_the_order_of_the_labels(release):
    chart = heat_map(release.answers(group="age x sex"), "age", "sex").to_dict()
    cells, _ = chart["layer"]
    assert cells["encoding"]["x"]["sort"] is None
    assert len(rows_of(chart)) == 30


def test_a_heat_map_marks_answers_whose_intervals_are_wide():
    """By Vega itself, which works the marks out: a cross, a dot and nothing."""
    frame = pd.DataFrame({"a": ["p", "q", "r"], "b": ["x", "x", "x"], "value": [2.0, 10, 100]})
    frame = frame.assign(low=[-1.0, 4, 90], high=[5.0, 16, 110])
    svg = vl_convert.vegalite_to_svg(heat_map(frame, "a", "b").to_dict())
    assert [svg.count(f"interval: {kind}") for kind in ("reaches 0", "wider than half")] == [1, 1]
    assert svg.count('aria-roledescription="rect mark"') == 3


def test_names_that_mean_something_to_vega_are_only_titles():
    """Dots and brackets in a field name would be read as a path into the record."""
    domain = Domain([Category("a.b[0]", ("x", 'q"uote', "comma,"))])
    frame = released(sf.marginals(domain, 1), np.array([10, 20, 30])).answers("a.b[0]")
    chart = interval_bars(frame, "a.b[0]").to_dict()
    assert [r["x"] for r in rows_of(chart)] == ["x", 'q"uote', "comma,"]
    assert chart["layer"][0]["encoding"]["x"]["field"] == "x"
    assert chart["layer"][0]["encoding"]["x"]["title"] == "a.b[0]"


def test_candidates_are_sorted_by_error_and_the_chosen_one_is_marked():
    forecast = planned(sf.prefixes(people(), "age"))
    rows = rows_of(candidates_chart(forecast.candidates).to_dict())
    errors = [float(r["v"]) for r in rows]
    assert errors == sorted(errors)
    chosen = next(c for c in forecast.candidates if c.is_chosen)
    assert [r["x"] for r in rows if r["c"] == "chosen"] == [chosen.name]


def test_infinite_ends_are_left_open():
    frame = pd.DataFrame({"q": ["a"], "mean": [1.0], "low": [-np.inf], "high": [np.inf]})
    (row,) = rows_of(interval_bars(frame, "q", value="mean").to_dict())
    assert (row["l"], row["h"]) == ("", "")


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_charts_are_saved_without_a_browser(release, tmp_path, kind):
    path = tmp_path / f"chart.{kind}"
    write_chart(interval_bars(release.answers("age"), "age"), path)
    start = path.read_bytes()[:8]
    assert start == b"\x89PNG\r\n\x1a\n" if kind == "png" else start.startswith(b"<svg")
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_other_endings_are_refused(release, tmp_path):
    with pytest.raises(SfumatoError, match=r"\.png or \.svg"):
        write_chart(interval_bars(release.answers("age"), "age"), tmp_path / "chart.bmp")


def test_groups_are_drawn_as_what_they_are(release):
    names = release.groups
    workload = release.forecast.workload
    groups = [*range(len(workload.terms)), *workload.ratios]
    drawn = {}
    for name, group in zip(names, groups, strict=True):
        chart = chart_of(release.estimates, group, 0.95, 300)
        if chart is not None:
            made = chart.to_dict()
            drawn[name] = made.get("mark", made.get("layer", [{}])[0].get("mark"))["type"]
    assert drawn == {
        "age": "bar",
        "sex": "bar",
        "age x sex": "rect",
        "prefix age by sex": "area",
        "ranges income": "rect",
        "sum of age by sex": "bar",
        "number of age by sex": "bar",
        "mean age by sex": "bar",
    }
    chosen = chosen_groups(workload, groups)
    assert workload.ratios[0] in chosen
    assert 5 not in chosen  # the sum is half of the mean
    assert 6 not in chosen


def test_error_against_alpha_marks_the_least_point_of_every_curve():
    curves = {"few": [(0.0, 3.0), (0.5, 1.0), (1.0, 2.0)], "many": [(0.0, 0.1), (1.0, 2.0)]}
    rows = rows_of(error_against_alpha(curves).to_dict())
    assert [(r["s"], float(r["x"])) for r in rows if r["c"] == "least"] == [
        ("few", 0.5),
        ("many", 0.0),
    ]
    assert len(rows) == 5


def test_error_against_alpha_refuses_empty_curves():
    with pytest.raises(SfumatoError, match="at least one point"):
        error_against_alpha({"none": []})


def test_pictures_are_compressed_and_keep_their_pixels():
    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data).to_bytes(4, "big")
        return len(data).to_bytes(4, "big") + kind + data + crc

    def chunks(picture: bytes) -> dict[bytes, bytes]:
        found, place = {}, 8
        while place < len(picture):
            size = int.from_bytes(picture[place : place + 4], "big")
            kind, data = picture[place + 4 : place + 8], picture[place + 8 : place + 8 + size]
            assert chunk(kind, data) == picture[place : place + 12 + size]
            found[kind] = found.get(kind, b"") + data
            place += 12 + size
        return found

    rows = (b"\0" + b"\xff\x00\x80" * 40) * 30
    header = (40).to_bytes(4, "big") + (30).to_bytes(4, "big") + bytes([8, 2, 0, 0, 0])
    packed = zlib.compress(rows, 0)
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", packed[:999]), chunk(b"IDAT", packed[999:])]
    picture = b"\x89PNG\r\n\x1a\n" + b"".join(parts) + chunk(b"IEND", b"")
    small = smaller_png(picture)
    assert len(small) < len(picture) / 10
    assert zlib.decompress(chunks(small)[b"IDAT"]) == rows
    assert chunks(small)[b"IHDR"] == header
    assert list(chunks(small)) == [b"IHDR", b"IDAT", b"IEND"]
