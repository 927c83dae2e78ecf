# SPDX-License-Identifier: Apache-2.0
"""Chosen ranges of a long attribute, and short forms of groups that nobody can list.

All ranges of a million cells are 5 * 10^11 answers. The release holds all of them, as running
totals: any range is a difference of two. Asked ranges are answered on demand with their exact
errors, and wherever all answers are written down, the running totals stand for the ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sfumato.domain import Attribute
from sfumato.errors import WorkloadError
from sfumato.measurement import Measured
from sfumato.plan.combined import Combined
from sfumato.plan.strategy import Strategy
from sfumato.plan.view import Viewed
from sfumato.refine.reconstruct import reconstruct
from sfumato.release.estimates import Estimates
from sfumato.release.labels import columns_of
from sfumato.release.sources import best_source
from sfumato.wording import listing, shown
from sfumato.workload.queries import (
    DENSE_LIMIT,
    Identity,
    Intervals,
    Prefix,
    Ranges,
    check_entries,
)
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Ends", "check_listed", "listed", "range_frame"]

Ends = tuple[object, object]  # the least and the greatest value of a range


def range_frame(
    estimates: Estimates,
    measured: Measured,
    attr: str,
    between: Sequence[Ends],
    by: Sequence[str],
    level: float,
) -> pd.DataFrame:
    """One row per asked range and cell of ``by``: ends, answer, standard error, interval.

    Privacy: a function of released measurements and of public numbers (post-processing: Dwork,
    Roth 2014, Proposition 2.1).
    Neighbours: those of the forecast.
    """
    import pandas as pd

    domain = estimates.forecast.workload.domain
    names = domain.in_order([attr, *by])
    chosen = _intervals(domain[attr], between)
    factors = tuple((n, chosen if n == attr else Identity(domain[n].size)) for n in names)
    asked = Product(domain, f"ranges {attr}", 1.0, factors)
    found = best_source(estimates, measured, asked)
    if found is None:
        usable = [t.name for t in estimates.forecast.workload.terms if attr in t.attributes]
        raise WorkloadError(
            f"no released group gives single ranges of {attr!r}"
            + (f" by {listing(list(by))}" if by else "")
            + f"; groups that hold {attr!r} are: {listing(usable, 30) or 'none'}; ask for its "
            "ranges in the workload, or combine answers with combine(...)"
        )
    half, value = found.half_width(level), found.unbiased
    low, high = value - half, value + half
    if estimates.is_projected:
        bounds = estimates.bounds(asked)
        value = bounds.clamp(value)
        low, high = bounds.interval(low, high, found.unbiased, value)
    numbers = {"value": value, "standard_error": found.standard_errors(), "low": low, "high": high}
    return pd.DataFrame({**columns_of(asked), **numbers, "unbiased": found.unbiased})


def listed(estimates: Estimates, measured: Measured) -> Estimates:
    """The same estimates, running totals in place of ranges that are too many to be listed."""
    forecast = estimates.forecast
    terms = tuple(_shorter(t) for t in forecast.workload.terms)
    if terms == forecast.workload.terms:
        return estimates
    work = replace(forecast.workload, terms=terms)
    strategy = _asking(forecast.strategy, work)
    derived = replace(forecast, workload=work, strategy=strategy, bound=None)
    unbiased = reconstruct(derived, measured)
    return replace(estimates, forecast=derived, unbiased=unbiased, refined=None, bootstrap=None)


def check_listed(workload: Workload) -> None:
    """Refuse, before anything is paid for, answers of which a release could not list any form."""
    for term in workload.terms:
        check_entries(_shorter(term).rows, f"a release of group {term.name!r}")


def _shorter(term: Term) -> Term:
    if term.rows <= DENSE_LIMIT or not isinstance(term, Product):
        return term
    factors = tuple((n, Prefix(q.size) if isinstance(q, Ranges) else q) for n, q in term.factors)
    return replace(term, name=f"running totals of {term.name}", factors=factors)


def _asking(strategy: Strategy, work: Workload) -> Strategy:
    """The same measurements for other questions, term by term."""
    if isinstance(strategy, Viewed):
        return _viewed(strategy, work)
    if not isinstance(strategy, Combined):
        return replace(strategy, workload=work, bound=None)
    asked: list[dict[int, Term]] = [{} for _ in strategy.parts]
    for term, (part, local) in zip(work.terms, strategy.places, strict=True):
        asked[part][local] = term
    parts = tuple(
        _asking(part, Workload(work.domain, tuple(terms[i] for i in range(len(terms)))))
        for part, terms in zip(strategy.parts, asked, strict=True)
    )
    return replace(strategy, workload=work, parts=parts, bound=None)


def _viewed(strategy: Viewed, work: Workload) -> Viewed:
    """The same for groups of a normal form; those that change are groups of it as they are."""
    terms = list(strategy.normal.workload.terms)
    for asked, before, pieces in zip(
        work.terms, strategy.workload.terms, strategy.normal.pieces, strict=True
    ):
        if asked is not before:
            home = pieces[0].term
            terms[home] = replace(asked, name=terms[home].name, weight=terms[home].weight)
    normal = replace(strategy.normal, workload=Workload(work.domain, tuple(terms)))
    planned = _asking(strategy.planned, normal.workload)
    return replace(strategy, workload=work, planned=planned, normal=normal, bound=None)


def _intervals(attribute: Attribute, between: Sequence[Ends]) -> Intervals:
    """The cells of every range; both ends belong to it."""
    if not isinstance(between, Sequence) or not len(between):
        raise WorkloadError("no range was asked: give pairs of a least and a greatest value")
    known: dict[tuple[str, object], int] = {}

    def cell(comparison: str, value: object) -> int:
        """The first cell at or above a value, or the number of cells at or below it."""
        if (comparison, value) not in known:
            inside = np.flatnonzero(attribute.select(comparison, value))  # type: ignore[arg-type]
            is_first = comparison == ">="
            none = attribute.size if is_first else 0
            last = int(inside[-1]) + 1 if len(inside) else none
            known[comparison, value] = int(inside[0]) if is_first and len(inside) else last
        return known[comparison, value]

    starts, ends = [], []
    for pair in between:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise WorkloadError(
                f"a range is a pair of its least and its greatest value, got {shown(pair)}"
            )
        starts.append(cell(">=", pair[0]))
        ends.append(cell("<=", pair[1]))
        if starts[-1] >= ends[-1]:
            raise WorkloadError(
                f"no cell of {attribute.name!r} lies between {shown(pair[0])} and {shown(pair[1])}"
            )
    return Intervals(attribute.size, np.array(starts), np.array(ends))
