# SPDX-License-Identifier: Apache-2.0
"""Intervals of answers that were bought step by step, for analysts of five kinds.

The proof page (docs/proofs/online.md, Theorem 9) says what holds: intervals where neither the
question nor the errors that were asked for depend on the noise, and ``safe_low`` to ``safe_high``
for any. One analyst has a list; one drills down and pays where it looks large; one goes on paying
until an answer contradicts what he has, and keeps that. Two more ask for sums of what they bought
(Theorem 10): a list of them, and just those of answers that came out too high.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import sfumato as sf
from sfumato.run.spine import Access
from sfumato.session import purchases
from sfumato.session.purchases import combined
from sfumato.session.scope import KnownNumber
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
Hits = list[tuple[bool, bool]]
SESSIONS = [60, pytest.param(200, marks=pytest.mark.slow)]


def _ask(session: sf.Session, error: float, hits: Hits, **values: int) -> sf.Answer:
    parts = " AND ".join(f"{n} = {v}" for n, v in values.items())
    answer = session.ask(f"SELECT COUNT(*) FROM t WHERE {parts}", error=error)
    truth = int(np.logical_and.reduce([PEOPLE[n] == v for n, v in values.items()]).sum())
    is_safe = answer.safe_low is None or answer.safe_low <= truth <= answer.safe_high
    hits.append((answer.low <= truth <= answer.high, is_safe))
    return answer


def _from_a_list(session: sf.Session) -> Hits:
    hits: Hits = []
    for error in (40, 25, 15):
        for a in range(3):
            _ask(session, error, hits, a=a, b=0, c=0)
    return hits


def _drills_down(session: sf.Session) -> Hits:
    hits: Hits = []
    best = max(range(6), key=lambda a: _ask(session, 40, hits, a=a).value)
    group = max(range(4), key=lambda b: _ask(session, 30, hits, a=best, b=b).value)
    for c in range(2):
        _ask(session, 20, hits, a=best, b=group, c=c)
    return hits


def _until_it_looks_wrong(session: sf.Session) -> Hits:
    """Cells that somebody has a number for (the true one); he pays until the two contradict.

    What he keeps, as an answer and as a safe one; the safe ones of all steps count.
    """
    out: Hits = []
    for a in range(6):
        hits: Hits = []
        for error in (100, 60, 36, 22, 13, 8):
            _ask(session, error, hits, a=a, b=0, c=0)
            if not hits[-1][0]:
                break
        out += [(hits[-1][0], is_safe) for _, is_safe in hits]
        out += [(hits[-1][0], True)] * (6 - len(hits))
    return out


def _adds_up(session: sf.Session) -> Hits:
    """Sums of what was bought, and parts of a sum that was: they follow, and share their noise."""
    bought: Hits = []
    hits: Hits = []
    for a in range(4):
        _ask(session, 15 + 5 * a, bought, a=a, b=0, c=0)
    for cells in ((0, 1), (1, 2, 3), (0, 1, 2, 3), (0, 3)):
        _sum(session, hits, cells)
    _sum(session, bought, (0, 1, 2, 3), error=8)
    for cells in ((0,), (3,), (0, 1, 2)):
        _sum(session, hits, cells)
    return hits


def _chases_noise(session: sf.Session) -> Hits:
    """Adds up just those of the answers that he bought which came out above the truth."""
    hits: Hits = []
    high = []
    for a in range(10):
        answer = _ask(session, 20, hits, a=a, b=0, c=0)
        truth = int(((PEOPLE["a"] == a) & (PEOPLE["b"] == 0) & (PEOPLE["c"] == 0)).sum())
        if answer.value > truth:
            high.append(a)
    _sum(session, hits, tuple(high) or (0,))
    return hits[-1:]


def _sum(
    session: sf.Session, hits: Hits, cells: tuple[int, ...], error: float | None = None
) -> None:
    inside = ", ".join(map(str, cells))
    text = f"SELECT COUNT(*) FROM t WHERE a IN ({inside}) AND b = 0 AND c = 0"
    answer = session.ask(text, error=error)
    assert answer.how == ("known" if error is None else "paid")
    truth = int((PEOPLE["a"].isin(cells) & (PEOPLE["b"] == 0) & (PEOPLE["c"] == 0)).sum())
    is_safe = answer.safe_low is None or answer.safe_low <= truth <= answer.safe_high
    hits.append((answer.low <= truth <= answer.high, is_safe))


def _sessions(runs: int, analyst: object, budget: sf.Budget, **more: object) -> np.ndarray:
    chosen = {"records": 3000, "questions": 50, "updates": 4} | more
    plan = sf.plan_session(DOMAIN, budget, **chosen)  # type: ignore[arg-type]
    out = []
    for seed in range(runs):
        with plan.begin(Access(PEOPLE), SeededWords(f"bought {seed}"), None) as session:
            out.append(analyst(session))  # type: ignore[operator]
    return np.array(out)


def _is_near(hits: np.ndarray) -> bool:
    """Whether 95% hold, up to chance: answers of one session share noise, so sessions count."""
    shares = hits.mean(axis=1)
    far = abs(shares.mean() - 0.95) / (shares.std() / np.sqrt(len(shares)))
    return bool(far < 4)


@pytest.mark.parametrize("runs", SESSIONS)
@pytest.mark.parametrize(
    ("budget", "scope"),
    [(sf.Budget(mu=1), None), (sf.Budget(mu=1), 3), (sf.Budget(epsilon=4), None)],
    ids=["gaussian", "scope", "pure"],
)
def test_intervals_of_questions_from_a_list_hold(
    budget: sf.Budget, scope: int | None, runs: int
) -> None:
    more = {} if scope is None else {"scope": scope, "scope_share": 0.3}
    hits = _sessions(runs, _from_a_list, budget, **more)
    assert _is_near(hits[..., 0])
    if runs > 100:
        assert 0.93 <= hits[..., 0].mean() <= 0.97


@pytest.mark.parametrize("runs", SESSIONS)
def test_intervals_hold_for_an_analyst_who_follows_what_looks_largest(runs: int) -> None:
    hits = _sessions(runs, _drills_down, sf.Budget(mu=1), scope=1, scope_share=0.3)
    assert _is_near(hits[..., 0])
    if runs > 100:
        assert 0.93 <= hits[..., 0].mean() <= 0.97


@pytest.mark.parametrize("runs", SESSIONS)
def test_only_safe_intervals_hold_for_one_who_stops_when_it_looks_wrong(runs: int) -> None:
    """The twin, and the reason for the second interval: when to stop was chosen by the noise."""
    hits = _sessions(runs, _until_it_looks_wrong, sf.Budget(mu=1))
    kept = hits[:, ::6, 0]
    assert (~kept).sum() > binom.ppf(1 - 1e-4, kept.size, 0.05)
    assert (~hits[..., 1]).sum() <= binom.ppf(1 - 1e-4, hits[..., 1].size, 0.05)


def test_numbers_that_share_their_noise_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin: one measurement that counts twice has intervals that are too narrow."""

    def twice(numbers: list[KnownNumber]) -> KnownNumber:
        return combined([*numbers, *numbers])

    monkeypatch.setattr(purchases, "combined", twice)
    hits = _sessions(60, _from_a_list, sf.Budget(mu=1))
    assert not _is_near(hits[..., 0])


@pytest.mark.parametrize("runs", SESSIONS)
@pytest.mark.parametrize("budget", [sf.Budget(mu=2), sf.Budget(epsilon=8)], ids=["mu", "pure"])
def test_intervals_of_sums_of_what_was_bought_hold(budget: sf.Budget, runs: int) -> None:
    hits = _sessions(runs, _adds_up, budget)
    assert _is_near(hits[..., 0])
    if runs > 100:
        assert 0.93 <= hits[..., 0].mean() <= 0.97


@pytest.mark.parametrize("runs", SESSIONS)
def test_safe_intervals_hold_for_sums_that_the_noise_has_chosen(runs: int) -> None:
    """The twin: of sums of what came out too high, the narrow intervals miss too often."""
    hits = _sessions(runs, _chases_noise, sf.Budget(mu=2))
    missed = (~hits[..., 0]).sum()
    assert missed > binom.ppf(1 - 1e-4, hits[..., 0].size, 0.05)
    assert (~hits[..., 1]).sum() <= binom.ppf(1 - 1e-4, hits[..., 1].size, 0.05)
