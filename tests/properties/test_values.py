# SPDX-License-Identifier: Apache-2.0
"""Values are added up exactly, and one record moves them as one record of a table does.

Neighbours are those of the source: a file or a dataframe in which one value is any float, a
missing value, or a text. Theorem 1 of docs/proofs/values.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.domain.attributes import Category, Integer, Numeric
from sfumato.domain.domain import Domain, with_values
from sfumato.domain.values import UNIT_BITS, Values
from sfumato.errors import WorkloadError
from sfumato.planning.calibrate import calibrate, privacy_loss
from sfumato.vault.count import count_marginals
from sfumato.vault.mechanisms.measure import count
from sfumato.vault.mechanisms.select import read_answers
from sfumato.vault.tables import open_table
from tests.shared.engine_tables import on_all_engines
from tests.shared.examples import examples
from tests.shared.vault_reference import make_source

WHOLE = 2**UNIT_BITS
WILD = [math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, -5e-324, 1e308, -1e308, 1.7e308]
NUMBERS = st.one_of(st.sampled_from([None, *WILD]), st.floats(), st.floats(-20, 120))
RULES = st.tuples(st.sampled_from(["drop", "other", "clamp"]), st.sampled_from(["drop", "missing"]))
RANGES = st.sampled_from(
    [(0.0, 100.0), (-3.5, 11.25), (1000.0, 1000.5), (-1e300, 1e300), (0, 1e-9)]
)


def domain_of(ends, rules, edges=()):
    x = Numeric("x", (ends[0], *edges, ends[1]), outside=rules[0], nulls=rules[1])
    return Domain([x, Category("c", ("a", "b"))])


def expected(values: Values, number: float | None) -> list[int] | None:
    """The weights of one record, in exact arithmetic, None where it is dropped; degree 1."""
    weights = [0] * values.size
    of = values.of
    if number is None or math.isnan(number):
        if of.missing_code is None:
            return None
        weights[values.missing_code] = WHOLE
        return weights
    low, high = (Fraction(end) for end in values.ends)
    if not values.ends[0] <= number <= values.ends[1] and of.outside != "clamp":
        if of.outside == "drop":
            return None
        weights[values.other_code] = WHOLE
        return weights
    clamped = min(max(number, values.ends[0]), values.ends[1])
    exact = (Fraction(clamped) - low) / (high - low) * WHOLE
    weights[1] = math.floor(exact + Fraction(1, 2))
    weights[0] = WHOLE - weights[1]
    return weights


def counted(source, domain, names) -> np.ndarray:
    return count_marginals(open_table(source), domain, [names], with_values=True).reveal(names)


@given(RANGES, RULES, st.lists(st.tuples(NUMBERS, st.sampled_from("ab")), max_size=6))
@settings(max_examples=examples(60), deadline=None)
def test_the_vault_adds_up_clamped_values(ends, rules, rows):
    domain, values = with_values(domain_of(ends, rules), "x")
    frame = pa.table(
        {"x": pa.array([r[0] for r in rows], pa.float64()), "c": [r[1] for r in rows]},
        schema=pa.schema([("x", pa.float64()), ("c", pa.string())]),
    )
    found = counted(frame, domain, ("c", values.name))
    wanted = np.zeros((2, values.size), dtype=object)
    for number, letter in rows:
        weights = expected(values, number)
        if weights is not None:
            wanted["ab".index(letter)] += np.array(weights, dtype=object)
    # Floats are off by at most a step from the nearest of each record; the total is exact.
    off = np.abs(found - wanted)
    assert off.max(initial=0) <= 2 * len(rows)
    assert (found.sum(axis=1) == wanted.sum(axis=1)).all()
    assert (found >= 0).all()


@given(RANGES, RULES, st.data(), st.sampled_from(["csv", "parquet", "pandas"]))
@settings(max_examples=examples(40), deadline=None)
def test_a_replaced_value_moves_the_table_by_two_records_at_most(
    tmp_path_factory, ends, rules, data, kind
):
    """Whatever the value becomes, in a file or a dataframe; and no other record's weights move."""
    domain, one = with_values(domain_of(ends, rules, [sum(ends) / 2]), "x")
    domain, two = with_values(domain, "x", 2)
    rows = data.draw(st.lists(NUMBERS, min_size=1, max_size=4))
    place = data.draw(st.integers(0, len(rows) - 1))
    other = data.draw(NUMBERS)
    letters = ["ab"[i % 2] for i in range(len(rows))]
    sets = [(one.name,), (two.name,), ("x", one.name), ("c", one.name, two.name), ("c",)]
    tables = []
    for numbers in (rows, [*rows[:place], other, *rows[place + 1 :]]):
        frame = pa.table({"x": pa.array(numbers, pa.float64()), "c": letters})
        source = make_source(kind, frame, tmp_path_factory.mktemp("neighbour"))
        counts = count_marginals(open_table(source), domain, sets, with_values=True)
        tables.append([np.asarray(counts.reveal(s)).astype(object) for s in sets])
    for names, before, after in zip(sets, *tables, strict=True):
        unit = WHOLE if names != ("c",) else 1
        moved = before - after
        assert np.abs(moved).sum() <= 2 * unit
        assert (before >= 0).all()
        assert np.maximum(moved, 0).sum() <= unit
        assert np.maximum(-moved, 0).sum() <= unit
    (single, square, _, joint, _), _ = tables
    assert (joint.sum(axis=(0, 2)) == single).all()
    assert (joint.sum(axis=(0, 1)) == square).all()


