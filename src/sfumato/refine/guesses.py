# SPDX-License-Identifier: Apache-2.0
"""What answers are worth before the data are asked: even counts, independence, public records.

Each guess is the histogram of one record over the merged cells of a grid, so mixtures of guesses
and of a projection are answers of histograms too (``shrinkage.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato.plan.forecast import Forecast
from sfumato.refine.cells.grid import alike
from sfumato.refine.cells.quadratic import Quadratic
from sfumato.refine.rows.shrink import one_way_shares
from sfumato.refine.synthetic.synthesize import released_tables
from sfumato.workload.queries import Array, Integers

__all__ = ["EVEN", "INDEPENDENT", "PUBLIC", "Guesses", "PublicRecords"]

EVEN = "even counts"
INDEPENDENT = "independent attributes"
PUBLIC = "public records"


@dataclass(frozen=True, eq=False)
class PublicRecords:
    """Weighted records that anybody may see: ``codes[:, i]`` is a cell of ``attributes[i]``."""

    attributes: tuple[str, ...]
    codes: Integers
    weights: Array


@dataclass(frozen=True, eq=False)
class Guesses:
    """The guesses for one set of queries; ``names`` says which there are.

    Public records, where there are some, stand in the place of even counts.
    """

    forecast: Forecast
    quadratic: Quadratic
    public: PublicRecords | None = None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Independence is one where every asked attribute has a table."""
        first = EVEN if self.public is None else PUBLIC
        is_known = self._one_way(np.zeros(self.forecast.workload.queries), 1.0) is not None
        return (first, INDEPENDENT) if is_known else (first,)

    def answers(self, unbiased: Array, total: float) -> Array:
        """The answers of every guess of so many records, one row each; 0 of none."""
        if not total > 0:
            return np.zeros((len(self.names), len(unbiased)))
        out = [self._fixed]
        shares = self._one_way(unbiased, total)
        if shares is not None:
            out.append(_answers(self.quadratic, shares))
        return total * np.stack(out)

    def shares(self, name: str, unbiased: Array, total: float) -> Array:
        """The shares of the merged cells that a guess has."""
        if name == PUBLIC:
            return self._public
        one_way = self._sizes if name == EVEN else self._one_way(unbiased, total)
        return _outer(one_way or []).reshape(-1)

    @cached_property
    def _classes(self) -> dict[str, Integers]:
        return {name: alike(self.quadratic.fit, name) for name in self.quadratic.grid.names}

    @cached_property
    def _sizes(self) -> list[Array]:
        """How many cells of the domain each merged cell stands for, by attribute, as shares."""
        return [np.bincount(c).astype(np.float64) / len(c) for c in self._classes.values()]

    @cached_property
    def _fixed(self) -> Array:
        """One record of the guess that does not depend on the noisy answers."""
        if self.public is None:
            return _answers(self.quadratic, self._sizes)
        return self.quadratic.answers(self.quadratic.stack(self._public))

    @cached_property
    def _public(self) -> Array:
        grid, public = self.quadratic.grid, self.public
        assert public is not None  # noqa: S101  asked for where there are some
        columns = [public.codes[:, public.attributes.index(n)] for n in grid.names]
        merged = [c[column] for c, column in zip(self._classes.values(), columns, strict=True)]
        counts = np.zeros(grid.shape)
        np.add.at(counts, tuple(merged), public.weights)
        return np.asarray(counts.reshape(-1) / counts.sum(), dtype=np.float64)

    def _one_way(self, unbiased: Array, total: float) -> list[Array] | None:
        """The one-way tables of the answers, each the nearest without negative cells, as shares."""
        work, names = self.forecast.workload, self.quadratic.grid.names
        ends = np.cumsum([t.rows for t in work.terms])[:-1]
        tables = released_tables(self.forecast, np.split(unbiased, ends))
        found = [one_way_shares(tables, name, total) for name in names]
        if len(names) < 2 or any(f is None for f in found):
            return None
        pairs = zip(self._classes.values(), found, strict=True)
        return [np.bincount(c, f).astype(np.float64) for c, f in pairs]


def _answers(quadratic: Quadratic, shares: Sequence[Array]) -> Array:
    """The answers of one record whose attributes have these shares, independently."""
    margins = [_outer([shares[a] for a in axes]).reshape(-1) for axes in quadratic.sets]
    return quadratic.answers(np.concatenate(margins))


def _outer(shares: Sequence[Array]) -> Array:
    out = np.ones(())
    for share in shares:
        out = np.multiply.outer(out, share)
    return np.asarray(out, dtype=np.float64)
