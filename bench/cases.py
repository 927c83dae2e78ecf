# SPDX-License-Identifier: Apache-2.0
"""The workloads of ``bench/peers/factorization.csv``, built with the public words of sfumato.

A case is one workload with one objective. Its keys are the names it has in the peer file, which
sometimes has several for the same workload.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from pathlib import Path

import numpy as np

import sfumato as sf
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload

__all__ = ["KINDS", "STREAM", "Case", "Key", "along", "cases"]

KINDS = {
    "rmse": "root mean square error, Gaussian noise",
    "max": "largest standard error, Gaussian noise",
    "laplace": "root mean square error, Laplace noise (pure epsilon)",
    "stream": "root mean square error, running totals of a stream",
    "stream max": "largest standard error, running totals of a stream",
}

Key = tuple[str, str]

EXAMPLES = Path(__file__).parent.parent / "examples"
ADULT = (85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2)
NUMERIC_FIRST = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
CPS = (50, 100, 7, 4, 2)
SIZES = {"CPS": CPS, "Adult": ADULT}
UPTO = "all <=3-way marginals (incl. 0-way)"
FEW = "all marginals with <=5000 cells (incl. 0-way)"
STREAM = "prefix (streaming, lower-triangular strategy)"
PREFIXED = {"CPS": "with prefix on numeric attrs (bases PPIII)"}
PREFIXED["Adult"] = "with prefix on numeric attrs (bases PPPPPIIIIIIIII)"


@dataclass(frozen=True)
class Case:
    """What is asked and how it is judged; ``is_long`` cases are run on request only."""

    kind: str
    keys: tuple[Key, ...]
    build: Callable[[], Workload]
    is_long: bool = False

    @property
    def name(self) -> str:
        """As the tables show it."""
        workload, domain = self.keys[0]
        return f"{workload}, {domain}"


def cases() -> Iterator[Case]:
    """Every workload and objective of the peer file, and a few that no peer has a figure for."""
    yield from _lines()
    yield from _planes()
    yield from _tables()
    yield from _prefixed_tables()
    yield from _others()
    yield from _streams()


def along(queries: str, size: int) -> Workload:
    """The named queries on one attribute."""
    line = sf.Domain({"x": size})
    if queries == "identity+total":
        return sf.marginals(line, [("x",), ()])
    width = queries.removeprefix("width-").removesuffix(" ranges")
    kind = {"prefix": "prefix", "all-range": "ranges"}.get(queries, f"windows({width})")
    return sf.product(line, {"x": kind})


def _lines() -> Iterator[Case]:
    """One attribute: running totals, intervals, windows, cells with their total."""
    for n in (64, 256, 1024, 4096):
        for name in ("prefix", "all-range", "width-32 ranges", "identity+total"):
            key, build = ((name, str(n)),), lambda q=name, n=n: along(q, n)
            yield Case("rmse", key, build, n == 4096 and name == "width-32 ranges")
            if n <= 1024:
                yield Case("laplace", key, build, n == 1024)
                yield Case("max", key, build, n == 1024)
    line = sf.Domain({"x": 64})
    wide = "total + windows of 60 (rank-deficient)"
    windows = sf.product(line, {"x": "windows(60)"})
    yield Case("rmse", ((wide, "64"),), lambda: windows | sf.marginals(line, [()]))


def _planes() -> Iterator[Case]:
    for kind, name in (("prefix", "prefix x prefix"), ("ranges", "all-range x all-range")):
        for n in (64, 256):
            plane = sf.Domain({"x": n, "y": n})
            keys = ((f"2-D {name}", f"{n}x{n}"), (f"{name} (2-D product workload)", f"{n}x{n}"))
            both = {"x": kind, "y": kind}
            yield Case("rmse", keys, lambda d=plane, b=both: sf.product(d, b))


def _tables() -> Iterator[Case]:
    """Marginals of the census table CPS, of Adult, and of d attributes of ten values."""
    for name, sizes in SIZES.items():
        ways: dict[str, list[int]] = {f"all {w}-way marginals": [w] for w in (1, 2, 3)}
        ways |= {"all <=2-way marginals (incl. 0-way)": [0, 1, 2], UPTO: [0, 1, 2, 3]}
        for kind in ("rmse", "max"):
            for title, w in ways.items():
                yield Case(kind, ((title, name),), lambda s=sizes, w=w: marginals(s, w))
            yield Case(kind, ((FEW, name),), lambda s=sizes: tables(s, small(s, 5000)))
    for d in (2, 6, 10, 12, 14, 15, 20, 30, 50, 100):
        for kind in ("rmse", "max"):
            yield Case(
                kind,
                ((UPTO, f"Synth 10^{d}"),),
                lambda d=d: marginals([10] * d, [0, 1, 2, 3]),
                d > 50 or (d == 50 and kind == "max"),
            )


def _prefixed_tables() -> Iterator[Case]:
    """Marginals that are running totals along the numeric attributes, which come first."""
    for name, sizes, numeric in (("CPS", CPS, 2), ("Adult", NUMERIC_FIRST, 5)):
        title = PREFIXED[name]
        yield Case(
            "rmse",
            ((f"{UPTO} {title}", name),),
            lambda s=sizes, p=numeric: marginals(s, [0, 1, 2, 3], p),
        )
        yield Case(
            "rmse",
            ((f"{FEW} {title}", name),),
            lambda s=sizes, p=numeric: tables(s, small(s, 5000), p),
        )
    adult = "x".join(str(s) for s in NUMERIC_FIRST)
    keys = (
        (f"all 2-way marginals {PREFIXED['Adult']}", "Adult"),
        ("Adult W2: 2-way, prefix on 5 numeric attrs", adult),
    )
    yield Case("rmse", keys, lambda: marginals(NUMERIC_FIRST, [2], 5))


def _others() -> Iterator[Case]:
    """Census tables: unions of different products on the same attributes; random conditions."""
    below = {"affine": lambda i, j: i + j, "absdiff": lambda i, j: abs(i - j)}
    for title, attributes, is_long in (
        ("affine", 10, False),
        ("absdiff", 10, False),
        ("absdiff", 40, False),
        ("affine", 5, True),
    ):
        keys = ((f"1-way prefixes and 2-way {title}", f"10^{attributes}"),)
        sizes, holds = (10,) * attributes, below[title]
        yield Case("rmse", keys, lambda s=sizes, h=holds: pairs_below(s, h), is_long)
    keys = (("1-way ranges; 2-way affine; 3-way prefixes", "10^10"),)
    yield Case("rmse", keys, mixed_ways)
    keys = (("1-way prefixes and 2-way affine", "50x100x7x4x2"),)
    yield Case("rmse", keys, lambda: pairs_below(CPS, below["affine"]))
    keys = (("1-way prefixes (cells of the last three) and 2-way affine", "50x100x7x4x2"),)
    yield Case("rmse", keys, lambda: pairs_below(CPS, below["affine"], 2))
    keys = (("1-way prefixes and 2-way affine", "101^12"),)
    yield Case("rmse", keys, lambda: pairs_below((101,) * 12, below["affine"]), is_long=True)
    keys = (("all 2-way marginals and 500 random 3-way boxes", "10^10"),)
    yield Case("rmse", keys, lambda: boxes(500), is_long=True)
    yield Case("rmse", (("200 random rectangles", "10^12"),), lambda: rectangles(200))
    for leaves in (10_000, 1_000_000):
        keys = (("irregular levels by age and sex", f"{leaves:,} leaves x 14"),)
        yield Case("rmse", keys, lambda n=leaves: geography(n), is_long=leaves > 10_000)
    for d in (10, 20):
        keys = (("all monotone conjunctions", f"2^{d}"),)
        yield Case("rmse", keys, lambda d=d: monotone(d))
    bits = sf.Domain({f"q{i}": 2 for i in range(20)})
    keys = (("all conjunctions of 8", "2^20"),)
    yield Case("rmse", keys, lambda: sf.conjunctions(bits, 8), is_long=True)
    domain = "x".join(str(s) for s in CPS)
    for kind in ("rmse", "laplace"):
        yield Case(kind, (("Census SF1 persons (4151 queries)", "2x2x64x115"),), census)
        every = "CPS W1: IdentityTotal^5"
        yield Case(kind, ((every, domain),), lambda: marginals(CPS, [0, 1, 2, 3, 4, 5]))
        mixed = "CPS W2: prefix(income) x prefix(age) x IdentityTotal^3"
        yield Case(kind, ((mixed, domain),), income_and_age)


def monotone(d: int) -> Workload:
    """The conjunctions of all sets of d yes/no attributes."""
    names = [f"q{i}" for i in range(d)]
    either = [[1, 1], [0, 1]]
    return sf.product(sf.Domain(dict.fromkeys(names, 2)), dict.fromkeys(names, either))


def geography(leaves: int) -> Workload:
    """Places, their counties (some 12 places each), states and the nation, by two attributes."""
    rng = np.random.default_rng(0)
    county = np.unique(np.sort(rng.integers(0, leaves // 12, leaves)), return_inverse=True)[1]
    counties = int(county.max()) + 1
    state = np.unique(np.sort(rng.integers(0, leaves // 100, counties)), return_inverse=True)[1]
    levels = [
        sf.Level("county", [f"c{i}" for i in range(counties)], county.tolist()),
        sf.Level("state", [f"s{i}" for i in range(int(state.max()) + 1)], state[county].tolist()),
    ]
    place = sf.Category("place", [f"p{i}" for i in range(leaves)], levels=levels)
    domain = sf.Domain([place, sf.Category("age", list("abcdefg")), sf.Boolean("sex")])
    kinds = (["place"], ["place.county"], ["place.state"], [])
    return sf.marginals(domain, [[*kind, "age", "sex"] for kind in kinds])


def rectangles(count: int) -> Workload:
    """Random rectangles on two of four attributes of a thousand values: 10^12 cells."""
    rng = np.random.default_rng(0)
    domain = sf.Domain(dict.fromkeys("xyzw", 1000))
    x, y = sf.attribute(domain, "x"), sf.attribute(domain, "y")
    ends = np.sort(rng.integers(0, 1000, size=(count, 2, 2)))
    listed = [x.between(*map(int, e[0])) & y.between(*map(int, e[1])) for e in ends]
    return sf.predicates(domain, listed)


def _streams() -> Iterator[Case]:
    for n in (64, 256, 1024, 4096):
        for kind in ("stream", "stream max"):
            yield Case(kind, ((STREAM, str(n)),), lambda n=n: along("prefix", n))


def marginals(sizes: Sequence[int], ways: Sequence[int], prefixed: int = 0) -> Workload:
    """All tables of the given ways; the first ``prefixed`` attributes by running totals."""
    return tables(sizes, [c for w in ways for c in combinations(range(len(sizes)), w)], prefixed)


def tables(sizes: Sequence[int], chosen: Sequence[tuple[int, ...]], prefixed: int = 0) -> Workload:
    """The chosen tables of a domain of these sizes."""
    domain = sf.Domain({f"x{i}": s for i, s in enumerate(sizes)})
    if prefixed == 0:
        return sf.marginals(domain, [[f"x{i}" for i in c] for c in chosen])
    kind = ["prefix" if i < prefixed else "identity" for i in range(len(sizes))]
    terms = [sf.product(domain, {f"x{i}": kind[i] for i in c}).terms[0] for c in chosen]
    return Workload(domain, tuple(terms))


def small(sizes: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """All sets of attributes whose table has at most ``most`` cells."""
    every = (c for w in range(len(sizes) + 1) for c in combinations(range(len(sizes)), w))
    return [c for c in every if prod(sizes[i] for i in c) <= most]


def income_and_age() -> Workload:
    """Running totals of income and age together, in every table of the other attributes."""
    domain = sf.Domain({f"x{i}": s for i, s in enumerate(CPS)})
    both = {"x0": "prefix", "x1": "prefix"}
    others = [c for w in range(4) for c in combinations(domain.names[2:], w)]
    terms = [sf.product(domain, both | dict.fromkeys(c, "identity")).terms[0] for c in others]
    return Workload(domain, tuple(terms))


def census() -> Workload:
    """The person tables of the 2010 US Census Summary File 1, from ``examples/census``."""
    file = json.loads((EXAMPLES / "census" / "sf1.json").read_text())
    domain = sf.Domain(file["domain"])
    terms = []
    for listed in file["terms"]:
        queries = {n: rows_of(q, domain[n].size) for n, q in listed.items() if n != "weight"}
        terms.append(sf.product(domain, queries).terms[0])
    return Workload(domain, tuple(terms))


def rows_of(listed: object, size: int) -> str | np.ndarray:
    """``identity``, or 0/1 rows from inclusive intervals."""
    if listed == "identity":
        return "identity"
    rows = np.zeros((len(listed), size), dtype=np.int64)  # type: ignore[arg-type]
    for row, intervals in zip(rows, listed, strict=True):  # type: ignore[call-overload]
        for first, last in intervals:
            row[first : last + 1] = 1
    return rows


def pairs_below(
    sizes: Sequence[int],
    value: Callable[[np.ndarray, np.ndarray], np.ndarray],
    ordered: int | None = None,
) -> Workload:
    """Running totals of every attribute, and of a number made of every two of them.

    The attributes from the ``ordered``-th on are counted by cells in place of running totals.
    """
    domain = sf.Domain({f"x{i}": n for i, n in enumerate(sizes)})
    terms: list[Term] = []
    for i, name in enumerate(domain.names):
        kind = "prefix" if ordered is None or i < ordered else "identity"
        terms += sf.product(domain, {name: kind}).terms
    for pair in combinations(domain.names, 2):
        numbers = value(*np.indices([domain[name].size for name in pair]))
        rows = [(numbers <= c).reshape(-1) for c in range(int(numbers.max()) + 1)]
        terms += sf.explicit(domain, list(pair), np.array(rows, dtype=float)).terms
    return Workload(domain, tuple(terms))


def mixed_ways() -> Workload:
    """Ranges of ten attributes, sums of every two, running totals of every three."""
    pairs = pairs_below((10,) * 10, lambda i, j: i + j)
    domain = pairs.domain
    terms = [t for t in pairs.terms if len(t.attributes) == 2]
    for name in domain.names:
        terms += sf.product(domain, {name: "ranges"}).terms
    for three in combinations(domain.names, 3):
        terms += sf.product(domain, dict.fromkeys(three, "prefix")).terms
    return Workload(domain, tuple(terms))


def boxes(count: int) -> Workload:
    """All tables of two of ten attributes, and random boxes on three of them."""
    rng = np.random.default_rng(0)
    domain = sf.Domain({f"x{i}": 10 for i in range(10)})
    listed = []
    for _ in range(count):
        sides = []
        for i in sorted(rng.choice(10, 3, replace=False).tolist()):
            first, last = sorted(rng.integers(0, 10, 2).tolist())
            sides.append(sf.attribute(domain, f"x{i}").between(first, last))
        listed.append(sides[0] & sides[1] & sides[2])
    return sf.marginals(domain, 2) | sf.predicates(domain, listed)
