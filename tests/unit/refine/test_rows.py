# SPDX-License-Identifier: Apache-2.0
"""Weighted rows against least squares on the whole histogram, and against brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import nnls

import sfumato as sf
from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.random import Draws
from sfumato.refine import row_problem
from sfumato.refine import rows as rows_module
from sfumato.refine.reconstruct import Fit, FitPart, fit_answers
from sfumato.refine.row_problem import problem
from sfumato.refine.rows import (
    WeightedRows,
    fit_rows,
    merged,
    minimum_score,
    solve_weights,
)
from sfumato.solve.row_kernels import move_rows
from sfumato.workload.predicates import indicator

SMALL = sf.Domain({"a": 5, "b": 4, "c": 3})
BIG = sf.Domain({f"x{i:02d}": 10 for i in range(18)})  # 10^18 cells


def _conditions(domain, count, seed, wide):
    """Boxes, unions of boxes and negations over ``wide`` attributes."""
    draw = np.random.default_rng(seed)
    out = []
    for q in range(count):
        names = draw.choice(domain.names, wide, replace=False)
        leaves = [sf.attribute(domain, n) >= int(draw.integers(1, 6)) for n in names]
        condition = leaves[0]
        for leaf in leaves[1:]:
            condition = condition | leaf if q % 3 == 1 else condition & leaf
        out.append(~condition if q % 3 == 2 else condition)
    return out


WORKLOADS = {
    "marginals": lambda: sf.marginals(SMALL, 2),
    "prefixes": lambda: sf.prefixes(SMALL, "a", by=["b"]) | sf.marginals(SMALL, [("c",)]),
    "ranges": lambda: sf.ranges(SMALL, "a", by=["c"]),
    "windows": lambda: sf.windows(SMALL, "a", 2, by=["b"]) | sf.marginals(SMALL, 1),
    "predicates": lambda: sf.predicates(SMALL, _conditions(SMALL, 20, 0, 2)),
    "duplicated": lambda: sf.marginals(SMALL, 2) | sf.marginals(SMALL, 2),
    "total": lambda: sf.marginals(SMALL, 0) | sf.marginals(SMALL, 1),
    "signed": lambda: sf.explicit(
        SMALL, ["a", "b", "c"], np.random.default_rng(5).integers(-3, 4, (12, 60))
    ),
}


def _noisy(workload, total, scale, seed):
    """A histogram's answers with noise, and the dense queries."""
    draw = np.random.default_rng(seed)
    cells = np.prod(workload.domain.shape)
    truth = draw.multinomial(total, draw.dirichlet(np.full(cells, 0.3))).astype(float)
    dense = np.array([workload.evaluate(e.reshape(workload.domain.shape)) for e in np.eye(cells)]).T
    noisy = dense @ truth + scale * draw.normal(size=len(dense))
    ends = np.cumsum([t.rows for t in workload.terms])[:-1]
    return fit_answers(workload, np.split(noisy, ends)), dense, noisy


def _least(dense, wanted, total):
    """The least value over the simplex: NNLS with a heavy row for the total."""
    heavy = 1e4 * np.abs(dense).max()
    system = np.vstack([dense, np.full(dense.shape[1], heavy)])
    found, _ = nnls(system, np.append(wanted, heavy * total), maxiter=10_000)
    found *= total / found.sum()
    return 0.5 * float(((dense @ found - wanted) ** 2).sum())


@pytest.mark.parametrize("kind", WORKLOADS)
def test_the_value_is_that_of_least_squares_over_the_whole_histogram(kind):
    fit, dense, wanted = _noisy(WORKLOADS[kind](), 200, 8.0, 1)
    best = _least(dense, wanted, 200)
    found = fit_rows(fit, 200, draws=Draws("1"), rows=500, gap=1e-7, rounds=300)
    slack = 1e-3 * best + 1e-3
    assert found.value == pytest.approx(best, abs=slack)
    assert found.bound <= best * (1 + 1e-6) + 1e-6  # NNLS itself errs by about this much
    assert found.bound >= found.value - found.gap - 1e-6 * (1 + best)
    assert found.weights.sum() == pytest.approx(200)
    assert (found.weights >= 0).all()
    values = np.concatenate(found.answers())
    assert 0.5 * ((values - wanted) ** 2).sum() == pytest.approx(found.value, abs=1e-6)


def test_rows_that_are_never_weighed_again_are_not_exact():
    """The twin of the test above: moving rows alone stops short of the least value."""
    fit, dense, wanted = _noisy(WORKLOADS["marginals"](), 200, 8.0, 1)
    asked = problem(fit, 200.0)
    state = rows_module._begin(asked, None, None, 20, Draws(1))
    state = rows_module._settle(asked, state, None)
    assert state.value > 1.001 * _least(dense, wanted, 200)


