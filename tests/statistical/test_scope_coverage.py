# SPDX-License-Identifier: Apache-2.0
"""Intervals of sessions with a scope, for analysts who choose questions by the answers they saw.

The proof page (docs/proofs/online.md, Theorem 7) says what holds: intervals of questions that do
not depend on the noise, and ``safe_low`` to ``safe_high`` for any. Here an analyst drills down into
what looks largest, which hardly depends on the noise; one chases the noise itself; and one chases
it where it encloses answers that leave the scope (Theorem 11).
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import sfumato as sf
from sfumato.run.spine import Access
from tests.shared.words import SeededWords

DOMAIN = sf.Domain({"a": 12, "b": 4, "c": 3})
_DRAW = np.random.default_rng(5)
PEOPLE = pd.DataFrame(
    {
        "a": _DRAW.binomial(11, 0.3, 3000),
        "b": _DRAW.choice(4, 3000, p=[0.5, 0.3, 0.15, 0.05]),
        "c": _DRAW.integers(0, 2, 3000),  # nobody has 2
    }
)
Hits = list[tuple[bool, bool]]  # whether the interval holds the truth; whether the safe one does


def _count(**values: object) -> str:
    parts = [f"{n} IN ({', '.join(map(str, v))})" for n, v in values.items()]  # type: ignore[call-overload]
    return "SELECT COUNT(*) FROM t WHERE " + " AND ".join(parts)


def _ask(session: sf.Session, hits: Hits, **values: object) -> float:
    answer = session.ask(_count(**values))
    mask = np.logical_and.reduce([PEOPLE[n].isin(v) for n, v in values.items()])  # type: ignore[call-overload]
    truth = int(mask.sum())
    is_held = answer.low <= truth <= answer.high
    hits.append((is_held, answer.safe_low <= truth <= answer.safe_high))
    return float(answer.value)


def _drills_down(session: sf.Session) -> Hits:
    """Half of the ages after half, each time the one that looks larger; then the largest group."""
    hits: Hits = []
    ages = list(range(12))
    while len(ages) > 1:
        halves = (ages[: len(ages) // 2], ages[len(ages) // 2 :])
        ages = max(halves, key=lambda half: _ask(session, hits, a=half))
    groups = range(4)
    best = max(groups, key=lambda b: _ask(session, hits, a=ages, b=[b]))
    for c in range(2):
        _ask(session, hits, a=ages, b=[best], c=[c])
    return hits


def _chases(session: sf.Session) -> Hits:
    """All ages above 0 in a group that is known to be empty: noise and nothing else."""
    unseen: Hits = []
    ages = [a for a in range(12) if _ask(session, unseen, a=[a], b=[0], c=[2]) > 0]
    hits: Hits = []
    _ask(session, hits, a=ages or [0], b=[0], c=[2])
    return hits


def _leaves(session: sf.Session) -> Hits:
    """Questions on three attributes where the scope has two; and ends without any margin.

    Nobody has c = 2, so the bounds of half of these questions are their answers.
    """
    hits: Hits = []
    for a, b, c in product(([0, 1, 2], [3, 4], range(4, 12)), ([0], [1, 2]), ([0], [0, 1])):
        text = _count(a=a, b=b, c=c)
        answer = session.untested(text)
        truth = int((PEOPLE["a"].isin(a) & PEOPLE["b"].isin(b) & PEOPLE["c"].isin(c)).sum())
        around = session._state._knowledge.enclosure(session.read_all(text)[0])
        assert around is not None
        low, high = around.ends(0.0)  # every number with its middle, as if it were exact
        hits.append((answer.low <= truth <= answer.high, low <= truth <= high))
    return hits


LONG = sf.Domain({"a": 100, "b": 4, "c": 3})
CROWD = pd.DataFrame(
    {
        "a": _DRAW.integers(0, 100, 6000),
        "b": _DRAW.integers(0, 3, 6000),  # nobody has 3
        "c": _DRAW.integers(0, 3, 6000),
    }
)


def _chases_what_encloses(session: sf.Session) -> Hits:
    """One more condition, which all records meet, on just those cells that came out too low.

    What is known of the cells is then a bound that is too low, far more than its error: whoever
    knows the truth by other ways finds such a question, and a test that has it for free.
    """
    exact = CROWD[CROWD["c"] == 0]["a"].value_counts()
    low = [
        a for a in range(100) if session.ask(_count(a=[a], c=[0])).value < float(exact.get(a, 0))
    ]
    while (answer := session.ask(_count(a=low, b=[0, 1, 2], c=[0]))).how != "free":
        low = low[1:]  # a false alarm, or nearly one
    truth = float(exact.loc[[a for a in low if a in exact.index]].sum())
    held, safe = ((answer.low, answer.high), (answer.safe_low, answer.safe_high))
    promise = session._state.stored(answer.key)
    assert promise is not None
    assert safe[1] - safe[0] < promise.high - promise.low
    return [(held[0] <= truth <= held[1], safe[0] <= truth <= safe[1])]


@pytest.fixture(
    scope="module", params=[40, pytest.param(200, marks=pytest.mark.slow)], ids=["few", "many"]
)
def held(request: pytest.FixtureRequest) -> dict[str, np.ndarray]:
    """For each analyst, whether intervals held: session, question, which interval."""
    out: dict[str, list[Hits]] = {"drills": [], "chases": [], "leaves": [], "enclosed": []}
    pairs = sf.plan_session(DOMAIN, sf.Budget(mu=1), scope=2, records=3000, questions=50, updates=4)
    plan = sf.plan_session(DOMAIN, sf.Budget(mu=1), scope=3, records=3000, questions=50, updates=4)
    crowd = sf.plan_session(LONG, sf.Budget(mu=1), scope=2, records=6000, questions=50, updates=300)
    for seed in range(request.param):
        with crowd.begin(Access(CROWD), SeededWords(f"crowd {seed}"), None) as session:
            out["enclosed"].append(_chases_what_encloses(session))
        words = SeededWords(f"scope {seed}")
        with plan.begin(Access(PEOPLE), words, None) as session:
            out["drills"].append(_drills_down(session))
            out["chases"].append(_chases(session))
        with pairs.begin(Access(PEOPLE), SeededWords(f"pairs {seed}"), None) as session:
            out["leaves"].append(_leaves(session))
    least = min(map(len, out["drills"]))  # halves of three ages are two questions or four
    return {name: np.array([one[-least:] for one in hits]) for name, hits in out.items()}


def test_an_analyst_who_chases_what_encloses_finds_narrow_intervals_that_miss(
    held: dict[str, np.ndarray],
) -> None:
    """The twin: the narrow interval of a free answer is not for such a question."""
    assert held["enclosed"][..., 0].mean() < 0.5


def test_intervals_hold_for_an_analyst_who_follows_what_looks_largest(
    held: dict[str, np.ndarray],
) -> None:
    share = held["drills"][..., 0].mean()
    assert 0.93 <= share <= 0.97 if len(held["drills"]) > 100 else share >= 0.9


def test_an_analyst_who_chases_the_noise_finds_intervals_that_miss(
    held: dict[str, np.ndarray],
) -> None:
    """The twin, and the reason for a second interval: the first is not for chosen noise."""
    assert held["chases"][..., 0].mean() < 0.8


def test_safe_intervals_hold_for_all_of_them(held: dict[str, np.ndarray]) -> None:
    """All of a session together with chance 0.95; more misses come in 1 of 10,000 tests."""
    for hits in (held["drills"], held["chases"], held["enclosed"]):
        is_missed = ~hits[..., 1].all(axis=1)
        assert is_missed.sum() <= binom.ppf(1 - 1e-4, len(hits), 0.05)


def test_intervals_hold_for_questions_that_leave_the_scope(held: dict[str, np.ndarray]) -> None:
    """They rest on bounds (Theorem 11), so more of them hold than are promised."""
    assert held["leaves"][..., 0].mean() >= 0.95


def test_bounds_without_a_margin_for_noise_miss(held: dict[str, np.ndarray]) -> None:
    """The twin: noisy ends as if they were exact."""
    assert held["leaves"][..., 1].mean() < 0.95
