# SPDX-License-Identifier: Apache-2.0
"""Kinds of strategies that small workloads do not reach by a mechanism's name, against brute force.

The planner takes a convolution, a root or pieces for large domains only. Here each is built for a
small one, and what it states of itself is compared with what the vault does with single records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from itertools import combinations
from math import sqrt

import numpy as np
import pytest

import sfumato as sf
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.planning.calibrate import calibrate
from sfumato.planning.forecast import Forecast
from sfumato.planning.mechanisms import _by_orbits
from sfumato.strategy.base import Strategy
from sfumato.strategy.biased import approximate
from sfumato.strategy.blockwise import combined
from sfumato.strategy.conjunctions import conjunctions_by_polynomial
from sfumato.strategy.degrees import by_degrees, symmetric_set
from sfumato.strategy.factorization import factorwise
from sfumato.strategy.marginals import weighted_marginals
from sfumato.strategy.matrix import dense as dense_optimum
from sfumato.strategy.neighbours.replace_one import for_replace_one
from sfumato.strategy.one_attribute.ordered import minimax_strategy, ordered, ordered_minimax
from sfumato.strategy.one_attribute.windows import windows
from sfumato.strategy.pieces import pieces
from sfumato.types import Neighbours
from sfumato.vault.mechanisms.measure import add_noise, exact_values
from sfumato.workload.predicates import And, In
from sfumato.workload.workload import Workload
from tests.shared.every_mechanism import answers, counted, dense, kept, moves, table_of
from tests.shared.words import SeededWords

REPEATS = 1200
DEVIATIONS = 6.0  # a normal variable is beyond this once in 5 * 10^8 times
LOSS = 0.7
DOMAINS: dict[str, Callable[[dict[str, int]], sf.Domain]] = {"dropping": sf.Domain, "kept": kept}
NEIGHBOURS: tuple[Neighbours, ...] = ("add-remove", "replace-one")
Make = Callable[[dict[str, int]], sf.Domain]


def _union(make: Make) -> Workload:
    domain = make({"a": 6, "b": 4, "c": 2})
    return (
        sf.prefixes(domain, "a", by=["c"])
        | sf.ranges(domain, "b")
        | sf.marginals(domain, [("a", "b")])
    )


def _pieces(make: Make) -> Strategy:
    found = pieces(_union(make))
    assert found is not None
    return found


def _combined(make: Make) -> Strategy:
    domain = make({"a": 6, "b": 4, "c": 2})
    tables = sf.marginals(domain, [("a",), ("b", "c")])
    few = sf.predicates(domain, ["a < 2 or b = 1", "a >= 2 and not c = 0"])
    parts = [(_by_orbits(tables), [0, 2]), (dense_optimum(few), [1])]
    work = Workload(domain, (tables.terms[0], few.terms[0], tables.terms[1]))
    return combined("factorization", work, parts)


def _polynomial(make: Make) -> Strategy:
    bits = make({f"q{i}": 2 for i in range(6)})
    return conjunctions_by_polynomial(sf.conjunctions(bits, 6), 40, LOSS, "rmse")


def _degrees(make: Make, records: int | None) -> Strategy:
    """Conjunctions of 2, 3 and 4 literals of 4 attributes, one of them negative."""
    bits = make({f"q{i}": 2 for i in range(4)})
    literals = [In("q0", (1,)), In("q1", (0,)), In("q2", (1,)), In("q3", (1,))]
    sets = [And(s) for w in (2, 3, 4) for s in combinations(literals, w)]
    work = sf.predicates(bits, sets)
    asked = symmetric_set(work)
    assert asked is not None
    return by_degrees(work, asked, records, LOSS)


def _factorwise(make: Make) -> Strategy:
    domain = make({"x": 6, "y": 5, "z": 2})
    work = sf.product(domain, {"x": "prefix", "y": "ranges", "z": "identity"})
    return factorwise(work, partial(_by_orbits, bits=16))


STRATEGIES: dict[str, Callable[[Make], Strategy]] = {
    "sliding windows": lambda make: windows(sf.windows(make({"x": 24, "y": 2}), "x", 5, by=["y"])),
    "root of prefixes": lambda make: ordered(sf.prefixes(make({"x": 16, "y": 2}), "x", by=["y"])),
    "root of ranges": lambda make: ordered(sf.ranges(make({"x": 14}), "x")),
    "root for the largest": lambda make: ordered_minimax(sf.prefixes(make({"x": 16}), "x")),
    "factor by factor": _factorwise,
    "pieces": _pieces,
    "pieces for the largest": lambda make: minimax_strategy(_union(make)),
    "weighted marginals": lambda make: weighted_marginals(sf.marginals(make({"a": 4, "b": 3}), 1)),
    "side by side": _combined,
    "biased": lambda make: approximate(sf.ranges(make({"x": 8}), "x"), LOSS, 20),
    "polynomial": _polynomial,
    "degrees": lambda make: _degrees(make, None),
    "degrees, biased": lambda make: _degrees(make, 20),
}
BIASED = ("biased", "polynomial", "degrees, biased")
CASES = [(name, kind) for name in STRATEGIES for kind in DOMAINS]


@cache
def forecast(
    name: str, kind: str, neighbours: Neighbours = "add-remove", rows: int = 1
) -> Forecast:
    """The strategy with its noise for neighbours and a unit of so many rows."""
    strategy = STRATEGIES[name](DOMAINS[kind])
    unit = None if rows == 1 else PrivacyUnit("id", rows)
    if neighbours == "replace-one":
        drops = unit is not None or not strategy.workload.domain.keeps_every_record
        strategy = for_replace_one(strategy, strategy.objective, drops)
    noise = calibrate(strategy, LOSS, neighbours, unit)
    budget = sf.Budget(mu=LOSS)
    return Forecast(
        strategy.workload, budget, neighbours, strategy.objective, unit, strategy, noise, ()
    )


def true_loss(plan: Forecast) -> float:
    """``mu`` or ``epsilon`` by brute force; a unit moves by so many equal steps at worst."""
    p = 2 if plan.strategy.noise == "gaussian" else 1
    scales = np.array([n.scale**-p for n in plan.noise])
    rows = 1 if plan.unit is None else plan.unit.rows
    moved = float((scales @ dense(plan).moved(p, moves(plan))).max())
    return rows * (sqrt(moved) if p == 2 else moved)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_no_pair_of_neighbours_costs_more_than_the_loss(
    name: str, kind: str, neighbours: Neighbours, rows: int
) -> None:
    plan = forecast(name, kind, neighbours, rows)
    assert true_loss(plan) <= LOSS


@pytest.mark.parametrize("name", STRATEGIES)
def test_less_noise_is_found_out(name: str) -> None:
    """The twin: some neighbours use up the loss of every strategy, to within a fifth."""
    plan = forecast(name, "dropping")
    less = tuple(replace(n, units=int(n.units * 0.8)) for n in plan.noise)
    assert true_loss(replace(plan, noise=less)) > LOSS


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_values_of_large_tables_move_by_no_more_than_a_column_and_the_slack(
    name: str, kind: str
) -> None:
    """Tables of up to 2^40 records, one more of them in some cell: the vault's own integers."""
    plan = forecast(name, kind)
    rng = np.random.default_rng(5)
    cells = plan.workload.domain.size
    for size in (2**20, 2**34):
        histogram = rng.integers(0, size, cells)
        for cell in rng.choice(cells, 3, replace=False):
            more = histogram + (np.arange(cells) == cell)
            for block, law in zip(plan.strategy.blocks, plan.noise, strict=True):
                term = block.term
                before, after = (exact_values(term, table_of(term, h)) for h in (histogram, more))
                steps = [int(y) - int(x) for x, y in zip(before, after, strict=True)]
                moved = sqrt(sum(s * s for s in steps)) * 2.0**-term.fraction_bits
                column = sqrt(float(plan.strategy.sensitivity(2, scales=_only(plan, block)).power))
                assert moved <= column * (1 + 1e-9) + term.slack
                assert law.units > 0


