# SPDX-License-Identifier: Apache-2.0
"""Sparse vectors: less noise never costs less, states survive, outcomes depend on words only."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.planning.sparse_plans import (
    failure_probability,
    sparse_of_epsilon,
    sparse_of_mu_squared,
)
from sfumato.privacy.cost import mu_squared_of
from sfumato.privacy.sparse_vector import NoiseKind, NoiseLaw, SparseLaw
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.sparse import SparseVector
from tests.shared.words import SeededWords

KINDS = st.sampled_from(["laplace", "gaussian", "exponential"])
SCALES = st.fractions(Fraction(1, 2), 50, max_denominator=64)


@st.composite
def laws(draw: st.DrawFn) -> SparseLaw:
    query = NoiseLaw(draw(KINDS), draw(SCALES))
    reach = draw(st.integers(1, 200)) if query.kind == "gaussian" else None
    return SparseLaw(
        NoiseLaw(draw(KINDS), draw(SCALES)),
        query,
        draw(st.integers(1, 5)),
        draw(st.integers(1, 4)),
        draw(st.booleans()),
        reach,
        draw(st.integers(-5, 5)),
    )


def worth(law: SparseLaw) -> Fraction:
    cost = law.cost
    return cost.mu_squared if law.threshold.kind == "gaussian" else cost.pure_epsilon


def changed(law: SparseLaw, **other: object) -> SparseLaw:
    fields = {
        name: getattr(law, name)
        for name in (
            "threshold",
            "query",
            "discoveries",
            "sensitivity",
            "is_monotone",
            "reach",
            "offset",
        )
    }
    return SparseLaw(**{**fields, **other})  # type: ignore[arg-type]


@settings(deadline=None, max_examples=60)
@given(laws())
def test_less_noise_more_discoveries_or_more_movement_never_cost_less(law: SparseLaw) -> None:
    def noisier(noise: NoiseLaw) -> NoiseLaw:
        return NoiseLaw(noise.kind, noise.scale * 2)

    price = worth(law)
    assert price > 0
    assert worth(changed(law, threshold=noisier(law.threshold))) <= price
    assert worth(changed(law, discoveries=law.discoveries + 1)) >= price
    assert worth(changed(law, sensitivity=law.sensitivity + 1)) >= price
    assert worth(changed(law, is_monotone=True)) <= price
    if law.reach is None:
        assert worth(changed(law, query=noisier(law.query))) <= price
    else:  # a longer reach has a steeper tail; twice of both is twice the scale
        assert worth(changed(law, reach=law.reach + 1)) >= price


@settings(deadline=None, max_examples=60)
@given(
    st.fractions(Fraction(1, 1000), 4, max_denominator=10**6),
    st.integers(1, 40),
    st.booleans(),
    KINDS,
    KINDS,
)
def test_a_calibrated_law_never_costs_more_than_was_given(
    amount: Fraction, discoveries: int, is_monotone: bool, threshold: NoiseKind, query: NoiseKind
) -> None:
    steps = 2**10  # a fine grid, so that every scale can be drawn
    pure = sparse_of_epsilon(amount, discoveries, steps, is_monotone=is_monotone, query=query)
    assert pure.cost.pure_epsilon <= amount
    assert not pure.cost.mu_squared
    other = sparse_of_mu_squared(
        amount, discoveries, steps, is_monotone=is_monotone, threshold=threshold, query=query
    )
    assert mu_squared_of(other.cost) <= amount


@settings(deadline=None, max_examples=60)
@given(laws(), st.integers(0, 2**32), st.lists(st.integers(-60, 60), max_size=12), st.data())
def test_a_state_taken_anywhere_goes_on_as_if_nothing_had_happened(
    law: SparseLaw, seed: int, scores: list[int], data: st.DataObject
) -> None:
    whole = SparseVector(law, SeededWords(seed))
    expected = whole.test_many(Sensitive(scores), [0] * len(scores))
    cut = data.draw(st.integers(0, len(expected)))
    words = SeededWords(seed)
    parted = SparseVector(law, words)
    said = [parted.test(Sensitive(q), 0) for q in scores[:cut]]
    again = SparseVector.restored(law, parted.state(), words)
    said += [again.test(Sensitive(q), 0) for q in scores[cut : len(expected)]]
    assert said == expected
    assert again.state() == whole.state()


@settings(deadline=None, max_examples=40)
@given(laws(), st.integers(0, 2**32), st.integers(-(10**20), 10**20))
def test_moving_score_and_threshold_together_changes_nothing(
    law: SparseLaw, seed: int, shift: int
) -> None:
    scores = [3, -2, 8, 0]
    one = SparseVector(law, SeededWords(seed)).test_many(Sensitive(scores), [1, 2, 3, 4])
    moved = Sensitive([q + shift for q in scores])
    other = SparseVector(law, SeededWords(seed)).test_many(moved, [t + shift for t in (1, 2, 3, 4)])
    assert one == other


@settings(deadline=None, max_examples=40)
@given(laws(), st.integers(1, 50), st.integers(0, 80))
def test_failures_are_rarer_with_more_tolerance_and_fewer_queries(
    law: SparseLaw, queries: int, alpha: int
) -> None:
    here = failure_probability(law, queries, alpha)
    assert failure_probability(law, queries, alpha + 1) <= here + 1e-12
    assert failure_probability(law, queries + 1, alpha) >= here - 1e-12
    assert 0 <= here <= 1
