# SPDX-License-Identifier: Apache-2.0
"""What a release publishes by default, beside every estimate that it could have published.

    python -m bench projection          prints this table with others
    python -m bench.ratios              this table alone, about ten minutes of CPU time
    python -m bench.ratios --quick      fewer cases, about two minutes

Made-up records of five kinds and two tables that Python brings along (``bench/characters.py``),
beside Adult, are measured by the best plan, and published in six ways from the same draws of the
noise: the default, which may divide the budget for the number of records; the projection
(``project="nearest"``); the estimate that always follows the prior around independence; noise on
each table's simplex; the product of one-way tables, which are measured by themselves with all of
the budget; even counts. Errors are of shares: mean L1 per table, root mean squared, largest. Every
row is a mean over draws of records and noise, and a ratio that of means. ``summary`` counts how
often the default is behind.

The number of records is public for made-up records (replaced) and private for tables (added or
removed).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from math import sqrt

import numpy as np
from threadpoolctl import threadpool_limits

import sfumato as sf
from bench import adult
from bench.characters import TABLES
from bench.shrinkage import SHAPES
from bench.tell import Effort
from sfumato.measurement import LENGTH_BITS, Measured
from sfumato.planning.division import divided, length_of, records_of
from sfumato.planning.forecast import Forecast, drawn_noise
from sfumato.random import Draws
from sfumato.refine.cells import fit_explicit
from sfumato.refine.consistency import Refined, refined
from sfumato.refine.problem import Grid
from sfumato.refine.reconstruct import fit_answers, released_tables, released_total
from sfumato.refine.refine_limits import LIMITS
from sfumato.refine.rows import fit_rows
from sfumato.refine.shrink import product_answers, with_prior
from sfumato.solve.nonnegative import project_to_simplex

__all__ = ["CASES", "Case", "Ratios", "ratios_of", "ratios_table", "run_ratios", "summary"]

MEASURES = ("mean L1", "RMSE", "largest")
OWN = ("nearest", "prior")
SIMPLE = ("simplex", "1-way product", "even")
BEHIND = 1.03
ADULT = "Adult"


# Records


def _chain(shape: tuple[int, ...], n: int, source: np.random.Generator) -> np.ndarray:
    out = SHAPES["even"](shape, n, source)
    for a in range(1, len(shape)):
        follows = source.random(n) < 0.8
        out[follows, a] = out[follows, a - 1] * shape[a] // shape[a - 1]
    return out


def _correlated(shape: tuple[int, ...], n: int, source: np.random.Generator) -> np.ndarray:
    """Five classes of records, each with shares of its own."""
    drawn = np.stack([SHAPES["independent"](shape, n, source) for _ in range(5)])
    return np.asarray(drawn[source.integers(5, size=n), np.arange(n)])


def _clustered(shape: tuple[int, ...], n: int, source: np.random.Generator) -> np.ndarray:
    """Three kinds of records with few values that are off."""
    kinds = SHAPES["even"](shape, 3, source)[source.choice(3, n, p=(0.5, 0.3, 0.2))]
    return np.where(source.random(kinds.shape) < 0.05, SHAPES["even"](shape, n, source), kinds)


def _sparse(shape: tuple[int, ...], n: int, source: np.random.Generator) -> np.ndarray:
    """Nearly all values are the first one."""
    return np.where(source.random((n, len(shape))) < 0.05, SHAPES["even"](shape, n, source), 0)


RECORDS = {
    "chain": _chain,
    "five classes": _correlated,
    "clustered": _clustered,
    "independent": SHAPES["independent"],
    "sparse": _sparse,
}
EPSILONS = (0.1, 1.0, 10.0)


# Cases


@dataclass(frozen=True)
class Case:
    """Made-up records of one kind, or a table by its name; all marginals of so many ways."""

    kind: str
    epsilon: float
    shape: tuple[int, ...] = ()
    records: int = 1_000
    ways: int = 2

    @property
    def is_table(self) -> bool:
        """Whether the records are those of a table, all of them."""
        return not self.shape

    @property
    def name(self) -> str:
        """The records and what is asked of them."""
        sizes = "" if self.is_table else " of " + " x ".join(map(str, self.shape))
        return f"{self.kind}{sizes}, {self.ways}-way"


def _cases(shapes: Sequence[tuple[int, ...]], records: int) -> tuple[Case, ...]:
    return tuple(
        Case(kind, e, shape, records) for shape in shapes for e in EPSILONS for kind in RECORDS
    )


CASES: dict[Effort, tuple[Case, ...]] = {
    "quick": (
        *_cases([(4, 5, 6, 3)], 1_000),
        *(Case("entities of HTML", e) for e in EPSILONS),
    ),
    "usual": (
        *_cases([(4, 5, 6, 3), (8,) * 4, (8,) * 8], 1_000),
        *(Case(table, e) for table in (*TABLES, ADULT) for e in EPSILONS),
    ),
    "all": (
        *_cases([(8, 8), (4, 5, 6, 3), (8,) * 4, (8,) * 8], 1_000),
        *(Case(kind, e, (2,) * 30, 2_000, 3) for e in EPSILONS for kind in RECORDS),
        *(Case(table, e) for table in (*TABLES, ADULT) for e in EPSILONS),
        *(Case(table, e, ways=3) for table in TABLES for e in EPSILONS),
    ),
}
DRAWS = {"quick": 2, "usual": 3, "all": 3}


@dataclass(frozen=True)
class Ratios:
    """Mean L1 per table, root mean squared and largest error of shares by way; means of draws.

    ``seconds`` are those of the default, ``share`` is the projection's in it.
    """

    case: Case
    records: int
    divided_for: int | None
    errors: dict[str, tuple[float, float, float]]
    share: float
    seconds: float

    def over(self, *ways: str) -> tuple[float, float, float]:
        """The errors that are published over the least of those of some other ways."""
        others = np.min([self.errors[way] for way in ways], axis=0)
        l1, rmse, largest = (np.array(self.errors["published"]) / others).tolist()
        return l1, rmse, largest


def run_ratios(effort: Effort = "usual") -> list[Ratios]:
    """All cases, each over some draws of records and noise."""
    return [ratios_of(case, DRAWS[effort]) for case in CASES[effort]]


def ratios_of(case: Case, draws: int) -> Ratios:
    """One case, over so many draws."""
    errors: dict[str, list[tuple[float, float, float]]] = {}
    shares, seconds = [], 0.0
    for drawn in drawn_of(case, draws):
        answers, share, took = drawn.published()
        shares.append(share)
        seconds += took
        for way, tried in {**drawn.others(), "published": answers}.items():
            errors.setdefault(way, []).append(drawn.errors(tried))
    means = {way: tuple(np.mean(rows, axis=0).tolist()) for way, rows in errors.items()}
    made = drawn.made.divided_for
    return Ratios(case, drawn.records, made, means, float(np.mean(shares)), seconds / draws)


@dataclass(frozen=True, eq=False)
class Drawn:
    """One draw of records and noise.

    ``plan`` is the plan as it is, ``made`` that of the default release; ``noisy`` and ``noisier``
    are the unbiased answers by the one and the other, ``margins`` those of one-way tables by
    themselves.
    """

    plan: Forecast
    made: Forecast
    single: Forecast
    truth: np.ndarray
    noisy: np.ndarray
    own: np.ndarray
    margins: np.ndarray
    records: int
    rows: int | None

    @property
    def ends(self) -> np.ndarray:
        """Where the answers of all groups but the last end."""
        return np.cumsum([t.rows for t in self.plan.workload.terms])[:-1]

    def errors(self, answers: np.ndarray) -> tuple[float, float, float]:
        """Mean L1 per table, root mean squared and largest error, of shares."""
        off = np.abs(answers - self.truth) / self.records
        l1 = float(np.mean([part.sum() for part in np.split(off, self.ends)]))
        return l1, float(np.sqrt(np.mean(off**2))), float(off.max())

    def published(self) -> tuple[np.ndarray, float, float]:
        """What a release publishes by default, the projection's share in it, and CPU seconds."""
        groups, start = np.split(self.own, self.ends), time.process_time()
        found = refined(self.made, Measured((), self.rows), groups, shrinks=True)
        seconds = time.process_time() - start
        if isinstance(found, Refined):
            return np.concatenate(found.answers), found.share, seconds
        return np.maximum(self.own, 0.0), 0.0, seconds

    def others(self) -> dict[str, np.ndarray]:
        """What else could have been published."""
        work = self.plan.workload
        groups = np.split(self.noisy, self.ends)
        nearest = refined(self.plan, Measured((), self.rows), groups)
        tables = released_tables(self.plan, groups)
        total = float(self.rows or max(1.0, released_total(tables, None)))
        return {
            "nearest": np.concatenate(
                nearest.answers if isinstance(nearest, Refined) else np.maximum(self.noisy, 0.0)
            ),
            "prior": self._prior(groups, total),
            "simplex": np.concatenate([project_to_simplex(g, total) for g in groups]),
            "1-way product": self._product(),
            "even": total * product_answers(work, None),
        }

    def _prior(self, groups: Sequence[np.ndarray], total: float) -> np.ndarray:
        """The most likely histogram under the prior, in the metric of the noise."""
        plan, work = self.plan, self.plan.workload
        errors = [plan.standard_errors(t) for t in range(len(work.terms))]
        fit = fit_answers(work, groups, [e**-2.0 for e in errors])
        fit = with_prior(fit, released_tables(plan, groups), total)
        if np.prod([float(size) for size in work.domain.shape]) <= LIMITS.prior_cells:
            return fit_explicit(fit, Grid.of(fit), total, gap=1e-3).answers[: len(self.noisy)]
        rows = fit_rows(fit, total, draws=Draws(work.digest()))
        return np.concatenate(rows.answers()[: len(groups)])

    def _product(self) -> np.ndarray:
        """The tables of independent attributes with the shares of noisy one-way tables."""
        work, single = self.plan.workload, self.single.workload
        groups = np.split(self.margins, np.cumsum([t.rows for t in single.terms])[:-1])
        total = float(self.rows or max(1.0, float(np.mean([m.sum() for m in groups]))))
        parts = [project_to_simplex(m, total) / total for m in groups]
        shares = {t.attributes[0]: p for t, p in zip(single.terms, parts, strict=True)}
        tables = [reduce(np.multiply.outer, [shares[a] for a in t.attributes]) for t in work.terms]
        return np.concatenate([total * np.reshape(table, -1) for table in tables])