def test_answers_without_noise_are_recovered():
    fit, _, wanted = _noisy(WORKLOADS["marginals"](), 1000, 0.0, 3)
    found = fit_rows(fit, 1000, draws=Draws("2"), gap=1e-9, rounds=300)
    assert np.abs(np.concatenate(found.answers()) - wanted).max() < 0.05
    start = problem(fit, 1000.0)
    drawn = rows_module._begin(start, None, None, None, Draws(2))
    assert np.abs(start.margins(drawn.codes, drawn.weights).cells - wanted).max() > 5


def test_the_same_draws_give_the_same_rows_and_others_do_not():
    fit, _, _ = _noisy(WORKLOADS["windows"](), 300, 5.0, 4)
    first, again, other = (
        fit_rows(fit, 300, draws=Draws(f"{s}"), rows=100, rounds=0) for s in (7, 7, 8)
    )
    assert np.array_equal(first.codes, again.codes)
    assert np.array_equal(first.weights, again.weights)
    assert not np.array_equal(first.codes, other.codes)


def test_more_rounds_never_raise_the_value():
    fit, _, _ = _noisy(WORKLOADS["prefixes"](), 300, 5.0, 4)
    values = [
        fit_rows(fit, 300, draws=Draws("1"), rows=60, rounds=r, gap=0).value for r in range(5)
    ]
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(values))


def _moved(asked, codes, weights, bend):
    """The values before and after a sweep, and what the sweep says it gained."""
    p, b, c = asked.layout, asked.layout.whole_blocks, asked.conditions
    before, gradient = asked.gradient(asked.margins(codes, weights))
    curvature, unit = b.entries(asked.curvature * bend), float(weights[0])
    every, slack = np.arange(len(weights)), np.zeros(len(weights))
    gain, moves = move_rows(
        codes, weights, every, slack, b.entries(gradient.cells) + 0.5 * unit * curvature, unit,
        curvature, asked.even_curvature * bend, p.starts, b.origin, b.first, b.last,
        b.member_start, b.member, b.stride, b.held_start, b.held_block, b.held_stride, b.run_start,
        b.run_block, c.look_start, c.look_clause, c.look_mask, c.masks, c.condition,
        gradient.pull, c.weights * bend,
    )  # fmt: skip
    after = asked.value(asked.margins(codes, weights))
    return before, after, gain, moves


def _drawn(domain, count, seed):
    draw = np.random.default_rng(seed)
    return np.array([draw.integers(0, n, count) for n in domain.shape])


@pytest.mark.parametrize("kind", ["marginals", "duplicated", "total"])
def test_a_sweep_gains_exactly_what_it_says_where_the_curvature_is_exact(kind):
    fit, _, _ = _noisy(WORKLOADS[kind](), 100, 3.0, 6)
    asked = problem(fit, 100.0)
    before, after, gain, moves = _moved(asked, _drawn(SMALL, 50, 0), np.full(50, 2.0), 1.0)
    assert moves > 20
    assert before - after == pytest.approx(gain, rel=1e-9)


def _swept_plainly(asked, codes, weights):
    """The same sweep, move by move from the definition: what it gains, and how often rows move."""
    places, gradient = asked.layout, asked.gradient(asked.margins(codes, weights))[1].cells
    gain = moves = 0.0
    for r, w in enumerate(weights):
        for a, size in enumerate(places.sizes):
            changes = []
            for v in range(size):
                there = codes[:, [r, r]].copy()
                there[a, 1] = v
                # One record more in the new cells, one less in the old ones.
                step = places.margins(there, np.array([-w, w]))
                # Both ends of a move bend the model, whether or not they are one cell.
                change = gradient @ step + 0.5 * asked.curvature @ step**2
                changes.append(0.0 if v == codes[a, r] else change)
            to = int(np.argmin(changes))
            if changes[to] < 0:
                there = np.column_stack([codes[:, r], codes[:, r]])
                there[a, 1] = to
                gradient += asked.curvature * places.margins(there, np.array([-w, w]))
                gain, moves, codes[a, r] = gain - changes[to], moves + 1, to
    return gain, moves


