# SPDX-License-Identifier: Apache-2.0
"""What ``import sfumato as sf`` offers, how fast, and that nothing else is needed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import sfumato as sf

ROOT = Path(__file__).parents[2]

NOUNS = {
    *("AdaptivePlan", "Boolean", "Budget", "Category", "Client", "Constraints", "Correction"),
    *("Cost", "CsvSource", "DateTime", "Discovery", "DiscoveryPlan", "Domain", "Integer"),
    *("Feature", "FeatureSource", "JoinSource", "Description", "DescriptionPlan"),
    *(
        "Ledger",
        "Level",
        "Numeric",
        "OpenDomain",
        "Plan",
        "PrivacyUnit",
        "Regression",
        "Release",
        "Selection",
        "SelectionPlan",
        "Session",
        "SessionPlan",
    ),
    *("SqlSource", "Stream", "StreamPlan", "Watch", "Workload"),
}
BUILDERS = {
    *(
        "attribute",
        "circular_ranges",
        "conjunctions",
        "covariances",
        "explicit",
        "marginals",
        "means",
        "moments",
    ),
    *("persons",),
    *("predicates", "predictions", "prefixes", "product", "ranges", "sql", "standard_deviations"),
    *("sums", "top", "unparsed", "variances", "windows"),
}
VERBS = {
    "begin_period",
    "combine",
    "promise_over_periods",
    *(
        "correct",
        "describe",
        "example",
        "json_schema",
        "open_session",
        "plan",
        "plan_adaptive",
        "plan_description",
        "plan_discovery",
    ),
    "plan_selection",
    *("plan_session", "plan_stream", "project", "read_release", "recommend", "regress", "watch"),
    *("synthetic_quality", "synthetic_quality_chart"),
}
ERRORS = {
    *("BudgetError", "BudgetExhausted", "KeyHeld", "LedgerError", "LedgerFrozen"),
    *("PlanError", "SchemaError"),
    *("ServerError", "SfumatoError", "SqlError", "StateChanged", "TableError", "TooLarge"),
    "WorkloadError",
}
STUDY = {"factorize", "forecast_projection", "gaussian_width", "mean_width", "study", "support"}
PUBLIC = NOUNS | BUILDERS | VERBS | ERRORS | STUDY

INSIDE = re.compile(r"^\s*(?:>>> |\.\.\. )?(?:from sfumato\.|import sfumato\.)", re.MULTILINE)


def test_the_public_names_are_these_and_no_others() -> None:
    assert set(sf.__all__) == PUBLIC
    for name in PUBLIC:
        assert getattr(sf, name) is not None


def test_every_error_is_public() -> None:
    from sfumato import errors

    kinds = {n for n in errors.__all__ if isinstance(getattr(errors, n), type)}
    assert kinds == ERRORS


def test_the_names_of_study_are_there_and_typed() -> None:
    stub = (ROOT / "src" / "sfumato" / "study" / "__init__.pyi").read_text()
    typed = dict(re.findall(r"^from ([\w.]+) import \w+ as (\w+)$", stub, re.MULTILINE))
    assert sorted(re.findall(r" as (\w+),?$", stub, re.MULTILINE)) == sf.study.__all__
    assert typed
    for name in sf.study.__all__:
        assert callable(getattr(sf.study, name))
    assert set(dir(sf.study)) == set(sf.study.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sf.study.nothing  # noqa: B018


def test_public_names_of_both_are_one_thing() -> None:
    for name in STUDY - {"study"}:
        assert getattr(sf, name) is getattr(sf.study, name)


def test_names_of_before_work_and_say_the_new_one() -> None:
    with pytest.warns(DeprecationWarning, match=r"sfumato\.Counter is now sfumato\.Stream"):
        assert sf.Counter is sf.Stream
    with pytest.warns(DeprecationWarning, match="SparsePlan is now sfumato.study.SparseForecast"):
        assert sf.study.SparsePlan is sf.study.SparseForecast
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in sf.__all__:
            getattr(sf, name)


def test_plan_stays_the_function_whatever_is_imported() -> None:
    import sfumato.planning.planner
    import sfumato.study.matrix_norms

    assert callable(sf.plan)
    assert sfumato.plan is sf.plan
    assert callable(sfumato.study.factorize)


def pages() -> list[Path]:
    """Every page, script and notebook that shows how sfumato is used."""
    examples = (ROOT / "examples").rglob("*")
    shown = [p for p in examples if p.suffix in (".py", ".ipynb", ".md")]
    return [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *shown]


def text_of(page: Path) -> str:
    if page.suffix != ".ipynb":
        return page.read_text()
    cells = json.loads(page.read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells)


def test_nothing_is_imported_from_inside() -> None:
    assert len(pages()) > 50
    assert [str(p.relative_to(ROOT)) for p in pages() if INSIDE.search(text_of(p))] == []


@pytest.mark.parametrize(
    "line",
    ["from sfumato.errors import PlanError", ">>> import sfumato.run", "  from sfumato.a import b"],
)
def test_an_import_from_inside_is_noticed(line: str) -> None:
    assert INSIDE.search(f"text\n{line}\n")
    assert not INSIDE.search("import sfumato as sf\n")


def loaded_after(code: str, names: list[str]) -> list[str]:
    """Which of these modules a fresh process has after some code."""
    whole = f"import sys\n{code}\nprint([m for m in {names!r} if m in sys.modules])"
    command = [sys.executable, "-c", whole]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(ran.stdout.replace("'", '"'))


def test_import_loads_nothing() -> None:
    """Neither a room nor a package of others: names are imported when they are needed."""
    assert loaded_after("import sfumato", ["numpy", "sfumato.errors", "sfumato.run"]) == []


def test_what_plans_loads_nothing_heavy() -> None:
    """Engines, optimisers, charts and accountants are loaded when they are needed."""
    heavy = ["ibis", "duckdb", "pandas", "scipy.optimize", "numba", "altair", "pydantic", "flint"]
    assert loaded_after("import sfumato; sfumato.plan", heavy) == []
    assert loaded_after("import sfumato; sfumato.plan", ["numpy"]) == ["numpy"]
