# SPDX-License-Identifier: Apache-2.0
"""Yes/no attributes through their characters: only the Fourier coefficients that are needed.

For a set B of yes/no attributes the character is ``chi_B(x) = prod_{i in B} (-1)^{x_i}``. A query
(q_0, q_1) on one attribute is ``a + b chi`` with ``a = (q_0 + q_1) / 2``, ``b = (q_0 - q_1) / 2``,
so a product of queries on the attributes S combines the ``2^|S|`` characters within S:

    q = sum_{B within S}  prod_{i in S - B} a_i  prod_{i in B} b_i  chi_B.

For marginals all coefficients are ``2^-|S|``. A record moves every measured coefficient by its
share s_B exactly, so the column norm is ``sum s_B^p``, and with e_B the summed squared coefficients
of the asked queries the best shares are ``s_B^(p + 2) ~ e_B`` (Lagrange), in closed form.

Reference: Barak, Chaudhuri, Dwork, Kale, McSherry, Talwar 2007, "Privacy, accuracy, and
consistency too: a holistic solution to contingency table release".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.plan.strategy import Block, Norm, Strategy
from sfumato.plan.transforms.kronecker import power_of
from sfumato.privacy.noise_laws import Noise
from sfumato.workload.coefficients import Matrix
from sfumato.workload.queries import Array, QuerySet
from sfumato.workload.sensitivity import ColumnNorm
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload

__all__ = ["Fourier", "fourier"]

MOST_CHARACTERS = 2**14
LARGEST_TERM = 16  # attributes of one term: it has 2^16 characters

Subset = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Fourier(Strategy):
    """Block b measures the character of ``subsets[b]``."""

    subsets: tuple[Subset, ...]
    _index: dict[Subset, int] = field(default_factory=dict, init=False, repr=False)

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """The sum over the characters within the term."""
        out = np.zeros(self.workload.terms[term].rows)
        for b, coefficients in self._within(term):
            out += coefficients * float(values[b][0])
        return out

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """One number per character."""
        return {b: np.array([float(own @ coefficients)]) for b, own in self._within(term)}

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """Squared coefficients times the noise of every character."""
        out = np.zeros(self.workload.terms[term].rows)
        for b, coefficients in self._within(term):
            out += coefficients**2 * block_variances[b]
        return out

    def block_errors(self) -> Array:
        """Squared coefficients, character by character."""
        out = np.zeros(len(self.blocks))
        for t, term in enumerate(self.workload.terms):
            for b, coefficients in self._within(t):
                out[b] += term.weight**2 * float(coefficients @ coefficients)
        return out

    def effective_terms(self, term: int) -> Array:
        """One draw per character, with the variances of the shares."""
        rows = self.workload.terms[term].rows
        second, fourth = np.zeros(rows), np.zeros(rows)
        for b, coefficients in self._within(term):
            part = (coefficients / self.blocks[b].share) ** 2
            second += part
            fourth += part**2
        return np.divide(second**2, fourth, out=np.ones(rows), where=fourth > 0)

    def greatest_column(self, norm: Norm, scales: Sequence[float]) -> ColumnNorm:  # noqa: ARG002
        """All coefficients are 1 or -1: every column is as long as the scales add up to."""
        return ColumnNorm(float(np.sum(scales)) * (1 + 2.0**-30), is_exact=True)

    def _within(self, term: int) -> Iterator[tuple[int, Array]]:
        """The characters of a term, each with the coefficients of all its queries."""
        if not self._index:
            self._index.update({subset: b for b, subset in enumerate(self.subsets)})
        asked = self.workload.terms[term].as_product()
        factors = () if asked is None else asked.factors
        for subset, coefficients in _expanded(factors):
            if coefficients.any():
                yield self._index[subset], coefficients


def fourier(workload: Workload, noise: Noise, objective: str) -> Strategy:
    """The characters that the terms need, with the best shares."""
    squares: dict[Subset, float] = {}
    greatest: dict[Subset, float] = {}
    for group in workload.terms:
        term = group.as_product()
        if term is None:
            raise PlanError(f"group {group.name!r} is not a product of query sets")
        long = [n for n, q in term.factors if q.size != 2]
        if long:
            raise PlanError(
                f"attribute {long[0]!r} has {workload.domain[long[0]].size} cells; characters need "
                "yes/no attributes"
            )
        if len(term.factors) > LARGEST_TERM:
            raise TooLarge(f"group {term.name!r} has more than {LARGEST_TERM} attributes")
        for subset, coefficients in _expanded(term.factors):
            if not coefficients.any():
                continue
            part = term.weight**2 * coefficients**2
            squares[subset] = squares.get(subset, 0.0) + float(part.sum())
            greatest[subset] = max(greatest.get(subset, 0.0), float(part.max()))
            if len(squares) > MOST_CHARACTERS:
                raise TooLarge(f"more than {MOST_CHARACTERS:,} characters are needed")
    if not squares:
        raise PlanError("no query has a coefficient")
    p = power_of(noise)
    errors = np.array(list((greatest if objective == "max" else squares).values()))
    shares = errors ** (1 / (p + 2))
    shares /= float((shares**p).sum()) ** (1 / p)
    sign = Matrix.of([[1, -1]], title="sign")
    blocks = []
    for subset, share in zip(squares, shares, strict=True):
        title = "character of " + (" x ".join(subset) or "nothing: the total")
        measured = Product(workload.domain, title, 1.0, tuple((n, sign) for n in subset))
        blocks.append(Block(measured, float(share)))
    return Fourier(f"{noise}-fourier", noise, workload, tuple(blocks), tuple(squares))


def _expanded(factors: Sequence[tuple[str, QuerySet]]) -> Iterator[tuple[Subset, Array]]:
    """Every set of attributes with the coefficients of its character in all queries."""
    names = tuple(name for name, _ in factors)
    halves = []
    for _, queries in factors:
        dense = queries.dense()
        halves.append(((dense[:, 0] + dense[:, 1]) / 2, (dense[:, 0] - dense[:, 1]) / 2))
    for count in range(len(names) + 1):
        for inside in combinations(range(len(names)), count):
            out = np.ones(1)
            for i, (mean, half) in enumerate(halves):
                out = np.outer(out, half if i in inside else mean).reshape(-1)
            yield tuple(names[i] for i in inside), out
