# SPDX-License-Identifier: Apache-2.0
"""What a person with groups can move: never less than the truth, and the truth by group."""

from __future__ import annotations

from functools import cache
from itertools import combinations_with_replacement, product
from math import sqrt

import numpy as np
import pytest
from scipy.spatial.distance import pdist

import sfumato as sf
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import PlanError, SchemaError
from sfumato.planning.calibrate import calibrate, privacy_loss
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.planning.planner import Strategies
from sfumato.strategy import moves
from sfumato.strategy.base import Strategy
from sfumato.strategy.moves import bound_of_groups, moved_by_groups
from sfumato.strategy.neighbours.replace_one import for_replace_one

SMALL = sf.Domain({"day": 4, "sex": 2})
NARROW = sf.Domain({"day": 3, "hour": 2, "sex": 2})
UNITS = (
    PrivacyUnit("person", groups=2, rows_per_group=2, by="day"),
    PrivacyUnit("person", rows=3, groups=3, rows_per_group=2, by="day"),
    PrivacyUnit("person", rows=3, groups=2, rows_per_group=2, by=("day", "sex")),
)


def workloads(domain: sf.Domain) -> dict[str, sf.Workload]:
    day = sf.attribute(domain, "day")
    entries = np.random.default_rng(3).integers(-2, 3, (3, domain["day"].size))
    return {
        "day": sf.marginals(domain, [["day"]]),
        "all tables": sf.marginals(domain, 1) | sf.marginals(domain, 2),
        "day and total": sf.marginals(domain, [["day"], []]),
        "prefixes by sex": sf.prefixes(domain, "day", by=["sex"]),
        "prefixes": sf.prefixes(domain, "day"),
        "ranges": sf.ranges(domain, "day"),
        "matrix": sf.product(domain, {"day": entries}),
        "conditions": sf.predicates(
            domain,
            [day < 2, (day > 0) & (sf.attribute(domain, "sex") == 1)],
        ),
    }


@cache
def persons(domain: sf.Domain, unit: PrivacyUnit) -> np.ndarray:
    """Every histogram that one person can add, one a row."""
    cells = int(np.prod(domain.shape))
    codes = np.array(np.unravel_index(np.arange(cells), domain.shape))
    sizes = [domain.shape[domain.index(n)] for n in unit.by]
    group = np.ravel_multi_index([codes[domain.index(n)] for n in unit.by], sizes)
    out = []
    for rows in range(unit.rows + 1):
        for chosen in combinations_with_replacement(range(cells), rows):
            h = np.bincount(np.array(chosen, dtype=int), minlength=cells)
            by_group = np.bincount(group, h)
            if (by_group > 0).sum() <= unit.groups and by_group.max() <= unit.rows_per_group:
                out.append(h)
    return np.array(out)


def greatest_loss(strategy, noise, domain, unit: PrivacyUnit, neighbours: str) -> float:
    """``mu^2`` or epsilon by trying every person, or every pair of persons."""
    parts = []
    for block, law in zip(strategy.blocks, noise, strict=True):
        term = block.term
        rest = [i for i, n in enumerate(domain.names) if n not in term.attributes]
        tables = persons(domain, unit).reshape(-1, *domain.shape)
        summed = tables.sum(axis=tuple(1 + i for i in rest))
        parts.append(summed.reshape(len(tables), -1) @ term.dense().T / law.scale)
    values = np.concatenate(parts, axis=1)
    if neighbours == "add-remove":
        return float((np.abs(values) ** strategy.norm).sum(axis=1).max())
    metric = "cityblock" if strategy.norm == 1 else "sqeuclidean"
    return float(pdist(values, metric).max())


def built(name: str, workload: sf.Workload) -> Strategy | None:
    try:
        return MECHANISMS[name].build(workload.normal.workload, MECHANISMS[name].noise, "rmse")
    except PlanError:
        return None


