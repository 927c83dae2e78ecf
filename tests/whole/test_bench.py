# SPDX-License-Identifier: Apache-2.0
"""The benchmark compares like with like: every figure of the peer file has its own workload."""

from __future__ import annotations

import csv
from math import comb
from pathlib import Path

import numpy as np
import pytest

from bench import live
from bench.cases import KINDS, Case, along, cases
from bench.factorization import Row, every_pair, ours
from bench.figures import best, figures
from bench.show import picture, written

LARGEST = 10**6  # queries of a workload that is built here


def by_key() -> dict[tuple[str, tuple[str, str]], Case]:
    return {(case.kind, key): case for case in cases() for key in case.keys}


def test_every_figure_of_every_peer_has_a_case() -> None:
    known = by_key()
    assert {(f.kind, f.key) for f in figures()} <= set(known)
    assert {kind for kind, _ in known} == set(KINDS)


def test_the_workloads_have_as_many_queries_as_those_of_the_peers() -> None:
    known = by_key()
    small = {(f.kind, f.key): f.queries for f in figures() if f.queries <= LARGEST}
    assert len(small) > 60
    for where, queries in small.items():
        assert known[where].build().queries == queries, where


@pytest.mark.parametrize("queries", ["prefix", "all-range", "width-3 ranges"])
def test_live_peers_are_asked_the_same_queries(queries: str) -> None:
    rows = live.matrix(queries, 7)
    units = np.eye(7, dtype=np.int64)
    ours_ = np.array([along(queries, 7).evaluate(e) for e in units]).T
    assert sorted(map(tuple, rows)) == sorted(map(tuple, ours_))


def test_every_live_run_is_a_case_with_known_counts() -> None:
    for run in live.RUNS:
        n = run.size
        expected = {"prefix": n, "all-range": comb(n + 1, 2), "width-8 ranges": n - 7}
        assert run.case.build().queries == expected[run.queries]
        assert run.kind in KINDS


def test_the_least_error_is_the_best_peer_and_baselines_are_none() -> None:
    found = best(figures(), "rmse", (("prefix", "64"),))
    assert found is not None
    with (Path(live.__file__).parent / "peers" / "factorization.csv").open(newline="") as file:
        listed = [
            float(r["rmse"])
            for r in csv.DictReader(file)
            if (r["workload"], r["domain"]) == ("prefix", "64")
            and r["objective"] in ("sum-var L2", "mean-squared L2")
            and not r["peer"].startswith(("own", "baseline", "Li-Miklau"))
        ]
    assert found.error == min(listed)


def test_rows_say_who_is_better_and_reach_the_files(tmp_path: Path) -> None:
    case = by_key()["rmse", ("prefix", "64")]
    row = ours(case).beside(best(figures(), "rmse", case.keys))
    assert row.error is not None
    assert row.certificate is not None
    assert row.error_ratio == row.error / (row.peer_error or 0)
    assert row.error / row.certificate <= (row.peer_error or 0) * (1 + 1e-6)  # bounds hold for all
    pairs = every_pair([row], [])
    assert len(pairs) > 5
    with written(pairs, tmp_path).open(newline="") as file:
        assert {float(r["error"]) for r in csv.DictReader(file)} == {row.error}
    assert picture([row], tmp_path).read_bytes().startswith(b"\x89PNG")


def test_a_workload_that_is_refused_makes_a_row_without_figures() -> None:
    row = Row("rmse", "w", None, None, None, note="too large")
    assert row.error_ratio is None
    assert row.speed_up is None
