# SPDX-License-Identifier: Apache-2.0
"""How an adaptive release looks on a terminal and as JSON, before and after. All is public.

The documents have the keys of other plans and releases; those that hold a forecast are null.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.app.publish import constraints_facts, ledger_document, ledger_in_words
from sfumato.app.show import budget_document, facts, neighbours_in_words
from sfumato.release.provenance import cost_in_words

if TYPE_CHECKING:
    from rich.table import Table

    from sfumato.ledger.ledger import Ledger
    from sfumato.release.adaptive import AdaptiveRelease
    from sfumato.run.adaptive import AdaptivePlan

__all__ = [
    "NO_FORECAST",
    "adaptive_document",
    "adaptive_facts",
    "adaptive_published_document",
    "adaptive_published_facts",
]


NO_FORECAST = "none: the error depends on the data; what is measured gets intervals"

_MEASURED = {
    "tables": "tables of attributes, chosen where the estimate is worst",
    "mwem": "single queries, chosen where the estimate is worst",
    "boosting": "samples of queries, drawn where earlier estimates are bad",
}


def adaptive_facts(plan: AdaptivePlan) -> Table:
    """The plan in a few lines."""
    work = plan.workload
    rows = [
        (
            "queries",
            f"{work.queries:,} in {len(work.terms):,} groups over {len(work.domain)} attributes",
        ),
        ("budget", plan.budget.describe()),
        ("neighbours", neighbours_in_words(plan.neighbours, plan.unit)),
        ("mechanism", plan.mechanism),
        ("measured", _MEASURED[plan.method]),
        ("rounds", f"up to {plan.rounds:,}" if plan.method == "tables" else f"{plan.rounds:,}"),
    ]
    if plan.candidates:
        rows.append(("candidates", f"{len(plan.candidates):,} tables may be chosen"))
    return facts(
        [
            *rows,
            ("memory", f"about {plan.memory / 2**20:,.0f} MiB"),
            ("time", f"about {plan.seconds:,.0f} s after counting"),
            ("forecast", NO_FORECAST),
            ("cost", cost_in_words(plan.cost, plan.budget)),
        ]
    )


def adaptive_document(plan: AdaptivePlan) -> dict[str, object]:
    """The plan as JSON: the keys are described in docs/cli.md and stay stable."""
    unit = plan.unit
    return {
        "queries": plan.workload.queries,
        "mechanism": plan.mechanism,
        **dict.fromkeys(("rmse", "largest", "gamma", "certificate", "objective")),
        "stopped_early": False,
        "budget": budget_document(plan.budget),
        "cost": plan.cost.as_json(),
        "neighbours": plan.neighbours,
        "unit": None if unit is None else {"column": unit.column, "rows": unit.rows},
        "groups": [
            {"name": t.name, "queries": t.rows, "rmse": None, "largest": None}
            for t in plan.workload.terms
        ],
        "candidates": [],
        "after_projection": None,
        "recommendation": None,
        "resources": None,
        "ledger": None,
        "rounds": plan.rounds,
        "candidate_tables": len(plan.candidates),
        "memory": plan.memory,
        "seconds": plan.seconds,
    }


def told_in_words(result: AdaptiveRelease) -> str:
    """How many answers have an interval."""
    told = sum(result.told_count(t) for t in range(len(result.workload.terms)))
    return f"{told:,} of {result.workload.queries:,} answers, from the noise of what was measured"


def adaptive_published_document(
    plan: AdaptivePlan,
    result: AdaptiveRelease,
    files: Mapping[str, Path],
    book: Ledger | None,
    is_stored: bool,
) -> dict[str, object]:
    """The release as JSON: public facts and paths, no answers (they are in the files)."""
    return {
        "queries": plan.workload.queries,
        "mechanism": plan.mechanism,
        "rmse": None,
        "largest": None,
        "budget": budget_document(plan.budget),
        "cost": plan.cost.as_json(),
        "neighbours": plan.neighbours,
        "is_stored": is_stored,
        "ledger": ledger_document(result.provenance, book),
        "files": {kind: str(path) for kind, path in files.items()},
        "measurements": len(result.transcript.steps),
        "intervals": told_in_words(result),
        "constraints": result.provenance["constraints"],
    }


def adaptive_published_facts(
    plan: AdaptivePlan,
    result: AdaptiveRelease,
    files: Mapping[str, Path],
    book: Ledger | None,
    is_stored: bool,
) -> Table:
    """The release in a few lines: what was promised, what was measured, where it is."""
    cost = cost_in_words(plan.cost, plan.budget)
    return facts(
        [
            ("budget", plan.budget.describe()),
            ("neighbours", neighbours_in_words(plan.neighbours, plan.unit)),
            ("spent", f"nothing now; {cost} when it was first released" if is_stored else cost),
            ("mechanism", plan.mechanism),
            ("measured", f"{len(result.transcript.steps):,} times, listed in provenance.json"),
            ("intervals", told_in_words(result)),
            *constraints_facts(result.provenance),
            ("forecast", NO_FORECAST),
            ("ledger", ledger_in_words(book)),
            *((kind, str(path)) for kind, path in files.items()),
        ]
    )
