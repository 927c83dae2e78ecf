# SPDX-License-Identifier: Apache-2.0
"""Projection: what it takes off the error, how long it takes, and the same of other systems.

1. Cells that can be listed (``bench/explicit.py``): the nearest answers that data can have.
2. 6.4e17 cells (``bench/implicit.py``): all two-way marginals of Adult.
3. On few cells and beyond listed ones: what a release publishes beside the projection, the prior
   and the even counts that it weighs (``refine/shrink.py``), on five kinds of made-up records, on
   Adult and on two tables that Python brings along (``bench/characters.py``).
4. A thousand records of each of these: the release, which divides its budget for them, beside
   the undivided one, noise on each table's simplex, the product of one-way tables and even counts.
5. With ``--all``: three-way marginals, peers that take minutes, and the example of the lecture
   notes for the third (2,000 records, 30 yes/no attributes, all marginals up to three ways).

Packages that are installed are run here: scipy, cvxpy, mbi. Rows marked *file* come from
``bench/peers/data-dependent.csv``, measured elsewhere on one core: their errors can be compared
with ours, their seconds and memory hardly. *Asked* is what a system was told that is wanted.

    python -m bench projection          four to five minutes of CPU time
    python -m bench projection --all    with the long rows

Tables are printed; ``bench/results`` gets ``projection.csv`` and ``projection.png``.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import combinations
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import sfumato as sf
from bench import adult, explicit, implicit
from bench.characters import TABLES
from bench.shrinkage import SHAPES
from bench.tell import Effort, is_within
from sfumato.measurement import Measured
from sfumato.planning.division import divided, records_of
from sfumato.planning.forecast import Forecast, drawn_noise
from sfumato.random import Draws
from sfumato.refine.cells import fit_explicit
from sfumato.refine.consistency import Refined, refined
from sfumato.refine.problem import Grid
from sfumato.refine.reconstruct import fit_answers, released_tables
from sfumato.refine.refine_limits import LIMITS
from sfumato.refine.rows import fit_rows
from sfumato.refine.shrink import product_answers, with_prior
from sfumato.solve.nonnegative import project_to_simplex

__all__ = [
    "Divided",
    "Judged",
    "Solved",
    "Weighed",
    "figures",
    "main",
    "run_divided",
    "run_explicit",
    "run_implicit",
    "run_weighed",
    "solvers",
]

RESULTS = Path(__file__).parent / "results"
FILE = Path(__file__).parent / "peers" / "data-dependent.csv"
ADULT = "adult (14 attrs; 588 one-hot; 6.4e17 cells)"
LISTED = {10: "NLTCS 2^10 n=1000", 16: "NLTCS 2^16 n=1000", 20: "synthetic mixture 2^20 n=1000"}
NOT_PEERS = ("column generation", "projection study")
HERE, FILED = "here", "file"
LIVE_EPSILONS = (1.0,)


@dataclass(frozen=True)
class Judged:
    """Errors of shares of one system at one epsilon; ``where`` it ran."""

    way: str
    is_ours: bool
    where: str
    epsilon: float
    ways: int
    judged: int
    mean_l1: float
    max_abs: float
    rmse: float
    seconds: float
    megabytes: float


@dataclass(frozen=True)
class Solved:
    """One projection of listed cells; ``excess`` is certified, errors are known on shared data."""

    way: str
    is_ours: bool
    where: str
    attributes: int
    seconds: float
    megabytes: float | None
    excess: float | None = None
    before: float | None = None
    after: float | None = None


def figures(judged: int) -> list[Judged]:
    """What the file says of other systems on the tables of Adult of so many attributes."""
    found: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
    for row in _filed():
        if row["dataset"] == ADULT and row["workload"] == f"all {judged}-way":
            found.setdefault((row["peer"], row["epsilon"]), {})[row["metric"]] = row
    out = []
    for (peer, epsilon), by in found.items():
        one = by["mean_L1"]
        errors = [float(by[metric]["value"]) for metric in ("mean_L1", "max_abs", "rmse")]
        ways = judged if f"all {judged}-way" in one["notes"] else _trained(one["notes"])
        cost = float(one["seconds"]), float(one["peak_mb"])
        out.append(Judged(peer, False, FILED, float(epsilon), ways, judged, *errors, *cost))
    return out


def solvers(attributes: int) -> list[Solved]:
    """What the file says of the seconds of projections of as many cells; the data are others."""
    found = []
    for row in _filed():
        if row["dataset"] == LISTED[attributes] and row["metric"] == "projection_obj":
            cost = float(row["seconds"]), float(row["peak_mb"])
            found.append(Solved(row["peer"], False, FILED, attributes, *cost))
    return found


def _filed() -> list[dict[str, str]]:
    with FILE.open(newline="") as file:
        return [r for r in csv.DictReader(file) if not r["peer"].startswith(NOT_PEERS)]


def _trained(notes: str) -> int:
    return 2 if "trained for all 2-way" in notes else 0


def run_explicit(effort: Effort = "usual") -> tuple[list[Solved], list[str]]:
    """Every way on the same noisy answers, and what could not be run."""
    found: dict[int, list[explicit.Found]] = {}
    messages = []
    for asked in explicit.RUNS:
        if not is_within(asked.effort, effort):
            continue
        if asked.missing is not None:
            messages.append(asked.missing)
            continue
        found.setdefault(asked.attributes, []).append(explicit.run_alone(asked))
    rows = []
    for attributes, runs in found.items():
        least = max(f.least for f in runs)
        for f in runs:
            cost, errors = (f.seconds, f.megabytes), (f.excess(least), f.before, f.after)
            rows.append(Solved(f.way, f.way == "sfumato", HERE, attributes, *cost, *errors))
        rows += solvers(attributes)
    return rows, messages


def run_implicit(effort: Effort = "usual") -> tuple[list[Judged], list[str]]:
    """Every way on Adult, beside the figures of the file, and what could not be run."""
    rows, messages = [], []
    for asked in _asked(effort):
        if asked.missing is not None:
            messages.append(asked.missing)
            continue
        for f in implicit.run_alone(asked):
            numbers = f.mean_l1, f.max_abs, f.rmse, f.seconds, f.megabytes
            is_ours = asked.way != "mbi"
            rows.append(Judged(f.way, is_ours, HERE, f.epsilon, f.ways, f.judged, *numbers))
    wide = figures(3) if effort == "all" else []
    return [*rows, *figures(2), *wide], messages


def _asked(effort: Effort) -> list[implicit.Run]:
    if effort == "quick":
        return [implicit.Run(way) for way in (implicit.QUICK, "adaptive")]
    if effort == "usual":
        return [*implicit.RUNS, implicit.Run("mbi", LIVE_EPSILONS)]
    models = ("rows", "prior rows", "adaptive")  # these answer tables that nobody measured
    asked = [implicit.Run(r.way, judged=(2, 3) if r.way in models else (2,)) for r in implicit.RUNS]
    wide = ("gaussian simplex+optimal simplex", "adaptive")
    asked += [implicit.Run(way, ways=3, judged=(3,)) for way in wide]
    return [*asked, implicit.Run("mbi")]


# The prior of a release, weighed


@dataclass(frozen=True)
class Weighed:
    """Mean L1 per table, root mean squared and largest error of shares, by way; means of draws.

    Ways: the projection (``project="nearest"``), the estimate that always follows the prior around
    independence, even counts, the product of one-way tables (measured by themselves, with all of
    the budget), unbiased answers and what a release publishes. ``share`` is the projection's in it.
    """

    queries: str
    kind: str
    records: int
    epsilon: float
    errors: dict[str, tuple[float, float, float]]
    share: float
    seconds: float

    def ratios(self, *ways: str) -> tuple[float, ...]:
        """The errors that are published over the least of those of some other ways."""
        others = np.min([self.errors[way] for way in ways], axis=0)
        return tuple((np.array(self.errors["published"]) / others).tolist())


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
LONG, YES_NO = (8,) * 8, (2,) * 30
LISTED_SHAPES = ((8, 8), (4, 5, 6, 3), (8,) * 4)  # 64, 360 and 4,096 cells
ADULT_CODED = "Adult"
PRIOR_DRAWS = 3
EPSILONS = (0.1, 1.0, 10.0)


def run_weighed(effort: Effort = "usual") -> list[Weighed]:
    """What releases publish on few cells and beyond listed ones, on every kind of records."""
    cases: list[tuple[tuple[int, ...], int, str, int, float, int]] = [
        (shape, 2, kind, 1_000, epsilon, PRIOR_DRAWS)
        for shape in ((LISTED_SHAPES[1],) if effort == "quick" else (*LISTED_SHAPES, LONG))
        for epsilon in EPSILONS
        for kind in RECORDS
    ]
    if is_within("usual", effort):
        cases += [((), 2, table, 0, e, 1) for table in (*TABLES, ADULT_CODED) for e in EPSILONS]
    if is_within("all", effort):
        cases += [(YES_NO, 3, kind, 2_000, e, 1) for e in EPSILONS for kind in RECORDS]
    return [_weighed(*each) for each in cases]


def _real(name: str) -> tuple[tuple[int, ...], np.ndarray]:
    """The sizes of the attributes of a table, and its codes."""
    if name == ADULT_CODED:
        return adult.domain().shape, adult.coded().to_numpy()
    return TABLES[name]()


@cache
def _forecast(shape: tuple[int, ...], ways: int, epsilon: float) -> Forecast:
    domain = sf.Domain({f"x{i}": size for i, size in enumerate(shape)})
    work = sf.marginals(domain, ways)
    for fewer in range(1, ways if shape == YES_NO else 1):
        work = work | sf.marginals(domain, fewer)
    budget = sf.Budget(epsilon=epsilon, delta=1e-6)
    return sf.plan(work, budget, "replace-one", seconds=None, cache=False).forecast.in_normal_form


def _weighed(
    shape: tuple[int, ...], ways: int, kind: str, n: int, epsilon: float, draws: int
) -> Weighed:
    codes = None
    if not shape:
        shape, codes = _real(kind)
        n = len(codes)
    forecast, single = _forecast(shape, ways, epsilon), _forecast(shape, 1, epsilon)
    work = forecast.workload
    ends = np.cumsum([t.rows for t in work.terms])[:-1]
    source = np.random.default_rng([n, ways, len(kind)])
    errors: dict[str, list[tuple[float, float, float]]] = {}
    shares, seconds = [], 0.0
    label = Draws(f"weighed {kind} {n} {epsilon} {ways}")
    for noise in drawn_noise(forecast, label, draws):
        records = RECORDS[kind](shape, n, source) if codes is None else codes
        truth = _table_answers(work, records)
        tried = _four_ways(forecast, truth + noise, n)
        seconds += tried.seconds
        shares.append(tried.share)
        other = next(iter(drawn_noise(single, Draws(f"{kind} {len(shares)} {epsilon}"), 1)))
        margins = _table_answers(single.workload, records) + other
        estimates = {
            **tried.answers,
            "1-way product": _product(work, single.workload, margins, float(n)),
            "unbiased": truth + noise,
        }
        for way, answers in estimates.items():
            errors.setdefault(way, []).append(_three(answers - truth, ends, n))
    means = {way: tuple(np.mean(rows, axis=0).tolist()) for way, rows in errors.items()}
    sizes = f" of {shape[0]} values" if len(set(shape)) == 1 else ""
    queries = f"{ways}-way of {len(shape)} attributes{sizes}"
    share = float(np.mean(shares))
    return Weighed(queries, kind, n, epsilon, means, share, seconds / draws)


def _three(off: np.ndarray, ends: np.ndarray, n: int) -> tuple[float, float, float]:
    """Mean L1 per table, root mean squared and largest error, of shares."""
    off = np.abs(off) / n
    l1 = float(np.mean([part.sum() for part in np.split(off, ends)]))
    return l1, float(np.sqrt(np.mean(off**2))), float(off.max())


def _product(
    work: sf.Workload, single: sf.Workload, margins: np.ndarray, total: float | None
) -> np.ndarray:
    """The tables of independent attributes with the shares of noisy one-way tables."""
    groups = np.split(margins, np.cumsum([t.rows for t in single.terms])[:-1])
    if total is None:
        total = max(1.0, float(np.mean([m.sum() for m in groups])))
    parts = [project_to_simplex(m, total) / total for m in groups]
    shares = {t.attributes[0]: p for t, p in zip(single.terms, parts, strict=True)}
    tables = [reduce(np.multiply.outer, [shares[a] for a in t.attributes]) for t in work.terms]
    return np.concatenate([total * np.reshape(table, -1) for table in tables])


@dataclass(frozen=True, eq=False)
class _Tried:
    """Projection, prior, even counts and default; the projection's share; CPU seconds."""

    answers: dict[str, np.ndarray]
    share: float
    seconds: float


