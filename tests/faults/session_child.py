# SPDX-License-Identifier: Apache-2.0
"""Processes that ask a session questions until they are killed.

One line of JSON is written for every answer. ``ask_until`` ends its process by SIGKILL when a point
has been reached so many times; a point is a method below. A walk asks, buys, improves and releases
in an order of its own, until somebody else kills it:

    python -m tests.faults.session_child LEDGER SEED
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import sfumato as sf
from sfumato.errors import BudgetExhausted
from sfumato.ledger.ledger import Ledger
from sfumato.session.answering import SessionState
from sfumato.session.epochs import Epochs
from sfumato.session.session import Session
from sfumato.vault.mechanisms.sparse import ExactQuestions, SparseVector
from tests.shared.ledger_home import made

DOMAIN = sf.Domain({"age": 20, "sex": 2})
BUDGET = sf.Budget(epsilon=4, delta=1e-9)
UPDATES = 24
ASKED = [
    f"SELECT COUNT(*) FROM t WHERE age BETWEEN {a} AND {a + w} AND sex = {a % 2}"
    for w in (3, 6)
    for a in range(10)
]
GROUPED = [
    "SELECT sex, COUNT(*) AS n, AVG(age) AS years FROM t GROUP BY sex",
    "SELECT age, COUNT(*) AS n FROM t GROUP BY age ORDER BY n DESC LIMIT 3",
]
ERRORS = (40, 20, 10)
POINTS: dict[str, tuple[type, str, bool]] = {
    # name: class, method, whether the kill comes after it
    "after the debit": (Ledger, "debit", True),
    "after an epoch is begun": (Epochs, "_begun", True),
    "after a test": (SparseVector, "test_many", True),
    "after noise is drawn": (ExactQuestions, "noisy", True),
    "before an answer is stored": (SessionState, "_answer", True),
    "after an answer is stored": (Ledger, "keep_soon", True),
    "before the epoch is put to rest": (Epochs, "rest", False),
}
GROUP_POINTS: dict[str, tuple[type, str, bool]] = {
    "after groups are counted": (ExactQuestions, "counted", True),
    "after the debit of groups": (Ledger, "debit", True),
    "after the noise of groups is drawn": (ExactQuestions, "measured", True),
    "before groups are stored": (Ledger, "store", False),
    "after groups are stored": (Ledger, "store", True),
}
SCOPE_POINTS: dict[str, tuple[type, str, bool]] = {
    "after the scope is counted": (ExactQuestions, "counted", True),
    "after the debit of the scope": (Ledger, "debit", True),
    "after the noise of the scope is drawn": (ExactQuestions, "measured", True),
    "before the scope is stored": (Ledger, "store", False),
    "after the scope is stored": (Ledger, "store", True),
}
PURCHASE_POINTS: dict[str, tuple[type, str, bool]] = {
    "before the debit of a purchase": (Ledger, "debit", False),
    "after the debit of a purchase": (Ledger, "debit", True),
    "after the noise of a purchase is drawn": (ExactQuestions, "noisy", True),
    "before a purchase is stored": (Ledger, "store", False),
    "after a purchase is stored": (Ledger, "store", True),
}


def table() -> pd.DataFrame:
    """The same records in every process."""
    draw = np.random.default_rng(3)
    return pd.DataFrame({"age": draw.binomial(19, 0.2, 2000), "sex": draw.integers(0, 2, 2000)})


def opened(ledger: str, **more: object) -> Session:
    """The session that all processes share, one after the other."""
    made(ledger, BUDGET, "people")
    return sf.open_session(
        table(), DOMAIN, BUDGET, ledger=ledger, name="people", updates=UPDATES, questions=100,
        records=2000, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def kill_at(point: str, times: int) -> None:
    """Let the process die when a point has been reached so many times."""
    owner, name, is_after = (POINTS | GROUP_POINTS | SCOPE_POINTS | PURCHASE_POINTS)[point]
    plain: Callable[..., Any] = getattr(owner, name)
    seen = 0

    def dying(*given: Any, **named: Any) -> Any:
        nonlocal seen
        seen += 1
        if not is_after and seen == times:
            os.kill(os.getpid(), signal.SIGKILL)
        found = plain(*given, **named)
        if point == "after an answer is stored":
            found.result()
        if is_after and seen == times:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(owner, name, dying)


def steps(seed: int) -> Iterator[dict[str, Any]]:
    """What a walk does: questions of one number and of many, with and without an error."""
    draw = np.random.default_rng(seed)
    while True:
        low, wide = int(draw.integers(0, 18)), int(draw.integers(0, 6))
        one = f"SELECT COUNT(*) FROM t WHERE age BETWEEN {low} AND {low + wide}"
        kind = int(draw.integers(0, 6))
        if kind == 0:
            yield {"sql": GROUPED[int(draw.integers(0, len(GROUPED)))]}
        elif kind == 1:
            yield {"sql": f"{one} AND sex = 1", "error": float(draw.integers(12, 60))}
        elif kind == 2:
            by = "SELECT sex, COUNT(*) AS n FROM t GROUP BY sex"
            yield {"sql": by, "error": float(draw.integers(12, 60))}
        elif kind == 3:
            yield {"release": int(draw.integers(0, 4))}
        else:
            yield {"sql": f"{one} AND sex = {low % 2}"}


def walk(ledger: str, seed: int) -> None:
    """Steps for ever; what was told is printed, with how much was measured by then."""
    plan = sf.plan(sf.marginals(DOMAIN, 1), sf.Budget(mu=0.02))
    with opened(ledger) as session:
        for step in steps(seed):
            try:
                if "release" in step:
                    key = f"release {seed} {step['release']}"
                    plan.release(table(), ledger, False, name="people", key=key)
                    continue
                answer = session.ask(step["sql"], error=step.get("error"))
            except BudgetExhausted:
                continue
            told = {**step, "said": answer.as_json(), "measured": session.measurements}
            print(json.dumps(told), flush=True)


def ask_until(ledger: str, point: str, times: int, answers: Path) -> None:
    """Ask until the kill, or to the end; what is told is added to a file."""
    kill_at(point, times)
    more = {"scope": 2} if point in SCOPE_POINTS else {}
    errors = ERRORS if point in PURCHASE_POINTS else (None,)
    texts = GROUPED if point in GROUP_POINTS else ASKED[: 1 if point in PURCHASE_POINTS else None]
    with opened(ledger, **more) as session, answers.open("a") as out:
        for text, error in itertools.product(texts, errors):
            print(json.dumps(session.ask(text, error=error).as_json()), file=out, flush=True)


if __name__ == "__main__":
    walk(sys.argv[1], int(sys.argv[2]))
