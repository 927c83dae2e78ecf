# SPDX-License-Identifier: Apache-2.0
"""Which chart suits which group of answers, and which dozen of them a report shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.release.charts import Width, cdf_band, heat_map, interval_bars
from sfumato.release.estimates import Estimates
from sfumato.release.frames import Group, group_frame, key_term
from sfumato.release.labels import axes_of
from sfumato.workload.coefficients import Groups
from sfumato.workload.queries import Identity, Prefix, Ranges, Windows
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Ratio, Workload

if TYPE_CHECKING:
    from sfumato.release.charts import Chart

__all__ = ["MOST_CHARTS", "chart_of", "chart_rank", "chosen_groups"]

MOST_CHARTS = 12
MOST_CELLS = 5000  # of a heat map
MOST_BARS = 150
MOST_LINES = 10
MOST_POINTS = 20_000


def chosen_groups(workload: Workload, groups: list[Group]) -> list[Group]:
    """The groups that get a chart: running totals, then bars, then heat maps, in their order."""
    ranked = [
        (rank, i) for i, g in enumerate(groups) if (rank := chart_rank(workload, g)) is not None
    ]
    chosen = {i for _, i in sorted(ranked)[:MOST_CHARTS]}
    return [g for i, g in enumerate(groups) if i in chosen]


def chart_of(estimates: Estimates, group: Group, level: float, width: Width) -> Chart | None:
    """The chart of a group, or None when a table says more."""
    workload = estimates.forecast.workload
    kind = _kind(key_term(workload, group))
    if kind is None:
        return None
    frame = group_frame(estimates, group, level)
    value = "mean" if isinstance(group, Ratio) else "value"
    term = key_term(workload, group)
    names = [name for axis in axes_of(term) for name, _ in axis.columns]
    if kind == "running":
        assert isinstance(term, Product)  # noqa: S101  only products have running totals
        along = next(i for i, (_, q) in enumerate(term.factors) if isinstance(q, Prefix))
        others = [n for i, n in enumerate(names) if i != along]
        return cdf_band(frame, names[along], *others, width=width)
    if kind == "bars":
        label = names[0] if names else "query" if "query" in frame else None
        return interval_bars(frame, label, value=value, is_upright=_is_ordered(term), width=width)
    if value != "value":
        frame = frame.rename(columns={value: "value"})
    across, down = _long_side_first(term, names)
    return heat_map(frame, across, down, width=width)


def chart_rank(workload: Workload, group: Group) -> int | None:
    """0 for running totals, 1 for bars, 2 for a heat map; None where a table says more."""
    kind = _kind(key_term(workload, group))
    halves = {t for r in workload.ratios for t in (r.numerator, r.denominator)}
    if kind is None or (not isinstance(group, Ratio) and group in halves):
        return None
    return {"running": 0, "bars": 1, "heat": 2}[kind]


def _kind(term: Term) -> str | None:
    if not isinstance(term, Product):
        return "bars" if term.rows <= MOST_BARS else None
    factors = [q for _, q in term.factors if q.rows > 1]
    running = [q for q in factors if isinstance(q, Prefix)]
    if len(running) == 1 and len(factors) <= 2:
        others = term.rows // running[0].rows
        return "running" if others <= MOST_LINES and term.rows <= MOST_POINTS else None
    if running:
        return None
    if len(factors) <= 1 and not any(isinstance(q, Ranges) for q in factors):
        has_one_column = not any(isinstance(q, Windows) for q in factors)
        return "bars" if term.rows <= MOST_BARS and has_one_column else None
    columns = sum(2 if isinstance(q, Ranges | Windows) else 1 for q in factors)
    return "heat" if columns == 2 and term.rows <= MOST_CELLS else None


def _is_ordered(term: Term) -> bool:
    """Whether bars stand side by side along an order, rather than under one another."""
    if not isinstance(term, Product) or not term.factors:
        return False
    name, queries = term.factors[0]
    return term.domain[name].is_ordered and isinstance(queries, Identity | Groups)


def _long_side_first(term: Term, names: list[str]) -> tuple[str, str]:
    """The attribute with more cells goes across the page."""
    a, b = names
    if isinstance(term, Product) and len(term.factors) == 2:
        first, second = (q.rows for _, q in term.factors)
        return (b, a) if second > first else (a, b)
    return a, b
