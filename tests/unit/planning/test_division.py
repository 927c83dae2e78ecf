# SPDX-License-Identifier: Apache-2.0
"""The budget is divided for the number of records, at no more cost, and answers stay unbiased."""

from dataclasses import replace

import numpy as np
import pytest

import sfumato as sf
from sfumato.planning.calibrate import privacy_loss
from sfumato.planning.division import (
    NOTHING,
    divided,
    divided_below,
    length_loss,
    length_of,
    length_told,
    records_of,
)
from sfumato.planning.forecast import Forecast
from sfumato.strategy.marginals import Marginals

DOMAIN = sf.Domain({"a": 7, "b": 12, "c": 2, "d": 30, "e": 3})
INSIDE = sf.Domain({"a": 7, "b": 12, "c": 2, "d": 30, "e": 3}, records="all-inside")
UNIT = sf.PrivacyUnit("person", rows=3)
BUDGET = sf.Budget(mu=0.1)


def planned(
    work: sf.Workload, neighbours: str = "add-remove", unit: sf.PrivacyUnit | None = None
) -> Forecast:
    return sf.plan(work, BUDGET, neighbours, unit=unit, cache=False).forecast.in_normal_form


def loss(forecast: Forecast, noise=None):
    return privacy_loss(
        forecast.strategy,
        forecast.noise if noise is None else noise,
        forecast.neighbours,
        forecast.unit,
        may_drop_records=forecast.may_drop_records,
    )


def count_alone(plan: Forecast):
    return loss(plan, (plan.noise[0], *[NOTHING] * (len(plan.noise) - 1)))


def times(plan: Forecast, made: Forecast) -> np.ndarray:
    return np.array(plan.block_variances) / np.array(made.block_variances)


CASES = [
    (sf.marginals(DOMAIN, 2), "add-remove", None),
    (sf.marginals(DOMAIN, 3) | sf.marginals(DOMAIN, 1), "add-remove", None),
    (sf.marginals(DOMAIN, 2), "replace-one", None),
    (sf.marginals(INSIDE, 2), "replace-one", None),
    (sf.marginals(DOMAIN, 2), "add-remove", UNIT),
]


@pytest.mark.parametrize(("work", "neighbours", "unit"), CASES)
@pytest.mark.parametrize("records", [30, 1_000, 10_000])
def test_the_count_and_all_that_follows_cost_no_more_than_the_plan(work, neighbours, unit, records):
    plan = planned(work, neighbours, unit)
    made = divided(plan, records, is_counted=True)
    if made is plan:
        assert records == 10_000
        return
    assert made.cost == plan.cost
    if made.noise[0] == plan.noise[0]:  # not counted again
        assert loss(made) <= loss(plan)
    else:
        assert count_alone(plan) + loss(made) <= loss(plan)


def test_a_count_that_is_not_taken_off_would_cost_more():
    plan = planned(sf.marginals(DOMAIN, 2))
    made = divided(plan, 1_000, is_counted=False)
    assert loss(made) <= loss(plan) < count_alone(plan) + loss(made)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_single_attributes_never_lose_and_large_tables_keep_some(neighbours):
    plan = planned(sf.marginals(DOMAIN, 2), neighbours)
    made = divided(plan, 300, is_counted=True)
    more, single = times(plan, made), 1 + len(DOMAIN)
    assert (more[1:single] > 2).all()
    assert 0.02 < more[single:].min() < 0.5


def test_many_records_leave_the_plan_as_it_is():
    plan = planned(sf.marginals(DOMAIN, 2))
    assert divided(plan, 10**6, is_counted=True) is plan


def test_more_records_move_less():
    plan = planned(sf.marginals(DOMAIN, 2))
    single = [times(plan, divided(plan, n, is_counted=True))[1] for n in (100, 300, 600)]
    assert single[0] > single[1] > single[2] > 1


