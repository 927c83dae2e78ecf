# SPDX-License-Identifier: Apache-2.0
"""No limit of the planner may show in the error: sizes are swept across every one of them.

    python -m bench limits             error and CPU time just below and just above each limit
    python -m bench limits --quick     without the slow ones

Of every kind of workload some sizes are planned on both sides of a limit of the planner (queries
that are solved as one matrix, classes of cells, cells of an attribute, measured values). Every plan
comes with a lower bound on the error of all strategies; where the error over that bound grows by
more than 5% from one size to the next, a limit shows: a *jump*.
``tests/unit/planning/test_planner_limits.py``
checks the quickest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

import sfumato as sf
from bench.tell import Effort, show
from sfumato.errors import PlanError

__all__ = ["SWEEPS", "Point", "Sweep", "jumps", "main", "swept"]

JUMP = 0.05  # the least that is told
GAUSSIAN, PURE = sf.Budget(mu=1), sf.Budget(epsilon=1)

Work = sf.Workload


@dataclass(frozen=True)
class Sweep:
    """A kind of workload by its size, and the sizes; ``limit`` says what they cross."""

    kind: str
    limit: str
    sizes: tuple[int, ...]
    make: Callable[[int], Work]
    budget: sf.Budget = GAUSSIAN
    objective: str = "rmse"
    neighbours: str = "add-remove"
    is_slow: bool = False


@dataclass(frozen=True)
class Point:
    """One plan: its error, how far it is from the least, and what it took."""

    size: int
    error: float
    certificate: float | None
    mechanism: str
    seconds: float


def _domain(*sizes: int) -> sf.Domain:
    return sf.Domain({f"a{i}": n for i, n in enumerate(sizes)})


def _union(works: Sequence[Work]) -> Work:
    out = works[0]
    for work in works[1:]:
        out = out | work
    return out


def _sequence(seed: int) -> Iterator[int]:
    """Numbers that look random: a multiplicative generator of Lehmer, 1951."""
    state = seed * 7919 + 1
    while True:
        state = state * 48271 % (2**31 - 1)
        yield state


def sql_products(count: int) -> Work:
    """Counts of SQL, each a range of ages of one sex."""
    domain, draw = sf.Domain({"age": 100, "sex": 2, "race": 5}), _sequence(1)
    texts = []
    for _ in range(count):
        low, width, sex = next(draw) % 90, 5 + next(draw) % 40, next(draw) % 2
        texts.append(
            f"SELECT COUNT(*) FROM t WHERE age BETWEEN {low} AND {min(99, low + width)} "
            f"AND sex = {sex}"
        )
    return _union([sf.sql(domain, text) for text in texts])


def sql_adult(count: int) -> Work:
    """Counts of SQL with three conditions each, on 10^5 cells."""
    domain, draw = (
        sf.Domain({"age": 74, "work": 9, "school": 16, "sex": 2, "race": 5}),
        _sequence(7),
    )
    texts = []
    for _ in range(count):
        low, width, work = next(draw) % 60, 2 + next(draw) % 30, next(draw) % 9
        school, race, sex = next(draw) % 16, next(draw) % 5, next(draw) % 2
        wide = f"age BETWEEN {low} AND {min(73, low + width)}"
        second = [f"work = {work}", f"school <= {school}", f"race = {race}"][next(draw) % 3]
        texts.append(f"SELECT COUNT(*) FROM t WHERE {wide} AND {second} AND sex = {sex}")
    return _union([sf.sql(domain, text) for text in texts])


def sql_prefixes(count: int) -> Work:
    """Counts of SQL that together are running totals by sex."""
    domain = sf.Domain({"age": 100, "sex": 2, "race": 5})
    asked = [(a, s) for a in range(100) for s in range(2)][:count]
    return _union(
        [sf.sql(domain, f"SELECT COUNT(*) FROM t WHERE age <= {a} AND sex = {s}") for a, s in asked]
    )


def sql_conditions(count: int) -> Work:
    """Counts of SQL with OR: no products."""
    domain, draw = sf.Domain({"age": 60, "sex": 2, "race": 5, "job": 8}), _sequence(2)
    texts = []
    for _ in range(count):
        age, job, race = next(draw) % 55, next(draw) % 8, next(draw) % 5
        texts.append(
            f"SELECT COUNT(*) FROM t WHERE age <= {age} OR (job = {job} AND race = {race})"
        )
    return _union([sf.sql(domain, text) for text in texts])


def given(count: int) -> Work:
    """A matrix of zeros and ones on 400 cells."""
    draw = _sequence(3)
    rows = np.array([[next(draw) // 7 % 2 for _ in range(400)] for _ in range(count)])
    return sf.explicit(_domain(400), ["a0"], rows)


def ranges_of_some(cells: int) -> Work:
    """Ninety ranges of an attribute of many cells, one by one, by another of 4 cells."""
    domain, draw = _domain(cells, 4), _sequence(4)
    out = []
    for _ in range(90):
        low = next(draw) % (cells - 2)
        high = low + 1 + next(draw) % (cells - 1 - low)
        out.append(sf.sql(domain, f"SELECT COUNT(*) FROM t WHERE a0 >= {low} AND a0 <= {high}"))
    return _union(out)


def sums(cells: int) -> Work:
    """Counts and sums of a long attribute by a short one."""
    domain = sf.Domain({"x": cells, "sex": 2})
    rows = np.stack([np.ones(cells, dtype=int), np.arange(cells) // max(1, cells // 64)])
    return sf.explicit(domain, ["x"], rows) | sf.marginals(domain, [("sex",)])


def prefixes(cells: int) -> Work:
    """Running totals of one attribute."""
    return sf.prefixes(_domain(cells), "a0")


def prefixes_by(cells: int) -> Work:
    """Running totals of one attribute by another, beside tables."""
    domain = _domain(cells, 3, 4)
    return sf.prefixes(domain, "a0", by=["a1"]) | sf.marginals(domain, [("a1", "a2"), ("a0",)])


def ranges(cells: int) -> Work:
    """All ranges of one attribute."""
    return sf.ranges(_domain(cells), "a0")


def windows(cells: int) -> Work:
    """Windows of 7 cells."""
    return sf.windows(_domain(cells), "a0", 7)


def two_prefixes(cells: int) -> Work:
    """Running totals of two attributes by themselves, beside their table."""
    domain = _domain(cells, 32)
    return (
        sf.prefixes(domain, "a0") | sf.prefixes(domain, "a1") | sf.marginals(domain, [("a0", "a1")])
    )


def prefix_products(cells: int) -> Work:
    """Running totals along two attributes at once, beside ranges of one."""
    domain = _domain(cells, 16)
    return sf.product(domain, {"a0": "prefix", "a1": "prefix"}) | sf.ranges(domain, "a1")


def tables(ways: int) -> Work:
    """All tables of 8 attributes of up to so many cells."""
    return sf.marginals(_domain(*[ways] * 8), 2)


def conditions_beside(count: int) -> Work:
    """Conditions beside all tables of pairs."""
    domain, draw = _domain(6, 6, 6, 6), _sequence(5)
    texts = [
        f"a{next(draw) % 2} <= {next(draw) % 5} OR a{2 + next(draw) % 2} = {next(draw) % 6}"
        for _ in range(count)
    ]
    return sf.marginals(domain, 2) | sf.predicates(domain, texts)


def wide_conditions(count: int) -> Work:
    """Conjunctions of three attributes out of 30: too many cells to be listed."""
    domain, draw = _domain(*[4] * 30), _sequence(6)
    texts = []
    for _ in range(count):
        first = next(draw) % 28
        texts.append(
            f"a{first} = {next(draw) % 4} AND a{first + 1} <= {next(draw) % 3} AND "
            f"a{first + 2} = {next(draw) % 4}"
        )
    return sf.predicates(domain, texts)


def affine(cells: int) -> Work:
    """Running totals and ``i + j <= c`` on three attributes."""
    domain = _domain(*[cells] * 3)
    total = np.add.outer(np.arange(cells), np.arange(cells)).reshape(-1)
    rows = np.array([(total <= c).astype(int) for c in range(2 * cells - 1)])
    pairs = [("a0", "a1"), ("a0", "a2"), ("a1", "a2")]
    return _union(
        [sf.prefixes(domain, n) for n in domain.names]
        + [sf.explicit(domain, list(pair), rows) for pair in pairs]
    )


def copies(count: int) -> Work:
    """One condition, asked so many times: it is one query."""
    return sf.predicates(_domain(8, 3), ["a0 < 3 AND a1 = 1"] * count)


def _ends(count: int, cells: int) -> list[tuple[int, int]]:
    draw = _sequence(7)
    ends = (sorted((next(draw) % cells, next(draw) % cells)) for _ in range(count))
    return [(low, high + 1) for low, high in ends]


def _rows(ends: Sequence[tuple[int, int]], cells: int) -> list[list[int]]:
    return [[int(low <= c < high) for c in range(cells)] for low, high in ends]


def spelled(way: int) -> Work:
    """The same intervals as a product, as coefficients, as conditions and in SQL."""
    domain, ends = _domain(64), _ends(40, 64)
    texts = [f"a0 >= {low} AND a0 < {high}" for low, high in ends]
    if way == 0:
        return sf.product(domain, {"a0": _rows(ends, 64)})
    if way == 1:
        return sf.explicit(domain, ["a0"], _rows(ends, 64))
    if way == 2:
        return sf.predicates(domain, texts)
    return _union([sf.sql(domain, f"SELECT COUNT(*) FROM t WHERE {text}") for text in texts])


def intervals(count: int) -> Work:
    """So many random intervals of 2,000 cells."""
    return sf.explicit(_domain(2000), ["a0"], _rows(_ends(count, 2000), 2000))


def prefixes_beside_tables(cells: int) -> Work:
    """Running totals of one attribute by another, beside all 2-way tables of four."""
    domain = _domain(cells, 2, 5, 8)
    return sf.prefixes(domain, "a0", by=["a1"]) | sf.marginals(domain, 2)


SWEEPS = (
    Sweep(
        "SQL: ranges by sex",
        "128 queries",
        (96, 112, 127, 128, 129, 130, 144, 176, 240),
        sql_products,
    ),
    Sweep(
        "SQL: three conditions",
        "128 queries",
        (60, 100, 127, 128, 129, 130, 150, 200, 300),
        sql_adult,
    ),
    Sweep("SQL: running totals", "128 queries", (100, 126, 128, 129, 130, 150, 200), sql_prefixes),
    Sweep("SQL: OR", "128 queries", (100, 120, 127, 128, 129, 140, 180), sql_conditions),
    Sweep("given coefficients", "128 queries", (100, 120, 127, 128, 129, 140, 180), given),
    Sweep(
        "90 ranges",
        "1,024 and 2,048 cells",
        (200, 240, 255, 256, 257, 300, 500, 511, 512, 513, 600, 1024, 2047, 2049, 2600),
        ranges_of_some,
    ),
    Sweep("counts and sums", "1,024 cells", (480, 512, 513, 900, 1023, 1024, 1025, 1300), sums),
    Sweep("running totals", "512 cells", (400, 480, 511, 512, 513, 560, 700), prefixes),
    Sweep(
        "running totals, largest",
        "256 cells",
        (200, 240, 255, 256, 257, 300),
        prefixes,
        objective="max",
    ),
    Sweep(
        "running totals by table",
        "512 and 2,048 cells",
        (480, 511, 512, 513, 600, 682, 683, 700),
        prefixes_by,
    ),
    Sweep("ranges", "512 cells", (400, 480, 511, 512, 513, 560), ranges),
    Sweep("windows", "2,048 cells", (1600, 2000, 2047, 2048, 2049, 2400), windows, is_slow=True),
    Sweep(
        "two running totals and a table",
        "2,048 classes",
        (48, 56, 63, 64, 65, 70, 80),
        two_prefixes,
        is_slow=True,
    ),
    Sweep(
        "running totals of pairs",
        "2,048 classes",
        (100, 120, 127, 128, 129, 136),
        prefix_products,
        is_slow=True,
    ),
    Sweep("tables", "none", (4, 5, 6, 7, 8), tables),
    Sweep(
        "conditions beside tables",
        "128 queries",
        (2, 8, 20, 40, 60),
        conditions_beside,
        is_slow=True,
    ),
    Sweep(
        "conditions of 30 attributes",
        "512 conditions",
        (80, 110, 127, 129, 150, 200),
        wide_conditions,
        is_slow=True,
    ),
    Sweep("i + j <= c", "1,024 cells", (8, 9, 10, 11, 12), affine, is_slow=True),
    Sweep("running totals, Laplace", "256 cells", (200, 240, 255, 256, 257, 300), prefixes, PURE),
    Sweep(
        "SQL: ranges by sex, Laplace",
        "128 queries",
        (96, 112, 127, 128, 129, 130, 144),
        sql_products,
        PURE,
    ),
    Sweep("k copies of a condition, Laplace", "none", (1, 2, 5, 10, 100), copies, PURE),
    Sweep("40 intervals in four spellings, Laplace", "none", (0, 1, 2, 3), spelled, PURE),
    Sweep(
        "intervals on 2,000 cells, Laplace",
        "256 queries, 512 atoms",
        (200, 255, 257, 300, 360, 400),
        intervals,
        PURE,
        is_slow=True,
    ),
    Sweep(
        "replaced: running totals",
        "96 and 512 cells",
        (80, 95, 97, 120, 160, 220, 400, 511, 513, 600),
        prefixes,
        neighbours="replace-one",
    ),
    Sweep(
        "replaced: running totals by sex beside tables",
        "96 cells",
        (12, 24, 40, 60, 80, 100),
        prefixes_beside_tables,
        neighbours="replace-one",
    ),
)


def swept(sweep: Sweep) -> list[Point]:
    """The plans of all sizes."""
    out = []
    for size in sweep.sizes:
        work = sweep.make(size)
        begun = time.process_time()
        try:
            plan = sf.plan(
                work,
                sweep.budget,
                sweep.neighbours,  # type: ignore[arg-type]
                sweep.objective,
                cache=False,
            )
        except PlanError as why:
            out.append(Point(size, float("nan"), None, str(why)[:60], 0.0))
            continue
        seconds = time.process_time() - begun
        error = plan.largest_error if sweep.objective == "max" else plan.rmse
        out.append(Point(size, error, plan.certificate, plan.mechanism, seconds))
    return out


def jumps(points: Sequence[Point]) -> list[tuple[int, float]]:
    """By how much the error grows from each size to the next beyond its lower bound, and where."""
    return [(b.size, _off(b) / _off(a) - 1) for a, b in pairwise(points)]


def _off(point: Point) -> float:
    return point.certificate or float("nan")


def main(effort: Effort = "usual") -> None:
    """Every sweep, a line per size; then the jumps above 5%."""
    from rich.table import Table

    far = Table("workload", "limit", "at", "by", title="Jumps above 5%")
    for sweep in SWEEPS:
        if sweep.is_slow and effort == "quick":
            continue
        points = swept(sweep)
        title = f"{sweep.kind} (across {sweep.limit})"
        table = Table("size", "error", "certificate", "CPU s", "mechanism", title=title)
        for p in points:
            off = "-" if p.certificate is None else f"{p.certificate:.4f}"
            table.add_row(f"{p.size:,}", f"{p.error:.4g}", off, f"{p.seconds:.2f}", p.mechanism)
        show(table)
        for size, by in jumps(points):
            if not abs(by) <= JUMP:
                far.add_row(sweep.kind, sweep.limit, f"{size:,}", f"{by:+.1%}")
    if not far.row_count:
        far.add_row("none", "", "", "")
    show(far)
