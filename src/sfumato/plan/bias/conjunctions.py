# SPDX-License-Identifier: Apache-2.0
"""Wide conjunctions and disjunctions of yes/no attributes, from few low-way characters.

Answering all conjunctions of w of d attributes exactly needs the characters of all sets of up to w
attributes. A polynomial of low degree (``polynomials.py``) needs those of few attributes only, at
the price of a bias that is known: per record at most ``max_s |p(s) - [s = w]|`` for one query. Each
character is measured once, exactly, and moves by its share for every record, so that

    ||M||_{1->2}^2 = sum_S s_S^2,     Var = sum_S c_|S|^2 / s_S^2,

and with e_S the summed squared coefficients of the asked queries the best shares are
``s_S^2 ~ sqrt(e_S)``: total variance ``(sum_S sqrt(e_S))^2``. For all conjunctions of w of d
attributes this is gamma = ``sum_i sqrt(C(d, i) C(w, i)) |c_i|``. Nothing of size 2^d is built.

Which coefficients pay for the number of records and the budget is found by ``truncation.py``.

References: Thaler, Ullman, Vadhan 2012, "Faster algorithms for privately releasing marginals";
Barak, Chaudhuri, Dwork, Kale, McSherry, Talwar 2007, "Privacy, accuracy, and consistency too"
(characters).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from sfumato.errors import TooLarge
from sfumato.plan.bias.literals import Clause, Cube, Read, clauses_of
from sfumato.plan.bias.polynomials import mean_square_error, sup_error
from sfumato.plan.bias.truncation import (
    Kind,
    chosen_coefficients,
    complements,
    grouped,
    needed,
    sets_of,
)
from sfumato.plan.strategy import Block, GaussianStrategy, Norm, Objective
from sfumato.workload.coefficients import Matrix
from sfumato.workload.queries import Array, Integers
from sfumato.workload.sensitivity import ROUND_UP, ColumnNorm
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload

__all__ = ["ByPolynomial", "conjunctions_by_polynomial"]

MOST_ATTRIBUTES = 62  # a set of them is a 64-bit integer


@dataclass(frozen=True, eq=False)
class ByPolynomial(GaussianStrategy):
    """Block b measures the character of the set ``masks[b]`` of ``names``; masks ascend.

    ``read`` is the workload as cubes and clauses, ``coefficients`` c_i by width and kind.
    """

    names: tuple[str, ...]
    masks: Integers
    read: tuple[Read, ...]
    coefficients: dict[Kind, Array]
    _known: dict[int, tuple[Sequence[float], Array]] = field(
        default_factory=dict, init=False, repr=False
    )

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """Sums of characters; a cube by one Walsh-Hadamard transform."""
        return self._answered(term, np.array([float(v[0]) for v in values]))

    def answers(self, values: Sequence[Array]) -> list[Array]:
        """``answer`` of every term."""
        y = np.array([float(v[0]) for v in values])
        return [self._answered(t, y) for t in range(len(self.read))]

    def _answered(self, term: int, y: Array) -> Array:
        found = self.read[term]
        if isinstance(found, Cube):
            return _transformed(self._placed(found, y))
        parts = (self._expanded(c) for c in found)
        return np.array([float(c @ y[places]) for places, c in parts])

    def _placed(self, cube: Cube, y: Array) -> Array:
        """``c_|S| y_S`` for all sets of the attributes of a cube, in the order of a table."""
        width = len(cube.attributes)
        out = np.zeros(2**width)
        inside = 1 << np.arange(width - 1, -1, -1)
        for level, c, places in self._levels(cube.attributes, True):
            out[inside[sets_of(width, level)].sum(axis=1)] = c * y[places]
        return out

    def _levels(
        self, attributes: tuple[str, ...], is_cube: bool
    ) -> Iterator[tuple[int, float, Integers]]:
        """For every size of sets that is used: its coefficient, and the blocks of the sets."""
        width = len(attributes)
        bits = np.array([self._bit[n] for n in attributes], dtype=np.int64)
        for level in np.flatnonzero(self.coefficients[width, is_cube]).tolist():
            masks = bits[sets_of(width, level)].sum(axis=1, dtype=np.int64)
            c = float(self.coefficients[width, is_cube][level])
            yield level, c, np.searchsorted(self.masks, masks)

    def _expanded(self, clause: Clause) -> tuple[Integers, Array]:
        """The blocks of a clause and their coefficients."""
        width = len(clause.attributes)
        signs = 1.0 - 2.0 * np.array(clause.codes, dtype=np.float64)
        places, values = [], []
        for level, c, found in self._levels(clause.attributes, False):
            places.append(found)
            values.append(c * signs[sets_of(width, level)].prod(axis=1))
        at: Integers = np.concatenate([*places, np.zeros(0, dtype=np.int64)])
        out: Array = np.concatenate([*values, np.zeros(0)])
        if clause.is_complement:  # one minus the conjunction; the total is block 0
            out = -out
            if len(at) and at[0] == 0:
                out[0] += 1.0
            else:
                at, out = np.append(at, 0).astype(np.int64), np.append(out, 1.0)
        return at, out

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """Squared coefficients times the noise; the same for all queries of a cube."""
        noise, found = self._vector(block_variances), self.read[term]
        if isinstance(found, Cube):
            levels = self._levels(found.attributes, True)
            same = sum(c * c * float(noise[places].sum()) for _, c, places in levels)
            return np.full(2 ** len(found.attributes), same)
        parts = (self._expanded(c) for c in found)
        return np.array([float(c**2 @ noise[places]) for places, c in parts])

    def _vector(self, numbers: Sequence[float]) -> Array:
        """As an array; tens of thousands of blocks are not converted for every term."""
        if id(numbers) not in self._known:
            self._known.clear()
            self._known[id(numbers)] = numbers, np.asarray(numbers, dtype=np.float64)
        return self._known[id(numbers)][1]

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c``; the transform is its own transpose."""
        out, found = np.zeros(len(self.masks)), self.read[term]
        if isinstance(found, Cube):
            width = len(found.attributes)
            back = _transformed(np.asarray(coefficients, dtype=np.float64).copy())
            inside = 1 << np.arange(width - 1, -1, -1)
            for level, c, places in self._levels(found.attributes, True):
                out[places] += c * back[inside[sets_of(width, level)].sum(axis=1)]
        else:
            for weight, clause in zip(coefficients, found, strict=True):
                at, row = self._expanded(clause)
                np.add.at(out, at, weight * row)
        return {int(b): np.array([out[b]]) for b in np.flatnonzero(out)}

    def bias_bounds(self, term: int) -> Array:
        """The sup error of the polynomial of each query."""
        found = self.read[term]
        if isinstance(found, Cube):
            width = len(found.attributes)
            return np.full(2**width, self._sup_errors[width, True])
        return np.array([self._sup_errors[len(c.attributes), False] for c in found])

    def squared_bias(self, term: int | None = None) -> float:
        """Exact for cubes, on which every record has the same bias; else from the sup errors."""
        if term is None:
            return sum(self.squared_bias(t) for t in range(len(self.read)))
        found = self.read[term]
        if isinstance(found, Cube):
            width = len(found.attributes)
            mean = mean_square_error(width, self.coefficients[width, True])
            return float(2**width) * mean * ROUND_UP
        return float((self.bias_bounds(term) ** 2).sum())

    def greatest_column(self, norm: Norm, scales: Sequence[float]) -> ColumnNorm:  # noqa: ARG002
        """All coefficients are 1 or -1: every column is as long as the scales add up to."""
        return ColumnNorm(float(np.sum(scales)) * ROUND_UP, is_exact=True)

    def _diameters(self, norm: Norm) -> tuple[float, ...]:
        """A replaced record turns a character from 1 to -1, and leaves the total as it is."""
        if norm != 2:
            return super()._diameters(norm)
        return tuple(0.0 if mask == 0 else 4.0 for mask in self.masks.tolist())

    def describe(self) -> list[str]:
        """The degrees and errors of the polynomials, then the number of characters."""
        out = []
        for (width, is_cube), c in self.coefficients.items():
            degree = int(np.flatnonzero(c).max(initial=0))
            what = "all conjunctions" if is_cube else "conjunctions"
            out.append(
                f"{what} of {width}: degree {degree}, off by at most "
                f"{self._sup_errors[width, is_cube]:.3g} per record"
            )
        return [*out, f"{len(self.masks):,} characters, measured once each"]

    @cached_property
    def _sup_errors(self) -> dict[Kind, float]:
        return {kind: sup_error(kind[0], c) for kind, c in self.coefficients.items()}

    @cached_property
    def _bit(self) -> dict[str, int]:
        return {name: 1 << i for i, name in enumerate(self.names)}


