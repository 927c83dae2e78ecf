"""The optimum through symmetry: against the dense optimum, and measured against dense algebra."""

from __future__ import annotations

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import TooLarge
from sfumato.solve.nuclear import certified_optimum
from sfumato.solve.orbits import exchangeable, orbit_problem
from sfumato.strategy.factorization import Factorization, factorization
from sfumato.workload.queries import Groups, Identity, Matrix, Prefix, Total
from sfumato.workload.workload import Workload
from tests.unit.solve.test_nuclear import dense_root_diagonal

DOMAIN = sf.Domain({"a": 8, "b": 3, "c": 6})
HALVES = [[1, 1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0, 0, 0]]

WORKLOADS = {
    "marginals": sf.marginals(DOMAIN, 2) | 2 * sf.marginals(DOMAIN, 1),
    "total": sf.marginals(DOMAIN, [()]),
    "mixed": sf.prefixes(DOMAIN, "a", by=["b"]) | sf.marginals(DOMAIN, 2) | sf.ranges(DOMAIN, "c"),
    "deficient": sf.product(DOMAIN, {"a": "windows(5)"}) | sf.marginals(DOMAIN, [("b", "c")]),
    "grouped": sf.product(DOMAIN, {"a": HALVES, "b": "identity"}) | sf.marginals(DOMAIN, [("a",)]),
    "copies": sf.product(DOMAIN, {"a": [[1, 0, 0, 1, 1, 0, 0, 0]] * 5}),
}


def solved(work: Workload) -> Factorization:
    problem = orbit_problem(work)
    assert problem is not None
    return factorization(work, problem, problem.solve(1e-4))


def dense_matrix(work: Workload) -> np.ndarray:
    unit = np.eye(work.domain.size)
    return np.array([work.evaluate(e.reshape(work.domain.shape)) for e in unit]).T


def dense_strategy(strategy: Factorization) -> np.ndarray:
    rows = []
    for block in strategy.blocks:
        drop = tuple(i for i, n in enumerate(DOMAIN.names) if n not in block.term.attributes)
        units = (e.reshape(DOMAIN.shape).sum(axis=drop) for e in np.eye(DOMAIN.size))
        rows.append(block.share * np.array([block.term.answer(u) for u in units]).T)
    return np.vstack(rows)


@pytest.fixture(params=WORKLOADS)
def work(request: pytest.FixtureRequest) -> Workload:
    return WORKLOADS[request.param]


def test_without_noise_every_answer_is_exact(work: Workload) -> None:
    strategy = solved(work)
    counts = np.random.default_rng(0).integers(0, 99, size=DOMAIN.shape)
    values = []
    for block in strategy.blocks:
        drop = tuple(i for i, n in enumerate(DOMAIN.names) if n not in block.term.attributes)
        values.append(block.term.answer(counts.sum(axis=drop)))
    answers = np.concatenate([strategy.answer(t, values) for t in range(len(work.terms))])
    np.testing.assert_allclose(answers, work.evaluate(counts), atol=1e-7)


def test_variances_and_norms_are_those_of_the_dense_matrices(work: Workload) -> None:
    strategy = solved(work)
    m, f = dense_strategy(strategy), dense_matrix(work)
    r = f @ np.linalg.pinv(m, rcond=1e-9)
    np.testing.assert_allclose(r @ m, f, atol=1e-8)
    unit = [b.share**-2 for b in strategy.blocks]
    variances = np.concatenate([strategy.variances(t, unit) for t in range(len(work.terms))])
    np.testing.assert_allclose(variances, (r**2).sum(axis=1), rtol=1e-8, atol=1e-12)
    for t in range(len(work.terms)):
        assert strategy.total_variance(t, unit) == pytest.approx(strategy.variances(t, unit).sum())
    columns = (m**2).sum(axis=0).max()
    assert columns <= strategy.sensitivity(2).power <= columns * (1 + 1e-8)


