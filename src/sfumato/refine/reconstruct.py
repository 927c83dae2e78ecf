# SPDX-License-Identifier: Apache-2.0
"""From measurements to unbiased answers, and to the fit that every projection minimises.

``reconstruct`` gives the answers ``R (M h + z)`` of every group; ``released_tables`` the tables
that follow from them; ``fit_answers`` and ``fit_measured`` the least-squares problem

    f(h) = 1/2 sum_parts sum_q w_q (F h - y)_q^2,   h >= 0, and 1'h = n where n is known

that makes them agree (``consistency``, ``project``). The parts are queries with their noisy answers
(the projection mechanism: Nikolov, Talwar, Zhang 2013, "The geometry of differential privacy: the
sparse and approximate cases"), or measured blocks with their noisy values and inverse variances;
the latter is projecting the answers in the metric of their true covariance. Every part reads the
table of its attributes only, so a histogram is known to a fit by its margins over ``sets``, and the
gradient by a table per set: the domain as a whole may be of any size.

Post-processing of what the vault released: nothing here can cost privacy (Dwork, Roth 2014,
Proposition 2.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod, sqrt
from typing import overload

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.measurement import Measured
from sfumato.planning.forecast import Forecast
from sfumato.refine.refine_limits import LIMITS
from sfumato.strategy.base import Strategy
from sfumato.strategy.marginals import Marginals
from sfumato.types import Array, Names
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

__all__ = [
    "Fit",
    "FitPart",
    "ReleasedTable",
    "Tables",
    "fit_answers",
    "fit_measured",
    "inner_tables",
    "reconstruct",
    "released_tables",
    "released_total",
]


def reconstruct(forecast: Forecast, measured: Measured) -> Sequence[Array]:
    """The unbiased answers ``R (M h + z)`` of every group.

    Too many answers for the memory are computed, or refused, group by group when they are looked
    at, not before: what is paid for can still be asked in part.
    """
    values = [m.values for m in measured.measurements]
    if sum(term.rows for term in forecast.workload.terms) <= WORKLOAD_LIMITS.array_entries:
        return forecast.strategy.answers(values)
    return _OnDemand(forecast.strategy, values)


@dataclass(frozen=True, eq=False)
class _OnDemand(Sequence[Array]):
    """The answers of every group, computed when they are looked at."""

    strategy: Strategy
    values: Sequence[Array]

    def __len__(self) -> int:
        return len(self.strategy.workload.terms)

    @overload
    def __getitem__(self, index: int) -> Array: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Array]: ...

    def __getitem__(self, index: int | slice) -> Array | Sequence[Array]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.strategy.answer(range(len(self))[index], self.values)


# Tables that follow from the answers


@dataclass(frozen=True, eq=False)
class ReleasedTable:
    """A contingency table that follows from released answers; ``error`` is that of one cell.

    ``is_spread`` says that groups of cells were asked for and are shared out evenly.
    """

    attributes: tuple[str, ...]
    values: Array
    error: float
    is_spread: bool = False

    def margin_error(self, names: Sequence[str]) -> float:
        """The standard error of a cell of the margin over the named attributes."""
        rest = (
            n for a, n in zip(self.attributes, self.values.shape, strict=True) if a not in names
        )
        return self.error * sqrt(prod(rest))

    def margin(self, names: Sequence[str]) -> Array:
        """The margin over the named attributes, axes in their order."""
        rest = tuple(i for i, a in enumerate(self.attributes) if a not in names)
        left = [a for a in self.attributes if a in names]
        turned = self.values.sum(axis=rest).transpose([left.index(n) for n in names])
        return np.asarray(turned, dtype=np.float64)


def released_tables(forecast: Forecast, answers: Sequence[Array]) -> list[ReleasedTable]:
    """The tables that released groups give: tables, running totals, ranges, groups of cells."""
    tables = []
    for group, numbers, forecast_group in zip(
        forecast.workload.terms, answers, forecast.groups, strict=True
    ):
        term = group.as_product()
        if term is None:
            continue
        table: Array | None = np.asarray(numbers, dtype=np.float64).reshape(term.row_shape)
        error, is_spread = forecast_group.rmse, False
        for axis, (_, queries) in enumerate(term.factors):
            if table is None:
                break
            moved = queries.cells_from(np.moveaxis(table, axis, 0))
            table = None if moved is None else np.moveaxis(moved, 0, axis)
            error *= sqrt(2) if queries.label_kind == "ends" else 1.0
            is_spread |= queries.label_kind == "groups"
        if table is not None:
            tables.append(ReleasedTable(term.attributes, table, error, is_spread))
    return tables


def inner_tables(forecast: Forecast, tables: Sequence[ReleasedTable]) -> list[ReleasedTable]:
    """Margins of the asked tables that are known better than the cells of these say.

    Where the budget was divided anew (``planning/division.py``), tables of few attributes have much
    less noise than sums of the cells of larger ones would have, if these were measured one by one.
    The error of such a margin is that of what it says beyond them: with the larger tables and with
    each other, as if all were independent, they say as much of each margin as is known of it.
    """
    strategy, domain = forecast.strategy, forecast.workload.domain
    if forecast.undivided is None or not isinstance(strategy, Marginals):
        return []
    variances = strategy.inner_variances(forecast.block_variances)
    by_attributes = {t.attributes: t for t in tables}
    said: dict[tuple[int, ...], float] = dict.fromkeys(variances, 0.0)
    holding: dict[tuple[int, ...], ReleasedTable] = {}

    def say(table: ReleasedTable) -> None:
        places = [domain.index(n) for n in table.attributes]
        order = np.argsort(places).tolist()
        for size in range(1, len(places)):
            for chosen in combinations(order, size):
                inner = tuple(places[i] for i in chosen)
                if inner in said:
                    names = [table.attributes[i] for i in chosen]
                    said[inner] += table.margin_error(names) ** -2
                    holding.setdefault(inner, table)

    for table in by_attributes.values():
        say(table)
    out = []
    for inner in sorted(variances, key=len, reverse=True):
        beyond = 1 / variances[inner] - said[inner]
        if inner in holding and beyond > LIMITS.inner_table_matters / variances[inner]:
            names = tuple(domain.names[i] for i in inner)
            made = ReleasedTable(names, holding[inner].margin(names), beyond**-0.5)
            out.append(made)
            say(made)
    return out


def released_total(tables: Sequence[ReleasedTable], rows: int | None) -> float:
    """The number of records: the public one, or the mean of what the tables add up to."""
    if rows is not None:
        return float(rows)
    exact = [t for t in tables if not t.is_spread] or list(tables)
    if not exact:
        return 0.0
    weights = np.array([t.margin_error(()) ** -2 for t in exact])
    totals = np.array([t.values.sum() for t in exact])
    return max(0.0, float((weights * totals).sum() / weights.sum()))


# The fit that every projection minimises

Tables = Mapping[Names, Array]


@dataclass(frozen=True, eq=False)
class FitPart:
    """Queries, their noisy values, and the weight of each squared difference."""

    term: Term
    values: Array
    weights: Array


@dataclass(frozen=True, eq=False)
class Fit:
    """The parts of one least-squares problem; ``Tables`` give a histogram by its margins."""

    domain: Domain
    parts: tuple[FitPart, ...]

    @cached_property
    def sets(self) -> tuple[Names, ...]:
        """The different sets of attributes that parts read, in order of first use."""
        return tuple(dict.fromkeys(p.term.attributes for p in self.parts))

    def answers(self, tables: Tables) -> list[Array]:
        """``F h`` of every part."""
        return [p.term.answer(tables[p.term.attributes]) for p in self.parts]

    def value(self, answers: Sequence[Array]) -> float:
        """f at the answers of a histogram."""
        pairs = zip(self.parts, answers, strict=True)
        return 0.5 * sum(float(p.weights @ (a - p.values) ** 2) for p, a in pairs)

    def gradient(self, answers: Sequence[Array]) -> dict[Names, Array]:
        """``F'W(F h - y)`` as tables: the derivative by a cell is the sum of its entries in all."""
        out = {names: np.zeros(self._shape(names)) for names in self.sets}
        for part, answer in zip(self.parts, answers, strict=True):
            moved = part.term.adjoint(part.weights * (answer - part.values))
            out[part.term.attributes] += np.asarray(moved).reshape(part.term.shape)
        return out

    def _shape(self, names: Names) -> tuple[int, ...]:
        return tuple(self.domain[n].size for n in names)