def _four_ways(forecast: Forecast, noisy: np.ndarray, n: int) -> _Tried:
    work = forecast.workload
    groups = np.split(noisy, np.cumsum([t.rows for t in work.terms])[:-1])
    seen = Measured((), n)
    start = time.process_time()
    default = refined(forecast, seen, groups, shrinks=True)
    seconds = time.process_time() - start
    nearest = refined(forecast, seen, groups)
    if not (isinstance(default, Refined) and isinstance(nearest, Refined)):
        raise RuntimeError(f"nothing agrees: {default}, {nearest}")
    errors = [forecast.standard_errors(t) for t in range(len(work.terms))]
    fit = fit_answers(work, groups, [e**-2.0 for e in errors])
    fit = with_prior(fit, released_tables(forecast, groups), float(n))
    if default.method == "histogram" and np.prod(work.domain.shape) <= LIMITS.prior_cells:
        prior = fit_explicit(fit, Grid.of(fit), float(n), gap=1e-3).answers[: len(noisy)]
    else:
        rows = fit_rows(fit, float(n), draws=Draws(work.digest()))
        prior = np.concatenate(rows.answers()[: len(groups)])
    even = n * product_answers(work, None)
    near, published = (np.concatenate(r.answers) for r in (nearest, default))
    answers = {"nearest": near, "prior": prior, "even": even, "published": published}
    return _Tried(answers, default.share, seconds)


