# SPDX-License-Identifier: Apache-2.0
"""Questions one at a time: sessions against noise on every answer, on six attributes of Adult.

Random conditions on one to three attributes come one by one. Compared are

* Laplace and Gaussian noise on every answer, the budget shared out evenly in advance;
* a session (private multiplicative weights) that starts even: fitted to all paid answers, and by
  single steps of Hedge with the parameters of the theorem;
* the same budget in two halves: a release of all 2-way marginals, and a session that starts there;
* a session with a scope, every condition on up to three attributes: one planned measurement at
  opening, for 19/20 of the budget, and unbiased answers with exact intervals from then on (means
  of 12 sessions, of 3 at 10,000 questions);
* a release of all 2-way marginals alone, projected, from which every question is answered: it needs
  no test, and promises nothing about other questions;
* the even histogram, which costs nothing.

Values are cut to what is possible in all of them. When a session's budget is used up, the rest is
answered from its estimate, without a test.

Besides, a scope whose questions leave it: one in ten is on four attributes, or adds up a number on
four (`leaving`); rows say how many of these were paid for, and how far off they were.

    python -m bench online           100 to 10,000 questions, some minutes of CPU time
    python -m bench online --all     with epsilon 0.1 and 10
    python -m bench.online FILE      scopes alone, on a CSV file of whole numbers and words

A table is printed; ``bench/results`` gets ``online.csv`` and ``online.png``.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd

import sfumato as sf
from bench.adult import coded
from bench.adult import domain as adult_domain
from bench.tell import Effort, show
from sfumato.errors import BudgetExhausted
from sfumato.random import system_words
from sfumato.session.histogram import Estimate
from sfumato.session.session import start_of
from sfumato.vault.mechanisms.noise import discrete_laplace, rounded_gaussian
from sfumato.workload.predicates import And, Condition, In
from sfumato.workload.question import Question, questions_of
from sfumato.workload.workload import marginal

__all__ = ["Row", "asked", "leaving", "left", "main", "run"]

RESULTS = Path(__file__).parent / "results"
NAMES = ("workclass", "education-num", "marital-status", "race", "sex", "income")
DELTA = "1e-9"
COUNTS = (100, 1_000, 10_000)
OPENINGS, OPENINGS_OF_MANY = 12, 3


@dataclass(frozen=True)
class Row:
    """One way to answer; errors in records, ``missed`` of the intervals at 95%.

    ``half_width`` is half of an interval, in the mean over all answers that have one.
    """

    way: str
    epsilon: float
    delta: str
    questions: int
    paid: int | None
    untested: int | None
    mean_error: float
    rmse: float
    largest: float
    bound: float | None
    missed: float | None
    half_width: float | None
    seconds: float


def table_and_domain(names: Sequence[str] = NAMES) -> tuple[pd.DataFrame, sf.Domain]:
    """Some attributes of Adult, coded."""
    whole = adult_domain()
    domain = sf.Domain([whole[n] for n in whole.names if n in names])
    return coded()[list(domain.names)], domain


def asked(domain: sf.Domain, count: int, seed: int = 1) -> list[Question]:
    """Different random questions: a range of a long attribute, any values of a short one."""
    draw = np.random.default_rng(seed)
    found: dict[str, Question] = {}
    while len(found) < count:
        wide = draw.integers(1, min(3, len(domain)) + 1)
        places = sorted(draw.choice(len(domain), wide, replace=False).tolist())
        parts: list[Condition] = []
        for place in places:
            size = domain.shape[place]
            if size > 6:
                first, last = sorted(draw.integers(0, size, 2).tolist())
                codes = tuple(range(first, last + 1))
            else:
                codes = tuple(np.flatnonzero(draw.random(size) < 0.5).tolist())
            if 0 < len(codes) < size:
                parts.append(In(domain.names[place], codes))
        if parts:
            condition = parts[0] if len(parts) == 1 else And(tuple(parts))
            (question,) = questions_of(sf.predicates(domain, [condition]))
            found[question.key] = question
    return list(found.values())


def leaving(domain: sf.Domain, count: int, seed: int = 2) -> list[Question]:
    """Different questions on four attributes: conditions, and every other one a sum on them."""
    draw = np.random.default_rng(seed)
    long = [n for n in domain.names if domain[n].size > 6]
    found: dict[str, Question] = {}
    while len(found) < count:
        names = [domain.names[i] for i in sorted(draw.choice(len(domain), 4, replace=False))]
        is_sum = len(found) % 2 == 1
        added = next((n for n in names if n in long), None) if is_sum else None
        if is_sum and added is None:
            continue
        words = []
        for name in names:
            size = domain[name].size
            if name == added:
                continue
            if size > 6:
                first, last = sorted(draw.integers(0, size, 2).tolist())
                words.append(f'"{name}" BETWEEN {first} AND {last}')
            else:
                codes = np.flatnonzero(draw.random(size) < 0.5).tolist() or [0]
                words.append(f'"{name}" IN ({", ".join(map(str, codes))})')
        what = "COUNT(*)" if added is None else f'SUM("{added}")'
        # Read by the library like any question; no database ever gets it.
        text = f"SELECT {what} FROM t WHERE {' AND '.join(words)}"
        (question,) = questions_of(sf.sql(domain, text))
        if len(question.attributes) == 4:
            found[question.key] = question
    return list(found.values())


def left(table: pd.DataFrame, domain: sf.Domain, epsilon: float, count: int = 1_000) -> list[Row]:
    """A session with a scope, where one question in ten leaves it: those that do, by themselves."""
    inside, outside = asked(domain, count - count // 10), leaving(domain, count // 10)
    mixed = [q for i in range(count // 10) for q in (*inside[9 * i : 9 * i + 9], outside[i])]
    is_outside = np.arange(len(mixed)) % 10 == 9
    rows = []
    for delta in ("0", DELTA):
        budget = sf.Budget(epsilon=epsilon, delta=None if delta == "0" else delta)
        truth = exact(table, domain, mixed)
        job = _Job(table, domain, mixed, truth, budget, epsilon, delta)
        for share in (0.95, 0.7):
            way = f"scope for {share:.0%} of the budget"
            rows += job.parted(way, is_outside, scope=3, scope_share=share)
    return rows


def exact(table: pd.DataFrame, domain: sf.Domain, questions: Sequence[Question]) -> np.ndarray:
    """The true answers, in what is counted or summed."""
    counts = np.zeros(domain.shape, dtype=np.int64)
    np.add.at(counts, tuple(table[n].to_numpy() for n in domain.names), 1)
    return np.array(
        [q.answer(marginal(counts, domain, q.attributes)) * 2.0**-q.bits for q in questions], float
    )


def run(
    table: pd.DataFrame, domain: sf.Domain, questions: Sequence[Question], epsilon: float
) -> list[Row]:
    """Every way, at one pure and one approximate budget."""
    truth = exact(table, domain, questions)
    rows = []
    for delta in ("0", DELTA):
        budget = sf.Budget(epsilon=epsilon, delta=None if delta == "0" else delta)
        job = _Job(table, domain, questions, truth, budget, epsilon, delta)
        rows += [job.noise_on_all(), job.even()]
        rows += [job.session("session, fitted", budget), job.hedge()]
        rows += [job.release(), job.halves(), job.scope()]
    return rows


@dataclass(frozen=True)
class _Job:
    table: pd.DataFrame
    domain: sf.Domain
    questions: Sequence[Question]
    truth: np.ndarray
    budget: sf.Budget
    epsilon: float
    delta: str

    def row(self, way: str, values: np.ndarray, begun: float, **more: object) -> Row:
        most = [len(self.table) * q.high * 2.0**-q.bits for q in self.questions]
        errors = np.abs(np.clip(values, 0, most) - self.truth)
        told = {
            "paid": None,
            "untested": None,
            "bound": None,
            "missed": None,
            "half_width": None,
            **more,
        }
        return Row(
            way=way,
            epsilon=self.epsilon,
            delta=self.delta,
            questions=len(self.questions),
            mean_error=float(errors.mean()),
            rmse=float(np.sqrt((errors**2).mean())),
            largest=float(errors.max()),
            seconds=time.process_time() - begun,
            **told,  # type: ignore[arg-type]
        )

    def noise_on_all(self) -> Row:
        begun, k = time.process_time(), len(self.questions)
        if self.budget.is_pure:
            way, draw = "Laplace on every answer", discrete_laplace
            scale = Fraction(k) / self.budget.pure_epsilon
        else:
            way, draw = "Gaussian on every answer", rounded_gaussian
            scale = Fraction(np.sqrt(k) / (self.budget.gaussian_mu or 1.0))
        noise = draw(scale * 256, k, system_words()) / 256
        return self.row(way, self.truth + noise, begun, paid=k)

    def even(self) -> Row:
        begun, estimate = time.process_time(), Estimate(self.domain, len(self.table))
        values = np.array([estimate.answer(q) for q in self.questions])
        return self.row("even histogram, nothing asked", values, begun, paid=0)

    def session(self, way: str, budget: sf.Budget, **given: object) -> Row:
        begun = time.process_time()
        session = sf.open_session(
            self.table,
            self.domain,
            budget,
            questions=len(self.questions),
            records=len(self.table),
            **given,  # type: ignore[arg-type]
        )
        return self.conversation(way, session, begun)

    def conversation(self, way: str, session: sf.Session, begun: float) -> Row:
        """All questions, asked one after the other."""
        values, paid, untested, missed, tested, width = [], 0, 0, 0, 0, 0.0
        for question, truth in zip(self.questions, self.truth.tolist(), strict=True):
            try:
                answer = session.ask(question)
            except BudgetExhausted:
                answer = session.untested(question)
            values.append(answer.value)
            paid += answer.how == "paid"
            untested += answer.how == "untested"
            if answer.low is not None and answer.high is not None:
                tested += 1
                missed += not answer.low <= truth <= answer.high
                width += answer.high - answer.low
        return self.row(
            way,
            np.array(values),
            begun,
            paid=paid,
            untested=untested,
            bound=session.plan.free_bound,
            missed=missed / max(tested, 1),
            half_width=width / 2 / max(tested, 1),
        )

    def parted(self, way: str, is_outside: np.ndarray, **more: object) -> list[Row]:
        """A session, and those of its answers that are outside of the scope."""
        begun = time.process_time()
        session = sf.open_session(
            self.table, self.domain, self.budget, records=len(self.table), **more
        )
        given = []
        for question in self.questions:
            try:
                given.append(session.ask(question))
            except BudgetExhausted:
                given.append(session.untested(question))
        rows = []
        for name, chosen in (("within", ~is_outside), ("outside", is_outside)):
            mine = [a for a, at in zip(given, chosen, strict=True) if at]
            truth = self.truth[chosen]
            ends = [
                (a.low, a.high, t) for a, t in zip(mine, truth, strict=True) if a.low is not None
            ]
            part = replace(
                self,
                questions=[q for q, at in zip(self.questions, chosen, strict=True) if at],
                truth=truth,
            )
            rows.append(
                part.row(
                    f"{way}, {name}",
                    np.array([a.value for a in mine]),
                    begun,
                    paid=sum(a.how == "paid" for a in mine),
                    untested=sum(a.how == "untested" for a in mine),
                    bound=session.plan.free_bound,
                    missed=float(np.mean([not low <= t <= high for low, high, t in ends])),
                    half_width=float(np.mean([(high - low) / 2 for low, high, _ in ends])),
                )
            )
        return rows

    def scope(self) -> Row:
        """The mean of several sessions: all answers of one share one noise, and its luck."""
        begun = time.process_time()
        plan = sf.plan_session(
            self.domain,
            self.budget,
            questions=len(self.questions),
            records=len(self.table),
            scope=3,
        )
        rows = []
        for _ in range(OPENINGS if len(self.questions) <= COUNTS[1] else OPENINGS_OF_MANY):
            with plan.open(self.table) as session:
                rows.append(self.conversation("session, scope of three attributes", session, begun))
        numbers = ("mean_error", "rmse", "largest", "missed", "half_width")
        means = {name: float(np.mean([getattr(row, name) for row in rows])) for name in numbers}
        return replace(rows[-1], **means)  # type: ignore[arg-type]

    def hedge(self) -> Row:
        return self.session("session, Hedge by the theorem", self.budget, learning="hedge")

    def release(self) -> Row:
        begun = time.process_time()
        start = start_of(self._release(self.budget), self.domain)
        total = float(start.weights.sum()) if start is not None else 1.0
        estimate = Estimate(self.domain, total, start)
        values = np.array([estimate.answer(q) for q in self.questions])
        return self.row("release of 2-way marginals alone", values, begun)

    def halves(self) -> Row:
        half = _half(self.budget)
        start = self._release(half)
        return self.session("half on a release, half on a session", half, start=start)

    def _release(self, budget: sf.Budget) -> sf.Release:
        return sf.plan(sf.marginals(self.domain, 2), budget, cache=False).release(self.table)


def _half(budget: sf.Budget) -> sf.Budget:
    """Half of the budget: two of these, one after the other, keep it."""
    if budget.is_pure:
        return sf.Budget(epsilon=budget.pure_epsilon / 2)
    # mu^2 adds; the root is rounded down.
    return sf.Budget(
        mu=Fraction(np.sqrt(0.5) * (budget.gaussian_mu or 0.0)) * (1 - Fraction(1, 2**40))
    )


def shown(rows: Sequence[Row], about: str = "6 attributes of Adult") -> None:
    """All rows for people."""
    from rich.table import Table

    out = Table(title=f"Questions one at a time: {about}")
    heads = ("epsilon", "delta", "questions", "way", "mean error", "rmse", "largest", "paid")
    for head in (*heads, "untested", "free within", "missed", "+-", "CPU s"):
        side = "left" if head == "way" else "right"
        out.add_column(head, justify=side, no_wrap=True)  # type: ignore[arg-type]
    last = None
    for row in rows:
        block = (row.epsilon, row.delta, row.questions)
        if last not in (None, block):
            out.add_section()
        last = block
        out.add_row(
            f"{row.epsilon:g}",
            row.delta,
            f"{row.questions:,}",
            row.way,
            f"{row.mean_error:,.0f}",
            f"{row.rmse:,.0f}",
            f"{row.largest:,.0f}",
            "-" if row.paid is None else f"{row.paid:,}",
            "-" if row.untested is None else f"{row.untested:,}",
            "-" if row.bound is None else f"{row.bound:,.0f}",
            "-" if row.missed is None else f"{row.missed:.2%}",
            "-" if row.half_width is None else f"{row.half_width:,.0f}",
            f"{row.seconds:.1f}",
        )
    show(out)


def written(rows: Sequence[Row], folder: Path) -> Path:
    """Every row as csv."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "online.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(asdict(rows[0])))
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    return path