def drawn_of(case: Case, draws: int) -> Iterator[Drawn]:
    """Draws of records (of noise alone where they are those of a table) with all that is told."""
    shape, codes = _table(case.kind) if case.is_table else (case.shape, None)
    plan, single = (
        _forecast(shape, ways, case.epsilon, is_public=not case.is_table) for ways in (case.ways, 1)
    )
    source = np.random.default_rng([case.records, case.ways, len(case.kind), len(shape)])
    for i in range(draws):
        if not case.is_table:
            codes = RECORDS[case.kind](shape, case.records, source)
        assert codes is not None
        n = len(codes)
        rows = None if case.is_table else n
        label = f"{case.name} {case.epsilon} {i}"
        truth, margins = (_answers(f.workload, codes) for f in (plan, single))
        made = _divided(plan, codes, rows, label)
        noises = [next(iter(drawn_noise(f, Draws(label), 1))) for f in (plan, made)]
        other = next(iter(drawn_noise(single, Draws(f"one-way {label}"), 1)))
        yield Drawn(
            plan,
            made,
            single,
            truth,
            truth + noises[0],
            truth + noises[1],
            margins + other,
            n,
            rows,
        )


def _divided(plan: Forecast, codes: np.ndarray, rows: int | None, label: str) -> Forecast:
    """The plan as a release divides its budget: the count and the length have noise."""
    if not plan.is_divisible:
        return plan
    count = len(codes) + plan.noise[0].scale * float(Draws(f"count {label}").normals(1)[0])
    records = records_of(plan, count) if rows is None else rows
    asked, told = length_of(plan, records, is_counted=rows is None), None
    if asked is not None:
        square = sum(
            weight * float((_values(plan, b, codes) ** 2).sum())
            for b, weight in enumerate(asked.weights)
            if weight
        )
        exact = sqrt(square) / 2.0**LENGTH_BITS
        told = exact + asked.noise.scale * float(Draws(f"length {label}").normals(1)[0])
    return divided(plan, records, is_counted=rows is None, length=told)