def _table_answers(work: sf.Workload, codes: np.ndarray) -> np.ndarray:
    tables = {}
    for size in {len(t.attributes) for t in work.terms}:
        for names in combinations(work.domain.names, size):
            at = [codes[:, work.domain.index(name)] for name in names]
            shape = [work.domain[name].size for name in names]
            cells = np.ravel_multi_index(at, shape)
            tables[names] = np.bincount(cells, minlength=int(np.prod(shape)))
    return np.concatenate([tables[t.attributes] for t in work.terms]).astype(np.float64)


def weighed_table(rows: Sequence[Weighed]) -> None:
    """Print the errors, and those published over the better of projection and prior."""
    print(
        "\n**What is published beside what it weighs: mean L1 / RMSE / largest error of shares**\n"
    )
    ways = ("nearest", "prior", "1-way product", "published")
    ratios = "over nearest and prior", "over 1-way product"
    heads = ["queries", "records", "n", "epsilon", *ways, *ratios, "share of nearest", "CPU s"]
    print("| " + " | ".join(heads) + " |")
    print("| --- " * len(heads) + "|")
    for r in rows:
        cells = [" / ".join(f"{e:.4f}" for e in r.errors[way]) for way in ways]
        ratios = r.ratios("nearest", "prior"), r.ratios("1-way product")
        cells += [" / ".join(f"{ratio:.2f}" for ratio in each) for each in ratios]
        start = f"| {r.queries} | {r.kind} | {r.records:,} | {r.epsilon:g} | "
        print(start + " | ".join(cells) + f" | {r.share:.2f} | {r.seconds:.1f} |", flush=True)