def _only(plan: Forecast, block: object) -> list[float]:
    return [float(b is block) for b in plan.strategy.blocks]


@pytest.mark.parametrize("name", [n for n in STRATEGIES if n not in BIASED])
def test_answers_without_noise_are_what_is_asked(name: str) -> None:
    plan = forecast(name, "dropping")
    seen = dense(plan)
    product = sum(r @ m for r, m in zip(seen.r, seen.m, strict=True))
    np.testing.assert_allclose(product, seen.f, atol=1e-7 * max(1.0, np.abs(seen.f).max()))


@pytest.mark.parametrize("name", BIASED)
def test_no_record_biases_an_answer_by_more_than_stated(name: str) -> None:
    plan = forecast(name, "dropping")
    cells = np.eye(plan.workload.domain.size, dtype=np.int64)
    f = dense(plan).f
    means = [answers(plan, [counted(b.term, e) for b in plan.strategy.blocks]) for e in cells]
    bias = np.abs(np.array(means).T - f)
    terms = range(len(plan.workload.terms))
    stated = np.concatenate([plan.strategy.bias_bounds(t) for t in terms])
    assert (bias <= stated[:, None] * (1 + 1e-9) + 1e-9).all()
    assert bias.max() >= 0.5 * stated.max()  # and the bound says something
    whole = float((bias**2).sum(axis=0).max())
    assert whole <= plan.strategy.squared_bias() * (1 + 1e-9)