BUDGETS = {"pure": sf.Budget(epsilon=1), "gauss": sf.Budget(mu=1)}


@cache
def planned(budget: str, neighbours: str) -> tuple[sf.Plan, float]:
    """A plan and the privacy loss that it pays for."""
    domain = domain_of((0.0, 100.0), ("clamp", "missing"), [25, 50])
    work = sf.means(domain, "x", by=["c"]) | sf.sums(domain, "x", power=2) | sf.marginals(domain, 1)
    plan = sf.plan(work, BUDGETS[budget], neighbours=neighbours)
    return plan, float(privacy_loss(plan.strategy, plan.noise, neighbours))


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@given(st.lists(NUMBERS, min_size=1, max_size=4), NUMBERS)
@example([0.0], 1e308)
@settings(max_examples=examples(25), deadline=None)
def test_what_is_measured_moves_by_what_was_paid_for(budget, neighbours, numbers, other):
    """``sum_b |M_b (h - h')| / s_b`` over neighbours of the source, before and after rounding."""
    plan, loss = planned(budget, neighbours)
    blocks, noise = plan.strategy.blocks, plan.noise
    near = [*numbers[:-1]] if neighbours == "add-remove" else [*numbers[:-1], other]
    measured = []
    for values in (numbers, near):
        letters = pa.array(["a"] * len(values), pa.string())
        frame = pa.table({"x": pa.array(values, pa.float64()), "c": letters})
        domain = plan.strategy.in_normal_form.workload.domain
        exact = count(open_table(frame), domain, blocks, neighbours)
        measured.append(exact.values.reveal())
    p = 2 if plan.strategy.noise == "gaussian" else 1
    total = 0.0
    for block, law, before, after in zip(blocks, noise, *measured, strict=True):
        bits = block.term.fraction_bits + block.term.unit_bits
        shift = bits - law.grid_bits
        steps = [
            [(int(v) + 2 ** (shift - 1)) >> shift if shift > 0 else int(v) << -shift for v in side]
            for side in (before, after)
        ]
        apart = [abs(a - b) / law.units for a, b in zip(*steps, strict=True)]
        total += sum(d**p for d in apart)
    assert total <= loss * (1 + 1e-9)


