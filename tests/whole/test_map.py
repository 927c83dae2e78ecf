# SPDX-License-Identifier: Apache-2.0
"""The map of the lecture notes leads from everything numbered to what exists."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import sfumato as sf

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "map.md").read_text()
CODE = re.compile(r"`([^`]+)`")

# Everything that has a number in the notes (and the questions and algorithms that have names).
NUMBERED = {
    "Smith and Ullman": [
        *("Remark 1.1", "Remark 1.2", "Exercise 1.3", "Exercise 2.1", "Definition 2.2"),
        *("Theorem 2.3", "Remark 2.4", "Definition 2.5", "Theorem 2.6", "Remark 2.7"),
        "Theorem 3.1",
    ],
    "Nikolov": [
        *("Definition 1", "Algorithm 1", "Theorem 2", "Definition 3", "Theorem 4", "Definition 5"),
        *("Definition 6", "Definition 7", "Theorem 8", "Definition 9"),
    ],
    "Back to linear queries": ["Definition of the factorization norm", "Theorem on factorization"],
    "Wang": [
        *("Definition 2.4", "Theorem 3.8", "Theorem 1.5", "Example 1", "Example 2"),
        *("AboveThreshold", "SparseVector", "Algorithm 1 (Hedge)"),
        *(f"Algorithm {i}" for i in range(1, 7)),
    ],
    "Brown": [f"Question {i}" for i in range(1, 5)],
}


def rows() -> list[tuple[str, str, str, str]]:
    """(notes, item, functions, tests) of every line of the tables with four columns."""
    found = []
    for part in PAGE.split("\n## ")[1:]:
        title = part.splitlines()[0]
        for line in part.splitlines():
            cells = [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]
            if len(cells) == 4 and cells[0] != "item" and "---" not in cells[0]:
                found.append((title, cells[0], cells[2], cells[3]))
    return found


ROWS = rows()


def imported(path: str) -> object:
    """What a public name stands for: one of ``sf``, of ``sf.study`` or of the audit."""
    parts = path.split(".")
    if parts[0] == "sf":
        home = sf.study if parts[1] == "study" else sf
        if parts[2 if home is sf.study else 1] not in home.__all__:
            raise AttributeError(f"{path} is not public")
        parts[0] = "sfumato"
    elif parts[0] != "sfumato_audit":
        raise ModuleNotFoundError(path)
    for at in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:at]))
        except ModuleNotFoundError:
            continue
        for name in parts[at:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(path)


@cache
def functions_of(path: str) -> frozenset[str]:
    return frozenset(re.findall(r"^\s*def (test_\w+)\(", (ROOT / path).read_text(), re.MULTILINE))


def names_test(named: str) -> bool:
    path, _, name = named.partition("::")
    return (ROOT / path).exists() and name in functions_of(path)


@pytest.mark.parametrize(("notes", "item", "functions", "tests"), ROWS, ids=lambda x: str(x)[:40])
def test_every_line_leads_to_functions_and_tests(
    notes: str, item: str, functions: str, tests: str
) -> None:
    assert CODE.findall(functions), f"{notes}, {item}: no function"
    for path in CODE.findall(functions):
        assert imported(path) is not None
    named = CODE.findall(tests)
    assert named, f"{notes}, {item}: no test"
    assert [t for t in named if not names_test(t)] == []


@pytest.mark.parametrize("notes", NUMBERED)
def test_everything_that_has_a_number_is_on_the_map(notes: str) -> None:
    items = [item for title, item, _, _ in ROWS if title.startswith(notes)]

    def is_there(wanted: str) -> bool:
        return any(re.search(rf"{re.escape(wanted)}(?![\d.]*\d)", item) for item in items)

    assert [wanted for wanted in NUMBERED[notes] if not is_there(wanted)] == []


def test_names_that_do_not_exist_are_noticed() -> None:
    assert not names_test("tests/whole/test_map.py::test_nothing")
    assert not names_test("tests/unit/test_nowhere.py::test_nothing")
    assert names_test("tests/whole/test_map.py::test_names_that_do_not_exist_are_noticed")
    for path in ("sf.study.no_such_error", "sf.run", "sfumato.plan", "no_such_package"):
        with pytest.raises((AttributeError, ModuleNotFoundError)):
            imported(path)
