# SPDX-License-Identifier: Apache-2.0
"""The audit itself: known-wrong mechanisms are caught, sound ones stand, and neither by luck.

Words are repeatable here. By calculation a sound mechanism is refuted with probability at most
``SURE`` = 1e-9 per audit whatever the words, and the chance of missing a wrong one is computed
below from what its events showed.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from sfumato.domain.domain import Domain
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.privacy.budget import Budget
from sfumato.workload.build import marginals
from sfumato_audit import registry
from sfumato_audit.audit_limits import LIMITS
from sfumato_audit.broken import ONE, broken_subjects
from sfumato_audit.examine import (
    FAST,
    FULL,
    SHOWN,
    SURE,
    Effort,
    chance_of_missing,
    examine,
    hit_bounds,
)
from sfumato_audit.subjects.measured import Measuring, length_subject, measured_subject
from sfumato_audit.subjects.textbook import local_subjects
from tests.shared.words import SeededWords

BROKEN = {s.name: s for s in broken_subjects()}
BY_INTEGRALS = {"ledger: the better of two filters after the fact"}
SMALL = Effort(search=3000, test=10_000, pairs=1)
# Most fall after a fifth of the runs of the fast mode; mistakes that show little need all of them.
QUICK = Effort(search=6000, test=60_000, pairs=2)
SUBTLE = (
    *("sparse vector 3", "sigma 10% low", "ledger: the better of two", "ledger: Gaussian noise at"),
    "Laplace noise by the",
)
SLOW = {name for name, subject in BROKEN.items() if subject.slowness >= 100}


@pytest.mark.parametrize("name", sorted(SLOW))
def test_what_is_wrong_and_slow_is_caught(name):
    """With few runs, by luck perhaps; with those of the fast mode below it is no luck."""
    assert examine(BROKEN[name], SeededWords(f"broken {name}"), QUICK).is_refuted


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in BROKEN],
)
def test_what_is_known_to_be_wrong_is_caught(name):
    needs_all = BROKEN[name].slowness > 1 or name.startswith(SUBTLE)
    found = examine(BROKEN[name], SeededWords(f"broken {name}"), FAST if needs_all else QUICK)
    assert found.is_broken
    assert found.is_refuted, found
    if name in BY_INTEGRALS:
        return
    # The probabilities of its event, as bad as they may be but for one chance in 10^6: with other
    # words it would be caught as well.
    p, q = hit_bounds(*np.array(found.hits, dtype=float)[:, None], found.runs, 1e-6)
    missed = chance_of_missing(found.claim, p[0], q[0], found.runs, SURE / LIMITS.tested_events)
    assert missed < 1e-6, (found, missed)


def told_more_than(least: float, count: int) -> float:
    """The probability that all that the better of two filters tells is a loss above ``least``."""
    from math import exp, sqrt

    from scipy.stats import norm

    from sfumato.ledger.account import Account
    from sfumato.privacy.cost import Cost
    from sfumato_audit.subjects.online import FIRST, LANES, UNLUCKY

    square = Fraction(FIRST.gaussian_mu) ** 2
    pure = float(Account(LANES).plus(Cost.gaussian(square)).remaining().pure_epsilon)
    rest = Account(LANES.promise).plus(Cost.gaussian(square)).remaining().gaussian_mu
    first = norm(float(square) * (count - 0.5), sqrt(float(square)))
    at = np.linspace(first.mean() - 12, first.mean() + 12, 200_001)
    right = 1 / (1 + exp(-pure))
    likely = right if count else 1 - right  # of the bit that speaks for the record
    by_bit = likely * (at + pure > least) + (1 - likely) * (at - pure > least)
    by_noise = norm(rest**2 * (count - 0.5), rest).sf(least - at)
    density = first.pdf(at) * np.where(at > UNLUCKY, by_bit, by_noise)
    return float(density.sum() * (at[1] - at[0]))


def test_the_better_of_two_filters_is_missed_with_a_chance_below_one_in_a_million():
    """From the probabilities of its event: the loss of everything that was told is above 3.2."""
    claim = BROKEN["ledger: the better of two filters after the fact"].claim
    p, q = told_more_than(3.2, 1), told_more_than(3.2, 0)
    assert p == pytest.approx(0.513, abs=2e-3)
    assert chance_of_missing(claim, p, q, FAST.test, SURE / LIMITS.tested_events) < 1e-6


def third(low: int, high: int) -> float:
    """The probability of the event of sparse vector 3, integrated over its threshold."""
    from scipy.stats import laplace

    from sfumato_audit.broken import LAST, LOW

    law = laplace(scale=2)
    at = np.linspace(-60, 60, 240_001)
    inside = np.clip(law.cdf(LOW - high) - law.cdf(at - high), 0, None)
    return float((law.pdf(at) * law.cdf(at - low) ** LAST * inside).sum() * (at[1] - at[0]))


def test_sparse_vector_3_is_missed_with_a_chance_below_one_in_a_million():
    """From the probabilities of its event, which is tested in every audit: no luck is needed."""
    from scipy.stats import binom

    p, q = third(0, 1), third(1, 0)
    assert p == pytest.approx(0.0137, abs=1e-4)
    assert q == pytest.approx(0.0020, abs=1e-4)
    assert chance_of_missing(ONE, p, q, FAST.test, SURE / LIMITS.tested_events) < 1e-12
    # The search must find it likelier on the left, or else it tests "anything happens": over all
    # hits in the half of the runs that cuts are chosen on.
    half = FAST.search // 2
    a, b = np.meshgrid(np.arange(300.0), np.arange(150.0), indexing="ij")
    low, high = hit_bounds(a, b, half, LIMITS.caution_without_choice)
    hits = np.floor(low * FAST.test), np.ceil(high * FAST.test)
    is_lost = ONE.minimum_loss(*hit_bounds(*hits, FAST.test, SHOWN / LIMITS.tested_events)) <= 0
    mass = binom.pmf(a, half, p) * binom.pmf(b, half, q)
    assert mass.sum() > 1 - 1e-12
    assert mass[is_lost].sum() < 1e-7


def test_sparse_vector_3_is_caught_with_any_words():
    name = next(n for n in BROKEN if n.startswith("sparse vector 3"))
    for seed in range(4):
        assert examine(BROKEN[name], SeededWords(f"third {seed}"), FAST).is_refuted


def test_a_session_begun_anew_is_missed_with_a_chance_below_one_in_a_million():
    """From the spread of the score that is known beforehand, of which a record moves the mean."""
    from scipy.stats import norm

    broken = BROKEN["session: begun anew by restarts"]
    pair = broken.pairs[0]
    outputs = broken.sampler(pair.left)(120, SeededWords("spread"))
    mu = outputs[0, 1::2].sum() / broken.hint(pair)(outputs).std()
    p, q = norm.cdf(mu / 2), norm.sf(mu / 2)
    runs = max(FAST.test // broken.slowness, LIMITS.runs_minimum)
    assert chance_of_missing(broken.claim, p, q, runs, SURE / LIMITS.tested_events) < 1e-6


def test_the_list_of_wrong_mechanisms_holds_what_it_must():
    wanted = [
        "sparse vector 3",
        "sparse vector 4",
        "sparse vector 5",
        "sparse vector 6",
        "float Laplace",
        "halved sensitivity",
        "K-norm noise of half the size",
        "reused noise",
        "sigma 10% low",
        "data-dependent domain",
        "post-selection",
        "one request in two writings",
        "privacy unit: the bound is not applied",
        "privacy unit: the first rows",
        "privacy unit with groups: rows alone",
        "features of persons: the table is as long",
        "sparse vector, Gaussian queries: one draw for all",
        "mwem: noise in the wrong unit",
        "session: the same words in every draw",
        "session: noise in the wrong unit",
        "session: purchases forgotten",
        "session: begun anew by restarts",
        "watch: a killed test is done again",
        "ledger: the better of two filters after the fact",
        "values: not clamped",
        "values: sum beside count",
        "second moments: square of half the range",
    ]
    assert all(any(name.startswith(w) for name in BROKEN) for w in wanted)


def test_the_likelihood_of_a_noisy_length_proves_most_of_the_claim():
    sound = length_subject()
    found = examine(sound, SeededWords("length"), FAST)
    assert not found.is_refuted
    assert found.bound > 0.5 * found.claim.amount
    blind = examine(replace(sound, hint=None), SeededWords("length"), FAST)
    assert blind.bound < 0.3 * found.claim.amount  # the twin: what is learnt in so few runs


def test_float_noise_is_invisible_without_the_low_bits(monkeypatch):
    """The reason for that event: all others see nothing wrong."""
    from sfumato_audit import examine as module
    from sfumato_audit.examine import learn_scores

    def without(left, right):
        return {n: s for n, s in learn_scores(left, right).items() if n != "low bits"}

    monkeypatch.setattr(module, "learn_scores", without)
    name = next(n for n in BROKEN if n.startswith("float Laplace"))
    found = examine(BROKEN[name], SeededWords("blind"), FAST)
    assert not found.is_refuted
    assert found.bound < 1


def test_every_sound_mechanism_stands():
    """Those that run in milliseconds are left to `make audit`."""
    quick = [s for s in registry.sound_subjects() if s.slowness < 100]
    found = registry.audit(quick, SMALL, SeededWords("sound"))
    assert [f.name for f in found if not f.is_as_expected] == []
    # Nor is the audit asleep: on average it proves a good part of what is claimed.
    shares = [f.bound / f.claim.amount for f in found]
    assert sum(shares) / len(shares) > 0.4


def test_the_audit_is_not_blind_in_the_fast_mode():
    for subject in local_subjects():
        found = examine(subject, SeededWords("response"), FAST)
        assert found.bound > 0.9 * found.claim.amount
        assert not found.is_refuted
    table = MECHANISMS["laplace-table"].build(marginals(Domain({"cell": 4}), 1), "laplace", "rmse")
    found = examine(measured_subject("table", table, Budget(epsilon=1)), SeededWords("table"), FAST)
    assert found.bound > 0.9 * found.claim.amount
    assert not found.is_refuted


def test_gaussian_curves_stay_below_the_claim_and_near_it():
    table = MECHANISMS["gaussian"].build(marginals(Domain({"cell": 4}), 1), "gaussian", "rmse")
    found = examine(measured_subject("cells", table, Budget(mu=1)), SeededWords("curve"), FAST)
    assert all(p.bound <= 1.02 * p.claimed for p in found.curve)
    assert all(p.bound > 0.7 * p.claimed for p in found.curve if p.epsilon <= 1)
    low = next(s for n, s in BROKEN.items() if n.startswith("sigma"))
    wrong = examine(low, SeededWords("low"), FAST)
    assert any(p.bound > 1.02 * p.claimed for p in wrong.curve)


def test_the_measured_runs_are_those_of_the_vault_one_by_one():
    """Many runs at once are the same numbers as single measurements with the same words."""
    table = MECHANISMS["laplace-tree"].build(
        marginals(Domain({"cell": 4}), 1) | _prefixes(), "laplace", "rmse"
    )
    subject = measured_subject("tree", table, Budget(epsilon=1))
    run = subject.sampler.__self__
    assert isinstance(run, Measuring)
    exact = run.exact(((0,), (3,)))
    many = run.measured(exact, 1, SeededWords("one"))
    again = run.measured(exact, 1, SeededWords("one"))
    assert many.tolist()[0][:-1] == again.tolist()[0][:-1]
    assert run.measured(exact, 50, SeededWords("one")).shape == (50, many.shape[1])


def _prefixes():
    from sfumato.workload.build import prefixes

    return prefixes(Domain({"cell": 4}), "cell")


@pytest.mark.slow
def test_the_full_audit_on_real_randomness():
    found = registry.audit(registry.subjects(), FULL)
    assert [f.name for f in found if not f.is_as_expected] == []
    named = {f.name: f.bound / f.claim.amount for f in found}
    for name, share in named.items():
        if name.startswith(("laplace-table", "randomized response")):
            assert share >= 0.9, (name, share)