@pytest.mark.usefixtures("spark")
def test_every_engine_adds_up_the_same_values(postgres, tmp_path_factory):
    some = np.random.default_rng(3)
    x = np.concatenate([some.lognormal(3, 2, 300), [*WILD, 100.0, 25.0, 99.99999999999999]])
    frame = pa.table(
        {
            "x": pa.array([None if math.isnan(v) else v for v in x], pa.float64()),
            "k": pa.array(some.integers(-10, 120, len(x)), pa.int64()),
            "c": some.choice(["a", "b"], len(x)),
        }
    )
    base = Domain(
        [
            Numeric("x", (0, 25, 100), outside="clamp", nulls="missing"),
            Integer("k", 0, 99, 10, outside="other"),
            Category("c", ("a", "b")),
        ]
    )
    domain = (sf.means(base, "x") | sf.means(base, "k") | sf.sums(base, "x", power=2)).domain
    sets = [
        ("values of x",),
        ("x", "c", "squares of x"),
        ("c", "values of x", "squares of x", "values of k"),
    ]
    sources = on_all_engines(frame, "valued", postgres, tmp_path_factory.mktemp("valued"))
    tables = {}
    for engine, source in sources.items():
        counts = count_marginals(open_table(source), domain, sets, with_values=True)
        tables[engine] = [counts.reveal(s).tolist() for s in sets]
    assert tables["postgres"] == tables["duckdb"]
    assert tables["spark"] == tables["duckdb"]


def test_a_column_of_texts_is_read_as_numbers_and_the_rest_counts_as_the_schema_says(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text('x,c\n10,a\nmany,a\n,a\n1e999,a\n-5,b\nnan,b\n"90 ",b\n')
    domain, values = with_values(domain_of((0.0, 100.0), ("other", "missing")), "x")
    found = counted(str(path), domain, ("c", values.name)) / WHOLE
    tenth = (100 - 10) / 100
    assert found[0].astype(float).tolist() == pytest.approx([tenth, 1 - tenth, 2, 1])
    assert found[1].astype(float).tolist() == pytest.approx([0.1, 0.9, 1, 1])


def test_sums_of_values_are_calibrated_for_scales_from_tiny_to_huge():
    domain = domain_of((0.0, 100.0), ("clamp", "missing"))
    for epsilon in (1e-4, 1.0, 1000.0):
        plan = sf.plan(sf.means(domain, "x", by=["c"]), sf.Budget(epsilon=epsilon))
        again = calibrate(plan.strategy, epsilon, "add-remove")
        assert privacy_loss(plan.strategy, again, "add-remove") <= Fraction(epsilon)
        assert all(law.units >= 2**16 for law in again)


def test_only_what_knows_their_steps_counts_values():
    """Adaptive releases, corrections and sessions take bins, and say so in the names of sums."""
    domain = domain_of((0.0, 100.0), ("clamp", "missing"), [25, 50])
    work = sf.means(domain, "x")
    frame = pa.table({"x": [10.0, 80.0], "c": ["a", "b"]})
    with pytest.raises(WorkloadError, match=r"sf\.plan only"):
        count_marginals(open_table(frame), work.domain, [work.terms[0].attributes])
    with pytest.raises(WorkloadError, match="in bins"):
        read_answers(open_table(frame), work, "add-remove")
    budget = sf.Budget(epsilon=1)
    plans = [
        *(sf.plan_adaptive(work, budget, method=m) for m in ("tables", "mwem", "boosting")),
        sf.correct(work, budget, tolerance=5),
    ]
    for plan in plans:
        assert plan.workload.domain == domain
        assert plan.workload.terms[0].name == "sum of x (middles of bins)"
        assert plan.workload.ratios[0].hidden == 25


@pytest.mark.parametrize("budget", [sf.Budget(epsilon=500), sf.Budget(mu=200)])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("by", [(), ("c",)])
def test_every_strategy_measures_the_same_values(budget, neighbours, by):
    """A count of values may be measured as a condition; it is the same number."""
    frame = pa.table({"x": [10.0, 20.0, 30.0, 1e6, None] * 200, "c": ["a", "b"] * 500})
    domain = domain_of((0.0, 100.0), ("clamp", "missing"))
    plan = sf.plan(sf.means(domain, "x", by=list(by)), budget, neighbours=neighbours)
    rows = plan.release(frame).answers(group=plan.workload.ratios[0].name)
    assert rows["mean"].to_numpy() == pytest.approx(40.0, abs=0.5)
    assert rows["count"].sum() == pytest.approx(800, abs=5)
