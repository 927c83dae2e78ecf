"""``[constraints]`` in TOML: what is read, and where faults are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import SfumatoError
from sfumato.toml import parse_toml, read_toml
from sfumato.workload.statements.workload_file import constraints_from

SCHEMA = """
[domain.age]
kind = "integer"
min = 0
max = 4

[domain.sex]
kind = "category"
values = ["Female", "Male"]

"""


@pytest.fixture
def domain(tmp_path: Path) -> sf.Domain:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return sf.Domain.from_toml(tmp_path / "schema.toml")


def test_conditions_and_counts_are_read(domain: sf.Domain) -> None:
    text = """
[constraints]
impossible = ["age < 2 and sex = 'Male'"]
[[constraints.published]]
attributes = ["sex", "age"]
values = [[1, 2, 3, 4, 5], [0, 0, 1, 1, 1]]
[[constraints.published]]
attributes = []
values = 18
"""
    known = constraints_from(parse_toml(text), domain)
    assert known is not None
    assert known.possible(("age", "sex")).sum() == 8
    assert known.published[0].names == ("age", "sex")
    assert known.published[0].values[4].tolist() == [5, 1]
    assert known.total == 18


def test_a_file_without_the_table_has_no_constraints(domain: sf.Domain) -> None:
    assert constraints_from(parse_toml("[data]"), domain) is None


def test_counts_come_from_a_csv_file_with_labels(domain: sf.Domain, tmp_path: Path) -> None:
    lines = ["sex,count,age"]
    lines += [f"{s},{10 * i + a},{a}" for i, s in enumerate(("Female", "Male")) for a in range(5)]
    (tmp_path / "known.csv").write_text("\n".join(lines))
    (tmp_path / "release.toml").write_text(
        '[[constraints.published]]\nattributes = ["sex", "age"]\nfile = "known.csv"\n'
    )
    known = constraints_from(read_toml(tmp_path / "release.toml"), domain)
    assert known is not None
    wanted = 10 * np.arange(2)[None, :] + np.arange(5)[:, None]
    assert np.array_equal(known.published[0].values, wanted)


HEAD = "[constraints]\nimpossible = ["
TABLE = '[[constraints.published]]\nattributes = ["sex"]\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + '\n"age < 2",\n"ages = 3"]', "line 4: constraints.impossible #2: .*unknown column"),
        (HEAD + '"age < 2", "age >= 2"]', "line 2: constraints.impossible #2: everything is imp"),
        (HEAD + "3]", "line 2: constraints.impossible #1: expected"),
        ("[constraints]\nforbidden = []", "line 2: constraints.forbidden: "),
        (TABLE + "values = [1, 2, 3]", "line 3: constraints.published #1.values: .*2 cells"),
        (TABLE + "values = [1, -2]", "line 3: .*0 or more"),
        (TABLE + "values = ['a', 'b']", "line 3: .*numbers"),
        (TABLE, "line 1: constraints.published #1: give the counts"),
        (TABLE + "values = [1, 2]\nfile = 'x.csv'", "line 1: .*give the counts"),
        (TABLE + "file = 'none.csv'", "line 3: constraints.published #1.file: .*cannot be read"),
        (TABLE.replace("sex", "six") + "values = [1]", "line 2: .*attributes: .*six"),
        (TABLE + "values = [1, 2]\n" + TABLE + "values = [2, 2]", "line 6: .*adds up to 3 records"),
        (HEAD + "\"sex = 'Male'\"]\n" + TABLE + "values = [1, 2]", "line 5: .*none is possible"),
    ],
)
def test_faults_are_reported_with_their_line(domain: sf.Domain, text: str, words: str) -> None:
    with pytest.raises(SfumatoError, match=words):
        constraints_from(parse_toml(text), domain)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["sex,number", "Female,1", "Male,2"], "must have the columns 'sex', 'count'"),
        (["sex,count", "Female,1"], "lists 1 of 2 cells"),
        (["sex,count", "Female,1", "Female,1", "Male,2"], "line 3: a cell is listed twice"),
        (["sex,count", "Female,1", "Males,2"], "line 3: sex has no cell 'Males'"),
        (["sex,count", "Female,1", "Male,two"], "line 3: 'two' is not a count"),
        (["sex,count", "Female,1", "Male,nan"], "lists 1 of 2 cells"),
        (["sex,count", "Female,1", "Male,-1"], "0 or more"),
        ([], "it has none"),
    ],
)
def test_faults_of_a_csv_file_say_what_is_wrong(
    domain: sf.Domain, tmp_path: Path, lines: list[str], words: str
) -> None:
    (tmp_path / "known.csv").write_text("\n".join(lines))
    (tmp_path / "release.toml").write_text(TABLE + 'file = "known.csv"\n')
    with pytest.raises(SfumatoError, match=words):
        constraints_from(read_toml(tmp_path / "release.toml"), domain)