# The budget of a release, divided for the number of records


@dataclass(frozen=True)
class Divided:
    """Mean L1 per table, root mean squared and largest error of shares, by the name of the way."""

    table: str
    ways: int
    records: int
    epsilon: float
    divided_for: int | None
    errors: dict[str, tuple[float, float, float]]

    @property
    def ratios(self) -> tuple[float, ...]:
        """Those of what is published over the least of all others, before it included."""
        others = [e for way, e in self.errors.items() if way != "published"]
        pairs = zip(self.errors["published"], np.min(others, axis=0), strict=True)
        return tuple(float(own / least) for own, least in pairs)


FEW_RECORDS = 1_000
DIVIDED_DRAWS = 3


def run_divided(effort: Effort = "usual") -> list[Divided]:
    """A thousand records of every table, drawn once: what a release divides its budget for."""
    tables = [*TABLES, ADULT_CODED] if is_within("usual", effort) else ["entities of HTML"]
    asked = ((2, 0.1), (2, 1.0), (3, 1.0)) if is_within("all", effort) else ((2, 0.1), (2, 1.0))
    return [_divided(table, ways, epsilon) for table in tables for ways, epsilon in asked]


def _divided(table: str, ways: int, epsilon: float) -> Divided:
    shape, codes = _real(table)
    codes = codes[np.random.default_rng(0).permutation(len(codes))[:FEW_RECORDS]]
    domain = sf.Domain({f"x{i}": size for i, size in enumerate(shape)})
    budget = sf.Budget(epsilon=epsilon, delta=1e-9)

    def planned(work: sf.Workload) -> Forecast:
        plan = sf.plan(work, budget, mechanism="factorization", cache=False)
        return plan.forecast.in_normal_form

    plan, single = planned(sf.marginals(domain, ways)), planned(sf.marginals(domain, 1))
    work, n = plan.workload, len(codes)
    truth, singles = _table_answers(work, codes), _table_answers(single.workload, codes)
    ends = np.cumsum([t.rows for t in work.terms])[:-1]
    label, counts = Draws(f"divided {table} {ways} {epsilon}"), Draws("noisy counts")
    errors: dict[str, list[tuple[float, float, float]]] = {}
    records = None
    for noise, other in zip(
        drawn_noise(plan, label, DIVIDED_DRAWS),
        drawn_noise(single, label, DIVIDED_DRAWS),
        strict=True,
    ):
        records = records_of(plan, n + plan.noise[0].scale * float(counts.normals(1)[0]))
        made = divided(plan, records, is_counted=True)
        own = next(iter(drawn_noise(made, Draws(f"{table} {records}"), 1)))
        groups = np.split(truth + noise, ends)
        tried = {
            "on its simplex": np.concatenate([project_to_simplex(g, n) for g in groups]),
            "1-way product": _product(work, single.workload, singles + other, None),
            "even": n * product_answers(work, None),
            "undivided": _agreed(plan, groups),
            "published": _agreed(made, np.split(truth + own, ends)),
        }
        for way, answers in tried.items():
            errors.setdefault(way, []).append(_three(answers - truth, ends, n))
    means = {way: tuple(np.mean(rows, axis=0).tolist()) for way, rows in errors.items()}
    return Divided(table, ways, n, epsilon, made.divided_for, means)


