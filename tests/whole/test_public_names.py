"""What ``import sfumato as sf`` offers, and how fast."""

from __future__ import annotations

import subprocess
import sys

import sfumato as sf

PUBLIC = {
    "AdaptivePlan",
    "Budget",
    "Constraints",
    "Correction",
    "Counter",
    "CsvSource",
    "Domain",
    "Ledger",
    "Plan",
    "PrivacyUnit",
    "Release",
    "Session",
    "SqlSource",
    "Watch",
    "Workload",
    "attribute",
    "conjunctions",
    "correct",
    "explicit",
    "factorize",
    "forecast_projection",
    "gaussian_width",
    "marginals",
    "mean_width",
    "means",
    "open_session",
    "plan",
    "plan_adaptive",
    "plan_session",
    "plan_stream",
    "predicates",
    "prefixes",
    "product",
    "project",
    "ranges",
    "recommend",
    "sql",
    "sums",
    "support",
    "watch",
    "windows",
}


def test_the_public_names_are_these_and_no_others() -> None:
    assert set(sf.__all__) == PUBLIC
    for name in PUBLIC:
        assert getattr(sf, name) is not None


def test_plan_stays_the_function_whatever_is_imported() -> None:
    import sfumato.planning.planner

    assert callable(sf.plan)
    assert sfumato.plan is sf.plan


def test_import_loads_nothing_heavy() -> None:
    """Engines, optimisers, charts and accountants are loaded when they are needed."""
    heavy = ["ibis", "duckdb", "pandas", "scipy.optimize", "numba", "altair", "pydantic", "flint"]
    code = f"import sys, sfumato; print([m for m in {heavy!r} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