def _values(plan: Forecast, block: int, codes: np.ndarray) -> np.ndarray:
    """What a block measures of records, without noise."""
    term, domain = plan.strategy.blocks[block].term, plan.workload.domain
    table = _margin(codes, [domain.index(a) for a in term.attributes], domain.shape)
    return np.asarray(term.apply(table), dtype=np.float64)


def _margin(codes: np.ndarray, places: Sequence[int], shape: tuple[int, ...]) -> np.ndarray:
    sizes = [shape[i] for i in places]
    cells = np.ravel_multi_index([codes[:, i] for i in places], sizes)
    return np.bincount(cells, minlength=int(np.prod(sizes))).reshape(sizes)


def _table(name: str) -> tuple[tuple[int, ...], np.ndarray]:
    """The sizes of the attributes of a table, and its codes."""
    if name == ADULT:
        return adult.domain().shape, adult.coded().to_numpy()
    return TABLES[name]()


@cache
def _forecast(shape: tuple[int, ...], ways: int, epsilon: float, *, is_public: bool) -> Forecast:
    domain = sf.Domain({f"x{i}": size for i, size in enumerate(shape)})
    work = sf.marginals(domain, ways)
    budget = sf.Budget(epsilon=epsilon, delta=1e-6)
    whose: sf.Neighbours = "replace-one" if is_public else "add-remove"
    return sf.plan(work, budget, whose, seconds=None, cache=False).forecast.in_normal_form