def fit_answers(
    workload: Workload, answers: Sequence[Array], weights: Sequence[Array] | None = None
) -> Fit:
    """The fit of answers to a workload, group by group; weights are 1 by default."""
    parts = []
    for t, (term, numbers) in enumerate(zip(workload.terms, answers, strict=True)):
        values = np.asarray(numbers, dtype=np.float64)
        weight = np.ones(term.rows) if weights is None else np.asarray(weights[t], dtype=np.float64)
        if values.shape != (term.rows,) or weight.shape != (term.rows,):
            raise WorkloadError(
                f"group {term.name!r} has {term.rows:,} queries, got {values.shape} answers and "
                f"{weight.shape} weights"
            )
        if not np.isfinite(values).all():
            raise WorkloadError(f"an answer of group {term.name!r} is not a finite number")
        if not (np.isfinite(weight) & (weight >= 0)).all():
            raise WorkloadError(f"a weight of group {term.name!r} is not a number of 0 or more")
        parts.append(FitPart(term, values, weight))
    return Fit(workload.domain, tuple(parts))


def fit_measured(forecast: Forecast, measured: Measured) -> Fit:
    """The fit of the measured values themselves, every block by its inverse variance."""
    blocks = zip(forecast.strategy.blocks, measured.measurements, strict=True)
    return Fit(
        forecast.workload.domain,
        tuple(
            FitPart(b.term, m.values, np.full(b.term.rows, 1 / m.noise.variance)) for b, m in blocks
        ),
    )
