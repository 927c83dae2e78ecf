# SPDX-License-Identifier: Apache-2.0
"""Five everyday tasks beside OpenDP: lines that a user writes, and error at equal budget.

    python -m bench everyday

A made-up table of 20,000 people, one record each, drawn once; every release draws fresh noise, and
both sides see the same records, the same public ranges and lists, and the same budget: epsilon 1,
delta 1e-6 where values are to be discovered. Lines are those of the bodies of the functions
below, as ruff formats them; imports, the table and public lists are given to both. Errors are root
mean squares over releases and answers; ratios are ours over theirs, below 1 where ours is less.

Means and sums by group: OpenDP's library has no grouping outside of its polars extension (which is
pinned to another polars), so each group is one query on its own records, with the whole budget by
parallel composition, half for the sum and half for the count. Quantiles: of OpenDP's exponential
mechanism, ninths of the budget. Top k of public candidates, at epsilon 0.05: the largest of noisy
counts of all of them for OpenDP.

Other peers are left out where their packages do not install beside this one, and a line says so.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from math import exp, sinh, sqrt
from typing import Any

import numpy as np
import opendp.prelude as dp
import pandas as pd

import sfumato as sf
from bench.tell import show
from sfumato.privacy.discovery_laws import OptimalKeys

RELEASES = 20
RECORDS = 20_000
EPSILON, DELTA = 1.0, 1e-6
TOP_EPSILON = 0.05  # at epsilon 1 nobody misses any of the ten
AGES = (17, 90)
TOP_INCOME = 200_000.0
REGIONS = tuple(f"region {i}" for i in range(8))
DECILES = tuple(i / 10 for i in range(1, 10))
PRODUCTS = tuple(f"product {i}" for i in range(200))
K = 10
LEFT_OUT = {"tumult-analytics": "Tumult", "smartnoise-sql": "SmartNoise"}

Answers = Mapping[Any, float]


def people() -> pd.DataFrame:
    """One record each: some groups are small, words and products follow Zipf's law."""
    rng = np.random.default_rng(20)
    n = RECORDS
    shares = np.array([0.4, 0.2, 0.15, 0.1, 0.07, 0.05, 0.02, 0.01])
    return pd.DataFrame(
        {
            "age": np.clip(rng.normal(45, 18, n), *AGES).astype(np.int64),
            "region": rng.choice(REGIONS, n, p=shares),
            "income": np.clip(rng.lognormal(10.3, 0.9, n), 0.0, TOP_INCOME),
            "word": [f"w{i}" for i in rng.zipf(1.4, n).clip(max=10**6)],
            "sex": rng.choice(["f", "m"], n),
            "product": [PRODUCTS[i % 200] for i in rng.zipf(1.2, n) % 200],
        }
    )


# The tasks, as a user of sfumato writes them


def our_histogram(table: pd.DataFrame) -> Answers:
    """Counts of every age."""
    domain = sf.Domain([sf.Integer("age", *AGES)])
    release = sf.plan(sf.marginals(domain, 1), sf.Budget(epsilon=EPSILON)).release(table)
    return release.answers("age").set_index("age")["value"]


def our_means(table: pd.DataFrame) -> Answers:
    """The mean and the sum of incomes in every region."""
    income = sf.Numeric("income", edges=(0.0, TOP_INCOME))
    domain = sf.Domain([sf.Category("region", REGIONS), income])
    work = sf.means(domain, "income", by=["region"])
    frame = sf.plan(work, sf.Budget(epsilon=EPSILON)).release(table).answers("income", "region")
    return frame.set_index("region")[["mean", "sum"]].stack()


def our_quantiles(table: pd.DataFrame) -> Answers:
    """The deciles of age."""
    domain = sf.Domain([sf.Integer("age", *AGES)])
    release = sf.plan(sf.prefixes(domain, "age"), sf.Budget(epsilon=EPSILON)).release(table)
    return release.quantiles("age", DECILES).set_index("probability")["value"]


def our_crosstab(table: pd.DataFrame) -> Answers:
    """Words by sex, of words that nobody listed."""
    pairs = sf.Category.discover(["word", "sex"])
    found = sf.plan_discovery(pairs, sf.Budget(epsilon=EPSILON, delta=DELTA)).release(table)
    return found.counts.set_index("key")["count"].to_dict()


def our_top(table: pd.DataFrame) -> Answers:
    """The ten products that are bought most."""
    domain = sf.Domain([sf.Category("product", PRODUCTS)])
    plan = sf.plan_selection(sf.marginals(domain, 1), sf.Budget(epsilon=TOP_EPSILON), top=K)
    return dict.fromkeys(plan.release(table).frame()["product"], 1.0)


# The same, as a user of OpenDP writes them


def their_histogram(table: pd.DataFrame) -> Answers:
    """Counts of every age."""
    ages = list(range(AGES[0], AGES[1] + 1))
    context = dp.Context.compositor(
        data=table["age"].tolist(),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=EPSILON),
        split_evenly_over=1,
        domain=dp.vector_domain(dp.atom_domain(T=int)),
    )
    query = context.query().count_by_categories(categories=ages, null_category=False).laplace()
    return dict(zip(ages, query.release(), strict=True))