@pytest.mark.parametrize("ways", [(2, 1), (3, 1), (3, 2)])
@pytest.mark.parametrize("is_even", [True, False])
def test_a_sweep_over_blocks_is_the_sweep_of_the_definition(is_even, ways):
    """Even and uneven weights of rows, and curvatures that differ from cell to cell or not."""
    domain = sf.Domain({"a": 3, "b": 4, "c": 2, "d": 5})
    work = sf.marginals(domain, ways[0]) | sf.marginals(domain, ways[1])
    fit, _, _ = _noisy(work, 300, 5.0, 3)
    draw = np.random.default_rng(2)
    if not is_even:
        uneven = [replace(p, weights=draw.uniform(0.5, 2, len(p.values))) for p in fit.parts]
        fit = replace(fit, parts=tuple(uneven))
    weights = np.full(60, 5.0) if is_even else draw.uniform(3.0, 7.0, 60)
    asked, codes = problem(fit, 300.0), _drawn(domain, 60, 1)
    assert (asked.even_curvature.size > 0) == is_even
    plainly = codes.copy()
    before, after, gain, moves = _moved(asked, codes, weights, 1.0)
    assert (gain, moves) == pytest.approx(_swept_plainly(asked, plainly, weights))
    assert np.array_equal(codes, plainly)
    assert before - after == pytest.approx(gain, rel=1e-9)


def test_margins_of_blocks_are_those_of_each_table():
    domain = sf.Domain({"a": 3, "b": 4, "c": 2, "d": 5})
    sizes = {a.name: a.size for a in domain}
    sets = ((), ("a",), ("b", "d"), ("a", "b"), ("a", "c", "d"), ("a", "d"), ("a", "b", "d"))
    places, codes = row_problem.layout(sizes, sets), _drawn(domain, 200, 5)
    weights = np.random.default_rng(1).uniform(0, 1, 200)
    whole = np.zeros(domain.shape)
    np.add.at(whole, tuple(codes), weights)
    tables = []
    for names in sets:
        rest = tuple(i for i, n in enumerate(sizes) if n not in names)
        tables.append(whole.sum(axis=rest).reshape(-1))
    assert places.margins(codes, weights) == pytest.approx(np.concatenate(tables))
    # The sum of the scores by weight is the inner product with the margins: an adjoint.
    gradient = np.random.default_rng(2).normal(size=places.length)
    inner = float(places.scores(codes, gradient) @ weights)
    assert inner == pytest.approx(float(gradient @ np.concatenate(tables)))


def test_after_few_moves_margins_are_those_of_all_rows():
    fit, _, _ = _noisy(WORKLOADS["marginals"](), 100, 3.0, 6)
    asked, before = problem(fit, 100.0), _drawn(SMALL, 50, 0)
    weights = np.random.default_rng(1).random(50)
    after = before.copy()
    after[0, 7] = (after[0, 7] + 1) % 5
    after[2, 30] = (after[2, 30] + 1) % 3
    seen = asked.margins(before, weights)
    changed = rows_module._margins_after(asked, seen, before, after, weights)
    assert changed.cells == pytest.approx(asked.margins(after, weights).cells)
    assert changed.cells != pytest.approx(seen.cells)


@pytest.mark.parametrize("kind", ["prefixes", "ranges", "windows", "predicates", "signed"])
def test_a_sweep_gains_at_least_what_it_says(kind):
    fit, _, _ = _noisy(WORKLOADS[kind](), 100, 3.0, 6)
    asked = problem(fit, 100.0)
    before, after, gain, moves = _moved(asked, _drawn(SMALL, 5000, 0), np.full(5000, 0.02), 1.0)
    assert moves > 20
    assert before - after >= gain * (1 - 1e-9)


@pytest.mark.parametrize("kind", ["prefixes", "ranges"])
def test_a_curvature_that_is_too_small_is_caught_by_the_promise_of_a_sweep(kind):
    fit, _, _ = _noisy(WORKLOADS[kind](), 100, 3.0, 6)
    asked = problem(fit, 100.0)
    before, after, gain, _ = _moved(asked, _drawn(SMALL, 50, 0), np.full(50, 2.0), 0.01)
    assert before - after < gain * (1 - 1e-9)


def _wide_fit(seed=0, count=40, wide=8):
    conditions = _conditions(BIG, count, seed, wide)
    workload = sf.predicates(BIG, conditions) | sf.marginals(BIG, [("x00", "x01"), ("x02",)])
    codes = _drawn(BIG, 300, seed + 1)
    columns = dict(zip(BIG.names, codes, strict=True))
    truth = []
    for condition in conditions:
        names = BIG.in_order(condition.attributes)
        # One attribute at a time would do; a small table of the used cells is the brute force.
        held = [_holds(condition, {n: int(columns[n][r]) for n in names}) for r in range(300)]
        truth.append(float(sum(held)))
    answers = [np.array(truth)]
    for term in workload.terms[1:]:
        shape = [BIG[n].size for n in term.attributes]
        flat = np.ravel_multi_index([columns[n] for n in term.attributes], shape)
        answers.append(np.bincount(flat, minlength=int(np.prod(shape))).astype(float))
    return workload, codes, answers


