# SPDX-License-Identifier: Apache-2.0
"""The events of sparse vectors, fixed beforehand: their probabilities, and what they prove.

Probabilities are sums over the noise of the threshold, from the claimed laws alone; the audit runs
the code. So what an audit of the fast mode proves is known before it runs, and these tests fail if
somebody changes laws or pairs so that it would see less.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sfumato.privacy.sparse_vector import NoiseLaw, SparseLaw
from sfumato_audit.audit_limits import LIMITS
from sfumato_audit.broken import broken_subjects
from sfumato_audit.examine import FAST, SHOWN, SURE, Claim, chance_of_missing, hit_bounds
from sfumato_audit.subjects.sparse import STEPS, Worst, sparse_laws, vector_subject
from tests.shared.words import SeededWords

LAWS = sparse_laws()


def tail(law: NoiseLaw, at: np.ndarray) -> np.ndarray:
    """P(noise >= at), for integers."""
    from scipy.stats import norm

    if law.kind == "gaussian":
        return norm.sf((at - 0.5) / float(law.scale))
    q = np.exp(-1 / float(law.scale))
    return np.where(at >= 1, q ** np.maximum(at, 1), 1 + q - q ** np.maximum(1 - at, 0)) / (1 + q)


def probability(law: SparseLaw, worst: Worst, low: int, high: int) -> float:
    """Nothing is found among the early scores, and all discoveries are made late."""
    from scipy.stats import binom

    reach = int(14 * law.threshold.scale)
    z = np.arange(-reach, reach + 1)
    mass = tail(law.threshold, z) - tail(law.threshold, z + 1)
    most = np.inf if law.reach is None else law.reach
    early, late = (tail(law.query, np.minimum(z - STEPS * s, most)) for s in (low, high))
    hits = (1 - early) ** worst.early * binom.sf(law.discoveries - 1, worst.late, late)
    return float((mass * hits).sum())


def probabilities(name: str) -> tuple[float, float]:
    law, worst = LAWS[name]
    left = probability(law, worst, worst.low, worst.high + worst.moves_late)
    return left, probability(law, worst, worst.low + 1, worst.high)


@pytest.mark.parametrize("name", LAWS)
def test_what_the_fast_mode_proves_is_known_beforehand(name):
    law, worst = LAWS[name]
    claim, p, q = Claim.of(law.cost), *probabilities(name)
    runs = FAST.test // vector_subject(name, law, worst).slowness
    hits = np.floor([runs * p]), np.ceil([runs * q])
    proved = claim.minimum_loss(*hit_bounds(*hits, runs, SHOWN / LIMITS.tested_events))[0]
    assert proved > 0.29 * claim.amount
    assert claim.minimum_loss(np.array([p]), np.array([q]))[0] <= claim.amount


def counted(name: str, law: SparseLaw, runs: int) -> list[int]:
    """How often the event happened on either side, with this law."""
    subject = vector_subject(name, law, LAWS[name][1])
    pair = subject.pairs[0]
    score, words = subject.hint(pair), SeededWords(f"hits {name}")
    return [int(score(subject.sampler(t)(runs, words)).sum()) for t in (pair.left, pair.right)]


def agrees(name: str, law: SparseLaw, runs: int = 4000) -> bool:
    """Whether the hits are likely for the claimed law, but for one chance in 10^9 per side."""
    from scipy.stats import binom

    both = zip(counted(name, law, runs), probabilities(name), strict=True)
    return all(binom.ppf(5e-10, runs, p) <= hits <= binom.isf(5e-10, runs, p) for hits, p in both)


@pytest.mark.parametrize("name", LAWS)
def test_the_event_happens_as_often_as_the_law_says(name):
    assert agrees(name, LAWS[name][0])


@pytest.mark.parametrize("name", LAWS)
def test_noise_of_half_the_scale_is_noticed(name):
    law = LAWS[name][0]
    halved = replace(law, query=replace(law.query, scale=law.query.scale / 2))
    assert not agrees(name, halved)


def test_one_draw_for_all_queries_is_missed_with_a_chance_below_one_in_a_million():
    """Two scores that differ by 1 come out in the wrong order never, in the right one at times."""
    subject = next(s for s in broken_subjects() if s.name.endswith("one draw for all"))
    left, right = (subject.sampler(t)(20_000, SeededWords("one")) for t in ((0, 1), (1, 0)))
    p, q = (float(((o[:, 0] == 0) & (o[:, 1] == 1)).mean()) for o in (left, right))
    assert q == 0
    assert p > 0.025
    assert (
        chance_of_missing(subject.claim, 0.02, 0.0, FAST.test, SURE / LIMITS.tested_events) < 1e-6
    )