def picture(rows: Sequence[Row], folder: Path) -> Path:
    """Mean error against the number of questions, a panel per kind of budget, at epsilon = 1."""
    import altair as alt

    from sfumato.release.charts import write_chart

    frame = pd.DataFrame(
        [asdict(r) for r in rows if r.epsilon == 1 and not r.way.endswith(("within", "outside"))]
    )
    frame["budget"] = np.where(
        frame["delta"] == "0", "epsilon = 1", f"epsilon = 1, delta = {DELTA}"
    )
    drawn = (
        alt.Chart(frame)
        .mark_line(point=True)
        .encode(
            x=alt.X(
                "questions:Q",
                scale=alt.Scale(type="log"),
                axis=alt.Axis(values=list(COUNTS), format=",", grid=False),
                title="questions",
            ),
            y=alt.Y(
                "mean_error:Q",
                scale=alt.Scale(type="log"),
                axis=alt.Axis(values=[10, 30, 100, 300, 1_000, 3_000, 10_000], format=","),
                title="mean error of 48,842 records",
            ),
            color=alt.Color("way:N", title=None, legend=alt.Legend(orient="bottom", columns=2)),
        )
        .properties(width=330, height=300)
        .facet(column=alt.Column("budget:N", title=None))
    )
    path = folder / "online.png"
    write_chart(drawn, path)
    return path


