# SPDX-License-Identifier: Apache-2.0
"""Saved releases, read again: the same answers of every kind, and no other file for one."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.measurement import Measured, Measurement
from sfumato.release.object_file import Unwritable
from sfumato.release.release import Release
from tests.golden.plans import PLANS

PEOPLE = 2000
DOMAIN = sf.Domain(
    [
        sf.Integer("age", 0, 19, width=2),
        sf.Category("sex", ["f", "m"], levels=(sf.Level("all", ("any",), (0, 0)),)),
        sf.Numeric("income", [0, 10, 20, 50, 100]),
        sf.Boolean("member"),
        sf.DateTime("day", datetime(2020, 1, 1), datetime(2020, 4, 1), "month"),
    ]
)
BUDGET = sf.Budget(epsilon=2)


def people() -> pd.DataFrame:
    random = np.random.default_rng(7)
    return pd.DataFrame(
        {
            "age": random.integers(0, 20, PEOPLE),
            "sex": random.choice(["f", "m"], PEOPLE),
            "income": random.gamma(2, 15, PEOPLE),
            "member": random.random(PEOPLE) < 0.3,
            "day": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(random.integers(0, 90, PEOPLE), unit="D"),
        }
    )


def planned(work: sf.Workload, **options: object) -> Release:
    return sf.plan(work, BUDGET).release(people(), **options)  # type: ignore[arg-type]


SQL = """
SELECT sex, COUNT(*) AS n, AVG(income) AS mean, MEDIAN(income) AS middle FROM data
WHERE age < 12 GROUP BY sex HAVING n > 10 ORDER BY n DESC LIMIT 1
"""
KINDS: dict[str, Callable[[], Release]] = {
    "tables": lambda: planned(sf.marginals(DOMAIN, 2)),
    "unbiased": lambda: planned(sf.marginals(DOMAIN, 1), project=False),
    "bootstrap": lambda: planned(sf.marginals(DOMAIN, 1), intervals="bootstrap"),
    "means": lambda: planned(
        sf.means(DOMAIN, "income", by=["sex"]) | sf.variances(DOMAIN, "income", by=["sex"])
    ),
    "sql": lambda: planned(sf.sql(DOMAIN, SQL)),
    "constraints": lambda: planned(
        sf.marginals(DOMAIN, 2),
        constraints=sf.Constraints(DOMAIN, ["age < 4 and member"], [(["sex"], [1000, 1000])]),
    ),
    "combined": lambda: sf.combine(
        planned(sf.marginals(DOMAIN, 1)), planned(sf.prefixes(DOMAIN, "age"))
    ),
    "adaptive": lambda: sf.plan_adaptive(sf.marginals(DOMAIN, 2), BUDGET).release(people()),
    "mwem": lambda: sf.plan_adaptive(sf.marginals(DOMAIN, 1), BUDGET, method="mwem").release(
        people()
    ),
    "ranges": lambda: planned(sf.ranges(DOMAIN, "age", by=["sex"])),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_that_is_read_again_says_all_that_it_said(kind: str, tmp_path: Path) -> None:
    release = KINDS[kind]()
    release.save(tmp_path)
    again = sf.read_release(tmp_path)
    pd.testing.assert_frame_equal(again.answers(), release.answers())
    pd.testing.assert_frame_equal(again.answers(level=0.5), release.answers(level=0.5))
    if kind not in ("means", "sql"):
        pd.testing.assert_frame_equal(again.answers([]), release.answers([]))
    for group in release.groups:
        pd.testing.assert_frame_equal(again.answers(group=group), release.answers(group=group))
    for number in range(len(release.workload.statements)):
        pd.testing.assert_frame_equal(again.statement(number), release.statement(number))
    assert json.loads(json.dumps(release.provenance)) == again.provenance
    assert (again.budget, again.cost, again.rows) == (release.budget, release.cost, release.rows)
    assert again.total == pytest.approx(release.total, rel=1e-12)
    assert repr(again) == repr(release)
    assert again.report() == release.report()


@pytest.mark.parametrize("name", PLANS)
def test_every_kind_of_plan_has_a_form_in_a_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noisy values are made up: what is tested is that the strategy comes back whole."""
    forecast = PLANS[name].plan().forecast
    random = np.random.default_rng(3)
    rows = 1000 if forecast.total_is_public else None
    measured = Measured(
        tuple(
            Measurement(random.integers(-50, 200, b.term.rows), law)
            for b, law in zip(forecast.strategy.blocks, forecast.noise, strict=True)
        ),
        rows,
    )
    release = Release.of(forecast, measured, project=False)
    monkeypatch.setattr("sfumato.release.report.library", lambda: "")
    release.save(tmp_path)
    again = sf.read_release(tmp_path / "release.zip")
    assert again.forecast.strategy.digest() == forecast.strategy.digest()
    assert again.workload.digest() == forecast.workload.digest()
    assert again.forecast.groups == forecast.groups
    assert again.forecast.certificate == forecast.certificate
    assert type(again.forecast.strategy) is type(forecast.strategy)
    for term in range(min(len(forecast.workload.terms), 5)):
        if forecast.workload.terms[term].rows < 10_000:
            assert np.array_equal(again.values()[term], release.values()[term])
            assert np.array_equal(
                again.forecast.standard_errors(term), forecast.standard_errors(term)
            )