def _holds(condition, row):
    """A condition on one row, by a domain in which every attribute has the one cell of the row."""
    from sfumato.workload.predicates import And, In, Not

    if isinstance(condition, In):
        return row[condition.attribute] in condition.codes
    if isinstance(condition, Not):
        return not _holds(condition.part, row)
    found = [_holds(p, row) for p in condition.parts]
    return all(found) if isinstance(condition, And) else any(found)


def test_wide_conditions_are_counted_on_rows_as_brute_force_counts_them():
    workload, codes, answers = _wide_fit()
    assert workload.terms[0].is_wide
    asked = problem(fit_answers(workload, answers), 300.0)
    found = asked.answers(codes, np.ones(300))
    for a, b in zip(found, answers, strict=True):
        assert np.array_equal(a, b)
    assert asked.value(asked.margins(codes, np.ones(300))) == pytest.approx(0.0, abs=1e-9)


def test_moving_rows_keeps_count_of_wide_conditions_exactly():
    workload, _, answers = _wide_fit()
    asked = problem(fit_answers(workload, answers), 300.0)
    before, after, gain, moves = _moved(asked, _drawn(BIG, 60, 9), np.full(60, 5.0), 1.0)
    assert moves > 30
    assert before - after == pytest.approx(gain, rel=1e-9)


def test_a_wide_workload_on_ten_to_the_eighteen_cells_is_fitted():
    workload, _, answers = _wide_fit(seed=3)
    fit = fit_answers(workload, answers)
    found = fit_rows(fit, 300, draws=Draws("1"), rows=400, rounds=3)
    start = problem(fit, 300.0)
    drawn = _drawn(BIG, 400, 5)
    far = start.value(start.margins(drawn, np.full(400, 0.75)))
    assert found.value < 5e-3 * far
    assert np.abs(np.concatenate(found.answers()) - np.concatenate(answers)).max() < 3
    assert found.bound <= found.value


def test_equal_and_impossible_wide_conditions_are_weighed_together():
    conditions = _conditions(BIG, 4, 2, 8)
    never = (sf.attribute(BIG, "x00") >= 5) & (sf.attribute(BIG, "x00") < 5)
    listed = [*conditions, conditions[0], never & conditions[1]]
    workload = sf.predicates(BIG, listed)
    values = np.array([50.0, 60.0, 70.0, 80.0, 90.0, 7.0])
    weights = np.array([1.0, 2.0, 1.0, 1.0, 3.0, 2.0])
    fit = fit_answers(workload, [values], [weights])
    asked = problem(fit, 100.0)
    codes, amounts = _drawn(BIG, 40, 1), np.full(40, 2.5)
    (found,) = asked.answers(codes, amounts)
    assert found[0] == found[4]
    assert found[5] == 0
    expected = 0.5 * float(weights @ (found - values) ** 2)
    assert asked.value(asked.margins(codes, amounts)) == pytest.approx(expected)


def test_conditions_agree_with_their_table_where_there_is_one():
    domain = sf.Domain({"a": 5, "b": 4, "c": 3})
    conditions = _conditions(domain, 15, 4, 3)
    from sfumato.refine.row_problem import read_conditions

    term = sf.predicates(domain, conditions).terms[0]
    found = read_conditions(domain, [FitPart(term, np.zeros(15), np.ones(15))])
    every = np.array(np.unravel_index(np.arange(60), domain.shape))
    truth = found.truth(every)
    for condition, place in zip(conditions, found.places[0], strict=True):
        table = indicator(condition, domain, domain.names).reshape(-1)
        assert np.array_equal(table, truth[:, place] if place >= 0 else np.zeros(60, bool))


def test_the_bound_by_tables_is_below_every_score():
    fit, _, _ = _noisy(WORKLOADS["marginals"](), 100, 3.0, 6)
    asked = problem(fit, 100.0)
    codes = _drawn(SMALL, 30, 2)
    _, gradient = asked.gradient(asked.margins(codes, np.full(30, 100 / 30)))
    every = np.array(np.unravel_index(np.arange(60), SMALL.shape))
    assert minimum_score(asked, gradient) <= asked.scores(every, gradient).min()


def test_scores_are_the_derivatives_of_the_value_by_the_weights():
    fit, dense, wanted = _noisy(WORKLOADS["prefixes"](), 100, 3.0, 6)
    asked = problem(fit, 100.0)
    every = np.array(np.unravel_index(np.arange(60), SMALL.shape))
    weights = np.random.default_rng(0).random(60)
    _, gradient = asked.gradient(asked.margins(every, weights))
    expected = dense.T @ (dense @ weights - wanted)
    assert asked.scores(every, gradient) == pytest.approx(expected, rel=1e-9)