@pytest.mark.parametrize("queries", list(workloads(SMALL)))
def test_no_person_moves_any_mechanism_farther_than_is_accounted_for(queries):
    work = workloads(SMALL)[queries]
    tried = 0
    for name in MECHANISMS:
        # In L1 groups change nothing, and that search takes longest.
        strategy = None if name == "laplace-optimum" else built(name, work)
        if strategy is None:
            continue
        for neighbours in ("add-remove", "replace-one"):
            options = [strategy]
            if neighbours == "replace-one":
                options.append(for_replace_one(strategy, "rmse", True))
            for option, unit in product(options, UNITS):
                noise = calibrate(option, 1.0, neighbours, unit)
                paid = float(privacy_loss(option, noise, neighbours, unit))
                true = greatest_loss(option, noise, SMALL, unit, neighbours)
                assert true <= paid * (1 + 1e-12)
                tried += 1
    assert tried > 24


@pytest.mark.parametrize("queries", ["day", "all tables", "prefixes", "matrix"])
def test_the_twin_that_takes_groups_for_separate_where_they_are_not_is_caught(queries, monkeypatch):
    """sqrt(groups) for queries over several groups: too little noise, as trying persons shows."""
    work, unit = workloads(SMALL)[queries], UNITS[0]
    strategy = built("gaussian", work)
    monkeypatch.setattr(type(strategy.blocks[0].term), "separates", lambda *_: True)
    noise = calibrate(strategy, 1.0, "add-remove", unit)
    paid = float(privacy_loss(strategy, noise, "add-remove", unit))
    is_caught = greatest_loss(strategy, noise, SMALL, unit, "add-remove") > paid * 1.01
    assert is_caught == (queries != "day")


@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_counts_by_group_are_accounted_for_exactly(unit):
    """Full groups first: the worst person is known in closed form, and is the worst there is."""
    work = sf.marginals(SMALL, [["day", "sex"]])
    strategy = built("gaussian", work)
    for neighbours in ("add-remove", "replace-one"):
        noise = calibrate(strategy, 1.0, neighbours, unit)
        paid = float(privacy_loss(strategy, noise, neighbours, unit))
        assert greatest_loss(strategy, noise, SMALL, unit, neighbours) == pytest.approx(paid, 1e-6)


def test_two_attributes_make_one_group():
    unit = PrivacyUnit("person", groups=2, by=("day", "hour"))
    for work in (
        sf.marginals(NARROW, [["day", "hour"], ["day", "sex"]]),
        sf.marginals(NARROW, 2),
    ):
        for name in ("gaussian", "factorization", "gaussian-table", "laplace"):
            strategy = built(name, work)
            noise = calibrate(strategy, 1.0, "add-remove", unit)
            paid = float(privacy_loss(strategy, noise, "add-remove", unit))
            assert greatest_loss(strategy, noise, NARROW, unit, "add-remove") <= paid * (1 + 1e-12)


def test_kinds_of_pairs_and_all_pairs_of_cells_agree():
    """Two ways to the same inner products: by the factors of products, and by all cells."""
    work = workloads(SMALL)["all tables"]
    for name in ("gaussian", "factorization"):
        strategy = built(name, work)
        terms = [b.term for b in strategy.blocks]
        scales = np.array([share**2 for share in strategy.shares])
        longest = strategy.maximum_column(2, scales).power
        pairs = [make(terms, ("day",)) for make in (moves._by_kinds, moves._by_cells)]
        ones, twos = (each.between(scales, longest) for each in pairs)
        for one, two in zip(ones, twos, strict=True):
            off = ~np.eye(4, dtype=bool)
            np.testing.assert_allclose(one[off], two[off], atol=1e-6 * longest)