@cache
def errors_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Errors of many real measurements against their own mean, and the stated variances."""
    plan = forecast(name, "dropping")
    histogram = np.random.default_rng(4).integers(0, 50, size=plan.workload.domain.size)
    words = SeededWords(f"every strategy {name}")
    noisy, exact = [], []
    for block, law in zip(plan.strategy.blocks, plan.noise, strict=True):
        values = exact_values(block.term, table_of(block.term, histogram))
        drawn = add_noise(np.tile(values, REPEATS), block.term, law, words)
        noisy.append(np.ldexp(drawn.astype(np.float64), -law.grid_bits).reshape(REPEATS, -1))
        exact.append(np.ldexp(values.astype(np.float64), -block.term.fraction_bits))
    found = np.array([answers(plan, [y[i] for y in noisy]) for i in range(REPEATS)])
    terms = range(len(plan.workload.terms))
    stated = np.concatenate([plan.strategy.variances(t, plan.block_variances) for t in terms])
    return found - answers(plan, exact), stated


def is_misstated(errors: np.ndarray, variances: np.ndarray) -> bool:
    """Whether the mean or the mean square of some error is beyond chance.

    The variance of a squared error is 2 variance^2 for the normal law, at most 5 for sums of
    Laplace variables.
    """
    shift = errors.mean(axis=0) / np.sqrt(variances / len(errors))
    spread = ((errors**2).mean(axis=0) / variances - 1) / sqrt(5 / len(errors))
    return bool(max(np.abs(shift).max(), np.abs(spread).max()) > DEVIATIONS)


@pytest.mark.parametrize("name", STRATEGIES)
def test_real_measurements_err_as_stated(name: str) -> None:
    errors, stated = errors_of(name)
    assert not is_misstated(errors, stated)
    assert is_misstated(errors + 0.5 * np.sqrt(stated), stated)  # the twins
    assert is_misstated(errors, stated / 2)


@pytest.mark.parametrize("name", STRATEGIES)
def test_sums_and_maxima_are_those_of_the_listed_variances(name: str) -> None:
    plan = forecast(name, "dropping")
    for t in range(len(plan.workload.terms)):
        each = plan.strategy.variances(t, plan.block_variances)
        assert plan.strategy.total_variance(t, plan.block_variances) == pytest.approx(each.sum())
        greatest = plan.strategy.maximum_variance(t, plan.block_variances)
        assert each.max() <= greatest * (1 + 1e-9)


def test_a_copy_that_answers_other_questions_forgets_what_it_knew() -> None:
    """Releases of very many ranges ask running totals of the same measurements instead."""
    domain = sf.Domain({"x": 6, "y": 5})
    asked = sf.product(domain, {"x": "ranges", "y": "ranges"})
    found = factorwise(asked, partial(_by_orbits, bits=16))
    ones = [1.0] * len(found.blocks)
    assert len(found.variances(0, ones)) == asked.queries
    shorter = sf.product(domain, {"x": "prefix", "y": "prefix"})
    other = replace(found, workload=shorter)
    fresh = replace(factorwise(asked, partial(_by_orbits, bits=16)), workload=shorter)
    np.testing.assert_allclose(other.variances(0, ones), fresh.variances(0, ones))
