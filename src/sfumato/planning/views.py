# SPDX-License-Identifier: Apache-2.0
"""A strategy for the normal form of a workload, seen through the groups that were asked.

Equal queries get equal plans however they were written: what is measured is planned for the normal
form (`workload/normal_form.py`), and every asked query has its place there. Here are the answers,
and all that is known of their errors, in the places where they were asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self, TypeVar

import numpy as np

from sfumato.planning.forecast import Forecast
from sfumato.strategy.base import Norm, Strategy
from sfumato.types import Array, Integers, Neighbours, Objective
from sfumato.workload.normal_form import Normal, Placement
from sfumato.workload.representations import Representation
from sfumato.workload.sensitivity import SensitivityBound
from sfumato.workload.workload import Workload

__all__ = [
    "Viewed",
    "as_asked",
    "cells_of",
    "planned_term",
]


Forecasts = TypeVar("Forecasts", bound=Forecast)


@dataclass(frozen=True, eq=False)
class Viewed(Strategy):
    """The same measurements; ``workload`` as it was asked, ``planned`` for its normal form.

    ``cells`` is over which cells the sums of the normal form are planned, if not its own.
    """

    planned: Strategy = field(kw_only=True)
    normal: Normal = field(kw_only=True)
    cells: Representation | None = field(default=None, kw_only=True)

    @classmethod
    def of(
        cls, planned: Strategy, written: Workload, cells: Representation | None = None
    ) -> Viewed:
        """The answers of a strategy for the normal form of a workload, as the workload asks."""
        normal = written.normal
        if cells is not None:
            places = [cells.places(term) for term in normal.workload.terms]
            pieces = tuple(tuple(_moved(p, places) for p in own) for own in normal.pieces)
            normal = replace(normal, workload=planned.workload, pieces=pieces)
        return cls(
            planned.mechanism,
            planned.noise,
            written,
            planned.blocks,
            bound=planned.bound,
            objective=planned.objective,
            records=planned.records,
            replace_one_bound=planned.replace_one_bound,
            planned=planned,
            normal=normal,
            cells=cells,
        )

    @property
    def algorithm(self) -> str:
        """That of the strategy that was planned."""
        return self.planned.algorithm

    @property
    def in_normal_form(self) -> Strategy:
        """The strategy that was planned."""
        return self.planned

    def asking(self, workload: Workload) -> Self:
        """Groups that change are groups of the normal form as they are."""
        terms, places = list(self.normal.workload.terms), list(self.normal.pieces)
        cells = self.cells
        for t, (term, before, pieces) in enumerate(
            zip(workload.terms, self.workload.terms, self.normal.pieces, strict=True)
        ):
            if term is not before:
                home = pieces[0].term
                if cells is not None:
                    places[t] = (replace(pieces[0], rows=None, at=cells.places(term)),)
                    term = cells.term(term)
                terms[home] = replace(term, name=terms[home].name, weight=terms[home].weight)
        domain = workload.domain if cells is None else self.normal.workload.domain
        terms = [replace(term, domain=domain) for term in terms]
        own = Workload(domain, tuple(terms))
        normal = replace(self.normal, workload=own, pieces=tuple(places))
        planned = self.planned.asking(own)
        return replace(self, workload=workload, planned=planned, normal=normal, bound=None)

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """The answers of one group, from where they are."""
        return self.normal.gather(term, lambda t: self.planned.answer(t, values))

    def answers(self, values: Sequence[Array]) -> list[Array]:
        """``answer`` of every group; what is shared is computed once."""
        parts = self.planned.answers(values)
        return [self.normal.gather(t, parts.__getitem__) for t in range(len(self.workload.terms))]

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """The variances of the answers of one group."""
        return self.normal.gather(term, lambda t: self.planned.variances(t, block_variances))

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """Their sum."""
        whole = self._whole(term)
        if whole is not None:
            return self.planned.total_variance(whole, block_variances)
        return float(self.variances(term, block_variances).sum())

    def maximum_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The greatest of them."""
        whole = self._whole(term)
        if whole is not None:
            return self.planned.maximum_variance(whole, block_variances)
        return float(self.variances(term, block_variances).max())

    def total_variances(self, block_variances: Sequence[float]) -> Sequence[float]:
        """``total_variance`` of every group."""
        totals = self.planned.total_variances(block_variances)
        return [
            float(self.variances(term, block_variances).sum() if whole is None else totals[whole])
            for term, whole in enumerate(self.normal.wholes)
        ]

    def maximum_variances(self, block_variances: Sequence[float]) -> Sequence[float]:
        """``maximum_variance`` of every group."""
        greatest = self.planned.maximum_variances(block_variances)
        return [
            float(self.variances(term, block_variances).max() if whole is None else greatest[whole])
            for term, whole in enumerate(self.normal.wholes)
        ]

    def effective_terms(self, term: int) -> Array:
        """How many equal noises every answer of a group is like."""
        return self.normal.gather(term, self.planned.effective_terms, 1.0)

    def bias_bounds(self, term: int) -> Array:
        """The greatest bias per record of every query of a group."""
        return self.normal.gather(term, self.planned.bias_bounds)

    def maximum_error(self, term: int, block_variances: Sequence[float], records: int) -> float:
        """The greatest squared error of an answer of a group."""
        whole = self._whole(term)
        if whole is not None:
            return self.planned.maximum_error(whole, block_variances, records)
        return super().maximum_error(term, block_variances, records)

    def squared_bias(self, term: int | None = None) -> float:
        """At least the squared bias per record over a group, or over all groups."""
        if self.records is None:
            return 0.0
        if term is None:
            return self._most_asked * self.planned.squared_bias()
        whole = self._whole(term)
        if whole is not None:
            return self.planned.squared_bias(whole)
        parts = {piece.term for piece in self.normal.pieces[term] if piece.term >= 0}
        return self._most_asked * sum(self.planned.squared_bias(t) for t in parts)

    @cached_property
    def _most_asked(self) -> int:
        """How often one query of the normal form is asked, at most."""
        counts = [np.zeros(t.rows, dtype=np.int64) for t in self.normal.workload.terms]
        for pieces in self.normal.pieces:
            for piece in pieces:
                if piece.term >= 0 and piece.at is None:
                    counts[piece.term] += 1
                elif piece.term >= 0 and piece.at is not None:
                    rows = len(counts[piece.term])
                    counts[piece.term] += np.bincount(piece.at, minlength=rows)
        return max(int(c.max()) for c in counts)

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """How much every measured value counts in a combination of the answers of a group."""
        out: dict[int, Array] = {}
        for piece in self.normal.pieces[term]:
            if piece.term < 0:
                continue
            own = np.asarray(coefficients, dtype=np.float64)
            own = own if piece.rows is None else own[piece.rows]
            if piece.at is not None:
                rows = self.normal.workload.terms[piece.term].rows
                own = np.asarray(np.bincount(piece.at, own, rows), dtype=np.float64)
            for b, weights in self.planned.adjoint(piece.term, own).items():
                out[b] = out[b] + weights if b in out else weights
        return out

    def covariance(
        self, term: int, queries: Sequence[int], block_variances: Sequence[float]
    ) -> Array:
        """The covariance matrix of the listed answers of a group."""
        pieces = self.normal.pieces[term]
        if len(pieces) == 1 and pieces[0].rows is None and pieces[0].term >= 0:
            at = pieces[0].at
            places = list(queries) if at is None else [int(at[q]) for q in queries]
            return self.planned.covariance(pieces[0].term, places, block_variances)
        return super().covariance(term, queries, block_variances)

    def _whole(self, term: int) -> int | None:
        """The group of the normal form that has the same queries, in whatever order."""
        return self.normal.wholes[term]

    # What is measured is that of the strategy that was planned.

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """The share of every block."""
        return self.planned.shares

    @cached_property
    def block_rows(self) -> tuple[int, ...]:
        """The number of values that every block measures."""
        return self.planned.block_rows

    @cached_property
    def block_cells(self) -> tuple[int, ...]:
        """The cells of the table that every block reads."""
        return self.planned.block_cells

    @cached_property
    def block_bits(self) -> tuple[int, ...]:
        """The bits after the point of every block."""
        return self.planned.block_bits

    @cached_property
    def block_units(self) -> tuple[int, ...]:
        """The bits after the point of the counts that every block reads."""
        return self.planned.block_units

    def block_changes(self, most: int) -> tuple[int, ...]:
        """How many values of every block so many records can change."""
        return self.planned.block_changes(most)

    @cached_property
    def block_slacks(self) -> tuple[float, ...]:
        """By how much the values of every block may be off."""
        return self.planned.block_slacks

    def sensitivity(
        self,
        norm: Norm,
        neighbours: Neighbours = "add-remove",
        may_drop_records: bool = False,
        scales: Sequence[float] | None = None,
    ) -> SensitivityBound:
        """How far one record moves the blocks."""
        return self.planned.sensitivity(norm, neighbours, may_drop_records, scales)

    def block_diameters(self, norm: Norm) -> tuple[float, ...]:
        """How far a replaced record moves every block."""
        return self.planned.block_diameters(norm)

    def block_errors(self) -> Array:
        """The weighted error that unit noise on every block makes in the normal form."""
        return self.planned.block_errors()

    @property
    def is_nonnegative(self) -> bool:
        """Whether no measured coefficient is below zero."""
        return self.planned.is_nonnegative

    def squared_sensitivity(
        self, neighbours: Neighbours = "add-remove", may_drop_records: bool = False
    ) -> float:
        """The square of the sensitivity in the norm of the noise."""
        return self.planned.squared_sensitivity(neighbours, may_drop_records)

    def weighted_error(
        self,
        objective: Objective = "rmse",
        neighbours: Neighbours = "add-remove",
        may_drop_records: bool = False,
    ) -> float:
        """That of the normal form, which the bound is of."""
        return self.planned.weighted_error(objective, neighbours, may_drop_records)

    def bound_for(self, objective: Objective, neighbours: str = "add-remove") -> float | None:
        """The lower bound of an objective, for the normal form."""
        return self.planned.bound_for(objective, neighbours)

    def digest(self) -> str:
        """SHA-256 of what is measured."""
        is_planned = self.blocks is self.planned.blocks
        return self.planned.digest() if is_planned else super().digest()

    def describe(self) -> list[str]:
        """One line per block, for people."""
        return self.planned.describe()


