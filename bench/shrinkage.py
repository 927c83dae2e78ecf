# SPDX-License-Identifier: Apache-2.0
"""Shrinkage beside plain projection: when it helps, and what it costs where it does not.

    python -m bench shrinkage          about four minutes of CPU time

Tables of several shapes are made up, from all records alike to even counts, and answered by the
best plan with its noise (delta = 1e-6). Every row is the root mean squared error, in counts, over a
few draws of records and noise: of the projection, of what releases publish
(``refine/shrink.py``), and of the guesses by themselves. Public records are a sample of the same
population. The exact counts are used for the errors alone. ``bench/results`` gets
``shrinkage.csv``.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from functools import cache
from math import isnan
from pathlib import Path

import numpy as np

import sfumato as sf
from bench.adult import yes_no
from bench.tell import show
from sfumato.planning.forecast import drawn_noise
from sfumato.random import Draws
from sfumato.refine.consistency import Refined, objective_fit, refined_listed
from sfumato.refine.problem import Grid, Quadratic
from sfumato.refine.reconstruct import released_tables
from sfumato.refine.shrink import EVEN, INDEPENDENT, Guesses, PublicRecords, find_prior
from sfumato.run.linear import Plan

__all__ = ["CASES", "SHAPES", "WORKLOADS", "Case", "Row", "main", "measured_case"]

RESULTS = Path(__file__).parent / "results"
RUNS = 12
RECORDS = (10, 30, 100, 300, 1_000, 10_000, 100_000)
PUBLIC = 50  # records of the sample that anybody may see

Source = np.random.Generator
Codes = np.ndarray


def _skewed(size: int, source: Source) -> np.ndarray:
    shares = source.permutation(1 / np.arange(1.0, size + 1))
    return shares / shares.sum()


def _even(shape: tuple[int, ...], n: int, source: Source) -> Codes:
    return np.column_stack([source.integers(size, size=n) for size in shape])


def _alike(shape: tuple[int, ...], n: int, source: Source) -> Codes:
    return np.tile([source.integers(size) for size in shape], (n, 1))


def _independent(shape: tuple[int, ...], n: int, source: Source) -> Codes:
    return np.column_stack([source.choice(size, n, p=_skewed(size, source)) for size in shape])


def _kinds(shape: tuple[int, ...], n: int, source: Source) -> Codes:
    """Three kinds of records, each with its own skewed attributes."""
    of = source.choice(3, n, p=(0.5, 0.3, 0.2))
    drawn = np.stack([_independent(shape, n, source) for _ in range(3)])
    return np.asarray(drawn[of, np.arange(n)])


def _chained(shape: tuple[int, ...], n: int, source: Source) -> Codes:
    """Most attributes follow from the one before."""
    out = _independent(shape, n, source)
    for a in range(1, len(shape)):
        follows = source.random(n) < 0.7
        out[follows, a] = out[follows, a - 1] * shape[a] // shape[a - 1]
    return out


SHAPES: dict[str, Callable[[tuple[int, ...], int, Source], Codes]] = {
    "alike": _alike,
    "kinds": _kinds,
    "chained": _chained,
    "independent": _independent,
    "even": _even,
}

_MIXED = sf.Domain({"a": 4, "b": 5, "c": 6, "d": 3})
WORKLOADS: dict[str, sf.Workload] = {
    "2-way of 6 yes/no": sf.marginals(sf.Domain({f"x{i}": 2 for i in range(6)}), 2),
    "2-way of 4 x 5 x 6 x 3": sf.marginals(_MIXED, 2),
    "table of 8 x 12": sf.marginals(sf.Domain({"a": 8, "b": 12}), 2),
    "running totals of 64": sf.prefixes(sf.Domain({"a": 64}), "a"),
}
ADULT = "2-way of 16 yes/no of Adult"


@dataclass(frozen=True)
class Case:
    """Records of one shape, asked one workload at one epsilon."""

    workload: str
    shape: str
    records: int
    epsilon: float
    is_public: bool = False


@dataclass(frozen=True)
class Row:
    """Root mean squared errors in counts; ``kept`` is the mean share of the projection."""

    workload: str
    shape: str
    records: int
    epsilon: float
    is_public: bool
    unbiased: float
    projected: float
    shrunk: float
    even: float
    independent: float
    kept: float

    @property
    def ratio(self) -> float:
        """What shrinking does to the error of the projection."""
        return self.shrunk / self.projected if self.projected else 1.0


CASES = (
    *(Case(work, shape, n, 1.0) for work in WORKLOADS for shape in SHAPES for n in RECORDS[:6]),
    *(Case("2-way of 4 x 5 x 6 x 3", shape, n, 0.1) for shape in SHAPES for n in (300, 100_000)),
    *(Case("2-way of 4 x 5 x 6 x 3", shape, n, 1.0, True) for shape in SHAPES for n in (30, 300)),
    *(Case(ADULT, "Adult", n, 1.0) for n in (30, 100, 1_000)),
)


def measured_case(case: Case, runs: int = RUNS) -> Row:
    """All errors of one case."""
    work = _work(case.workload)
    plan = _plan(case.workload, case.epsilon)
    label = f"{case.workload} {case.shape} {case.records} {case.epsilon}"
    source = np.random.default_rng([case.records, len(label)])
    squares, kept = [], []
    for run, noise in enumerate(drawn_noise(plan.forecast, Draws(f"bench {label}"), runs)):
        codes = _records(case, work, source, run)
        public = _sample(work, codes) if case.is_public else None
        true = _answers(work, codes[: case.records])
        found, share = _tried(plan, true, true + noise, case.records, public)
        squares.append([np.mean(noise**2), *found])
        kept.append(share)
    errors = np.sqrt(np.mean(squares, axis=0)).tolist()
    return Row(
        case.workload, case.shape, case.records, case.epsilon, case.is_public, *errors,
        float(np.mean(kept)),
    )  # fmt: skip


def _tried(
    plan: Plan, true: np.ndarray, noisy: np.ndarray, n: int, public: PublicRecords | None
) -> tuple[list[float], float]:
    """Squared errors: projected, shrunk, even counts, independence; how much was kept."""
    work = plan.workload
    groups = np.split(noisy, np.cumsum([t.rows for t in work.terms])[:-1])
    ways = [
        refined_listed(plan.forecast, groups, n, shrinks=shrinks, public=public)
        for shrinks in (False, True)
    ]
    near, shrunk = (w for w in ways if isinstance(w, Refined))
    fit = objective_fit(work, groups)
    guesses, tables = Guesses(Quadratic(fit, Grid.of(fit))), released_tables(plan.forecast, groups)
    has_prior = any(len(t.attributes) > 1 for t in tables)
    prior = find_prior(work.domain, tables, float(n)) if has_prior else None
    guessed = dict(zip(guesses.names(has_prior), n * guesses.answers(prior), strict=True))
    nothing = np.full(len(true), np.nan)
    answers = (
        np.concatenate(near.answers),
        np.concatenate(shrunk.answers),
        guessed[EVEN],
        guessed.get(INDEPENDENT, nothing),
    )
    return [float(np.mean((a - true) ** 2)) for a in answers], shrunk.share


@cache
def _work(name: str) -> sf.Workload:
    if name == ADULT:
        return sf.marginals(sf.Domain({f"x{i}": 2 for i in range(16)}), 2)
    return WORKLOADS[name]


@cache
def _plan(name: str, epsilon: float) -> Plan:
    budget = sf.Budget(epsilon=epsilon, delta=1e-6)
    return sf.plan(_work(name), budget, "replace-one", cache=False, seconds=None)


def _records(case: Case, work: sf.Workload, source: Source, run: int) -> Codes:
    """The records, and after them some more of the same population that may be public."""
    if case.workload == ADULT:
        return yes_no(16, case.records, run).to_numpy()
    return SHAPES[case.shape](work.domain.shape, case.records + PUBLIC, source)


def _sample(work: sf.Workload, codes: Codes) -> PublicRecords:
    return PublicRecords(work.domain.names, codes[-PUBLIC:], np.ones(PUBLIC))


def _answers(work: sf.Workload, codes: Codes) -> np.ndarray:
    out = []
    for term in work.terms:
        at = [codes[:, work.domain.index(name)] for name in term.attributes]
        cells = np.ravel_multi_index(at, term.shape)
        table = np.bincount(cells, minlength=term.cells).reshape(term.shape)
        out.append(np.asarray(term.answer(table), dtype=np.float64))
    return np.concatenate(out)


def main() -> None:
    """Print every case and the summary; write the rows to ``bench/results``."""
    rows = []
    print("\n**Root mean squared errors in counts; in brackets over the projection**\n")
    print(
        "| queries | records | n | epsilon | unbiased | projected | shrunk | even | independent |"
    )
    print("| --- " * 9 + "|")
    for case in CASES:
        row = measured_case(case)
        rows.append(row)
        shape = f"{row.shape}, public sample" if row.is_public else row.shape
        independent = "-" if isnan(row.independent) else f"{row.independent:.3g}"
        print(
            f"| {row.workload} | {shape} | {row.records:,} | {row.epsilon:g} "
            f"| {row.unbiased:.3g} | {row.projected:.3g} | {row.shrunk:.3g} ({row.ratio:.2f}) "
            f"| {row.even:.3g} | {independent} |",
            flush=True,
        )
    _summary([r for r in rows if not r.is_public])
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "shrinkage.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([f.name for f in fields(Row)])
        writer.writerows(astuple(row) for row in rows)
    print(path)


def _summary(rows: list[Row]) -> None:
    """Ratios of the error of shrunk answers to that of the projection, by shape."""
    from rich.table import Table

    shown = Table(title="Error of shrunk answers over that of the projection")
    shown.add_column("records")
    for head in ("cases", "least", "mean", "largest"):
        shown.add_column(head, justify="right")
    for shape in [*dict.fromkeys(r.shape for r in rows), "all"]:
        ratios = [r.ratio for r in rows if shape in (r.shape, "all")]
        numbers = (min(ratios), float(np.mean(ratios)), max(ratios))
        shown.add_row(shape, str(len(ratios)), *(f"{number:.3f}" for number in numbers))
    show(shown)
