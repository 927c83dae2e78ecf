"""Weighted marginals in closed form, against dense matrices and the general optimum."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import TooLarge
from sfumato.planning.calibrate import calibrate, privacy_loss
from sfumato.solve import lattice as lattices
from sfumato.solve.lattice import CompleteLattice, lattice, marginal_sets
from sfumato.strategy.base import Strategy
from sfumato.strategy.marginals import Marginals, marginals_optimum
from sfumato.strategy.moves import squared_diameter
from sfumato.workload.queries import Identity, Total
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload

DOMAIN = sf.Domain({"a": 4, "one": 1, "b": 2, "c": 3})
WORK = (
    sf.marginals(DOMAIN, 2)
    | 3 * sf.marginals(DOMAIN, [("a",), ()])
    | 0.5 * sf.marginals(DOMAIN, [("a", "b")])
    | sf.marginals(DOMAIN, [("b", "c")])
)


def built(work: Workload, objective: str = "rmse") -> Marginals:
    found = marginals_optimum(work, objective)
    assert found is not None
    return found


def dense(strategy: Strategy, domain: sf.Domain) -> tuple[np.ndarray, np.ndarray]:
    """M (blocks scaled by their shares) and F."""
    rows = []
    for block in strategy.blocks:
        drop = tuple(i for i, n in enumerate(domain.names) if n not in block.term.attributes)
        units = (e.reshape(domain.shape).sum(axis=drop) for e in np.eye(domain.size))
        rows.append(block.share * np.array([block.term.answer(u) for u in units]).T)
    work = strategy.workload
    f = np.array([work.evaluate(e.reshape(domain.shape)) for e in np.eye(domain.size)]).T
    return np.vstack(rows), f


def test_every_subset_of_an_asked_set_is_listed_once_with_the_sets_above_it() -> None:
    generator = np.random.default_rng(1)
    sets = [
        tuple(sorted(generator.choice(9, size=k, replace=False).tolist()))
        for k in generator.integers(0, 6, size=40)
    ]
    found = lattice(sets)
    members = [tuple(found.members(p).tolist()) for p in range(found.pieces)]
    wanted = {s for big in sets for k in range(len(big) + 1) for s in combinations(big, k)}
    assert set(members) == wanted
    assert len(members) == len(wanted)
    pairs = {(members[p], t) for p, t in zip(found.piece, found.term, strict=True)}
    assert pairs == {(s, t) for t, big in enumerate(sets) for s in wanted if set(s) <= set(big)}
    for t, big in enumerate(sets):
        inside = [members[p] for p in found.within(t)]
        assert inside[-1] == big
        assert len(inside) == 2 ** len(big)
    sizes = generator.random(9)
    products = [np.prod(sizes[list(s)]) for s in members]
    np.testing.assert_allclose(found.of_pieces(sizes), products)
    np.testing.assert_allclose(found.of_terms(sizes), [np.prod(sizes[list(s)]) for s in sets])


@pytest.mark.parametrize("objective", ["rmse", "max"])
def test_all_sets_of_some_sizes_need_no_list(
    objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = sf.Domain({"other": 3, **{f"q{i}": 2 for i in range(6)}})
    names = list(domain.names[1:])
    work = sf.conjunctions(domain, 3, names) | sf.conjunctions(domain, 2, names)
    wanted = built(work, objective)
    monkeypatch.setattr(lattices, "LIMITS", replace(lattices.LIMITS, lattice_pairs=40))
    found = built(work, objective)
    assert isinstance(found.lattice, CompleteLattice)
    assert not isinstance(wanted.lattice, CompleteLattice)
    np.testing.assert_allclose(found.shares, wanted.shares, rtol=1e-5)
    assert found.bound == pytest.approx(wanted.bound, rel=1e-6)
    generator = np.random.default_rng(3)
    some = generator.random(wanted.lattice.terms), generator.random(wanted.lattice.pieces)
    np.testing.assert_allclose(found.lattice.above(some[0]), wanted.lattice.above(some[0]))
    np.testing.assert_allclose(found.lattice.below(some[1]), wanted.lattice.below(some[1]))
    values = [generator.normal(size=1) for _ in range(found.lattice.pieces)]
    for t, table in enumerate(wanted.answers(values)):
        np.testing.assert_array_equal(found.lattice.within(t), wanted.lattice.within(t))
        np.testing.assert_allclose(found.answers(values)[t], table, atol=1e-12)
        np.testing.assert_allclose(found.answer(t, values), table, atol=1e-12)


def test_all_conjunctions_of_many_attributes_have_the_closed_form() -> None:
    d, w = 20, 8
    subsets = lattice(list(combinations(range(d), w)), is_listed=False)
    assert isinstance(subsets, CompleteLattice)
    root = np.sqrt(subsets.above(np.full(subsets.terms, 2.0**-w)))
    gamma = root.sum() / np.sqrt(subsets.terms * 2.0**w)
    assert gamma == pytest.approx(sf.study.gamma_of(d, w, np.full(w + 1, 2.0**-w)))
    assert gamma == pytest.approx(15.772, abs=1e-3)


def test_sets_of_many_attributes_with_great_numbers_are_told_apart() -> None:
    """The codes of 12 numbers below 4,000 do not fit 64 bits."""
    generator = np.random.default_rng(2)
    sets = [tuple(sorted(generator.choice(4000, 12, replace=False).tolist())) for _ in range(3)]
    found = lattice([*sets, sets[1]])
    wanted = {s for big in sets for k in range(13) for s in combinations(big, k)}
    assert found.pieces == len(wanted)
    assert tuple(found.members(int(found.within(3)[-1])).tolist()) == sets[1]


@pytest.mark.parametrize("objective", ["rmse", "max"])
def test_answers_variances_and_norms_are_those_of_the_dense_matrices(objective: str) -> None:
    strategy = built(WORK, objective)
    m, f = dense(strategy, DOMAIN)
    r = f @ np.linalg.pinv(m, rcond=1e-9)
    np.testing.assert_allclose(r @ m, f, atol=1e-9)
    unit = [share**-2 for share in strategy.shares]
    terms = range(len(WORK.terms))
    variances = np.concatenate([strategy.variances(t, unit) for t in terms])
    np.testing.assert_allclose(variances, (r**2).sum(axis=1), rtol=1e-9)
    totals, greatest = strategy.group_variances(unit)
    assert totals == pytest.approx([strategy.total_variance(t, unit) for t in terms])
    assert greatest == pytest.approx([strategy.maximum_variance(t, unit) for t in terms])
    columns = (m**2).sum(axis=0)
    np.testing.assert_allclose(columns, 1, rtol=1e-12)
    assert 1 <= strategy.sensitivity(2).power <= 1 + 1e-8
    assert strategy.sensitivity(1).power == pytest.approx(np.abs(m).sum(axis=0).max())
    # with measured values without noise the answers are exact
    counts = np.random.default_rng(0).integers(0, 99, size=DOMAIN.shape)
    values = []
    for block in strategy.blocks:
        drop = tuple(i for i, n in enumerate(DOMAIN.names) if n not in block.term.attributes)
        values.append(block.term.answer(counts.sum(axis=drop)))
    found = np.concatenate(strategy.answers(values))
    np.testing.assert_allclose(found, WORK.evaluate(counts), atol=1e-9)
    np.testing.assert_allclose(found, np.concatenate([strategy.answer(t, values) for t in terms]))


def test_what_is_known_of_all_blocks_at_once_is_what_every_block_says() -> None:
    strategy = built(WORK)
    assert strategy.block_rows == tuple(b.term.rows for b in strategy.blocks)
    assert strategy.block_cells == tuple(b.term.cells for b in strategy.blocks)
    assert strategy.block_bits == tuple(b.term.fraction_bits for b in strategy.blocks)
    assert strategy.shares == tuple(b.share for b in strategy.blocks)
    each = [squared_diameter(b.term) for b in strategy.blocks]
    assert strategy.block_diameters(2) == pytest.approx(each)
    for block, diameter in zip(strategy.blocks, strategy.block_diameters(2), strict=True):
        shape = block.term.shape or (1,)
        m = np.array([block.term.answer(e.reshape(shape)) for e in np.eye(block.term.cells)]).T
        gaps = ((m[:, :, None] - m[:, None, :]) ** 2).sum(axis=0)
        assert gaps.max() <= diameter <= gaps.max() * (1 + 1e-8)
    assert strategy.blocks[-1].term.name == strategy.blocks[len(strategy.blocks) - 1].term.name
    assert [b.term.name for b in strategy.blocks[:2]] == ["total", "~a"]
    with pytest.raises(IndexError):
        strategy.blocks[len(strategy.blocks)]


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_noise_keeps_the_budget(neighbours: sf.Neighbours) -> None:
    strategy = built(WORK)
    noise = calibrate(strategy, 0.5, neighbours)
    assert privacy_loss(strategy, noise, neighbours) <= 0.25
    m, _ = dense(strategy, DOMAIN)
    scales = np.concatenate(
        [
            np.full(rows, share)
            for rows, share in zip(strategy.block_rows, strategy.shares, strict=True)
        ]
    )
    laws = np.concatenate(
        [np.full(rows, n.scale) for rows, n in zip(strategy.block_rows, noise, strict=True)]
    )
    m = m / (scales * laws)[:, None]
    moved = (m**2).sum(axis=0).max()
    if neighbours == "replace-one":
        moved = ((m[:, :, None] - m[:, None, :]) ** 2).sum(axis=0).max()
    assert moved <= 0.25


def test_the_error_is_the_bound_and_the_singular_value_bound_of_the_dense_matrix() -> None:
    strategy = built(WORK)
    assert strategy.bound is not None
    assert strategy.weighted_error() == pytest.approx(strategy.bound, rel=1e-8)
    _, f = dense(strategy, DOMAIN)
    weights = np.concatenate([np.full(t.rows, t.weight) for t in WORK.terms])
    singular = np.linalg.svd(weights[:, None] * f, compute_uv=False)
    assert strategy.bound == pytest.approx(singular.sum() ** 2 / DOMAIN.size)


def greatest(strategy: Strategy, phi: np.ndarray | None = None) -> float:
    """``max w^2 |r|^2 ||M||^2``, by dense matrices; phi scales the blocks."""
    m, f = dense(strategy, DOMAIN)
    if phi is not None:
        m = m * np.repeat(phi, strategy.block_rows)[:, None]
    r = f @ np.linalg.pinv(m, rcond=1e-9)
    weights = np.concatenate([np.full(t.rows, t.weight) for t in strategy.workload.terms])
    squares: np.ndarray = (weights**2) * (r**2).sum(axis=1)
    return float(squares.max() * (m**2).sum(axis=0).max())


def test_the_largest_error_is_certified_and_no_other_shares_have_less() -> None:
    strategy = built(WORK, "max")
    assert strategy.bound is not None
    reached = greatest(strategy)
    assert strategy.bound * (1 - 1e-9) <= reached <= strategy.bound * (1 + 3e-7)
    generator = np.random.default_rng(3)
    for spread in (1e-3, 1e-2, 0.1, 1.0):
        phi = np.exp(spread * generator.standard_normal(len(strategy.blocks)))
        assert greatest(strategy, phi) >= strategy.bound
    assert greatest(built(WORK)) > 1.01 * reached


def test_equal_and_unequal_attributes_of_any_number_meet_their_bounds() -> None:
    for sizes in ([10] * 12, [2, 3, 5, 8, 13, 21, 34], [2] * 9 + [50] * 2):
        domain = sf.Domain({f"x{i}": s for i, s in enumerate(sizes)})
        work = sf.marginals(domain, 3) | 5 * sf.marginals(domain, 1)
        for objective in ("rmse", "max"):
            strategy = built(work, objective)
            unit = [share**-2 for share in strategy.shares]
            totals, largest = strategy.group_variances(unit)
            weights = [t.weight**2 for t in work.terms]
            listed = largest if objective == "max" else totals
            errors = [w * v for w, v in zip(weights, listed, strict=True)]
            error = max(errors) if objective == "max" else sum(errors)
            assert strategy.bound is not None
            assert 1 - 1e-9 <= error / strategy.bound <= 1 + 3e-7


def test_repeated_marginals_are_one_of_more_weight() -> None:
    once = sf.marginals(DOMAIN, [("a", "b"), ("c",)])
    twice = once | sf.marginals(DOMAIN, [("c",)])
    heavier = sf.marginals(DOMAIN, [("a", "b")]) | 2**0.5 * sf.marginals(DOMAIN, [("c",)])
    assert built(twice).shares == pytest.approx(built(heavier).shares)
    assert built(twice, "max").bound == pytest.approx(built(once, "max").bound, rel=1e-6)


def test_totals_by_any_name_are_the_total() -> None:
    named = Product(DOMAIN, "t", 1.0, (("a", Total(4)), ("one", Identity(1))))
    work = Workload(DOMAIN, (named,))
    strategy = built(work)
    assert [b.term.name for b in strategy.blocks] == ["total"]
    assert strategy.answer(0, [np.array([7.0])]).tolist() == [7.0]
    assert strategy.bound == pytest.approx(1.0)


def test_an_attribute_nobody_asks_about_may_have_any_size() -> None:
    domain = sf.Domain({"a": 3, "huge": 10**15})
    strategy = built(sf.marginals(domain, [("a",)]))
    assert strategy.bound == pytest.approx(3.0)


def test_other_queries_and_too_many_sets_are_refused() -> None:
    assert marginals_optimum(sf.prefixes(DOMAIN, "a")) is None
    assert marginal_sets(sf.predicates(DOMAIN, ["a = 1"])) is None
    many = sf.Domain({f"x{i}": 2 for i in range(30)})
    with pytest.raises(TooLarge, match="subsets"):
        marginals_optimum(sf.marginals(many, 30))
    with pytest.raises(TooLarge, match="pieces"):
        marginals_optimum(sf.marginals(many, [many.names[:20]]))


def test_the_digest_names_what_is_measured() -> None:
    assert built(WORK).digest() == built(WORK).digest()
    assert built(WORK).digest() != built(WORK, "max").digest()
    assert built(WORK).digest() != built(sf.marginals(DOMAIN, 2)).digest()