def test_derived_numbers_of_a_release_that_was_read_are_those_of_the_original(
    tmp_path: Path,
) -> None:
    release = planned(sf.prefixes(DOMAIN, "age", by=["sex"]) | sf.marginals(DOMAIN, 2))
    release.save(tmp_path)
    again = sf.read_release(tmp_path)
    same = pd.testing.assert_frame_equal
    same(again.quantiles("age", [0.5], by="sex"), release.quantiles("age", [0.5], by="sex"))
    same(again.ranges("age", [(4, 9)]), release.ranges("age", [(4, 9)]))
    same(again.answers("sex.all"), release.answers("sex.all"))
    group = next(n for n in release.groups if n in again.groups)
    query = f'SELECT COUNT(*) AS n FROM "{group}"'
    same(again.sql(query), release.sql(query))
    first = {release.groups[0]: [1.0] + [0.0] * (release.workload.terms[0].rows - 1)}
    assert again.combine(first) == release.combine(first)
    assert np.array_equal(again.table("sex"), release.table("sex"))
    assert again.plot("age").to_dict()["mark" if "mark" in again.plot("age").to_dict() else "layer"]
    other = planned(sf.marginals(DOMAIN, 1))
    assert sf.combine(again, other).forecast.rmse == sf.combine(release, other).forecast.rmse
    with pytest.raises(sf.WorkloadError, match="share a measurement"):
        sf.combine(again, release)
    again.save(tmp_path / "twice")
    same(sf.read_release(tmp_path / "twice").answers(), release.answers())


def test_a_ledger_tells_what_it_paid_for(tmp_path: Path) -> None:
    plan = sf.plan(sf.marginals(DOMAIN, 1), sf.Budget(epsilon=1))
    ledger = sf.Ledger.create(tmp_path / "one.db", sf.Budget(epsilon=3), "people", "add-remove")
    release = plan.release(people(), ledger=ledger, name="people")
    release.save(tmp_path / "out")
    pd.testing.assert_frame_equal(
        sf.read_release(tmp_path / "out", ledger).answers(), release.answers()
    )
    assert sf.read_release(tmp_path / "out", tmp_path / "one.db").entry is None
    other = sf.Ledger.create(tmp_path / "two.db", sf.Budget(epsilon=3), "people", "add-remove")
    with pytest.raises(sf.LedgerError, match="no debit for this release"):
        sf.read_release(tmp_path / "out", other)
    plan.release(people(), ledger=other, name="people").save(tmp_path / "other")
    # The same request, paid by another ledger: its own numbers, and mostly another time.
    with pytest.raises(sf.LedgerError, match=r"no debit for this release|other numbers"):
        sf.read_release(tmp_path / "other", ledger)
    unpaid = planned(sf.marginals(DOMAIN, 1))
    unpaid.save(tmp_path / "unpaid")
    with pytest.raises(sf.LedgerError, match="no debit"):
        sf.read_release(tmp_path / "unpaid", ledger)


def test_numbers_that_a_ledger_has_not_stored_are_refused(tmp_path: Path) -> None:
    """A forger who keeps the record and changes what was measured is caught by the ledger."""
    plan = sf.plan(sf.marginals(DOMAIN, 1), sf.Budget(epsilon=1))
    ledger = sf.Ledger.create(tmp_path / "one.db", sf.Budget(epsilon=3), "people", "add-remove")
    release = plan.release(people(), ledger=ledger, name="people")
    noise = plan.forecast.noise
    forged = Measured(
        tuple(Measurement(np.full(b.term.rows, 7), n) for b, n in zip(plan.strategy.blocks, noise)),  # noqa: B905
        None,
    )
    made_up = Release.of(plan.forecast, forged, provenance=release.provenance)
    made_up = Release(made_up.estimates, release.provenance, release.budget, release.cost)
    made_up.save(tmp_path / "out")
    sf.read_release(tmp_path / "out")  # sound in itself
    with pytest.raises(sf.LedgerError, match="other numbers"):
        sf.read_release(tmp_path / "out", ledger)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    planned(sf.marginals(DOMAIN, 1)).save(folder)
    return folder


def rewritten(folder: Path, change: Callable[[dict[str, object]], None], name: str) -> None:
    """Rewrite a JSON member of release.zip."""
    path = folder / "release.zip"
    with zipfile.ZipFile(path) as file:
        members = {n: file.read(n) for n in file.namelist()}
    document = json.loads(members[name])
    change(document)
    members[name] = json.dumps(document).encode()
    with zipfile.ZipFile(path, "w") as file:
        for n, data in members.items():
            file.writestr(n, data)