def test_ten_groups_of_one_row_need_a_third_of_the_noise_of_ten_rows():
    """sqrt(10) in place of 10: 0.3162 of the error."""
    domain = sf.Domain({"day": 365, "sex": 2, "age": 10})
    budget, rows = sf.Budget(rho=0.1), PrivacyUnit("person", 10)
    days = PrivacyUnit("person", groups=10, rows_per_group=1, by="day")
    for sets in ([["day"]], [["day", "sex"]], [["day", "sex"], ["day", "age"]]):
        work = sf.marginals(domain, sets)
        before, now = (sf.plan(work, budget, unit=u).rmse for u in (rows, days))
        assert now / before <= 0.32


def test_a_person_in_one_group_costs_as_one_with_rows_alone():
    work = sf.marginals(SMALL, [["day", "sex"]])
    one, other = PrivacyUnit("p", groups=1, rows_per_group=3, by="day"), PrivacyUnit("p", 3)
    budget = sf.Budget(rho=1)
    errors = [sf.plan(work, budget, unit=u).rmse for u in (one, other)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-6)


@pytest.mark.parametrize("queries", ["day", "prefixes", "day and total"])
def test_no_plan_errs_less_than_its_certificate_says_is_possible(queries):
    """The certificate is at least 1 for every mechanism, and near 1 where groups are alike."""
    domain = sf.Domain({"day": 40, "sex": 2})
    work = workloads(domain)[queries] if queries != "prefixes" else sf.prefixes(domain, "day")
    unit = PrivacyUnit("person", groups=5, by="day")
    best = sf.plan(work, sf.Budget(rho=1), unit=unit)
    assert best.certificate >= 1 - 1e-6
    if queries == "day":  # sqrt((n - 1) / (n - k)) of docs/proofs/units.md, Theorem 4
        assert best.certificate == pytest.approx(sqrt(39 / 35), rel=1e-3)


def test_the_lower_bound_for_groups_is_below_what_all_small_strategies_err():
    """``bound_of_groups`` against the least error of many strategies for two days, by hand.

    M = [[a, b], [b, a]] is all there is for two exchangeable cells, up to rotation.
    """
    domain = sf.Domain({"day": 2})
    work = sf.marginals(domain, [["day"]])
    unit = PrivacyUnit("person", groups=2, by="day")
    factor, single = bound_of_groups(work, unit), 2.0  # |R|^2 |M|^2 >= 2 for one record
    errors = []
    for b in np.linspace(-0.9, 0.9, 181):
        m = np.array([[1, b], [b, 1]])
        moved = max((m[:, 0] ** 2).sum(), (m.sum(axis=1) ** 2).sum())
        errors.append(np.linalg.norm(np.linalg.inv(m)) ** 2 * moved)
    assert single * factor <= min(errors)


def test_groups_that_are_no_attribute_are_refused():
    unit = PrivacyUnit("person", groups=2, by="dya")
    with pytest.raises(SchemaError, match="did you mean 'day'"):
        sf.plan(sf.marginals(SMALL, 1), sf.Budget(rho=1), unit=unit)


def test_domains_too_large_to_compare_fall_back_to_rows(monkeypatch):
    work = workloads(SMALL)["prefixes"]
    strategy, unit = built("gaussian-tree", work), UNITS[0]
    monkeypatch.setattr(moves, "_inner_products", lambda *_: None)
    assert moved_by_groups(strategy, unit, "add-remove", [1.0] * len(strategy.blocks)) is None
    plain = PrivacyUnit("person", unit.rows)
    for u in (unit, plain):
        assert calibrate(strategy, 1.0, "add-remove", u) == calibrate(
            strategy, 1.0, "add-remove", plain
        )


def test_more_groups_than_can_be_paired_are_still_told_apart():
    """Tables by 5,000 days in closed form; totals beside them by one number for all pairs."""
    domain = sf.Domain({"day": 5000})
    unit = PrivacyUnit("person", groups=10, by="day")
    work = sf.marginals(domain, [["day"]])
    strategies = Strategies(work)
    strategy = strategies.of("gaussian", 1.0)
    assert moved_by_groups(strategy, unit, "add-remove", [1.0]) == pytest.approx(10)
