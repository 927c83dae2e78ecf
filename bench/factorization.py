# SPDX-License-Identifier: Apache-2.0
"""Factorization: our error, certificate and planning time beside the figures of other systems.

Errors are root mean squares per query at unit noise. Peer figures come from
``bench/peers/factorization.csv`` (measured elsewhere, one core, CPU seconds), the least error of
each workload; ours are planned here and now. ``python -m bench.factorization`` prints the table.
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import numpy as np

import sfumato as sf
from sfumato.plan.optimum import certified_optimum
from sfumato.plan.tridiagonal import inverse_gram, root_diagonal
from sfumato.workload.queries import Prefix, Ranges
from sfumato.workload.workload import Workload

HERE = Path(__file__).parent
ADULT = (85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2)
ADULT_NUMERIC_FIRST = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
CPS = (50, 100, 7, 4, 2)
SUM_OF_VARIANCES = ("sum-var L2", "mean-squared L2")
PREFIXED = "with prefix on numeric attrs"


def workloads() -> Iterator[tuple[str, str, Callable[[], Workload]]]:
    """Name and domain as in the peer file, and how to build it here."""
    for n in (64, 256, 1024):
        line = sf.Domain({"x": n})
        yield "prefix", str(n), lambda d=line: sf.prefixes(d, "x")
        yield "all-range", str(n), lambda d=line: sf.ranges(d, "x")
        yield "width-32 ranges", str(n), lambda d=line: sf.product(d, {"x": "windows(32)"})
        total = "identity+total"
        yield total, str(n), lambda d=line: sf.marginals(d, [("x",), ()])
    for name, sizes in (("CPS", CPS), ("Adult", ADULT)):
        for ways in (1, 2, 3):
            yield f"all {ways}-way marginals", name, lambda s=sizes, w=ways: marginals(s, [w])
        upto = "all <=3-way marginals (incl. 0-way)"
        yield upto, name, lambda s=sizes: marginals(s, [0, 1, 2, 3])
    for d in (10, 20):
        upto = "all <=3-way marginals (incl. 0-way)"
        yield upto, f"Synth 10^{d}", lambda d=d: marginals([10] * d, [0, 1, 2, 3])
    for kind, prefix in (
        ("prefix", "2-D prefix x prefix"),
        ("ranges", "2-D all-range x all-range"),
    ):
        for n in (64, 256):
            plane = sf.Domain({"x": n, "y": n})
            both = {"x": kind, "y": kind}
            yield prefix, f"{n}x{n}", lambda d=plane, b=both: sf.product(d, b)
    yield "Census SF1 persons (4151 queries)", "2x2x64x115", census
    cps = f"all <=3-way marginals (incl. 0-way) {PREFIXED} (bases PPIII)"
    yield cps, "CPS", lambda: marginals(CPS, [0, 1, 2, 3], prefixed=2)
    adult = f"all 2-way marginals {PREFIXED} (bases PPPPPIIIIIIIII)"
    yield adult, "Adult", lambda: marginals(ADULT_NUMERIC_FIRST, [2], prefixed=5)


def marginals(sizes: tuple[int, ...] | list[int], ways: list[int], prefixed: int = 0) -> Workload:
    """All tables of the given ways; the first ``prefixed`` attributes by running totals."""
    domain = sf.Domain({f"x{i}": s for i, s in enumerate(sizes)})
    kind = {n: "prefix" if i < prefixed else "identity" for i, n in enumerate(domain.names)}
    chosen = [c for w in ways for c in combinations(domain.names, w)]
    terms = [sf.product(domain, {n: kind[n] for n in names}).terms[0] for names in chosen]
    return Workload(domain, tuple(terms))


def census() -> Workload:
    """The person tables of the 2010 US Census Summary File 1, from ``examples/census``."""
    file = json.loads((HERE.parent / "examples" / "census" / "sf1.json").read_text())
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


def best_peers() -> dict[tuple[str, str], tuple[float, float, str]]:
    """The least error of each workload among other systems, its seconds and its name."""
    found: dict[tuple[str, str], tuple[float, float, str]] = {}
    with (HERE / "peers" / "factorization.csv").open() as file:
        for row in csv.DictReader(file):
            ours = row["peer"].startswith(("own", "baseline", "Li-Miklau"))
            if ours or row["objective"] not in SUM_OF_VARIANCES or not row["rmse"]:
                continue
            key = (row["workload"], row["domain"])
            entry = (float(row["rmse"]), float(row["seconds"] or "nan"), row["peer"])
            found[key] = min(found.get(key, entry), entry)
    return found


def run() -> list[dict[str, object]]:
    """One row per workload: errors, certificate, seconds, ratios."""
    peers = best_peers()
    rows: list[dict[str, object]] = []
    for name, domain, build in workloads():
        work = build()
        start = time.process_time()
        plan = sf.plan(work, sf.Budget(mu=1), mechanism="factorization")
        seconds = time.process_time() - start
        error, peer_seconds, peer = peers[name, domain]
        rows.append(
            {
                "workload": f"{name}, {domain}",
                "error": plan.gamma,
                "certificate": plan.certificate,
                "peer_error": error,
                "error_ratio": plan.gamma / error,
                "seconds": seconds,
                "peer_seconds": peer_seconds,
                "peer": peer,
            }
        )
    return rows


def million() -> list[dict[str, object]]:
    """The certified optimum of prefixes and ranges on 10^6 cells (no peer does this)."""
    rows: list[dict[str, object]] = []
    for queries in (Prefix(10**6), Ranges(10**6)):
        known = inverse_gram(queries)
        assert known is not None
        start = time.process_time()
        found = certified_optimum(root_diagonal(*known), queries.size, all_bind=True)
        rows.append(
            {
                "workload": f"{queries.name}, 1,000,000",
                "error": float(np.sqrt(found.upper / queries.rows)),
                "certificate": found.certificate,
                "seconds": time.process_time() - start,
            }
        )
    return rows


def main() -> None:
    """Print the rows as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Factorization: error at unit noise (peers: figures of bench/peers)")
    for heading in ("workload", "error", "certificate", "best peer", "ratio", "s", "peer s"):
        table.add_column(heading, justify="left" if heading == "workload" else "right")
    for row in run():
        table.add_row(
            str(row["workload"]),
            f"{row['error']:.4f}",
            f"{row['certificate']:.5f}",
            f"{row['peer_error']:.4f}",
            f"{row['error_ratio']:.4f}",
            f"{row['seconds']:.2f}",
            f"{row['peer_seconds']:.2f}",
        )
    for row in million():
        table.add_row(
            str(row["workload"]),
            f"{row['error']:.4f}",
            f"{row['certificate']:.5f}",
            *("-", "-"),
            f"{row['seconds']:.2f}",
            "-",
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