def test_divided_answers_are_unbiased():
    plan = planned(sf.marginals(DOMAIN, 2))
    made = divided(plan, 300, is_counted=True)
    histogram = np.random.default_rng(0).poisson(0.3, DOMAIN.shape)
    values = []
    for block in made.strategy.blocks:
        axes = tuple(i for i, n in enumerate(DOMAIN.names) if n not in block.term.attributes)
        values.append(block.term.apply(histogram.sum(axis=axes)).astype(float).reshape(-1))
    for term, answers in zip(made.workload.terms, made.strategy.answers(values), strict=True):
        axes = tuple(i for i, n in enumerate(DOMAIN.names) if n not in term.attributes)
        assert np.allclose(answers, histogram.sum(axis=axes).reshape(-1))


def test_only_marginals_for_the_mean_error_are_divided_and_once():
    plan = planned(sf.marginals(DOMAIN, 2))
    assert plan.is_divisible
    assert not replace(plan, objective="max").is_divisible
    assert not divided(plan, 300, is_counted=True).is_divisible
    ranges = planned(sf.prefixes(DOMAIN, "d", by=["c"]))
    assert not ranges.is_divisible
    assert divided(ranges, 10, is_counted=True) is ranges


def test_the_seen_forecast_is_that_of_the_asked_groups():
    work = sf.marginals(DOMAIN, 2)
    written = sf.Workload(DOMAIN, tuple(reversed(work.terms)))
    forecast = sf.plan(written, BUDGET, cache=False).forecast
    made = divided(forecast, 300, is_counted=True)
    assert made.workload is written
    assert [g.name for g in made.groups] == [t.name for t in written.terms]
    assert isinstance(made.strategy.in_normal_form, Marginals)


def test_a_count_below_its_noise_is_taken_for_its_noise():
    plan = planned(sf.marginals(DOMAIN, 2))
    assert records_of(plan, -5.0) == records_of(plan, 0.0) == int(plan.noise[0].scale)
    assert records_of(plan, 1e5 + 0.5) == 100_000


@pytest.mark.parametrize(("work", "neighbours", "unit"), CASES)
@pytest.mark.parametrize("is_counted", [False, True])
def test_a_plan_says_from_how_many_records_on_it_stays_as_it_is(work, neighbours, unit, is_counted):
    plan = planned(work, neighbours, unit)
    bound = divided_below(plan, is_counted=is_counted)
    assert bound > 100
    assert divided(plan, bound, is_counted=is_counted) is plan
    assert length_of(plan, bound, is_counted=is_counted) is None
    below = bound - bound // 50 - 2
    is_divided = divided(plan, below, is_counted=is_counted) is not plan
    assert is_divided or length_of(plan, below, is_counted=is_counted) is not None


def test_a_plan_tells_that_a_release_may_err_otherwise():
    plan = sf.plan(sf.marginals(DOMAIN, 2), BUDGET, cache=False)
    bound = divided_below(plan.forecast, is_counted=True)
    assert f"fewer than about {bound:,} records" in repr(plan)
    assert f"fewer than about {bound:,} records" in plan._repr_html_()
    known = sf.plan(sf.marginals(DOMAIN, 2), BUDGET, records=1_000, cache=False)
    assert f"typical error {known._as_released(1_000).rmse:,.2f} counts before" in repr(known)
    assert "how far attributes depend on each other" in repr(known)
    many = sf.plan(sf.marginals(DOMAIN, 2), BUDGET, records=10**7, cache=False)
    ones = sf.plan(sf.marginals(DOMAIN, 1), BUDGET, cache=False)
    named = sf.plan(sf.marginals(DOMAIN, 2), BUDGET, mechanism="factorization", cache=False)
    assert many.division == ones.division == named.division == ""


# The length of the pieces of several attributes

LENGTHS = (-1e3, 0.0, 300.0, 1e5)


@pytest.mark.parametrize(("work", "neighbours", "unit"), CASES)
@pytest.mark.parametrize("records", [30, 1_000, 10_000])
@pytest.mark.parametrize("is_counted", [False, True])
def test_the_length_costs_no_more_than_is_left(work, neighbours, unit, records, is_counted):
    plan = planned(work, neighbours, unit)
    asked = length_of(plan, records, is_counted=is_counted)
    if asked is None:
        assert records != 1_000
        return
    paid = length_loss(plan, asked.noise)
    assert 0 < paid < 0.05 * loss(plan)
    for length in LENGTHS:
        made = divided(plan, records, is_counted=is_counted, length=length)
        assert made is not plan
        assert made.cost == plan.cost
        counted = is_counted and made.noise[0] != plan.noise[0]
        first = count_alone(plan) if counted else 0
        assert first + paid + loss(made) <= loss(plan)