def _answers(work: sf.Workload, codes: np.ndarray) -> np.ndarray:
    domain = work.domain
    tables = [[domain.index(a) for a in t.attributes] for t in work.terms]
    return np.concatenate([_margin(codes, p, domain.shape).reshape(-1) for p in tables]).astype(
        np.float64
    )


# What is printed


def ratios_table(rows: Sequence[Ratios]) -> None:
    """Print the errors of every way, and those published over the least of the others."""
    ways = [*OWN, *SIMPLE, "published"]
    print("\n**What a release publishes beside what it could: mean L1 / RMSE / largest**\n")
    heads = ["records", "n", "epsilon", "divided for", *ways, "over own", "over all", "CPU s"]
    print("| " + " | ".join(heads) + " |")
    print("| --- " * len(heads) + "|")
    for r in rows:
        cells = [" / ".join(f"{e:.4f}" for e in r.errors[way]) for way in ways]
        each = r.over(*OWN), r.over(*OWN, *SIMPLE)
        cells += [" / ".join(f"{ratio:.2f}" for ratio in one) for one in each]
        made = "" if r.divided_for is None else f"{r.divided_for:,}"
        start = f"| {r.case.name} | {r.records:,} | {r.case.epsilon:g} | {made} | "
        print(start + " | ".join(cells) + f" | {r.seconds:.1f} |", flush=True)


def summary(rows: Sequence[Ratios]) -> None:
    """Print how far the default is behind each way, by measure: mean, worst, how often by 3%."""
    print(
        f"\n**Published over each way, {len(rows)} cases: mean / worst / cases above {BEHIND}**\n"
    )
    print("| beside | " + " | ".join(MEASURES) + " |")
    print("| --- " * (len(MEASURES) + 1) + "|")
    every = [*((way,) for way in (*OWN, *SIMPLE)), OWN, (*OWN, *SIMPLE)]
    names = [*OWN, *SIMPLE, "the better of nearest and prior", "the best of all"]
    for name, ways in zip(names, every, strict=True):
        found = np.array([r.over(*ways) for r in rows])
        cells = [f"{c.mean():.3f} / {c.max():.2f} / {int((c > BEHIND).sum())}" for c in found.T]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main(effort: Effort = "usual") -> None:
    """Print the table and its summary."""
    with threadpool_limits(limits=1):
        rows = run_ratios(effort)
    ratios_table(rows)
    summary(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The default beside its own estimates")
    parser.add_argument("--quick", action="store_true", help="fewer cases")
    main("quick" if parser.parse_args().quick else "usual")