def test_weights_are_those_of_least_squares_on_the_given_rows():
    fit, dense, wanted = _noisy(WORKLOADS["prefixes"](), 100, 3.0, 6)
    asked = problem(fit, 100.0)
    chosen = np.sort(np.random.default_rng(3).choice(60, 20, replace=False))
    codes = np.array(np.unravel_index(chosen, SMALL.shape))
    start = np.full(20, 5.0)
    weights, value = solve_weights(asked, codes, start, 5000)
    assert value == pytest.approx(_least(dense[:, chosen], wanted, 100), rel=1e-4)
    assert value < asked.value(asked.margins(codes, start))
    assert weights.sum() == pytest.approx(100)


def test_equal_rows_are_merged():
    codes = np.array([[1, 0, 1, 1], [2, 2, 2, 0]])
    found, weights = merged(codes, np.array([1.0, 2.0, 3.0, 4.0]))
    assert found.tolist() == [[0, 1, 1], [2, 0, 2]]
    assert weights.tolist() == [2.0, 4.0, 4.0]


def test_tables_of_rows_are_their_margins():
    fit, _, _ = _noisy(WORKLOADS["marginals"](), 100, 3.0, 6)
    codes = _drawn(SMALL, 30, 2)
    weights = np.random.default_rng(0).random(30)
    rows = WeightedRows(fit, codes, weights, 0.0, 0.0, 0.0, 0)
    expected = np.zeros((5, 3))
    np.add.at(expected, (codes[0], codes[2]), weights)
    assert rows.table(("c", "a")) == pytest.approx(expected)
    assert rows.tables([("b",)])["b",].sum() == pytest.approx(weights.sum())
    assert rows.columns["b"].tolist() == codes[1].tolist()


def test_one_cell_and_no_records_have_one_answer():
    domain = sf.Domain({"a": 1})
    fit = fit_answers(sf.marginals(domain, 1), [np.array([9.0])])
    found = fit_rows(fit, 7, draws=Draws("1"))
    assert found.answers()[0].tolist() == pytest.approx([7.0])
    assert found.value == pytest.approx(2.0)
    nothing, _, _ = _noisy(WORKLOADS["marginals"](), 0, 1.0, 1)
    assert np.abs(np.concatenate(fit_rows(nothing, 0, draws=Draws("1")).answers())).max() == 0


def test_given_rows_are_where_the_search_starts():
    fit, _, _ = _noisy(WORKLOADS["marginals"](), 400, 0.0, 3)
    best = fit_rows(fit, 400, draws=Draws("2"), gap=1e-9, rounds=300)
    again = fit_rows(fit, 400, draws=Draws("3"), start=best.columns, weights=best.weights, rounds=0)
    fresh = fit_rows(fit, 400, draws=Draws("3"), rows=best.count, rounds=0)
    assert again.value <= best.value * (1 + 1e-9)
    assert again.value < fresh.value


def test_what_makes_no_sense_is_refused():
    fit, _, _ = _noisy(WORKLOADS["marginals"](), 100, 3.0, 6)
    for n in (-1, np.nan, np.inf):
        with pytest.raises(PlanError, match="total of the rows"):
            fit_rows(fit, n, draws=Draws("1"))
    with pytest.raises(PlanError, match="number of rows"):
        fit_rows(fit, 5, draws=Draws("1"), rows=0)
    with pytest.raises(WorkloadError, match="lack the attributes b, c"):
        fit_rows(fit, 5, draws=Draws("1"), start={"a": np.array([0])})
    start = {"a": np.array([5]), "b": np.array([0]), "c": np.array([0])}
    with pytest.raises(WorkloadError, match="cells 0 to 4"):
        fit_rows(fit, 5, draws=Draws("1"), start=start)
    start["a"] = np.array([4])
    with pytest.raises(WorkloadError, match="as many weights"):
        fit_rows(fit, 5, draws=Draws("1"), start=start, weights=np.array([1.0, 1.0]))


def test_tables_that_cannot_fit_are_refused_at_once():
    domain = sf.Domain({"a": 20_000, "b": 20_000})
    term = sf.marginals(domain, 2).terms[0]
    fit = Fit(domain, (FitPart(term, np.zeros(0), np.zeros(0)),))
    with pytest.raises(TooLarge, match="400,000,000 cells"):
        fit_rows(fit, 5, draws=Draws("1"))
