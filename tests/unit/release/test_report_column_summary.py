# SPDX-License-Identifier: Apache-2.0
"""The summary of columns: numbers beside their intervals, nothing where there is nothing."""

from __future__ import annotations

from datetime import datetime
from importlib.resources import files

import pandas as pd

from sfumato.release.report import sentences, short_frame, summary_html

FRAME = pd.DataFrame(
    [
        {
            "column": "age",
            "kind": "integer",
            "records": 48901.3,
            "nulls": 3.0,
            "nulls_low": 0.0,
            "nulls_high": 20.0,
            "low": 15,
            "high": 99,
            "mean": 38.6321,
            "mean_low": 38.5,
            "mean_high": 38.75,
            "note": "",
        },
        {
            "column": "<b>sex</b>",
            "kind": "category",
            "keys": 2.0,
            "top": "<i>f</i>",
            "top_count": 10.2,
            "note": "",
        },
        {
            "column": "seen",
            "kind": "datetime",
            "low": datetime(2020, 1, 1),
            "high": datetime(2021, 1, 1),
            "median": pd.Timestamp(2020, 6, 1),
            "median_low": pd.Timestamp(2020, 5, 1),
            "median_high": pd.Timestamp(2020, 7, 1),
            "note": "default range",
        },
    ]
).astype({"low": object, "high": object})


def test_numbers_stand_beside_their_intervals_and_are_as_long_as_those_are_sharp():
    age = short_frame(FRAME).iloc[0]
    assert age["with a value"] == "48,901"
    assert age["missing"] == "3 (0 to 20)"
    assert age["mean"] == "38.632 (38.5 to 38.75)"
    assert age["values"] == "15 to 99"


def test_keys_and_dates_are_written_as_people_do():
    table = short_frame(FRAME)
    assert table.iloc[1]["values"] == "<i>f</i> (10) and 1 more"
    assert table.iloc[2]["median"] == "2020-06-01 (2020-05-01 to 2020-07-01)"
    assert table.iloc[2]["note"] == "default range"


def test_texts_are_escaped_in_html():
    page = summary_html(FRAME, "a <title>")
    assert "<i>" not in page
    assert "&lt;b&gt;sex" in page
    assert "a &lt;title&gt;" in page
    assert "within &lt;all&gt;" in summary_html(FRAME, "", "within <all>")


def test_ends_of_ranges_are_as_long_as_they_are():
    ends = [{"column": "x", "kind": "numeric", "low": 2e4, "high": 1.5e-7, "note": ""}]
    assert short_frame(pd.DataFrame(ends)).iloc[0]["values"] == "20,000 to 1.5e-07"


def test_sentences_leave_out_what_is_not_there():
    said = dict(sentences(FRAME))
    assert said["<b>sex</b>"] == "category, <i>f</i> (10) and 1 more"
    assert said["age"].startswith("integer, 15 to 99; mean 38.632")


def test_notes_are_read_without_scrolling():
    """A note is a sentence or two, and its cell alone has lines."""
    page = summary_html(FRAME, "")
    assert "<td class='label prose'>default range</td>" in page
    assert page.count("label prose") == len(FRAME)
    style = (files("sfumato.release") / "report.css").read_text(encoding="utf-8")
    assert "td.prose { white-space: normal" in style
