# SPDX-License-Identifier: Apache-2.0
"""Keys that are published: the law on made-up numbers of people, and a discovery as it is run.

Deltas are large, so that what a new key gives away is seen in some thousand runs. A table is the
number of people of each key, 0 for a key that is not there; outputs are the published numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from sfumato.domain.attributes import Category
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.privacy.budget import Budget
from sfumato.privacy.discovery_laws import KeyLaw, OptimalKeys, gaussian_keys
from sfumato.random import WordSource
from sfumato.run.discover import DiscoveryPlan, DiscoveryRun, drawn, plan_discovery
from sfumato.types import Array, Integers
from sfumato.vault.mechanisms.searches import published_numbers
from sfumato.vault.tables import open_table
from sfumato_audit.bounds import Claim
from sfumato_audit.examine import Pair, Sampler, Score, Subject

__all__ = [
    "KEY_LAW",
    "People",
    "Publishing",
    "key_subject",
    "key_subjects",
]


People = tuple[int, ...]
Publishing = Callable[[Integers, KeyLaw, WordSource], tuple[Integers, Integers]]

KEY_LAW = OptimalKeys(Fraction(1), Fraction(1, 50), 1)
SLOW = 1000
ROWS = 3  # keys of one person, at most
KEYS = "sfumato.vault.mechanisms.searches"

_ONE = (
    Pair("a key of one person, or no such key", (1, 3), (0, 3)),
    Pair("a key near the threshold", (4, 0), (3, 0)),
    Pair("a key above the threshold", (9, 2), (8, 2)),
)
_SEVERAL = (
    Pair("three keys of one person, or no such keys", (1, 1, 1), (0, 0, 0)),
    Pair("three keys near the threshold", (9, 9, 9), (8, 8, 8)),
    Pair("a new key, and two that grow", (1, 20, 9), (0, 19, 8)),
)


def key_subjects() -> tuple[Subject[People], ...]:
    """Both laws, with one key a person and with several, and a discovery from end to end."""
    several = OptimalKeys(Fraction(1, 2), Fraction(1, 100), ROWS)
    gaussian = gaussian_keys(Fraction(1), Fraction(1, 50), ROWS, ROWS)
    return (
        key_subject("keys: optimal", KEY_LAW),
        key_subject("keys: optimal, several of a person", several, _SEVERAL),
        key_subject("keys: gaussian, several of a person", gaussian, _SEVERAL),
        _discovery("keys: a discovery of people", PrivacyUnit("who", 1)),
    )


def key_subject(
    name: str,
    law: KeyLaw,
    pairs: tuple[Pair[People], ...] = _ONE,
    publishing: Publishing = published_numbers,
    *,
    is_broken: bool = False,
) -> Subject[People]:
    """Keys with these numbers of people, all runs at once."""

    def sampler(people: People) -> Sampler:
        every = np.array(people, dtype=np.int64)
        (there,) = np.nonzero(every)
        numbers = every[there]

        def run(runs: int, source: WordSource) -> Array:
            out = np.full((runs, len(people)), np.nan)
            places, noisy = publishing(np.tile(numbers, runs), law, source)
            out[places // there.size, there[places % there.size]] = noisy
            return out

        def nothing(runs: int, source: WordSource) -> Array:
            del source
            return np.full((runs, len(people)), np.nan)

        return run if there.size else nothing

    covers = frozenset({f"{KEYS}.published_numbers", "cost:ApproximatePart"})
    return Subject(
        name, Claim.of(law.cost), pairs, sampler, covers, hint=_new_keys, is_broken=is_broken
    )


def _new_keys(pair: Pair[People]) -> Score:
    """How many keys are published that only one of the two tables has."""
    new = [i for i, (a, b) in enumerate(zip(pair.left, pair.right, strict=True)) if a and not b]
    return lambda outputs: np.sum(~np.isnan(outputs[:, new]), axis=1).astype(np.float64)


def _discovery(name: str, unit: PrivacyUnit) -> Subject[People]:
    """A whole discovery of two words, from the rows of a table on."""
    plan = plan_discovery(Category.discover("word"), Budget(1, "0.05"), unit=unit)
    covers = {f"{KEYS}.ExactKeys.published", "sfumato.run.discover.drawn"}
    return Subject(
        name,
        Claim.of(plan.cost),
        _ONE[:1],
        lambda people: _discovering(plan, people),
        frozenset(covers),
        hint=_new_keys,
        slowness=SLOW,
    )


def _discovering(plan: DiscoveryPlan, people: People) -> Sampler:
    import pandas as pd

    words = [f"w{i}" for i, number in enumerate(people) for _ in range(number)]
    rows = pd.DataFrame({"word": pd.array(words, dtype="string"), "who": range(len(words))})
    exact = DiscoveryRun(plan).count(open_table(rows), None)

    def run(runs: int, source: WordSource) -> Array:
        out = np.full((runs, len(people)), np.nan)
        for i in range(runs):
            (findings,) = json.loads(drawn(plan, exact, source))["findings"]
            for (key,), number in zip(findings["keys"], findings["numbers"], strict=True):
                out[i, int(key[1:])] = number
        return out

    return run