def their_means(table: pd.DataFrame) -> Answers:
    """The mean and the sum of incomes in every region."""
    out = {}
    for region in REGIONS:
        context = dp.Context.compositor(
            data=table.loc[table["region"] == region, "income"].tolist(),
            privacy_unit=dp.unit_of(contributions=1),
            privacy_loss=dp.loss_of(epsilon=EPSILON),
            split_evenly_over=2,
            domain=dp.vector_domain(dp.atom_domain(T=float, nan=False)),
        )
        total = context.query().clamp((0.0, TOP_INCOME)).sum().laplace().release()
        count = context.query().count().laplace().release()
        out[region, "sum"], out[region, "mean"] = total, total / max(count, 1)
    return out


def their_quantiles(table: pd.DataFrame) -> Answers:
    """The deciles of age."""
    candidates = list(range(AGES[0], AGES[1] + 1))
    context = dp.Context.compositor(
        data=table["age"].tolist(),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=EPSILON),
        split_evenly_over=len(DECILES),
        domain=dp.vector_domain(dp.atom_domain(T=int)),
    )
    return {
        p: context.query().private_quantile(dp.max_divergence(), candidates, p).release()
        for p in DECILES
    }


def their_crosstab(table: pd.DataFrame) -> Answers:
    """Words by sex, of words that nobody listed."""
    space = dp.vector_domain(dp.atom_domain(T=str)), dp.symmetric_distance()
    counts = space >> dp.t.then_count_by()
    threshold = dp.binary_search(
        lambda at: (counts >> dp.m.then_laplace_threshold(1 / EPSILON, at)).check(
            1, (EPSILON, DELTA)
        ),
        bounds=(1, 10**6),
    )
    release = counts >> dp.m.then_laplace_threshold(1 / EPSILON, threshold)
    pairs = release((table["word"] + "|" + table["sex"]).tolist())
    return {tuple(pair.split("|")): count for pair, count in pairs.items()}


def their_top(table: pd.DataFrame) -> Answers:
    """The ten products that are bought most."""
    context = dp.Context.compositor(
        data=table["product"].tolist(),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=TOP_EPSILON),
        split_evenly_over=1,
        domain=dp.vector_domain(dp.atom_domain(T=str)),
    )
    counts = context.query().count_by_categories(list(PRODUCTS), null_category=False)
    best = np.argsort(counts.laplace().release())[::-1][:K]
    return dict.fromkeys((PRODUCTS[i] for i in best), 1.0)


# Errors


def _rmse(truth: Answers, answers: Answers) -> float:
    """Over all true answers."""
    return float(np.sqrt(np.mean([(float(answers[k]) - truth[k]) ** 2 for k in truth])))


def _lost(truth: Answers, answers: Answers) -> float:
    """The share of all records by which a table is off; what is not published counts as 0."""
    return sum(abs(float(answers.get(k, 0.0)) - truth[k]) for k in truth) / RECORDS


def _regret(truth: Answers, answers: Answers) -> float:
    """How many purchases fewer than those of the true best."""
    best = sum(sorted(truth.values())[-K:])
    return best - sum(truth[k] for k in answers)


# The laws of the cross-tab: what is expected to be lost of a key of n people


def our_loss(n: int) -> float:
    """Of the law that publishes every key as often as any (epsilon, delta) mechanism can."""
    law = OptimalKeys(Fraction(EPSILON), Fraction(DELTA), 1)
    chances, k, q = law.published, law.reach, exp(-EPSILON)
    steps = np.arange(-k, k + 1)
    noise = q ** np.abs(steps) / (q ** np.abs(steps)).sum()
    passes = chances[min(n, len(chances)) - 1] / 2**256
    above = noise[n + steps > k]
    at_least = abs(k - n) * max(passes - above.sum(), 0.0)
    return float((np.abs(steps[n + steps > k]) * above).sum() + at_least + (1 - passes) * n)


def their_loss(n: int, threshold: int) -> float:
    """Of discrete Laplace noise, and a threshold that the published numbers reach."""
    q, steps = exp(-EPSILON), np.arange(-60, 61)
    noise = (1 - q) / (1 + q) * q ** np.abs(steps)
    reach = n + steps >= threshold
    lost = n if n < threshold - 60 else n * noise[~reach].sum()
    return float((np.abs(steps[reach]) * noise[reach]).sum() + lost)


def lawful_threshold() -> int:
    """The least one that a key of one person reaches with probability delta at most."""
    threshold = 2
    while exp(-EPSILON * (threshold - 1)) / (1 + exp(-EPSILON)) > DELTA:
        threshold += 1
    return threshold