def main(effort: Effort = "usual") -> None:
    """Run, print, write."""
    table, domain = table_and_domain()
    rows: list[Row] = []
    for epsilon in (1.0, 0.1, 10.0) if effort == "all" else (1.0,):
        for count in COUNTS[:2] if effort == "quick" else COUNTS:
            rows += run(table, domain, asked(domain, count), epsilon)
        rows += left(table, domain, epsilon)
    shown(rows)
    for path in (written(rows, RESULTS), picture(rows, RESULTS)):
        print(path)


def scopes_of(file: str) -> None:
    """Scopes alone on another table: every column with at most 64 values is an attribute."""
    whole = pd.read_csv(file)
    names = [n for n in whole.columns if 1 < whole[n].nunique(dropna=False) <= 64][:6]
    table = pd.DataFrame({n: pd.factorize(whole[n].astype(str), sort=True)[0] for n in names})
    domain = sf.Domain({n: int(table[n].max()) + 1 for n in names})
    rows = []
    for delta in ("0", DELTA):
        budget = sf.Budget(epsilon=1, delta=None if delta == "0" else delta)
        for count in COUNTS:
            questions = asked(domain, count)
            truth = exact(table, domain, questions)
            rows.append(_Job(table, domain, questions, truth, budget, 1.0, delta).scope())
    shown(rows, f"{len(table):,} records, {domain.size:,} cells of {', '.join(names)}")


if __name__ == "__main__":
    scopes_of(sys.argv[1])