def test_the_pull_of_a_combination_is_the_transposed_reconstruction(work: Workload) -> None:
    strategy, draw = solved(work), np.random.default_rng(3)
    ends = np.cumsum(strategy.block_rows)[:-1]
    for t, term in enumerate(strategy.workload.terms):
        units = np.eye(sum(strategy.block_rows))
        reconstruction = np.array([strategy.answer(t, np.split(e, ends)) for e in units]).T
        coefficients = draw.normal(size=(2, term.rows))
        for own, expected in zip(coefficients, coefficients @ reconstruction, strict=True):
            pull = strategy.adjoint(t, own)
            wide = [pull.get(b, np.zeros(n)) for b, n in enumerate(strategy.block_rows)]
            assert np.concatenate(wide) == pytest.approx(
                expected, rel=1e-12, abs=1e-12 * np.abs(expected).max()
            )


def test_the_optimum_and_its_bound_are_those_of_the_dense_problem(work: Workload) -> None:
    strategy = solved(work)
    dense = certified_optimum(dense_root_diagonal(work.gram().dense()), DOMAIN.size, tolerance=1e-4)
    assert strategy.bound is not None
    assert strategy.bound <= dense.upper * (1 + 1e-9), "the bound is below a feasible error"
    assert strategy.weighted_error() >= dense.lower * (1 - 1e-9), "the error is above a bound"
    assert strategy.weighted_error() <= strategy.bound * 1.0005


def test_copies_of_one_query_cost_as_much_as_one() -> None:
    assert solved(WORKLOADS["copies"]).gamma == pytest.approx(1.0, rel=1e-6)


def test_marginals_reach_the_known_optimum_in_closed_form() -> None:
    """Xiao, He, Zhang, Kifer 2023: all 2-way marginals over these sizes."""
    sizes = [85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2]
    domain = sf.Domain({f"x{i}": s for i, s in enumerate(sizes)})
    for ways, known in ((1, 3.0468), (2, 6.3587)):
        plan = sf.plan(sf.marginals(domain, ways), sf.Budget(mu=1), mechanism="factorization")
        assert plan.gamma == pytest.approx(known, abs=1e-4)
        assert plan.certificate == pytest.approx(1.0, abs=1e-6)


def test_exchangeable_cells_are_found() -> None:
    assert exchangeable("a", 5, [Identity(5), Total(5)]).classes == 1
    assert exchangeable("a", 5, [Prefix(5)]).classes == 5
    level = Groups(5, "l", ("x", "y"), (0, 0, 1, 1, -1))
    assert exchangeable("a", 5, [level, Identity(5)]).class_of.tolist() == [0, 0, 1, 1, 2]
    marked = Matrix.of([[0, 1, 0, 0, 0], [1, 1, 1, 0, 0]])
    assert exchangeable("a", 5, [marked]).class_of.tolist() == [0, 1, 0, 2, 2]


def test_cells_with_different_single_queries_are_not_exchangeable() -> None:
    weights = Matrix.of([[1, 0, 0], [0, 1, 0], [0, 0, 2]])
    assert exchangeable("a", 3, [weights]).class_of.tolist() == [0, 0, 1]


def test_too_many_classes_are_refused_before_anything_is_built() -> None:
    domain = sf.Domain({"a": 100, "b": 100})
    with pytest.raises(TooLarge, match="10,000 classes"):
        orbit_problem(sf.prefixes(domain, "a") | sf.prefixes(domain, "b"))


def test_conditions_have_no_orbit_problem() -> None:
    assert orbit_problem(sf.predicates(DOMAIN, [sf.attribute(DOMAIN, "a") < 3])) is None


def test_equal_strategies_have_one_digest_and_a_changed_entry_another() -> None:
    from dataclasses import replace

    one, two = solved(WORKLOADS["mixed"]), solved(WORKLOADS["mixed"])
    assert one.digest() == two.digest()
    piece = one.blocks[0].term
    changed = piece.entries.copy()  # type: ignore[attr-defined]
    changed[0, 0] += 1
    block = replace(one.blocks[0], term=replace(piece, entries=changed))  # type: ignore[type-var]
    assert replace(one, blocks=(block, *one.blocks[1:])).digest() != one.digest()
