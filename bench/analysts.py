# SPDX-License-Identifier: Apache-2.0
"""How often intervals of sessions hold, for analysts who choose questions by what they saw.

Every analyst has 200 sessions of their own, on a table of 1,300 made-up records and on 48,842 of
Adult. What holds is in ``docs/proofs/online.md`` (Theorems 3, 7, 9 and 10): `low` to `high` for
whoever does not follow the noise itself; ``safe_low`` to ``safe_high`` whatever the analyst does,
for all known answers of a session together, and for each purchase by itself. The last two analysts
chase the noise: their narrow intervals must miss, their safe ones must not.

    python -m bench analysts            200 sessions of each, some twenty minutes of CPU time
    python -m bench analysts --quick    40 of each
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd

import sfumato as sf
from bench.adult import coded
from bench.adult import domain as adult_domain
from bench.tell import Effort, show
from sfumato.ledger.ledger import Ledger
from sfumato.session.session_answers import Answer

__all__ = ["ANALYSTS", "Desk", "Row", "main", "rows_of"]

SESSIONS: dict[Effort, int] = {"quick": 40, "usual": 200, "all": 400}


@dataclass(frozen=True)
class Place:
    """A table with the names of a long attribute, of groups and of a flag."""

    name: str
    table: pd.DataFrame
    domain: sf.Domain
    long: str
    group: str
    flag: str


@dataclass
class Desk:
    """A session with the truth beside it: what the intervals of all answers held."""

    place: Place
    session: sf.Session
    release: Callable[[], object]
    held: list[bool] = field(default_factory=list)
    safe: list[bool] = field(default_factory=list)
    halves: list[float] = field(default_factory=list)

    def count(self, error: float | None = None, **values: Sequence[int]) -> Answer:
        """Ask for the number of records with these values: of long, group or flag."""
        named = {getattr(self.place, role): codes for role, codes in values.items()}
        parts = [f'"{n}" IN ({", ".join(map(str, codes))})' for n, codes in named.items()]
        # Read by the library like any question; no database ever gets it.
        text = f"SELECT COUNT(*) FROM t WHERE {' AND '.join(parts)}"
        answer = self.session.ask(text, error=error)
        assert isinstance(answer, Answer)
        table = self.place.table
        self.note(
            answer, float(np.logical_and.reduce([table[n].isin(c) for n, c in named.items()]).sum())
        )
        return answer

    def groups(self, *roles: str, error: float | None = None) -> dict[tuple[int, ...], float]:
        """A GROUP BY of counts; the value of each group."""
        names = [getattr(self.place, role) for role in roles]
        listed = ", ".join(f'"{n}"' for n in names)
        answer = self.session.ask(
            f"SELECT {listed}, COUNT(*) AS n FROM t GROUP BY {listed}", error=error
        )
        exact = self.place.table.groupby(names).size()
        out = {}
        for one in answer.answers:
            key = tuple(int(one.groups[n]) for n in names)  # type: ignore[arg-type]
            self.note(one, float(exact.get(key if len(key) > 1 else key[0], 0)))
            out[key] = one.value
        return out

    def note(self, answer: Answer, truth: float) -> None:
        """Whether the intervals of an answer hold the truth."""
        low, high = answer.low, answer.high
        assert low is not None
        assert high is not None
        self.held.append(low <= truth <= high)
        self.halves.append((high - low) / 2)
        if answer.safe_low is not None and answer.safe_high is not None:
            self.safe.append(answer.safe_low <= truth <= answer.safe_high)

    def values(self, role: str) -> range:
        """The codes of an attribute."""
        return range(self.place.domain[getattr(self.place, role)].size)


# The analysts


def dashboard(desk: Desk) -> None:
    """The same groups and totals every morning."""
    for roles in (("flag",), ("group",), ("group", "flag"), ("long",)):
        desk.groups(*roles)
    half = len(desk.values("long")) // 2
    for flag in desk.values("flag"):
        desk.count(long=range(half), flag=[flag])
        desk.count(long=range(half, len(desk.values("long"))), flag=[flag])


def drills_down(desk: Desk) -> None:
    """Half of the long attribute after half, always the larger one; then its largest group."""
    codes = list(desk.values("long"))
    while len(codes) > 1:
        halves = (codes[: len(codes) // 2], codes[len(codes) // 2 :])
        codes = max(halves, key=lambda half: desk.count(long=half).value)
    group = max(desk.values("group"), key=lambda g: desk.count(long=codes, group=[g]).value)
    for flag in desk.values("flag"):
        desk.count(long=codes, group=[group], flag=[flag])


def drills_and_pays(desk: Desk) -> None:
    """Looks for the largest group, and pays for accuracy where it went."""
    scale = 6.0
    best = max(desk.values("group"), key=lambda g: desk.count(4 * scale, group=[g]).value)
    flag = max(
        desk.values("flag"), key=lambda f: desk.count(3 * scale, group=[best], flag=[f]).value
    )
    codes = list(desk.values("long"))
    for part in (codes[: len(codes) // 2], codes[len(codes) // 2 :]):
        desk.count(2 * scale, long=part, group=[best], flag=[flag])
    desk.count(scale, group=[best], flag=[flag])


def looks_for_oddities(desk: Desk) -> None:
    """Follows what is farthest from independence of group and flag, which noise may be, too."""
    cells = desk.groups("group", "flag")
    total = max(sum(cells.values()), 1.0)
    rows: dict[int, float] = {}
    columns: dict[int, float] = {}
    for (g, f), value in cells.items():
        rows[g] = rows.get(g, 0.0) + value
        columns[f] = columns.get(f, 0.0) + value
    g, f = max(cells, key=lambda c: abs(cells[c] - rows[c[0]] * columns[c[1]] / total))
    for code in desk.values("long"):
        desk.count(long=[code], group=[g], flag=[f])


def before_and_after_a_release(desk: Desk) -> None:
    """Drills down; a colleague makes a release meanwhile; asks for the same and for more."""
    drills_down(desk)
    desk.release()
    desk.groups("group", "flag")
    drills_down(desk)


def chases_noise(desk: Desk) -> None:
    """Knows the truth by other ways, and adds up just those cells that came out too high."""
    unseen = Desk(desk.place, desk.session, desk.release)
    flag = desk.values("flag")[0]
    group = desk.values("group")[0]
    table = desk.place.table
    here = table[(table[desk.place.group] == group) & (table[desk.place.flag] == flag)]
    exact = here[desk.place.long].value_counts()
    values = {
        code: unseen.count(long=[code], group=[group], flag=[flag]).value
        for code in desk.values("long")
    }
    high = [code for code, value in values.items() if value > exact.get(code, 0)]
    desk.count(long=high or [0], group=[group], flag=[flag])


def until_it_looks_wrong(desk: Desk) -> None:
    """Pays for ever smaller errors until an answer contradicts the truth, and keeps that."""
    for group in list(desk.values("group"))[:2]:
        for flag in desk.values("flag"):
            tried = Desk(desk.place, desk.session, desk.release)
            for error in (80, 50, 32, 20, 13, 8):
                tried.count(error, group=[group], flag=[flag])
                if not tried.held[-1]:
                    break
            desk.held.append(tried.held[-1])
            desk.halves.append(tried.halves[-1])
            desk.safe += tried.safe


GAUSSIAN, PURE = sf.Budget(mu=1), sf.Budget(epsilon=4)


@dataclass(frozen=True)
class Analyst:
    """How somebody asks, in which session; whether narrow intervals are for such a one."""

    act: Callable[[Desk], None]
    scope: int | None = None
    is_fair: bool = True
    has_ledger: bool = False
    budget: sf.Budget = GAUSSIAN
    updates: int = 8


ANALYSTS = {
    "dashboard, scope": Analyst(dashboard, 3),
    "dashboard, groups paid for": Analyst(dashboard),
    "dashboard, scope, pure epsilon": Analyst(dashboard, 3, budget=PURE),
    "drills down, scope": Analyst(drills_down, 3),
    "drills down, scope, pure epsilon": Analyst(drills_down, 3, budget=PURE),
    "drills down, tested": Analyst(drills_down, updates=40),
    "drills down and pays": Analyst(drills_and_pays),
    "drills down and pays, scope": Analyst(drills_and_pays, 2),
    "looks for oddities, scope": Analyst(looks_for_oddities, 3),
    "a release comes meanwhile, scope": Analyst(before_and_after_a_release, 3, has_ledger=True),
    "chases noise, scope": Analyst(chases_noise, 3, is_fair=False),
    "pays until it looks wrong": Analyst(until_it_looks_wrong, is_fair=False),
}


@dataclass(frozen=True)
class Row:
    """One analyst on one table.

    Of the answers ``held`` are within their intervals and ``safe`` within the safe ones;
    ``all_safe`` of the sessions are so in whole. ``spread`` is the error of ``held``.
    """

    table: str
    analyst: str
    sessions: int
    answers: int
    held: float
    spread: float
    safe: float | None
    all_safe: float | None
    half_width: float
    seconds: float
    is_fair: bool


def made_up() -> Place:
    """Passengers of no ship: 1,300 records, three attributes that hang together."""
    draw = np.random.default_rng(12)
    group = draw.choice(4, 1_300, p=[0.25, 0.2, 0.5, 0.05])
    age = np.clip(draw.normal(5 + (group == 0) * 2, 2.2, 1_300).astype(int), 0, 11)
    flag = (draw.random(1_300) < np.choose(group, [0.6, 0.45, 0.25, 0.5])).astype(int)
    table = pd.DataFrame({"age": age, "class": group, "survived": flag})
    domain = sf.Domain({"age": 12, "class": 4, "survived": 2})
    return Place("made up", table, domain, "age", "class", "survived")


def adult() -> Place:
    """Three attributes of Adult."""
    whole, names = adult_domain(), ("education-num", "marital-status", "income")
    domain = sf.Domain([whole[n] for n in names])
    return Place("Adult", coded()[list(names)], domain, *names)


def rows_of(place: Place, name: str, sessions: int) -> Row:
    """All sessions of one analyst."""
    begun, who = time.process_time(), ANALYSTS[name]
    plan = sf.plan_session(
        place.domain,
        who.budget,
        records=len(place.table),
        questions=60,
        updates=who.updates,
        scope=who.scope,
        scope_share=0.5,
    )
    pairs = sf.plan(sf.marginals(place.domain, 2), sf.Budget(mu=0.5))
    held, safe, halves = [], [], []
    each: list[bool] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(sessions):
            ledger = None
            if who.has_ledger:
                path = Path(folder) / f"{number}.ledger"
                ledger = Ledger.create(path, sf.Budget(mu=2), "people", "add-remove")
            keys = count()

            def release(ledger: Ledger | None = ledger, keys: count[int] = keys) -> object:
                return pairs.release(
                    place.table, ledger, False, name="people", key=f"release {next(keys)}"
                )

            with plan.open(place.table, ledger, name="people") as session:
                desk = Desk(place, session, release)
                who.act(desk)
            held.append(float(np.mean(desk.held)))
            halves.append(float(np.mean(desk.halves)))
            if desk.safe:
                safe.append(all(desk.safe))
                each += desk.safe
    return Row(
        place.name,
        name,
        sessions,
        len(desk.held),
        float(np.mean(held)),
        float(np.std(held) / np.sqrt(sessions)),
        float(np.mean(each)) if safe else None,
        float(np.mean(safe)) if safe else None,
        float(np.mean(halves)),
        time.process_time() - begun,
        who.is_fair,
    )


def shown(rows: Sequence[Row]) -> None:
    """All rows for people."""
    from rich.table import Table

    out = Table(title="Intervals of 95% for analysts who choose by what they see")
    for head in (
        "table",
        "analyst",
        "sessions",
        "answers of one",
        "held",
        "+-",
        "safe",
        "all safe",
        "half width",
        "CPU s",
    ):
        out.add_column(head, justify="left" if head in ("table", "analyst") else "right")
    for row in rows:
        out.add_row(
            row.table,
            row.analyst + ("" if row.is_fair else " (must miss)"),
            str(row.sessions),
            str(row.answers),
            f"{row.held:.1%}",
            f"{row.spread:.1%}",
            "-" if row.safe is None else f"{row.safe:.1%}",
            "-" if row.all_safe is None else f"{row.all_safe:.1%}",
            f"{row.half_width:,.1f}",
            f"{row.seconds:.0f}",
        )
    show(out)


def main(effort: Effort = "usual") -> None:
    """Run and print."""
    shown(
        [
            rows_of(place, name, SESSIONS[effort])
            for place in (made_up(), adult())
            for name in ANALYSTS
        ]
    )


if __name__ == "__main__":
    main()
