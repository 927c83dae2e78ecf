# SPDX-License-Identifier: Apache-2.0
"""One form per meaning: equal sets of queries, equal keys and equal groups; never otherwise."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.domain.attributes import Category, Integer, Level
from sfumato.domain.domain import Domain
from sfumato.workload import normal_form
from sfumato.workload.workload import Workload, union

DOMAIN = sf.Domain(
    [
        Integer("age", 0, 5, levels=(Level("band", ("old", "young"), (1, 1, 1, 0, 0, 0)),)),
        Category("sex", ("F", "M")),
        Category("race", ("a", "b", "c", "d")),
    ]
)
CELLS = np.eye(DOMAIN.size).reshape(DOMAIN.size, *DOMAIN.shape)


def matrix(work):
    """One row per query, one column per cell."""
    return np.array([work.evaluate(cell) for cell in CELLS]).T


def rows(work):
    """The set of queries: every row with the greatest weight it has, relative to the greatest."""
    found = {}
    top = max(t.weight for t in work.terms)
    for term in work.terms:
        for row in matrix(Workload(work.domain, (term,))):
            key = tuple(row.tolist())
            found[key] = max(found.get(key, 0.0), term.weight / top)
    return frozenset(found.items())


def check_places(work):
    """The normal form answers every asked query, in its own place."""
    normal = work.normal
    parts = [matrix(Workload(work.domain, (t,))) for t in normal.workload.terms]
    for t, term in enumerate(work.terms):
        asked = matrix(Workload(work.domain, (term,)))
        found = [normal.gather(t, lambda n, c=c: parts[n][:, c]) for c in range(DOMAIN.size)]
        assert np.array_equal(np.array(found).T, asked)


def one(rng):
    """A random group of queries."""
    age, sex, race = (sf.attribute(DOMAIN, n) for n in ("age", "sex", "race"))
    low, high = sorted(rng.choices(range(6), k=2))
    names = rng.sample(DOMAIN.names, rng.randint(0, 3))
    pool = [
        lambda: sf.marginals(DOMAIN, [tuple(names)]),
        lambda: sf.marginals(DOMAIN, [("age.band", "sex")]),
        lambda: sf.prefixes(DOMAIN, "age", by=rng.choice([[], ["sex"], ["race"]])),
        lambda: sf.ranges(DOMAIN, "age", by=rng.choice([[], ["sex"]])),
        lambda: sf.windows(DOMAIN, "age", rng.randint(1, 6)),
        lambda: sf.product(DOMAIN, {"age": "ranges", "race": "identity"}),
        lambda: sf.predicates(DOMAIN, [(age >= low) & (age <= high), (sex == "F") | (age < high)]),
        lambda: sf.predicates(DOMAIN, [~((race == "a") & (age > low)), sex == "M"]),
        lambda: sf.sql(DOMAIN, f"SELECT sex, COUNT(*) FROM t WHERE age <= {high} GROUP BY sex"),
        lambda: sf.sql(DOMAIN, f"SELECT SUM(age) FROM t WHERE age <> {low} AND race IN ('a','d')"),
        lambda: sf.sql(DOMAIN, f"SELECT AVG(age) FROM t WHERE race = 'b' OR age = {high}"),
        lambda: sf.product(DOMAIN, {"sex": [[rng.randint(-2, 2), rng.randint(0, 2)], [2, 0]]}),
        lambda: sf.explicit(DOMAIN, ["sex", "race"], np.array(rng.choices([0, 1, 2], k=8))),
    ]
    return rng.choice(pool)()


def respelled(work, rng):
    """The same queries, written in another way."""
    parts = []
    for term in work.terms:
        single = Workload(work.domain, (term,))
        way = rng.choice(["same", "given", "rows", "conditions", "twice"])
        table = np.array(
            [term.answer(cell) for cell in np.eye(term.cells).reshape(-1, *term.shape)]
        ).T
        if way == "given" and term.attributes:
            order = rng.sample(term.attributes, len(term.attributes))
            axes = [term.attributes.index(n) for n in order]
            moved = table.reshape(-1, *term.shape).transpose(0, *(1 + a for a in axes))
            parts.append(sf.explicit(DOMAIN, order, moved.reshape(len(table), -1)) * term.weight)
        elif way == "rows" and term.attributes:
            order = rng.sample(range(len(table)), len(table))
            lone = [sf.explicit(DOMAIN, term.attributes, table[row]) for row in order]
            parts += [each * term.weight for each in lone]
        elif way == "conditions" and np.isin(table, (0, 1)).all():
            parts.append(sf.predicates(DOMAIN, conditions(term, table, rng)) * term.weight)
        else:
            parts += [single] * (2 if way == "twice" else 1)
    rng.shuffle(parts)
    return union(parts) * rng.choice([1.0, 4.0])


def conditions(term, table, rng):
    """Truth tables as conditions: cell by cell, or the complement of what is not in them."""
    out = []
    for row in table:
        negated = rng.random() < 0.5
        condition = None
        for cell in np.flatnonzero(row == (0 if negated else 1)):
            part = None
            for name, code in zip(term.attributes, np.unravel_index(cell, term.shape), strict=True):
                leaf = sf.attribute(DOMAIN, name) == DOMAIN[name].label(int(code))
                part = leaf if part is None else part & leaf
            if part is None:
                part = sf.attribute(DOMAIN, "sex").isin(["F", "M"])
            condition = part if condition is None else condition | part
        if condition is None:
            condition = (sf.attribute(DOMAIN, "sex") == "F") & (sf.attribute(DOMAIN, "sex") == "M")
        out.append(~condition if negated else condition)
    return out


def groups(work):
    """All that defines the groups of the normal form."""
    from sfumato.strategy.base import fingerprint

    return fingerprint(work.normal.workload.terms)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_every_writing_of_the_same_queries_has_one_key_and_one_form(seed):
    rng = random.Random(seed)
    weights = [1.0, 1.0, 0.5]
    work = union([one(rng) * rng.choice(weights) for _ in range(rng.randint(1, 3))])
    other = respelled(work, rng)
    assert rows(work) == rows(other)
    assert work.normal.key == other.normal.key
    if any(t.greatest > 0 for t in work.terms):
        assert groups(work) == groups(other)
        check_places(work)
        check_places(other)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_different_sets_of_queries_never_share_a_key(seed):
    rng = random.Random(seed)
    found = {}
    for _ in range(12):
        work = union([one(rng) for _ in range(rng.randint(1, 2))])
        known = found.setdefault(work.normal.key, rows(work))
        assert known == rows(work)
    assert len(set(found.values())) == len(found)


@pytest.mark.parametrize(
    ("work", "other"),
    [
        (sf.marginals(DOMAIN, [("age", "sex")]), sf.marginals(DOMAIN, [("sex", "age")])),
        (
            sf.marginals(DOMAIN, [("age", "sex")]),
            sf.sql(DOMAIN, "select SEX, age, count(*) as n from data group by sex, AGE"),
        ),
        (sf.marginals(DOMAIN, 1), sf.marginals(DOMAIN, [("race",), ("sex",), ("age",), ("sex",)])),
        (
            sf.prefixes(DOMAIN, "age"),
            union(
                [sf.sql(DOMAIN, f"SELECT COUNT(*) FROM t WHERE age <= {a}") for a in range(5)]
                + [sf.sql(DOMAIN, "SELECT COUNT(*) FROM t")]
            ),
        ),
        (
            sf.sql(DOMAIN, "SELECT COUNT(*) FROM t WHERE age BETWEEN 1 AND 3"),
            sf.sql(DOMAIN, "SELECT COUNT(*) FROM t WHERE NOT (age < 1 OR age >= 4)"),
        ),
        (
            sf.marginals(DOMAIN, [("age.band",)]),
            sf.predicates(DOMAIN, ["age > 2", "age IN (0, 1, 2)"]),
        ),
        (sf.marginals(DOMAIN, 0), sf.sql(DOMAIN, "SELECT COUNT(*) FROM t")),
        (sf.windows(DOMAIN, "age", 1), sf.marginals(DOMAIN, [("age",)])),
        (3 * sf.marginals(DOMAIN, 2), sf.marginals(DOMAIN, 2)),
    ],
)
def test_these_writings_are_one_request(work, other):
    assert work.normal.key == other.normal.key
    assert groups(work) == groups(other)


def test_regular_groups_keep_their_structure():
    work = sf.product(DOMAIN, {"age": "ranges", "race": "prefix"})
    assert [(t.name, t.rows) for t in work.normal.workload.terms] == [
        ("ranges age x prefix race", 84)
    ]
    assert sf.marginals(DOMAIN, 2).normal.is_in_order
    assert sf.prefixes(DOMAIN, "age", by=["sex"]).normal.is_in_order


def test_totals_are_found_among_running_totals_that_became_conditions(monkeypatch):
    limits = replace(normal_form.LIMITS, irregular_products=0)
    monkeypatch.setattr(normal_form, "LIMITS", limits)
    sets = sf.product(DOMAIN, {"age": "prefix", "race": [[1, 1, 0, 0], [0, 1, 1, 0]]})
    assert [type(t).__name__ for t in sets.normal.workload.terms] == ["Predicates"]
    check_places(sets)
    check_places(sets | sf.product(DOMAIN, {"age": "prefix", "sex": "prefix"}))


def test_sets_too_large_to_be_listed_are_one_symbol_each():
    domain = sf.Domain({"zip": 20_000, "sex": 2})
    work = sf.marginals(domain, [("sex", "zip")]) | sf.prefixes(domain, "zip")
    other = sf.prefixes(domain, "zip") | sf.sql(
        domain, "SELECT zip, sex, COUNT(*) FROM t GROUP BY zip, sex"
    )
    assert work.normal.key == other.normal.key
    assert [t.rows for t in work.normal.workload.terms] == [20_000, 40_000]
    assert other.normal.pieces[1][0].rows is None


@pytest.mark.parametrize("seed", range(30))
def test_tables_have_the_form_that_the_general_way_gives_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    domain = Domain({f"a{i}": int(rng.integers(2, 6)) for i in range(6)})
    sets = {tuple(sorted(rng.choice(6, rng.integers(0, 4), replace=False))) for _ in range(8)}
    listed = [tuple(f"a{i}" for i in places) for places in sets]
    work = sf.marginals(domain, listed)
    fast = normal_form._tables(work)
    slow = normal_form._Form(work).normal()
    assert fast is not None
    assert fast.key == slow.key
    assert [t.name for t in fast.workload.terms] == [t.name for t in slow.workload.terms]
    assert fast.workload.digest() == slow.workload.digest()
    assert [[p.term for p in found] for found in fast.pieces] == [
        [p.term for p in found] for found in slow.pieces
    ]


def test_numbers_of_a_group_are_computed_once_however_many_pieces_lie_in_it() -> None:
    bits = sf.Domain({f"b{i}": 2 for i in range(4)})
    work = sf.product(bits, {name: [[1, 1], [0, 1]] for name in bits.names})
    normal = normal_form.normal_form(work)
    calls: list[int] = []

    def numbers(term: int) -> np.ndarray:
        calls.append(term)
        return np.zeros(normal.workload.terms[term].rows)

    assert len(normal.gather(0, numbers)) == 16
    assert len(calls) == len(set(calls))
