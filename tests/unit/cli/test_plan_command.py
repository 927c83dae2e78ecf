# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.conftest import SPEC, Ran

Run = Callable[..., Ran]


def test_a_plan_touches_no_data(folder: Path, run: Run) -> None:
    (folder / "people.csv").unlink()
    ran = run("plan", folder / "release.toml")
    assert ran.code == 0
    assert "prefix age by sex" in ran.out


def test_a_plan_as_json_has_the_documented_keys(folder: Path, run: Run) -> None:
    ran = run("plan", folder / "release.toml", "--json")
    found = ran.document
    assert ran.err == ""
    assert found["queries"] == 62
    assert found["neighbours"] == "add-remove"
    assert found["budget"] == {"epsilon": 1.0, "delta": 1e-9}
    assert found["certificate"] is None or float(str(found["certificate"])) >= 1
    groups = found["groups"]
    assert isinstance(groups, list)
    assert [g["name"] for g in groups] == ["age", "sex", "prefix age by sex"]
    assert [g["queries"] for g in groups] == [20, 2, 40]
    # The rmse over all queries is the mean of squares over groups, weighted by their sizes.
    squares = sum(g["rmse"] ** 2 * g["queries"] for g in groups) / 62
    assert found["rmse"] == pytest.approx(squares**0.5)
    candidates = found["candidates"]
    assert isinstance(candidates, list)
    chosen = [c for c in candidates if c["is_chosen"]]
    assert [c["mechanism"] for c in chosen] == [found["mechanism"]]
    fitting = [c["rmse"] for c in candidates if c["rmse"] is not None]
    assert chosen[0]["rmse"] == min(fitting)
    keys = {"mechanism", "algorithm", "rmse", "largest", "note", "is_chosen"}
    assert {*candidates[0]} == keys
    needed = found["resources"]
    assert isinstance(needed, dict)
    assert (needed["engine"], needed["records"]) == ("duckdb", None)
    names = ["scan", "count", "measure", "reconstruct", "project", "write"]
    assert [s["step"] for s in needed["steps"]] == names


