"""No limit of the planner shows in the error, and no strategy fails for numerical reasons."""

from __future__ import annotations

import numpy as np
import pytest

import sfumato as sf
from bench.limits import SWEEPS, jumps, sql_adult, swept
from sfumato.planning.planner import choose
from sfumato.strategy.pieces import pieces
from sfumato.strategy.splits import optimal_split, short_basis, split_optimum
from sfumato.workload.queries import Matrix, QuerySet, Windows
from sfumato.workload.workload import Workload

UNIT = sf.Budget(mu=1)
FEW = np.array([[1, 0, 2, -1, 0, 1, 1], [0, 1, 1, 0, 2, 0, -1], [1, 1, 1, 0, 0, 0, 0]])


def _many_rounded() -> Workload:
    """Three attributes of one group are rounded, one of them because another group asks for it."""
    domain = sf.Domain({"a": 30, "b": 3, "c": 20, "d": 5})
    return (
        sf.product(domain, {"b": "windows(1)", "c": "identity"})
        | sf.product(domain, {"a": "ranges", "b": "identity", "d": "ranges"})
        | sf.product(domain, {"c": "ranges"})
        | sf.product(domain, {"b": "prefix", "d": "prefix"})
    )


def _few_queries() -> Workload:
    """Along one attribute three queries are asked of seven cells."""
    domain = sf.Domain({"a": 6, "b": 31, "c": 41, "d": 7})
    return (
        sf.product(domain, {"c": "identity"})
        | sf.product(domain, {"c": "ranges"})
        | sf.product(domain, {"a": "identity", "b": "prefix", "c": "prefix", "d": FEW})
    )


def _total_in_disguise() -> Workload:
    """Windows of all cells are the total: there is no rest to measure."""
    domain = sf.Domain({"a": 50, "b": 2, "c": 5, "d": 24})
    return (
        sf.product(domain, {"a": "ranges", "c": np.array([[1, 2, 0, 0, 1]]), "d": "prefix"})
        | sf.product(domain, {"a": "identity", "b": "prefix", "c": "windows(5)", "d": "ranges"})
        | sf.product(domain, {"a": "identity", "c": "identity", "d": "identity"})
    )


@pytest.mark.parametrize("make", [_many_rounded, _few_queries, _total_in_disguise])
def test_noise_that_cannot_be_drawn_is_no_reason_against_the_optimum(make: object) -> None:
    work = make()  # type: ignore[operator]
    plan = choose(work, UNIT, "add-remove", mechanism="factorization")
    others = choose(work, UNIT, "add-remove", mechanism="weighted-tree", noise_only="gaussian")
    assert plan.rmse < 0.9 * others.rmse


def test_pieces_of_queries_that_span_less_than_all_cells_answer_exactly() -> None:
    """``R M h = F h`` for a table of different counts, along every group."""
    domain = sf.Domain({"a": 4, "b": 5, "d": 7})
    work = (
        sf.product(domain, {"a": "prefix", "d": FEW})
        | sf.product(domain, {"b": "ranges", "d": FEW[:2]})
        | sf.product(domain, {"a": "windows(3)"})
        | sf.product(domain, {"a": "windows(2)", "b": "prefix"})
    )
    strategy = pieces(work)
    assert strategy is not None
    table = (np.arange(domain.size) * 37 % 101).reshape(domain.shape)

    def margin(names: tuple[str, ...]) -> np.ndarray:
        rest = tuple(i for i, n in enumerate(domain.names) if n not in names)
        return np.asarray(table.sum(axis=rest))

    values = [b.term.answer(margin(b.term.attributes)) for b in strategy.blocks]
    for t, term in enumerate(work.terms):
        wanted = term.answer(margin(term.attributes))
        assert strategy.answer(t, values) == pytest.approx(wanted, abs=1e-6)
    assert strategy.bound is not None
    assert strategy.weighted_error() < 1.5**2 * strategy.bound


@pytest.mark.parametrize("has_total", [True, False])
@pytest.mark.parametrize("bits", [8, 14, 20])
def test_a_split_of_few_queries_stays_within_their_span(has_total: bool, bits: int) -> None:
    sets: list[QuerySet] = [Matrix(7, FEW.astype(np.int64), 0), Windows(7, 6)]
    basis = short_basis(sets, has_total)
    assert basis is not None
    assert len(basis) == 5 + has_total
    weight = 3.0 if has_total else 0.0
    grams = [q.gram() for q in sets]
    found = split_optimum(sets, grams, weight, 1e-6, rank=len(basis))
    split = optimal_split(found, bits, basis, has_total)
    assert split.measured.rows == 5
    for queries in sets:
        q = np.asarray(queries.dense())
        alpha = split.totals(queries)
        r = split.rest_adjoint(queries, np.eye(queries.rows)).T
        again = r @ split.measured.dense() + np.outer(alpha, np.ones(7))
        assert again == pytest.approx(q, abs=1e-9)
    # as well as the optimum that it was rounded from
    totals, rests = found.squares(grams)
    for gram, total, rest in zip(grams, totals, rests, strict=True):
        own = split.squares(gram)
        if has_total:
            near = 0.1 if bits == 8 else 0.01
            assert own[0] == pytest.approx(total, rel=near)
            assert own[1] * split.cost == pytest.approx(rest, rel=near)


def test_query_sets_that_span_all_cells_have_no_short_basis() -> None:
    assert short_basis([Matrix(3, np.eye(3, dtype=np.int64), 0)], has_total=True) is None
    assert short_basis([Windows(5, 1)], has_total=False) is None


def test_one_statement_of_sql_more_does_not_change_the_way_they_are_planned() -> None:
    """The error grows with the statements as their optimum does, across 128 of them."""
    asked = [sql_adult(k) for k in (128, 129)]
    plans = [choose(work, UNIT, "add-remove", mechanism="factorization") for work in asked]
    for plan in plans:
        assert plan.certificate is not None
        assert plan.certificate < 1.02
    assert plans[1].rmse < 1.01 * plans[0].rmse


@pytest.mark.parametrize("kind", ["given coefficients", "running totals, largest"])
def test_errors_do_not_jump_across_a_limit(kind: str) -> None:
    sweep = next(s for s in SWEEPS if s.kind == kind)
    assert all(abs(by) < 0.05 for _, by in jumps(swept(sweep)))
