# SPDX-License-Identifier: Apache-2.0
"""The report of the benchmarks: every section is there, tables are Markdown, failures are told."""

from __future__ import annotations

from importlib import import_module
from inspect import signature

import pytest

from bench.__main__ import QUICK, SECTIONS, WITH_EFFORT
from bench.report import Section, machine, written
from bench.tell import is_within, show


def test_every_section_can_be_run_by_its_name():
    for name in SECTIONS:
        takes = signature(import_module(f"bench.{name}").main).parameters
        assert ("effort" in takes) == (name in WITH_EFFORT), name
    assert set(QUICK) <= set(SECTIONS)
    assert set(WITH_EFFORT) <= set(SECTIONS)


@pytest.mark.parametrize(
    ("least", "asked", "is_run"),
    [("quick", "quick", True), ("usual", "quick", False), ("usual", "all", True),
     ("all", "usual", False), ("all", "all", True)],
)  # fmt: skip
def test_a_row_is_run_from_its_effort_on(least, asked, is_run):
    assert is_within(least, asked) is is_run


def test_tables_are_markdown_without_lines_between_rows(capsys):
    from rich.table import Table

    table = Table(title="Counts")
    table.add_column("way")
    table.add_column("seconds", justify="right")
    table.add_row("ours", "1", end_section=True)
    table.add_row("theirs", "2")
    show(table)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "**Counts**"
    assert [line.count("|") for line in lines[3:]] == [3, 3, 3, 3]
    assert sum(set(line) <= {"|", "-", " "} for line in lines[3:]) == 1


def test_the_report_holds_what_was_said_pictures_and_failures(tmp_path):
    picture, file = tmp_path / "noise.png", tmp_path / "noise.csv"
    picture.write_bytes(b"")
    file.write_text("")
    done = Section("noise", "draws", f"**Draws**\n\n| a |\n{picture}\n{file}\n", 2.0, 1.0, True)
    broken = Section("online", "questions", "half\n", 3.0, 1.0, False)
    text = written([done, broken], "quick", folder=tmp_path).read_text()
    assert "![noise.png](noise.png)" in text
    assert "\n[noise.csv](noise.csv)" in text
    assert str(tmp_path) not in text
    assert text.count("**failed**") == 1
    assert "make bench ARGS=--quick" in text
    assert "OpenDP noise a vector of integers" in text  # how it is measured
    assert "| all |  | 5 | 2 |  |" in text
    assert "**Draws**" in text
    assert "half" in text


def test_the_machine_is_told_with_versions():
    told = dict(machine())
    assert told["cores"].isdigit()
    assert told["numpy"][0].isdigit()