def test_a_length_that_is_not_paid_for_would_cost_more():
    plan = planned(sf.marginals(DOMAIN, 2))
    asked = length_of(plan, 1_000, is_counted=False)
    made = divided(plan, 1_000, is_counted=False)
    assert loss(made) <= loss(plan) < loss(made) + length_loss(plan, asked.noise)


def test_longer_pieces_get_more_of_the_budget():
    plan = planned(sf.marginals(DOMAIN, 2))
    pairs = [
        times(plan, divided(plan, 1_000, is_counted=False, length=length))[1 + len(DOMAIN) :]
        for length in (0.0, 1_000.0, 4_000.0, 1e5)
    ]
    least = [p.min() for p in pairs]
    assert least == sorted(least)
    assert least[0] < 0.2 < 0.9 < least[-1] < 1
    assert np.allclose(pairs[-1], pairs[-1][0], rtol=0.02)  # as it was planned, but for the length


def test_a_length_is_measured_where_it_decides():
    plan = planned(sf.marginals(DOMAIN, 2))
    asked = [length_of(plan, n, is_counted=True) is not None for n in (1, 1_000, 10**7)]
    assert asked == [
        False,
        True,
        False,
    ]  # hidden by noise; decides; large tables have budget enough
    assert length_of(planned(sf.marginals(DOMAIN, 1)), 1_000, is_counted=True) is None
    assert length_of(planned(sf.prefixes(DOMAIN, "d", by=["c"])), 10, is_counted=True) is None


@pytest.mark.parametrize(("work", "neighbours", "unit"), CASES)
def test_neighbours_move_a_length_by_no_more_than_is_paid_for(work, neighbours, unit):
    """Exact lengths of neighbours, and the twin: columns that are not of length 1 move by more."""
    plan = planned(work, neighbours, unit)
    asked = length_of(plan, 1_000, is_counted=False)
    reach = float(length_loss(plan, asked.noise)) ** 0.5 * asked.noise.scale
    blocks, several = plan.strategy.blocks, [w > 0 for w in asked.weights]
    rng = np.random.default_rng(0)
    rows = 1 if unit is None else unit.rows
    farthest = wrong = 0.0
    for trial in range(40):
        own = np.column_stack([rng.integers(0, a.size, 3 + trial // 2) for a in DOMAIN])
        moved = np.column_stack([rng.integers(0, a.size, rows) for a in DOMAIN])
        moved[:] = moved[0]  # rows of one person that are alike move the most
        kept = own[rows:] if neighbours == "replace-one" else own
        lengths = []
        for table in (own, np.vstack([kept, moved])):
            squares = np.array(
                [_square(b.term, table) for b, s in zip(blocks, several, strict=True) if s]
            )
            norms = np.array(plan.strategy.piece_norms)[several]
            lengths.append((np.sqrt((squares / norms).sum()), np.sqrt(squares.sum())))
        apart = np.abs(np.subtract(*lengths))
        farthest, wrong = max(farthest, apart[0]), max(wrong, apart[1])
    assert farthest <= reach
    assert farthest > 0.2 * reach
    assert wrong > reach


def _square(term, table):
    places = [DOMAIN.index(a) for a in term.attributes]
    sizes = [DOMAIN.shape[i] for i in places]
    cells = np.ravel_multi_index([table[:, i] for i in places], sizes)
    counts = np.bincount(cells, minlength=int(np.prod(sizes))).reshape(sizes)
    return float((term.apply(counts).astype(float) ** 2).sum())


def test_a_length_is_read_as_it_was_told():
    assert length_told({"records": 3}) is None
    assert length_told({"length": [-3 * 2**19, 20]}) == -1.5
