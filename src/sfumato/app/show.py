# SPDX-License-Identifier: Apache-2.0
"""How plans and ledgers look on a terminal and as JSON. All numbers here are public."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from sfumato.planning.resources import Resources, as_rows
from sfumato.release.provenance import cost_in_words

if TYPE_CHECKING:
    from sfumato.domain.privacy_unit import PrivacyUnit
    from sfumato.planning.forecast import Candidate, Forecast, GroupForecast
    from sfumato.privacy.budget import Budget
    from sfumato.study.projection_forecast import AfterProjection

__all__ = [
    "STOPPED",
    "budget_document",
    "candidates_table",
    "certificate_in_words",
    "counts",
    "facts",
    "groups_table",
    "heading",
    "neighbours_in_words",
    "plan_document",
    "plan_facts",
    "resources_table",
    "rmse_facts",
    "table",
]


FIRST_GROUPS, LAST_GROUPS = 9, 3
STOPPED = "by the time limit: without one the error may be less"


def counts(value: float | None) -> str:
    """A number of counts, as short as is honest.

    >>> counts(1234.56), counts(41.07), counts(0.0123), counts(None)
    ('1,235', '41.1', '0.0123', '-')
    """
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def heading(text: str, remark: str = "") -> Text:
    """A line in bold, with a remark behind it."""
    return Text.assemble((text, "bold"), (f"  {remark}" if remark else "", "dim"))


def facts(rows: Iterable[tuple[str, str]]) -> Table:
    """Names and values in two columns."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(f" {name}", escape(value))
    return grid


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> Table:
    """A table whose first ``text_columns`` (and any column called ``note``) are text."""
    shown = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=True,
        padding=(0, 1, 0, 1),
        collapse_padding=True,
        header_style="bold",
    )
    for i, name in enumerate(columns):
        is_text = i < text_columns or name == "note"
        side: Literal["left", "right"] = "left" if is_text else "right"
        is_whole = i > 0 and name != "note"
        shown.add_column(name, justify=side, overflow="fold", no_wrap=is_whole, min_width=len(name))
    for row in rows:
        shown.add_row(*(escape(cell) for cell in row))
    return shown


def neighbours_in_words(neighbours: str, unit: PrivacyUnit | None) -> str:
    """Who is protected, in plain words."""
    if unit is None:
        who = "one record"
    else:
        who = f"all records of one {unit.column} (at most {unit.rows} are counted)"
    change = "added or removed" if neighbours == "add-remove" else "replaced"
    return f"{neighbours}: {who} may be {change}"


def certificate_in_words(plan: Forecast) -> str:
    """How far the error is from the best possible, if that is known.

    A factorization is any linear mechanism with the same kind of noise.
    """
    if plan.certificate is None:
        return "not known for this workload, noise and objective"
    return f"{plan.certificate:.4f} times a lower bound on the error of every factorization"


def plan_facts(plan: Forecast, after: AfterProjection | None = None) -> Table:
    """The plan in a few lines."""
    work = plan.workload
    unit = " counts" if work.has_one_weight else ""
    return facts(
        [
            (
                "queries",
                f"{work.queries:,} in {len(work.terms):,} groups over {len(work.domain)} "
                "attributes",
            ),
            ("budget", plan.budget.describe()),
            ("neighbours", neighbours_in_words(plan.neighbours, plan.unit)),
            ("mechanism", plan.mechanism),
            *rmse_facts(plan),
            *(() if after is None else [("after projection", after.describe())]),
            ("largest error", f"{counts(plan.largest_error)}{unit}, of the worst query"),
            ("gamma", f"{plan.gamma:.4g} (the rmse at unit noise)"),
            ("certificate", certificate_in_words(plan)),
            *([("stopped early", STOPPED)] if plan.stopped_early else []),
            ("cost", cost_in_words(plan.cost, plan.budget)),
            *_ledger_facts(plan),
        ]
    )


def _ledger_facts(plan: Forecast) -> list[tuple[str, str]]:
    """What it takes of the ledger that it was planned for."""
    within = getattr(plan, "in_ledger", None)
    return [] if within is None else [("ledger", within.describe())]


def rmse_facts(plan: Forecast) -> list[tuple[str, str]]:
    """The forecast error; groups of unequal weight, such as sums beside counts, by it as well."""
    if plan.workload.has_one_weight:
        return [("forecast rmse", f"{counts(plan.rmse)} counts, over all queries")]
    return [
        ("forecast rmse", f"{counts(plan.rmse)} over all queries, each in its own unit"),
        ("weighted rmse", f"{counts(plan.weighted_rmse)} counts: what was made small; see groups"),
    ]


def candidates_table(candidates: Sequence[Candidate]) -> Table:
    """All mechanisms that were considered, side by side."""
    return table(
        ["mechanism", "rmse", "largest", "note"],
        (
            (
                c.name,
                counts(c.rmse),
                counts(c.largest),
                "chosen" if c.is_chosen else c.note,
            )
            for c in candidates
        ),
    )


def groups_table(groups: Sequence[GroupForecast], show_all: bool = False) -> Table:
    """The forecast of each group; of many groups the first and the last few."""
    rows = [(g.name, f"{g.queries:,}", counts(g.rmse), counts(g.largest)) for g in groups]
    hidden = len(rows) - FIRST_GROUPS - LAST_GROUPS
    if hidden > 1 and not show_all:
        rows[FIRST_GROUPS:-LAST_GROUPS] = [(f"... {hidden} more, see --all", "", "", "")]
    return table(["group", "queries", "rmse", "largest"], rows)


def resources_table(found: Resources) -> Table:
    """Every step of a release; ``/M`` is for every million records."""
    return table(["step", "scans", "cells", "memory", "time"], as_rows(found))


def budget_document(budget: Budget) -> dict[str, float]:
    """A budget as JSON numbers."""
    parts = {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "rho": budget.rho,
        "mu": budget.mu,
        "pure": budget.pure,
    }
    return {name: float(value) for name, value in parts.items() if value}


def plan_document(plan: Forecast, after: AfterProjection | None = None) -> dict[str, object]:
    """A plan as JSON: the keys are described in docs/cli.md and stay stable."""
    unit = plan.unit
    return {
        "queries": plan.workload.queries,
        "mechanism": plan.mechanism,
        "rmse": plan.rmse,
        "largest": plan.largest_error,
        "gamma": plan.gamma,
        "certificate": plan.certificate,
        "stopped_early": plan.stopped_early,
        "objective": plan.objective,
        "budget": budget_document(plan.budget),
        "cost": plan.cost.as_json(),
        "neighbours": plan.neighbours,
        "unit": None if unit is None else {"column": unit.column, "rows": unit.rows},
        "groups": [
            {"name": g.name, "queries": g.queries, "rmse": g.rmse, "largest": g.largest}
            for g in plan.groups
        ],
        "candidates": [
            {
                "mechanism": c.mechanism,
                "algorithm": c.algorithm or None,
                "rmse": c.rmse,
                "largest": c.largest,
                "note": c.note,
                "is_chosen": c.is_chosen,
            }
            for c in plan.candidates
        ],
        "after_projection": None if after is None else after.as_json(),
    }