def test_files_that_were_changed_are_refused(saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shutil.copytree(saved, folder)
    frame = pd.read_parquet(folder / "answers.parquet")
    frame["value"] += 1
    frame.to_parquet(folder / "answers.parquet")
    with pytest.raises(sf.SfumatoError, match=r"answers\.parquet changed since it was saved"):
        sf.read_release(folder)
    (folder / "answers.parquet").unlink()
    with pytest.raises(sf.SfumatoError, match=r"answers\.parquet is missing"):
        sf.read_release(folder)
    assert len(sf.read_release(folder / "release.zip").answers("sex")) == 2


def test_a_record_that_promises_more_is_refused(saved: Path, tmp_path: Path) -> None:
    for key, value in [
        ("budget", {"epsilon": "1/10"}),
        ("cost", {"epsilon": 0.1}),
        ("neighbours", "replace-one"),
        ("workload_sha256", "0" * 64),
        ("mechanism", "gaussian"),
        ("public_rows", 5),
    ]:
        folder = tmp_path / key
        shutil.copytree(saved, folder)
        rewritten(folder, lambda d, k=key, v=value: d.update({k: v}), "provenance.json")  # type: ignore[misc]
        with pytest.raises(sf.SfumatoError, match=f"not that of its numbers: {key} differ"):
            sf.read_release(folder / "release.zip")


def test_other_versions_are_named(saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shutil.copytree(saved, folder)
    rewritten(folder, lambda d: d.update(format="sfumato release 2"), "release.json")
    with pytest.raises(sf.SfumatoError, match="another format than 'sfumato release 1'"):
        sf.read_release(folder)

    def older(document: dict[str, object]) -> None:
        classes = document["classes"]
        assert isinstance(classes, dict)
        name = next(n for n in classes if n.endswith(":Workload"))
        document.update(sfumato="0.0.1", format="sfumato release 1")
        classes[name] = ["domain", "questions", *classes[name][2:]]

    rewritten(folder, older, "release.json")
    with pytest.raises(sf.SfumatoError, match=r"written by sfumato '0\.0\.1' and cannot be read"):
        sf.read_release(folder)


def test_what_is_no_saved_release_is_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(sf.SfumatoError, match="there is no"):
        sf.read_release(tmp_path)
    with pytest.raises(sf.SfumatoError, match="takes the folder"):
        sf.read_release(5)  # type: ignore[arg-type]
    (tmp_path / "release.zip").write_bytes(b"no zip")
    with pytest.raises(sf.SfumatoError, match="damaged or was changed"):
        sf.read_release(tmp_path)
    data = (saved / "release.zip").read_bytes()
    for cut in (len(data) // 2, len(data) - 10):
        (tmp_path / "release.zip").write_bytes(data[:cut])
        with pytest.raises(sf.SfumatoError, match="damaged or was changed"):
            sf.read_release(tmp_path / "release.zip")


def test_a_file_makes_no_class_of_another_room(saved: Path, tmp_path: Path) -> None:
    for name in ("os:environ", "ledger.ledger:Ledger", "vault.tables:Table", "release.saved:Path"):
        folder = tmp_path / name.replace(":", "_")
        shutil.copytree(saved, folder)

        def other(document: dict[str, object], name: str = name) -> None:
            classes = document["classes"]
            assert isinstance(classes, dict)
            document["classes"] = {name: [], **classes}

        rewritten(folder, other, "release.json")
        with pytest.raises(sf.SfumatoError):
            sf.read_release(folder / "release.zip")


def test_classes_that_moved_are_found_by_name(saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shutil.copytree(saved, folder)

    def moved(document: dict[str, object]) -> None:
        classes = document["classes"]
        assert isinstance(classes, dict)
        document["classes"] = {
            f"workload.elsewhere:{n.partition(':')[2]}": f for n, f in classes.items()
        }

    rewritten(folder, moved, "release.json")
    assert len(sf.read_release(folder).answers("sex")) == 2


def test_nothing_private_is_in_the_file(tmp_path: Path) -> None:
    """Neither the process that paid, nor a path, nor anything that the noise did not pass over."""
    ledger = sf.Ledger.create(tmp_path / "one.db", sf.Budget(epsilon=3), "people", "add-remove")
    plan = sf.plan(sf.marginals(DOMAIN, 1), sf.Budget(epsilon=1))
    release = plan.release(people(), ledger=ledger, name="people")
    assert release.entry is not None
    release.save(tmp_path / "out")
    with zipfile.ZipFile(tmp_path / "out" / "release.zip") as file:
        text = b"".join(file.read(n) for n in file.namelist()).decode("latin-1")
    assert release.entry.owner not in text
    assert str(tmp_path) not in text


def test_what_has_no_form_is_said_and_the_rest_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise Unwritable("a lambda")

    monkeypatch.setattr("sfumato.release.release.write_objects", refused)
    with pytest.warns(UserWarning, match=r"release\.zip was not written"):
        paths = planned(sf.marginals(DOMAIN, 1)).save(tmp_path)
    assert "release" not in paths
    assert (tmp_path / "answers.parquet").exists()