def test_a_plan_shows_its_resources_and_refuses_what_cannot_fit(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = folder / "release.toml"
    shown = run("plan", spec).out
    assert "Resources" in shown
    assert "per million records" in " ".join(shown.split())
    monkeypatch.setattr("sfumato.planning.resources.machine_memory", lambda: 2**20)
    refused = run("plan", spec)
    assert refused.code != 0
    assert "wider bins" in " ".join(refused.err.split())


def test_a_plan_forecasts_the_error_after_projection(folder: Path, run: Run) -> None:
    spec = folder / "release.toml"
    assert run("plan", spec, "--json").document["after_projection"] is None
    document = run("plan", spec, "--records", "50", "--json").document
    found, advice = document["after_projection"], document["recommendation"]
    assert isinstance(found, dict)
    assert found["records"] == 50
    assert isinstance(advice, dict)
    assert advice["best"] == advice["options"][0]["name"]
    assert {"plan, unbiased", "adaptive"} <= {o["name"] for o in advice["options"]}
    assert 0 < found["estimate"] <= found["bound"] <= found["without"]
    text = " ".join(run("plan", spec, "--records", "50").out.split())
    assert "after projection about" in text
    assert "for any 50 records" in text
    assert "Recommended" in text


def test_a_plan_shows_every_candidate_and_marks_one(folder: Path, run: Run) -> None:
    text = run("plan", folder / "release.toml").out
    assert text.count("chosen") == 1
    assert "gaussian-tree" in text
    assert "laplace-groups" in text


def test_many_groups_are_folded_unless_all_are_wanted(folder: Path, run: Run) -> None:
    names = [f"yes{i}" for i in range(6)]
    tables = "".join(f'[domain.{name}]\nkind = "boolean"\n' for name in names)
    (folder / "release.toml").write_text(
        tables + "[[workload]]\nmarginals = 2\n[budget]\nepsilon = 1\n"
    )
    text = run("plan", folder / "release.toml").out
    # 15 groups: the first 9, the last 3, and how many are between.
    assert "3 more, see --all" in text
    assert "yes2 x yes3" not in text
    assert "yes4 x yes5" in text
    assert "yes2 x yes3" in run("plan", folder / "release.toml", "--all").out


def test_a_mechanism_can_be_asked_for(folder: Path, run: Run) -> None:
    found = run("plan", folder / "release.toml", "--mechanism", "laplace", "--json").document
    assert found["mechanism"] == "laplace"


def test_an_error_gives_the_smallest_budget_that_reaches_it(folder: Path, run: Run) -> None:
    at = [run("plan", folder / "release.toml", "--error", e, "--json").document for e in (5, 10)]
    assert [float(str(d["rmse"])) <= e for d, e in zip(at, (5, 10), strict=True)] == [True, True]
    assert float(str(at[0]["rmse"])) > 4.99
    small, large = (d["budget"] for d in at)
    assert isinstance(small, dict)
    assert isinstance(large, dict)
    assert small["epsilon"] > large["epsilon"]


@pytest.mark.parametrize("error", ["0", "-1", "nan", "inf"])
def test_errors_that_make_no_sense_are_refused(folder: Path, run: Run, error: str) -> None:
    ran = run("plan", folder / "release.toml", f"--error={error}")
    assert ran.code == 2
    assert "finite number above 0" in ran.err


@pytest.mark.parametrize("error", ["1e-300", "1e300"])
def test_errors_that_no_budget_reaches_are_refused(folder: Path, run: Run, error: str) -> None:
    ran = run("plan", folder / "release.toml", f"--error={error}")
    assert ran.code == 2
    assert f"gives an error of {float(error):g} counts" in ran.err


def test_json_holds_nothing_but_json_and_no_bars(folder: Path, run: Run) -> None:
    ran = run("compare", folder / "release.toml", "--json")
    assert ran.err == ""
    assert {m["mechanism"] for m in ran.document["mechanisms"]} >= {"laplace", "gaussian-tree"}  # type: ignore[attr-defined]


def test_sums_beside_counts_are_told_in_their_own_unit(folder: Path, run: Run) -> None:
    spec = folder / "sums.toml"
    query = "[[workload]]\nsql = 'SELECT sex, SUM(age) FROM data GROUP BY sex'\n\n[budget]"
    spec.write_text(SPEC.replace("[budget]", query))
    plain, mixed = (run("plan", path).out for path in (folder / "release.toml", spec))
    assert "counts, over all queries" in plain
    assert "weighted rmse" not in plain
    assert "each in its own unit" in mixed
    assert "weighted rmse" in mixed


def test_a_workload_with_single_brackets_is_told_to_double_them(folder: Path, run: Run) -> None:
    spec = folder / "single.toml"
    first, _, rest = SPEC.partition("[[workload]]")
    spec.write_text(first + "[workload]\nmarginals = 1\n" + rest[rest.index("[budget]") :])
    ran = run("plan", spec)
    assert ran.code == 2
    assert "write double brackets" in ran.err


def test_a_plan_looks_at_the_ledger_and_a_release_takes_what_fits(folder: Path, run: Run) -> None:
    """After a Gaussian release of a tenth, Laplace noise of epsilon 1 is refused, Gaussian fits."""
    spec = folder / "release.toml"
    fresh = run("plan", spec, "--json").document["ledger"]
    assert fresh["fits"]  # type: ignore[index]
    assert fresh["takes"] == pytest.approx(1 / 3, rel=1e-3)  # type: ignore[index]
    assert "takes 33.33% of the budget" in run("plan", spec).out
    with_noise = SPEC.replace("epsilon = 1\n", "epsilon = 0.1\n")
    (folder / "small.toml").write_text(with_noise)
    assert run("release", folder / "small.toml", "--mechanism", "gaussian", "-q").code == 0
    found = run("plan", spec, "--json").document
    within = found["ledger"]
    assert within["fits"]  # type: ignore[index]
    assert str(within["instead_of"]).startswith("laplace")  # type: ignore[index]
    assert "will be refused" in str(within["words"])  # type: ignore[index]
    refused = run("release", spec, "--mechanism", str(within["instead_of"]))  # type: ignore[index]
    assert refused.code != 0
    assert "would fit" in refused.err
    assert run("release", spec, "-q").code == 0
    shown = run("ledger", "show", folder / "people.ledger")
    assert "mu^2" not in shown.out
    assert "epsilon = 1" in shown.out
    entries = run("ledger", "show", folder / "people.ledger", "--json").document["entries"]
    taken = sum(e["share"] for e in entries)  # type: ignore[index,union-attr]
    spent = run("ledger", "show", folder / "people.ledger", "--json").document["spent_share"]
    assert taken == pytest.approx(spent)


def test_a_public_number_of_records_shows_shares(folder: Path, run: Run) -> None:
    spec = folder / "inside.toml"
    text = SPEC.replace('[[workload]]\nprefix = "age"\nby = ["sex"]\n', "")
    spec.write_text(
        'records = "all-inside"\n' + text.replace("[data]", '[data]\nneighbours = "replace-one"', 1)
    )
    found = run("plan", spec, "--json", "--records", "400").document
    shares = found["shares"]
    assert isinstance(shares, dict)
    assert (shares["records"], shares["move"]) == (400, 2 / 400)
    assert shares["rmse"] == pytest.approx(float(str(found["rmse"])) / 400)
    said = run("plan", spec, "--records", "400", "--shares").out
    assert "errors as shares of 400 records" in " ".join(said.split())
    assert run("plan", spec, "--shares").code == 2  # of how many records?
    # Without the promise a record may be dropped, and the number is private.
    spec.write_text(spec.read_text().replace('records = "all-inside"\n', ""))
    assert "shares" not in run("plan", spec, "--json", "--records", "400").document
    refused = run("plan", spec, "--records", "400", "--shares")
    assert refused.code == 2
    assert "here it is private" in " ".join(refused.err.split())
