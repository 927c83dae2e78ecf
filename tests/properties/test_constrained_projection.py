# SPDX-License-Identifier: Apache-2.0
"""Whatever is impossible or published, projections keep it and come no farther from the truth."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.workload.predicates import And, Condition, In, Not, Or
from tests.shared.strategies import counts, workloads

quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def conditions(draw: st.DrawFn, domain: sf.Domain) -> Condition:
    """Leaves on a few attributes, joined and negated."""
    names = draw(st.lists(st.sampled_from(domain.names), min_size=1, max_size=3, unique=True))
    leaves: list[Condition] = []
    for name in names:
        size = domain[name].size
        codes = draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=size))
        leaf = In(name, tuple(sorted(codes)))
        leaves.append(Not(leaf) if draw(st.booleans()) else leaf)
    return (And if draw(st.booleans()) else Or)(tuple(leaves))


@st.composite
def problems(
    draw: st.DrawFn,
) -> tuple[sf.Workload, np.ndarray, np.ndarray, list[Condition], list[list[str]]]:
    """A workload, true counts, noisy answers, conditions and sets to publish.

    Records where a condition holds are taken out; a condition that would take all out is dropped.
    """
    work = draw(workloads())
    domain = work.domain
    table = draw(counts(domain)).astype(np.float64)
    kept: list[Condition] = []
    for condition in draw(st.lists(conditions(domain), max_size=3)):
        try:
            sf.Constraints(domain, [*kept, condition])
        except sf.errors.WorkloadError:
            continue
        kept.append(condition)
    table = table * sf.Constraints(domain, kept).possible(domain.names)
    names = st.lists(st.sampled_from(domain.names), max_size=2, unique=True)
    published = draw(st.lists(names, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    noise = draw(st.sampled_from([0.0, 0.5, 5.0, 500.0]))
    y = work.evaluate(table) + noise * rng.normal(size=len(work))
    return work, table, y, kept, published


def known_of(
    domain: sf.Domain, table: np.ndarray, impossible: list[Condition], sets: list[list[str]]
) -> sf.Constraints:
    def margin(names: list[str]) -> np.ndarray:
        ordered = domain.in_order(names)
        whole = table.sum(axis=tuple(i for i, n in enumerate(domain.names) if n not in names))
        return whole.transpose([ordered.index(n) for n in names])

    return sf.Constraints(domain, impossible, [(s, margin(s)) for s in sets])


def breaches(found: sf.refine.project.Projected, known: sf.Constraints) -> tuple[float, float]:
    """The weight on impossible cells, and the largest miss of a published count."""
    off = found.weights[~known.possible(found.attributes)[tuple(found.cells.T)]].sum()
    miss = 0.0 if known.total is None else abs(float(found.weights.sum()) - known.total)
    for t in known.published:
        if t.names and set(t.names) <= set(found.attributes):
            made = np.zeros(t.values.shape)
            at = tuple(found.cells[:, found.attributes.index(n)] for n in t.names)
            np.add.at(made, at, found.weights)
            miss = max(miss, float(np.abs(made - t.values).max()))
    return float(off), miss


@given(problems())
@quick
def test_constrained_projections_keep_everything_and_never_go_away_from_the_truth(
    problem: tuple,  # type: ignore[type-arg]
) -> None:
    work, table, y, impossible, sets = problem
    known = known_of(work.domain, table, impossible, sets)
    n = float(table.sum())
    found = sf.project(y, work, n, constraints=known)
    truth = work.evaluate(table)
    moved, given_ = np.linalg.norm(found.answers - truth), np.linalg.norm(y - truth)
    size = 1 + float(np.linalg.norm(y)) + float(np.linalg.norm(truth))
    assert moved <= given_ + found.distance_bound + 1e-7 * size
    off, miss = breaches(found, known)
    assert off == 0
    assert miss <= 1e-8 * max(n, 1.0)
    # What is known can only make the least distance longer, never shorter.
    free = sf.project(y, work, n)
    assert found.value >= free.value - free.gap - 1e-7 * size**2


def test_the_checks_see_a_projection_that_ignores_the_constraints() -> None:
    domain = sf.Domain({"a": 3, "b": 3})
    table = np.diag([5.0, 6.0, 7.0])
    known = known_of(domain, table, [And((In("a", (0,)), In("b", (1, 2))))], [["a"]])
    work = sf.marginals(domain, 2)
    y = work.evaluate(table) + np.array([0, 5.0, 0, 0, 0, 0, 3.0, 0, 0])
    off, miss = breaches(sf.project(y, work, 18.0), known)
    assert off > 1
    assert miss > 1


def test_a_projection_onto_other_constraints_goes_away_from_the_truth() -> None:
    """The inequality needs a truth that meets the constraints."""
    domain = sf.Domain({"a": 3})
    work = sf.marginals(domain, 1)
    wrong = sf.Constraints(domain, ["a = 0"])
    found = sf.project([10.0, 0.0, 0.0], work, 10.0, constraints=wrong)
    assert np.linalg.norm(found.answers - [10, 0, 0]) > 5