def _agreed(forecast: Forecast, groups: Sequence[np.ndarray]) -> np.ndarray:
    """What a release publishes whose number of records is private; cut where nothing agrees."""
    found = refined(forecast, Measured((), None), groups, shrinks=True)
    answers = np.concatenate(found.answers if isinstance(found, Refined) else groups)
    return np.maximum(answers, 0.0)


def divided_table(rows: Sequence[Divided]) -> None:
    """Print the three errors of every way, and those of the release over the least of the rest."""
    ways = list(rows[0].errors)
    print("\n**A budget divided for few records: mean L1 / RMSE / largest error of shares**\n")
    print("| table | asked | n | epsilon | " + " | ".join([*ways, "ratios"]) + " |")
    print("| --- " * (len(ways) + 5) + "|")
    for r in rows:
        cells = [" / ".join(f"{e:.4f}" for e in r.errors[way]) for way in ways]
        cells.append(" / ".join(f"{ratio:.2f}" for ratio in r.ratios))
        start = f"| {r.table} | {r.ways}-way | {r.records:,} | {r.epsilon:g} | "
        print(start + " | ".join(cells) + " |", flush=True)


def best(rows: Sequence[Judged], epsilon: float, judged: int) -> Judged | None:
    """The peer of least mean L1 distance, run here or filed."""
    fitting = [r for r in rows if not r.is_ours and (r.epsilon, r.judged) == (epsilon, judged)]
    return min(fitting, key=lambda r: r.mean_l1, default=None)


def main(effort: Effort = "usual") -> None:
    """Print the tables; write all figures and the picture to ``bench/results``."""
    from bench.show_projection import judged_table, picture, reductions, solved_table, written

    solved, absent = run_explicit(effort)
    solved_table(solved)
    with threadpool_limits(limits=1):
        reductions([explicit.reduction(16, n) for n in explicit.REDUCTIONS])
        weighed_table(run_weighed(effort))
        divided_table(run_divided(effort))
    rows, missing = run_implicit(effort)
    for judged in (2, 3):
        for epsilon in implicit.EPSILONS:
            chosen = [r for r in rows if (r.epsilon, r.judged) == (epsilon, judged)]
            if any(r.is_ours for r in chosen):
                judged_table(chosen, best(rows, epsilon, judged))
    for message in dict.fromkeys([*absent, *missing]):
        print(message)
    RESULTS.mkdir(exist_ok=True)
    for path in (written(solved, rows, RESULTS), picture(rows, RESULTS)):
        print(path)