def conjunctions_by_polynomial(
    workload: Workload, records: int, loss: float, objective: str = "rmse"
) -> ByPolynomial:
    """Conjunctions and disjunctions from the characters that pay for data of ``records`` records.

    ``loss`` is the mu of the Gaussian noise. Answers are biased; what is stated holds for every
    data set of at most that many records.
    """
    read = tuple(clauses_of(t) for t in workload.terms)
    groups = grouped(workload, read)
    names = workload.domain.in_order({n for g in groups.values() for n in g.names})
    if len(names) > MOST_ATTRIBUTES:
        raise TooLarge(
            f"conjunctions over {len(names)} attributes; characters are numbered for at most "
            f"{MOST_ATTRIBUTES}: ask about fewer attributes at once"
        )
    bit = {name: 1 << i for i, name in enumerate(names)}
    for group in groups.values():
        group.count(bit)
    chosen = chosen_coefficients(groups, (loss * records) ** -2.0, objective)
    masks, errors = needed(groups, chosen, complements(workload, read))
    sign = Matrix.of([[1, -1]], title="sign")
    squares = np.sqrt(errors) / float(np.sqrt(errors).sum())
    blocks = []
    for mask, square in zip(masks.tolist(), squares.tolist(), strict=True):
        inside = [n for n in names if mask & bit[n]]
        title = "character of " + (" x ".join(inside) or "nothing: the total")
        measured = Product(workload.domain, title, 1.0, tuple((n, sign) for n in inside))
        blocks.append(Block(measured, float(square**0.5)))
    aim: Objective = "max" if objective == "max" else "rmse"
    return ByPolynomial(
        "polynomials",
        "gaussian",
        workload,
        tuple(blocks),
        names,
        masks,
        read,
        chosen,
        objective=aim,
        records=records,
    )


def _transformed(values: Array) -> Array:
    """The Walsh-Hadamard transform: ``sum_S v_S (-1)^|S and b|`` for every b."""
    out = values.reshape(-1)
    half = 1
    while half < len(out):
        pairs = out.reshape(-1, 2, half)
        out = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        half *= 2
    return out