def lost_by_law(table: pd.DataFrame) -> tuple[float, float, float]:
    """The expected loss of the cross-tab: ours, OpenDP's at the least threshold that it accepts for
    this delta, one below the lawful one, and at the lawful one.
    """
    sizes, many = np.unique(table.groupby(["word", "sex"]).size().to_numpy(), return_counts=True)
    lawful = lawful_threshold()
    laws: list[Callable[[int], float]] = [
        our_loss,
        lambda n: their_loss(n, lawful - 1),
        lambda n: their_loss(n, lawful),
    ]
    totals = [sum(m * law(int(n)) for n, m in zip(sizes, many, strict=True)) for law in laws]
    ours, stated, lawfully = (total / RECORDS for total in totals)
    return ours, stated, lawfully


@dataclass(frozen=True)
class Task:
    """What is asked, by whom, and how far off an answer is."""

    name: str
    ours: Callable[[pd.DataFrame], Answers]
    theirs: Callable[[pd.DataFrame], Answers]
    truth: Answers
    error: Callable[[Answers, Answers], float]
    unit: str


def tasks(table: pd.DataFrame) -> list[Task]:
    """Five everyday ones; means and sums are one task and two errors."""
    incomes = table.groupby("region")["income"]
    ages = table["age"].to_numpy()
    means = {(r, "mean"): float(v) for r, v in incomes.mean().items()}
    sums = {(r, "sum"): float(v) for r, v in incomes.sum().items()}
    least = {p: float(np.sort(ages)[int(np.ceil(p * len(ages))) - 1]) for p in DECILES}
    histogram = {a: float((ages == a).sum()) for a in range(AGES[0], AGES[1] + 1)}
    pairs = {k: float(v) for k, v in table.groupby(["word", "sex"]).size().items()}
    bought = {p: float((table["product"] == p).sum()) for p in PRODUCTS}
    return [
        Task("histogram", our_histogram, their_histogram, histogram, _rmse, "counts"),
        Task("mean by group", our_means, their_means, means, _rmse, "money"),
        Task("sum by group", our_means, their_means, sums, _rmse, "money"),
        Task("quantiles", our_quantiles, their_quantiles, least, _rmse, "years"),
        Task("cross-tab of unknown keys", our_crosstab, their_crosstab, pairs, _lost, "share"),
        Task("top 10", our_top, their_top, bought, _regret, "purchases"),
    ]


def lines_of(function: Callable[..., object]) -> int:
    """The lines of its body, without the docstring."""
    (definition,) = ast.parse(inspect.getsource(function)).body
    assert isinstance(definition, ast.FunctionDef)
    first, last = definition.body[1], definition.body[-1]
    assert last.end_lineno is not None
    return last.end_lineno - first.lineno + 1


def left_out() -> list[str]:
    """The peers whose packages are not installed."""
    out = []
    for package, name in LEFT_OUT.items():
        try:
            version(package)
        except PackageNotFoundError:
            out.append(name)
    return out


def measured(task: Task, table: pd.DataFrame) -> tuple[float, float]:
    """The typical error of both: a root mean square over releases."""
    errors = [
        (task.error(task.truth, task.ours(table)), task.error(task.truth, task.theirs(table)))
        for _ in range(RELEASES)
    ]
    ours, theirs = np.sqrt((np.array(errors) ** 2).mean(axis=0))
    return float(ours), float(theirs)


def main() -> None:
    """Print lines and errors, side by side."""
    from rich.table import Table

    dp.enable_features("contrib")
    table = people()
    rows = Table(
        title=f"Five everyday tasks beside OpenDP {version('opendp')}, {RELEASES} releases each",
    )
    heads = ("task", "lines", "OpenDP", "ratio", "error", "OpenDP", "ratio", "unit")
    for head in heads:
        rows.add_column(head, justify="left" if head in ("task", "unit") else "right")
    for task in tasks(table):
        ours, theirs = measured(task, table)
        short, long = lines_of(task.ours), lines_of(task.theirs)
        numbers = (f"{short}", f"{long}", f"{short / long:.2f}")
        ratio = f"{ours / theirs:.2f}" if theirs else "-"
        rows.add_row(task.name, *numbers, f"{ours:.4g}", f"{theirs:.4g}", ratio, task.unit)
    show(rows)
    domain = sf.Domain([sf.Integer("age", *AGES)])
    for epsilon in (0.1, EPSILON, 4.0):
        ours = sf.plan(sf.marginals(domain, 1), sf.Budget(epsilon=epsilon)).rmse
        theirs = 1 / (sqrt(2) * sinh(epsilon / 2))  # the discrete Laplace law of scale 1 / epsilon
        print(
            f"\nHistogram at epsilon {epsilon:g} by law: {ours:.4g}, OpenDP {theirs:.4g}, "
            f"ratio {ours / theirs:.4f}."
        )
    ours, stated, lawfully = lost_by_law(table)
    print(
        f"\nCross-tab by law: {ours:.5f}; OpenDP {stated:.5f} at its threshold, which lets keys of "
        f"one person out more often than delta, ratio {ours / stated:.4f}; {lawfully:.5f} at the "
        f"least one that keeps delta, ratio {ours / lawfully:.4f}."
    )
    for name in left_out():
        print(f"\nLeft out: {name} is not installed beside this Python.")
