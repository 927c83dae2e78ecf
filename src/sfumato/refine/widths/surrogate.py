# SPDX-License-Identifier: Apache-2.0
"""Records that nobody has, or that everybody may see, to try mechanisms on before spending.

Made-up records are a mixture: a few kinds of records, the first the most frequent, each with
skewed shares (1, 1/2, 1/3, ... in an arbitrary order) in every attribute. So attributes hang
together, on domains of any size. Every run makes up another population. Public records are drawn
from, with replacement. Draws are repeatable; no table of anybody's records is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato.domain import Domain
from sfumato.refine.draws import Draws
from sfumato.refine.guesses import PublicRecords
from sfumato.workload.queries import Array, Integers
from sfumato.workload.workload import Workload

__all__ = ["Surrogate", "made_up", "resampled"]

KINDS = (1, 2, 4, 8)  # of records, run by run
DRAWN = 10**5  # records that are drawn; more are as many times heavier


@dataclass(frozen=True, eq=False)
class Surrogate:
    """``records`` records: ``codes[:, i]`` are cells of attribute i of the domain, all alike."""

    domain: Domain
    codes: Integers
    records: int

    @cached_property
    def weight(self) -> float:
        """How many records a row stands for."""
        return self.records / max(1, len(self.codes))

    def table(self, names: tuple[str, ...]) -> Array:
        """The counts over some attributes."""
        shape = tuple(self.domain[n].size for n in names)
        columns = [self.codes[:, self.domain.index(n)] for n in names]
        if not names:
            return np.array(float(self.records))
        at = np.ravel_multi_index(columns, shape)
        counts = np.bincount(at, minlength=int(np.prod(shape))).reshape(shape)
        return np.asarray(counts * self.weight, dtype=np.float64)

    def answers(self, workload: Workload) -> list[Array]:
        """The true answers, group by group."""
        return [np.asarray(t.answer(self.table(t.attributes))) for t in workload.terms]


def made_up(domain: Domain, records: int, run: int, label: str) -> Surrogate:
    """The made-up records of one run."""
    draws = Draws(f"surrogate {label} {run} {records}")
    kinds = KINDS[run % len(KINDS)]
    rows = min(records, DRAWN)
    of = _drawn(draws, 1 / np.arange(1.0, kinds + 1), rows)
    columns = []
    for attribute in domain:
        column = np.zeros(rows, dtype=np.int64)
        for kind in range(kinds):
            order = np.argsort(draws.uniforms(attribute.size), kind="stable")
            here = np.flatnonzero(of == kind)
            column[here] = _drawn(draws, 1 / (1.0 + order), len(here))
        columns.append(column)
    return Surrogate(domain, np.column_stack(columns), records)


def resampled(
    domain: Domain, public: PublicRecords, records: int, run: int, label: str
) -> Surrogate:
    """As many records of public ones, drawn with replacement."""
    draws = Draws(f"public {label} {run} {records}")
    chosen = _drawn(draws, public.weights, min(records, DRAWN))
    columns = [public.codes[chosen, public.attributes.index(n)] for n in domain.names]
    return Surrogate(domain, np.column_stack(columns), records)


def _drawn(draws: Draws, shares: Array, count: int) -> Integers:
    """Independent places with these shares."""
    edges = np.cumsum(shares, dtype=np.float64)
    at = np.searchsorted(edges, draws.uniforms(count) * edges[-1], side="right")
    return np.asarray(np.minimum(at, len(shares) - 1), dtype=np.int64)
