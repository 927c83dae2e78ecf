# SPDX-License-Identifier: Apache-2.0
"""The projection benchmark compares like with like: one coding, one problem, one error."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from bench import adult, explicit, implicit, projection
from bench.cases import ADULT
from bench.show_projection import DRAWN, picture, short, written

FEW = ("marital-status", "relationship", "race", "sex")
SMALL = sf.Domain({name: adult.domain()[name].size for name in FEW})


def test_adult_is_coded_as_the_figures_of_the_peers_want_it() -> None:
    table = adult.coded()
    assert table.shape == (48_842, 14)
    assert (table.min() >= 0).all()
    assert (table.max().to_numpy() < np.array(ADULT)).all()
    # 39, State-gov, 77516, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40
    assert table.iloc[0].tolist() == [23, 5, 4, 12, 2, 8, 3, 0, 1, 2, 0, 39, 0, 0]
    assert (table["occupation"] == 14).sum() == 2_809  # missing comes last
    edges = pd.Series([0, 1, 50, 51, 4_356], name="capital-loss")
    assert adult._codes(edges, {}).tolist() == [0, 0, 0, 1, 87]


def test_yes_no_attributes_are_those_of_the_named_records() -> None:
    every = adult.yes_no(20, 48_842)
    assert set(np.unique(every)) == {0, 1}
    assert every["x0"].sum() == 32_650  # men
    assert every["x1"].sum() == 11_687  # incomes above 50,000 dollars
    assert adult.yes_no(3, 10).equals(adult.yes_no(3, 10))
    assert len(adult.YES_NO) == len(set(adult.YES_NO)) == 20


def test_the_dense_matrix_holds_the_queries_that_sfumato_answers() -> None:
    work = explicit.workload(4)
    units = np.eye(16, dtype=np.int64).reshape(16, 2, 2, 2, 2)
    assert np.array_equal(explicit.matrix(work), np.array([work.evaluate(e) for e in units]).T)


def test_every_solver_finds_the_same_nearest_answers() -> None:
    found = {w: explicit.run(explicit.Run(w, 5, 100)) for w in ("sfumato", "scipy", "cvxpy")}
    ours = found["sfumato"]
    assert ours.gap is not None
    assert ours.after < ours.before
    for other in found.values():
        assert other.before == ours.before
        assert other.value == pytest.approx(ours.value, rel=1e-5)
        assert other.after == pytest.approx(ours.after, rel=1e-3)
        assert other.excess(ours.least) < 1e-5
    worse = replace(found["scipy"], value=1.01 * ours.value)
    assert worse.excess(ours.least) > 5e-3


def test_projection_takes_off_more_where_there_are_fewer_records() -> None:
    few, many = (explicit.reduction(6, n, draws=1) for n in (30, 3_000))
    assert few.gaussian / few.gaussian_projected > many.gaussian / many.gaussian_projected > 1
    assert few.optimal < few.gaussian


def test_errors_are_those_of_shares_by_hand() -> None:
    true = [(("a",), np.array([3, 1])), (("b",), np.array([2, 0, 2]))]
    known = {("a",): np.array([1.0, 3.0]), ("b",): np.array([[2.0, 0.0, 2.0]])}
    # table a is off by 2/4 in both cells, table b is right
    assert implicit.judge(known.__getitem__, true, 4) == [0.5, 0.5, np.sqrt(2 * 0.25 / 5)]
    exact = dict(true)
    assert implicit.judge(exact.__getitem__, true, 4) == [0, 0, 0]


@pytest.mark.parametrize("way", [w for w in implicit.WAYS if w != "mbi"])
def test_every_way_releases_tables_near_the_truth_when_noise_is_small(way: str) -> None:
    table = adult.coded()[list(FEW)].iloc[:2_000]
    work = sf.marginals(SMALL, 2)
    errors = {}
    for epsilon in (0.2, 50.0):
        tables = implicit.released(way, work, table, epsilon)
        true = implicit.true_tables(table, SMALL, 2)
        errors[epsilon] = implicit.judge(tables, true, len(table))[0]
        if way not in ("gaussian", "optimal"):
            assert min(tables(t.attributes).min() for t in work.terms) >= 0
    assert errors[50.0] < 0.05 < errors[0.2]


def test_figures_of_peers_are_those_of_the_file() -> None:
    with projection.FILE.open(newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["dataset"] == projection.ADULT]
    for judged in (2, 3):
        listed = [r for r in rows if r["workload"] == f"all {judged}-way"]
        found = projection.figures(judged)
        assert len(found) * 3 == len(listed)
        for metric, field in (("mean_L1", "mean_l1"), ("max_abs", "max_abs"), ("rmse", "rmse")):
            stated = sorted(float(r["value"]) for r in listed if r["metric"] == metric)
            assert sorted(getattr(f, field) for f in found) == stated
    best = projection.best(projection.figures(2), 0.1, 2)
    assert best is not None
    assert short(best.way) == "AIM"
    assert {f.ways for f in projection.figures(3) if "AIM" in f.way} == {2}


def test_seconds_of_solvers_leave_out_what_is_no_other_system() -> None:
    found = [s for d in (10, 16, 20) for s in projection.solvers(d)]
    assert len(found) == 10
    assert not [s for s in found if "our" in s.way]


def test_figures_reach_the_files_and_the_picture(tmp_path: Path) -> None:
    ours = [
        projection.Judged(w, True, "here", e, 2, 2, 0.5 / e, 0.1, 0.01, 1.0, 300.0)
        for w in list(DRAWN)[:2]
        for e in implicit.EPSILONS
    ]
    rows = [*ours, *projection.figures(2)]
    solved = [projection.Solved("sfumato", True, "here", 10, 0.1, 300.0, 1e-9, 0.4, 0.2)]
    with written(solved, rows, tmp_path).open(newline="") as file:
        read = list(csv.DictReader(file))
    assert len(read) == 1 + len(rows)
    assert float(read[0]["after"]) == 0.2
    assert {float(r["mean_l1"]) for r in read[1:]} == {r.mean_l1 for r in rows}
    assert picture(rows, tmp_path).read_bytes().startswith(b"\x89PNG")


def test_a_package_that_is_absent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (explicit, implicit):
        monkeypatch.setattr(module, "find_spec", lambda _: None)
    assert explicit.Run("mbi", 10).missing == "not installed: pip install mbi"
    assert implicit.Run("mbi").missing == "not installed: pip install mbi"
    assert implicit.Run("rows").missing is None
