"""Every block answers every term it claims to: against the dense reconstruction."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import sfumato as sf
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.planning.planner import choose
from sfumato.strategy.base import Strategy
from sfumato.strategy.blockwise import Blockwise, shared_noise, table_block, tree_block
from sfumato.workload.workload import Workload

DOMAIN = sf.Domain({"age": 9, "sex": 2, "race": 3})


def small_workload() -> Workload:
    age, sex = sf.attribute(DOMAIN, "age"), sf.attribute(DOMAIN, "sex")
    coefficients = np.random.default_rng(0).integers(-2, 3, size=(3, 18))
    return (
        sf.marginals(DOMAIN, [("age", "sex"), ("race",)])
        | 3 * sf.prefixes(DOMAIN, "age", by=["sex"])
        | sf.ranges(DOMAIN, "age")
        | sf.means(DOMAIN, "age", by=["race"])
        | sf.predicates(DOMAIN, [(age >= 3) & (sex == 1), age < 5])
        | sf.explicit(DOMAIN, ["age", "sex"], coefficients)
    )


def dense_of(measure: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    unit = np.eye(DOMAIN.size)
    return np.array([measure(row.reshape(DOMAIN.shape)) for row in unit]).T


def measured(strategy: Strategy, counts: np.ndarray) -> list[np.ndarray]:
    out = []
    for block in strategy.blocks:
        rest = tuple(i for i, n in enumerate(DOMAIN.names) if n not in block.term.attributes)
        out.append(block.term.answer(counts.sum(axis=rest)))
    return out


# Characters need yes/no attributes; test_transforms.py has them.
FITTING = [m for m in MECHANISMS if m.startswith("gaussian") and m != "gaussian-fourier"]


@pytest.fixture(params=FITTING)
def strategy(request: pytest.FixtureRequest) -> Strategy:
    budget = sf.Budget(mu=1)
    return choose(small_workload(), budget, "add-remove", mechanism=request.param).strategy


def test_without_noise_every_answer_is_exact(strategy: Strategy) -> None:
    counts = np.random.default_rng(1).integers(0, 40, size=DOMAIN.shape)
    values = measured(strategy, counts)
    terms = range(len(strategy.workload.terms))
    answers = np.concatenate([strategy.answer(t, values) for t in terms])
    np.testing.assert_allclose(answers, strategy.workload.evaluate(counts), atol=1e-9)


def test_variances_are_the_squared_rows_of_the_reconstruction(strategy: Strategy) -> None:
    rng = np.random.default_rng(2)
    noise = rng.uniform(0.5, 2, size=len(strategy.blocks))
    for t, term in enumerate(strategy.workload.terms):
        rows = []
        for b, block in enumerate(strategy.blocks):
            columns = []
            for i in range(block.term.rows):
                values = [np.zeros(x.term.rows) for x in strategy.blocks]
                values[b][i] = 1.0
                columns.append(strategy.answer(t, values))
            rows.append(np.array(columns).T)
        squares = sum(noise[b] * (r**2).sum(axis=1) for b, r in enumerate(rows))
        fourths = sum((r**4).sum(axis=1) for r in rows)
        plain = sum((r**2).sum(axis=1) for r in rows)
        np.testing.assert_allclose(strategy.variances(t, list(noise)), squares, err_msg=term.name)
        assert strategy.total_variance(t, list(noise)) == pytest.approx(squares.sum())
        assert strategy.maximum_variance(t, list(noise)) == pytest.approx(squares.max())
        np.testing.assert_allclose(strategy.effective_terms(t), plain**2 / fourths)


def test_gamma_is_the_product_of_the_two_norms(strategy: Strategy) -> None:
    unit = [b.share**-2 for b in strategy.blocks]
    squared = sum(strategy.variances(t, unit).sum() for t in range(len(strategy.workload.terms)))
    columns = sum(
        b.share**2 * (dense_of(lambda h, b=b: measured_one(b, h)) ** 2).sum(axis=0)
        for b in strategy.blocks
    )
    expected = np.sqrt(squared * columns.max() / strategy.workload.queries)
    assert strategy.gamma == pytest.approx(expected, rel=1e-8)


def measured_one(block: object, counts: np.ndarray) -> np.ndarray:
    term = block.term  # type: ignore[attr-defined]
    rest = tuple(i for i, n in enumerate(DOMAIN.names) if n not in term.attributes)
    return np.asarray(term.answer(counts.sum(axis=rest)))


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("objective", ["rmse", "max"])
def test_shared_noise_is_a_minimum(noise: str, objective: str) -> None:
    """No small change of the shares, renormalised, gives a lower objective."""
    work = sf.marginals(DOMAIN, 2) | 2 * sf.prefixes(DOMAIN, "age")
    found = shared_noise("x", noise, work, list(work.terms), range(4), objective)  # type: ignore[arg-type]
    p = 2 if noise == "gaussian" else 1

    def value(shares: np.ndarray) -> float:
        columns = [b.term.column_factors(p) for b in found.blocks]
        greatest = np.array([np.prod([v.max() for _, v in c]) for c in columns])
        scaled = shares / (greatest @ shares**p) ** (1 / p)
        errors = [
            (t.weight**2) * (1 if objective == "max" else t.rows) / s**2
            for t, s in zip(work.terms, scaled, strict=True)
        ]
        return max(errors) if objective == "max" else sum(errors)

    best = np.array([b.share for b in found.blocks])
    rng = np.random.default_rng(3)
    for _ in range(200):
        other = best * np.exp(0.05 * rng.normal(size=len(best)))
        assert value(best) <= value(other) * (1 + 1e-9)


def test_a_table_of_more_attributes_answers_by_summing_out() -> None:
    work = sf.marginals(DOMAIN, [("race",)])
    block = table_block(work, ["age", "race"])
    strategy = Blockwise("x", "gaussian", work, (sf_block(block),), (0,))
    assert strategy.variances(0, [1.0]).tolist() == [9.0, 9.0, 9.0]
    assert strategy.effective_terms(0).tolist() == [9.0, 9.0, 9.0]


def test_a_tree_answers_windows_by_others() -> None:
    work = sf.product(DOMAIN, {"age": "windows(4)", "sex": "identity"})
    block = tree_block(work.terms[0], "age", 2)  # type: ignore[arg-type]
    strategy = Blockwise("x", "gaussian", work, (sf_block(block),), (0,))
    counts = np.random.default_rng(4).integers(0, 9, size=DOMAIN.shape)
    answers = strategy.answer(0, measured(strategy, counts))
    np.testing.assert_allclose(answers, work.evaluate(counts))


def sf_block(term: object) -> object:
    from sfumato.strategy.base import Block

    return Block(term, 1.0)  # type: ignore[arg-type]


PLANE = sf.Domain({"age": 9, "sex": 2, "race": 3})
TOTALS = sf.prefixes(PLANE, "age", by=["race"]) | sf.marginals(PLANE, [("race",)])


@pytest.mark.parametrize(
    ("work", "mechanism", "walks"),
    [
        (TOTALS, "gaussian-table", 1),
        (sf.product(PLANE, {"age": "prefix", "race": "prefix"}), "gaussian-table", 2),
        (sf.product(PLANE, {"age": "prefix", "race": "prefix"}), "laplace-tree", 1),
        (sf.product(PLANE, {"age": "ranges", "race": "prefix"}), "laplace-tree", 1),
    ],
)
def test_ends_of_running_totals_are_read_from_sums_of_cells(
    work: Workload, mechanism: str, walks: int
) -> None:
    budget = sf.Budget(epsilon=1) if mechanism.startswith("laplace") else sf.Budget(mu=1)
    whole = choose(work, budget, "add-remove", mechanism=mechanism).strategy.in_normal_form
    summed = whole.summed()
    assert summed is not None
    assert summed.walks == walks
    left, values, sums = summed.strategy, [], []
    for block, rest, times in zip(whole.blocks, left.blocks, summed.times, strict=True):
        product, away = block.term.as_product(), rest.term.attributes
        assert product is not None
        drawn = np.random.default_rng(4).normal(size=product.row_shape)
        axes = tuple(i for i, n in enumerate(product.attributes) if n not in away)
        values.append(drawn.reshape(-1))
        sums.append(drawn.sum(axis=axes).reshape(-1))
        assert sums[-1].size * times == drawn.size
    ends = whole.asking(left.workload)
    for term in range(len(left.workload.terms)):
        assert np.allclose(ends.answer(term, values), left.answer(term, sums))


@pytest.mark.parametrize(
    ("work", "mechanism"),
    [
        (TOTALS | sf.marginals(PLANE, [("age",)]), "gaussian-table"),  # cells of age are asked
        (sf.ranges(PLANE, "age"), "gaussian-table"),
        (sf.prefixes(PLANE, "age"), "gaussian"),  # what is measured are the totals themselves
        (sf.prefixes(PLANE, "age"), "gaussian-tree"),
    ],
)
def test_nothing_is_summed_where_more_is_asked_or_no_cells_are_measured(
    work: Workload, mechanism: str
) -> None:
    planned = choose(work, sf.Budget(mu=1), "add-remove", mechanism=mechanism).strategy
    assert planned.in_normal_form.summed() is None
