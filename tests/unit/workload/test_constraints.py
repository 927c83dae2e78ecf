"""Impossible combinations and published tables: what they say, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import product as cells_of

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import TooLarge, WorkloadError
from sfumato.workload import constraints as module
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

DOMAIN = sf.Domain({"a": 3, "b": 4, "c": 2, "d": 5})
CONDITIONS = ["a = 0 and b >= 2", "b = 3 and c = 1", "d = 4", "a = 2 and c = 0 and b = 0"]


def is_impossible(a: int, b: int, c: int, d: int) -> bool:
    return (a == 0 and b >= 2) or (b == 3 and c == 1) or d == 4 or (a == 2 and c == 0 and b == 0)


ALLOWED = np.array(
    [not is_impossible(*x) for x in cells_of(*(range(n) for n in DOMAIN.shape))]
).reshape(DOMAIN.shape)


@pytest.mark.parametrize(
    "names", [("a",), ("c", "a"), ("b", "d"), ("a", "b", "c"), ("d", "c", "b", "a"), ()]
)
def test_a_cell_is_possible_when_some_record_in_it_is(names: tuple[str, ...]) -> None:
    known = sf.Constraints(DOMAIN, CONDITIONS)
    rest = tuple(i for i, n in enumerate(DOMAIN.names) if n not in names)
    ordered = [n for n in DOMAIN.names if n in names]
    brute = ALLOWED.any(axis=rest).transpose([ordered.index(n) for n in names])
    assert np.array_equal(known.possible(names), brute)


def test_conditions_that_exclude_a_value_together_do_so_in_its_own_table() -> None:
    known = sf.Constraints(DOMAIN, ["a = 1 and c = 0", "a = 1 and c = 1"])
    assert known.possible(("a",)).tolist() == [True, False, True]


def test_rows_are_possible_as_cells_are() -> None:
    every = np.array(np.unravel_index(np.arange(DOMAIN.size), DOMAIN.shape))
    found = sf.Constraints(DOMAIN, CONDITIONS).are_possible(every)
    assert np.array_equal(found, ALLOWED.reshape(-1))


def test_every_possible_cell_is_completed_to_a_possible_row() -> None:
    known = sf.Constraints(DOMAIN, CONDITIONS)
    for names in [("a",), ("c", "d"), ("a", "c"), ("b",), ("a", "b", "c", "d")]:
        cells = np.argwhere(known.possible(names))
        rows = known.completed(names, cells)
        assert known.are_possible(rows).all()
        for n, column in zip(names, cells.T, strict=True):
            assert np.array_equal(rows[DOMAIN.index(n)], column)


def test_conditions_are_expressions_or_text() -> None:
    a, b = sf.attribute(DOMAIN, "a"), sf.attribute(DOMAIN, "b")
    built = sf.Constraints(DOMAIN, [(a == 0) & (b >= 2)])
    written = sf.Constraints(DOMAIN, "a = 0 AND b >= 2")
    names = ("a", "b")
    assert np.array_equal(built.possible(names), written.possible(names))


def test_counts_are_read_in_the_order_the_attributes_are_named() -> None:
    table = np.arange(12.0).reshape(4, 3)
    known = sf.Constraints(DOMAIN, published=[(("b", "a"), table)])
    assert known.published[0].names == ("a", "b")
    assert np.array_equal(known.published[0].values, table.T)
    flat = sf.Constraints(DOMAIN, published=[(("b", "a"), table.reshape(-1))])
    assert np.array_equal(flat.published[0].values, table.T)


def test_a_workload_of_tables_can_be_published() -> None:
    work = sf.marginals(DOMAIN, [["a"], ["c"]])
    for values in ([3, 4, 5, 6, 6], [[3, 4, 5], [6, 6]]):
        known = sf.Constraints(DOMAIN, published=[(work, values)])
        assert [p.names for p in known.published] == [("a",), ("c",)]
        assert known.total == 12


def test_attributes_that_cannot_matter_are_summed_out() -> None:
    table = np.arange(24.0).reshape(3, 4, 2)
    other = table.sum(axis=(0, 2))[:, None] * np.full(5, 0.2)
    given = [(("a", "b", "c"), table), (("b", "d"), other), ((), table.sum())]
    known = sf.Constraints(DOMAIN, published=given)
    (only,) = known.published_for(["a"])
    assert only.names == ("a",)
    assert np.array_equal(only.values, table.sum(axis=(1, 2)))
    assert {p.names for p in known.published_for(["a", "d"])} == {("a", "b"), ("b", "d")}
    linked = sf.Constraints(DOMAIN, ["c = 0 and d = 0 and a = 0"], published=given)
    assert {p.names for p in linked.published_for(["a"])} == {("a", "b", "c"), ("b", "d")}


@pytest.mark.parametrize(
    ("impossible", "published", "words"),
    [
        (["a >= 0"], [], "leave no record"),
        (["1 = 1"], [], "everything is impossible"),
        (["a = 0", "a > 0"], [], "everything is impossible"),
        ([], [(["a"], [1, -1, 0])], "0 or more"),
        ([], [(["a"], [1, np.nan, 0])], "finite"),
        ([], [(["a"], [1, np.inf, 0])], "finite"),
        ([], [(["a"], [1, 2])], "3 cells"),
        ([], [(["a", "a"], np.ones((3, 3)))], "twice"),
        ([], [(["a"], ["x", "y", "z"])], "numbers"),
        ([], [(["a"], [1, 2, 3]), (["c"], [3, 4])], "adds up to 6 records, c to 7"),
        ([], [(["a"], [1, 2, 3]), ([], 7)], "total to 7"),
        (
            [],
            [(["a", "c"], [[1, 0], [1, 0], [1, 0]]), (["b", "c"], [[0, 1]] * 3 + [[0, 0]])],
            "disagree on c",
        ),
        (["a = 1"], [(["a"], [1, 2, 3])], "where none is possible: a = 1"),
        (["a = 1 and c = 0", "a = 1 and c = 1"], [(["a"], [1, 2, 3])], "none is possible"),
        ([], [["a"]], "pairs"),
        ([3], [], "not a condition"),
    ],
)
def test_what_cannot_be_is_refused(
    impossible: list[str], published: list[tuple[list[str], object]], words: str
) -> None:
    with pytest.raises(WorkloadError, match=words):
        sf.Constraints(DOMAIN, impossible, published)


def test_only_tables_of_counts_are_published() -> None:
    for work in (sf.prefixes(DOMAIN, "b"), sf.marginals(DOMAIN, [["a"]]) * 2):
        with pytest.raises(WorkloadError, match="not a table of counts"):
            sf.Constraints(DOMAIN, published=[(work, np.ones(work.queries))])
    other = sf.Domain({"a": 4})
    with pytest.raises(WorkloadError, match="another domain"):
        sf.Constraints(DOMAIN, published=[(sf.marginals(other, 1), np.ones(4))])


def test_too_many_combinations_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMITS", replace(WORKLOAD_LIMITS, linked_classes=7))
    with pytest.raises(TooLarge, match="8 combinations of 3 attributes"):
        sf.Constraints(DOMAIN, ["a = 0 and b = 0 and c = 0"])


def test_it_says_what_it_holds() -> None:
    known = sf.Constraints(DOMAIN, ["d = 4"], [(["a", "c"], np.ones((3, 2)))])
    assert repr(known) == "Constraints(1 impossible, published 'a x c')"
    assert repr(sf.Constraints(DOMAIN)) == "Constraints(none)"
