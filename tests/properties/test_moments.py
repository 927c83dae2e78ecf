# SPDX-License-Identifier: Apache-2.0
"""Second moments are added up exactly, and one record moves them as one record of a table does.

Neighbours are those of the source: a file or a dataframe in which two values of one record become
any floats, or missing. Theorem 2 of docs/proofs/values.md.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.domain.domain import with_moments
from sfumato.domain.values import UNIT_BITS, Moments
from sfumato.planning.calibrate import privacy_loss
from sfumato.vault.count import count_marginals
from sfumato.vault.mechanisms.measure import count
from sfumato.vault.tables import open_table
from tests.shared.engine_tables import on_all_engines
from tests.shared.examples import examples
from tests.shared.vault_reference import make_source

WHOLE = 2**UNIT_BITS
WILD = [math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1e308, -1e308, 50.0, 100.0]
NUMBERS = st.one_of(st.sampled_from([None, *WILD]), st.floats(), st.floats(-20, 120))
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=4)
RULES = st.tuples(st.sampled_from(["drop", "other", "clamp"]), st.sampled_from(["drop", "missing"]))


def domain_of(rules=("clamp", "missing"), ends=(0.0, 100.0)) -> sf.Domain:
    outside, nulls = rules
    return sf.Domain(
        [
            sf.Numeric("x", ends, outside=outside, nulls=nulls),
            sf.Numeric("y", (-1.0, 50.0, 99.5), outside="clamp", nulls="missing"),
            sf.Category("c", ("a", "b")),
        ]
    )


def frame_of(rows) -> pa.Table:
    x, y = (pa.array([r[i] for r in rows], pa.float64()) for i in (0, 1))
    letters = pa.array(["ab"[i % 2] for i in range(len(rows))], pa.string())
    return pa.table({"x": x, "y": y, "c": letters})


def with_all_moments(domain: sf.Domain) -> tuple[sf.Domain, list[Moments]]:
    made = []
    for names, degree in ((["x"], 2), (["x", "y"], 1), (["x", "y"], 2)):
        domain, moments = with_moments(domain, names, degree)
        made.append(moments)
    return domain, made


def tables_of(source, domain, sets) -> list[np.ndarray]:
    counts = count_marginals(open_table(source), domain, sets, with_values=True)
    return [np.asarray(counts.reveal(s)).astype(object) for s in sets]


@given(st.lists(st.tuples(st.floats(-20, 120), st.floats(-20, 120)), min_size=1, max_size=6))
@settings(max_examples=examples(40), deadline=None)
def test_products_of_powers_are_those_of_the_clamped_values(rows):
    domain, made = with_all_moments(domain_of())
    tables = tables_of(frame_of(rows), domain, [(m.name,) for m in made])
    x = [(min(max(r[0], 0.0), 100.0) - 50) / 50 for r in rows]
    y = [(min(max(r[1], -1.0), 99.5) - 49.25) / 50.25 for r in rows]
    for moments, table in zip(made, tables, strict=True):
        assert table.sum() == len(rows) * WHOLE
        assert (table >= 0).all()
        columns = [x, y][: len(moments.of)]
        for powers in np.ndindex(*(moments.degree + 1,) * len(moments.of)):
            wanted = sum(
                math.prod(v**k for v, k in zip(values, powers, strict=True))
                for values in zip(*columns, strict=True)
            )
            exact = sum(
                int(w) * c for w, c in zip(table, moments.coefficients(powers), strict=True)
            )
            # What the grid hides, and the rounding of the values that are compared with.
            assert abs(exact / WHOLE - wanted) <= len(rows) * (moments.rounding + 1e-14)


@given(RULES, ROWS, st.data(), st.sampled_from(["csv", "parquet", "pandas"]))
@settings(max_examples=examples(30), deadline=None)
def test_a_replaced_record_moves_every_table_by_two_records_at_most(
    tmp_path_factory, rules, rows, data, kind
):
    domain, (square, crossed, joint) = with_all_moments(domain_of(rules))
    place = data.draw(st.integers(0, len(rows) - 1))
    other = data.draw(st.tuples(NUMBERS, NUMBERS))
    several = domain.in_order(["c", square.name, crossed.name])
    sets = [(square.name,), (crossed.name,), (joint.name,), several, ("c", square.name)]
    sides = []
    for side in (rows, [*rows[:place], other, *rows[place + 1 :]]):
        source = make_source(kind, frame_of(side), tmp_path_factory.mktemp("neighbour"))
        sides.append(tables_of(source, domain, sets))
    for before, after in zip(*sides, strict=True):
        assert (before >= 0).all()
        assert np.maximum(before - after, 0).sum() <= WHOLE
        assert np.maximum(after - before, 0).sum() <= WHOLE
    # All tables describe one and the same fractional records.
    first = sides[0]
    assert (first[3].sum(axis=(0, 2)) == first[0]).all()
    assert (first[3].sum(axis=(0, 1)) == first[1]).all()
    assert (first[4].sum(axis=0) == first[0]).all()


BUDGETS = {"pure": sf.Budget(epsilon=1), "gauss": sf.Budget(mu=1)}


@cache
def planned(budget: str, neighbours: str) -> tuple[sf.Plan, float]:
    """A plan of everything together, and the privacy loss that it pays for."""
    domain = domain_of()
    work = (
        sf.variances(domain, "x", by=["c"])
        | sf.covariances(domain, "x", "y")
        | sf.moments(domain, ["x", "y"])
        | sf.means(domain, "y")
        | sf.marginals(domain, 1)
    )
    plan = sf.plan(work, BUDGETS[budget], neighbours=neighbours)
    return plan, float(privacy_loss(plan.strategy, plan.noise, neighbours))


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@given(ROWS, st.tuples(NUMBERS, NUMBERS))
@example([(0.0, 0.0)], (1e308, -1e308))
@example([(0.0, 99.5)], (100.0, -1.0))
@settings(max_examples=examples(12), deadline=None)
def test_what_is_measured_moves_by_what_was_paid_for(budget, neighbours, rows, other):
    """``sum_b |M_b (h - h')| / s_b`` over neighbours of the source, before and after rounding."""
    plan, loss = planned(budget, neighbours)
    blocks, noise = plan.strategy.blocks, plan.noise
    near = rows[:-1] if neighbours == "add-remove" else [*rows[:-1], other]
    measured = []
    for side in (rows, near):
        domain = plan.strategy.in_normal_form.workload.domain
        exact = count(open_table(frame_of(side)), domain, blocks, neighbours)
        measured.append(exact.values.reveal())
    p = 2 if plan.strategy.noise == "gaussian" else 1
    total = 0.0
    for block, law, before, after in zip(blocks, noise, *measured, strict=True):
        shift = block.term.fraction_bits + block.term.unit_bits - law.grid_bits
        steps = [
            [(int(v) + 2 ** (shift - 1)) >> shift if shift > 0 else int(v) << -shift for v in side]
            for side in (before, after)
        ]
        total += sum((abs(a - b) / law.units) ** p for a, b in zip(*steps, strict=True))
    assert total <= loss * (1 + 1e-9)


@pytest.mark.usefixtures("spark")
def test_every_engine_adds_up_the_same_moments(postgres, tmp_path_factory):
    some = np.random.default_rng(4)
    x = np.concatenate([some.lognormal(3, 2, 200), WILD])
    y = np.concatenate([some.normal(40, 50, 200), WILD[::-1]])
    frame = pa.table(
        {
            "x": pa.array([None if math.isnan(v) else v for v in x], pa.float64()),
            "y": pa.array([None if math.isnan(v) else v for v in y], pa.float64()),
            "k": pa.array(some.integers(-10, 120, len(x)), pa.int64()),
            "c": some.choice(["a", "b"], len(x)),
        }
    )
    base = sf.Domain([*domain_of(), sf.Integer("k", 0, 99, outside="other")])
    domain, (square, crossed, _) = with_all_moments(base)
    domain, joint = with_moments(domain, ["x", "y", "k"], 2)
    sets = [
        domain.in_order(["c", square.name]),
        domain.in_order(["c", square.name, crossed.name]),
        (joint.name,),
    ]
    sources = on_all_engines(frame, "moments", postgres, tmp_path_factory.mktemp("moments"))
    tables = {}
    for engine, source in sources.items():
        counts = count_marginals(open_table(source), domain, sets, with_values=True)
        tables[engine] = [counts.reveal(s).tolist() for s in sets]
    assert tables["postgres"] == tables["duckdb"]
    assert tables["spark"] == tables["duckdb"]