def _moved(piece: Placement, places: Sequence[Integers | None]) -> Placement:
    """Where queries are after the groups of the normal form were written in another order."""
    to = None if piece.term < 0 else places[piece.term]
    if to is None:
        return piece
    return replace(piece, at=to if piece.at is None else to[piece.at])


def planned_term(strategy: Strategy, term: int) -> int | None:
    """The group of the normal form that is an asked group, query by query, if there is one."""
    if not isinstance(strategy, Viewed):
        return term
    pieces = strategy.normal.pieces[term]
    is_same = len(pieces) == 1 and pieces[0].rows is None and pieces[0].at is None
    return pieces[0].term if is_same else None


def as_asked(
    forecast: Forecasts, written: Workload, cells: Representation | None = None
) -> Forecasts:
    """The forecast for the normal form of a workload, as a forecast for the workload itself.

    ``cells`` is over which cells the sums of the normal form were planned, if not its own.
    """
    if cells is None and written.normal.is_in_order:
        return replace(forecast, workload=written)
    if cells is not None:
        written = cells.shown(written)
    strategy = Viewed.of(forecast.strategy, written, cells)
    return replace(forecast, workload=written, strategy=strategy)


def cells_of(forecast: Forecast) -> Representation | None:
    """Over which cells the sums of a forecast were planned, if not over those that were asked."""
    strategy = forecast.strategy
    return strategy.cells if isinstance(strategy, Viewed) else None
