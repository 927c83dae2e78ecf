# SPDX-License-Identifier: Apache-2.0
"""Classes of the texts of a column: which text is in which, and what one line of a file moves."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.domain.column_kinds import CLASSES, OpenKind
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import SchemaError
from sfumato.vault.mechanisms.searches import read_classes
from sfumato.vault.tables import open_table

X = OpenKind(("x",))


@pytest.fixture
def sizes(tmp_path):
    """The sizes of the classes of a column of a file, those above 0."""

    def of(texts: list[str], unit: PrivacyUnit | None = None, **more: object) -> dict[str, int]:
        path = tmp_path / "t.csv"
        pd.DataFrame({"x": texts, "y": "", **more}).to_csv(path, index=False)
        exact = read_classes(open_table(str(path)), X, unit).reveal()
        return {name: int(size) for name, size in zip(CLASSES, exact, strict=True) if size}

    return of


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["7", "-12", "3.0", "1e3", " 5 ", str(2**53 - 1)], {"whole": 6}),
        (["0", "1"], {"bit": 2}),
        (["2.5", "inf", "-1e300", str(2**60)], {"fraction": 4}),
        (["2020-01-31", "1999-12-31 23:59:59", "0001-01-01"], {"date": 3}),
        (["yes", "No", "TRUE", "f"], {"truth": 4}),
        (["m", "12 months", "10+", "x" * 10**6, "\N{SNOWMAN}"], {"text": 5}),
        (["", " ", "nan"], {}),
        (["7", "2.5", "True", "a"], {"whole": 1, "fraction": 1, "truth": 1, "text": 1}),
        ([], {}),
    ],
)
def test_every_text_is_in_one_class_or_is_null(sizes, texts, expected) -> None:
    assert sizes(texts) == expected


def test_a_unit_counts_with_so_many_rows_as_are_bounded(sizes) -> None:
    who = ["one"] * 9 + ["two"]
    assert sum(sizes(["5"] * 10, PrivacyUnit("who", 3), who=who).values()) == 4


def test_a_kind_is_that_of_one_column_without_a_type() -> None:
    with pytest.raises(SchemaError, match="one column"):
        OpenKind(("a", "b"))
    typed = pd.DataFrame({"x": [1, 2]})
    with pytest.raises(sf.TableError, match="needs no vote"):
        sf.plan_discovery(X, sf.Budget(epsilon=1)).release(typed)


LINES = st.sampled_from(
    ["1", "0", "3", "2.5", "2020-01-31", "yes", "word", "", '"', '"a', 'a"b', "1,2", "\x00", "\xff"]
)


@settings(max_examples=25, deadline=None)
@given(st.lists(LINES, max_size=6), LINES, st.integers(0, 6))
def test_one_line_of_a_file_moves_the_classes_by_one_at_most(tmp_path_factory, lines, line, place):
    """Lemma 1 over neighbours of the file, whatever the line holds."""
    folder = tmp_path_factory.mktemp("kinds")

    def of_file(name: str, several: list[str]) -> np.ndarray:
        path = folder / name
        path.write_bytes(
            "\n".join(["x,y", *(f"{each},1" for each in several), ""]).encode("latin-1")
        )
        table = open_table(sf.CsvSource(str(path), records="lines"))
        return np.array(read_classes(table, X).reveal())

    more = [*lines[:place], line, *lines[place:]]
    apart = np.abs(of_file("a.csv", lines) - of_file("b.csv", more)).sum()
    assert apart <= 1
    # The twin: read in every way that a text can be, one line moves several numbers.
    if line == "1":
        several = np.array([[1, 1, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 1, 0, 0, 1, 0]])
        moved = several @ (of_file("b.csv", more) - of_file("a.csv", lines))
        assert np.abs(moved).sum() > 1
