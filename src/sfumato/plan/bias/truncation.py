# SPDX-License-Identifier: Apache-2.0
"""Which characters pay for the number of records and the budget, and with which coefficients.

Queries of one width share their coefficients c_i. If n_S queries of a group read the character S,
the best shares give it the variance ``(sum_i k_i |c_i|)^2`` with ``k_i = sum_{|S| = i} sqrt(n_S)``,
so a group has to choose c only:

* tables (all negations asked), mean error: least ``n^2 mean squared bias + variance``, in closed
  form (``polynomials.shrunk``); no symmetric polynomial does better, for the bias of a table is the
  same for every record;
* else: least variance for every sup error e, by linear programs (``polynomials.least_cost``), and
  the e where ``n^2 e^2 + variance`` is least.

Sets of attributes are 64-bit masks; levels with too many of them are left out, which is a bias like
any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from math import comb, inf

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.plan.bias.literals import Cube, Read
from sfumato.plan.bias.polynomials import WIDEST, conjunction, least_cost, shrunk
from sfumato.workload.queries import Array, Integers
from sfumato.workload.workload import Workload

__all__ = [
    "Group",
    "Kind",
    "chosen_coefficients",
    "complements",
    "grouped",
    "needed",
    "sets_of",
]

MOST_CHARACTERS = 2**15
MOST_LOOKED_UP = 2**24  # characters of all queries together
NEGLIGIBLE = 1e-6  # coefficients below this part of the exact one are zero
ROUNDS = 12
ERRORS = 40  # sup errors for which a linear program is solved
LEAST_ERROR = 1e-5

Kind = tuple[int, bool]  # literals, and whether all negations are asked


@dataclass(eq=False)
class Group:
    """The queries of one width and kind: whose characters, and how much each counts."""

    kind: Kind
    sets: list[tuple[str, ...]]
    weights: list[float]  # squared, times the number of queries

    def __post_init__(self) -> None:
        self.masks: list[Integers] = []
        self.sizes: list[Array] = []
        self.costs = np.full(self.kind[0] + 1, inf)

    @cached_property
    def frontier(self) -> tuple[Array, list[Array]]:
        """What every sup error costs at least."""
        return _frontier(self.kind[0], self.costs)

    @property
    def names(self) -> set[str]:
        """The attributes that are asked about."""
        return {n for s in self.sets for n in s}

    def count(self, bit: dict[str, int]) -> None:
        """How much every character counts, level by level while they are few enough."""
        width = self.kind[0]
        bits = np.array([[bit[n] for n in s] for s in self.sets], dtype=np.int64)
        bits = bits.reshape(len(self.sets), width)
        left = MOST_CHARACTERS
        for level in range(width + 1):
            if len(self.sets) * comb(width, level) > MOST_LOOKED_UP:
                break
            found = bits[:, sets_of(width, level)].sum(axis=2, dtype=np.int64)
            masks, where = np.unique(found, return_inverse=True)
            left -= len(masks)
            if left < 0:
                break
            each = np.repeat(np.array(self.weights), found.shape[1])
            size = np.bincount(where.reshape(-1), weights=each, minlength=len(masks))
            self.masks.append(masks)
            self.sizes.append(np.asarray(size, dtype=np.float64))
            self.costs[level] = float(np.sqrt(size).sum())


def grouped(workload: Workload, read: Sequence[Read]) -> dict[Kind, Group]:
    """The queries by width and kind."""
    groups: dict[Kind, Group] = {}
    for term, found in zip(workload.terms, read, strict=True):
        listed = [found] if isinstance(found, Cube) else found
        for each in listed:
            width, is_cube = len(each.attributes), isinstance(each, Cube)
            if width > WIDEST:
                raise TooLarge(
                    f"group {term.name!r} has a conjunction of {width} literals; the most are "
                    f"{WIDEST}"
                )
            group = groups.setdefault((width, is_cube), Group((width, is_cube), [], []))
            group.sets.append(each.attributes)
            group.weights.append(term.weight**2 * (2**width if is_cube else 1))
    return groups


def complements(workload: Workload, read: Sequence[Read]) -> float:
    """How much the disjunctions weigh: each is the total minus a conjunction."""
    out = 0.0
    for term, found in zip(workload.terms, read, strict=True):
        if not isinstance(found, Cube):
            out += term.weight**2 * sum(c.is_complement for c in found)
    return out


def chosen_coefficients(groups: dict[Kind, Group], tau: float, objective: str) -> dict[Kind, Array]:
    """The coefficients of every kind; the noise of one depends on what all of them measure."""
    lengths = {kind: _length(g, _first(g)) for kind, g in groups.items()}
    chosen: dict[Kind, Array] = {}
    for _ in range(ROUNDS if len(groups) > 1 else 1):
        for kind, group in groups.items():
            queries = sum(group.weights)
            # d (L_1 + L_2 + ...)^2 = 2 (L_1 + ...) dL_g: as if g were alone with so much more noise
            more = sum(lengths.values()) / lengths[kind] if lengths[kind] > 0 else 1.0
            noise = tau / queries * more
            if kind[1] and objective == "rmse":
                found = shrunk(kind[0], group.costs, noise)
            else:
                found = _least_sup(group, noise)
            found[np.abs(found) < NEGLIGIBLE * 2.0 ** -kind[0]] = 0.0
            chosen[kind] = found
            lengths[kind] = _length(group, found)
    return chosen


def _first(group: Group) -> Array:
    return np.where(np.isfinite(group.costs), conjunction(group.kind[0]), 0.0)


def _length(group: Group, coefficients: Array) -> float:
    used = coefficients != 0
    return float((group.costs[used] * np.abs(coefficients[used])).sum())


def _frontier(width: int, costs: Array) -> tuple[Array, list[Array]]:
    """Sup errors, and for each the coefficients of least cost."""
    errors, found = [], []
    for error in (0.0, *np.geomspace(LEAST_ERROR, 0.5, ERRORS).tolist(), 1.0):
        c = least_cost(width, costs, error)
        if c is not None:
            errors.append(error)
            found.append(c)
    return np.array(errors), found


def _least_sup(group: Group, tau: float) -> Array:
    """``min e^2 + tau (sum_i k_i |c_i|)^2`` over the sup error e, along chords of the frontier.

    Mixtures of two polynomials err and cost at most the mixture, so chords are reached.
    """
    errors, found = group.frontier
    lengths = np.array([_length(group, c) for c in found])
    if len(found) == 1:
        return found[0].copy()
    de, dl = np.diff(errors), np.diff(lengths)
    slopes = de * errors[:-1] + tau * dl * lengths[:-1]
    share = np.clip(-slopes / (de**2 + tau * dl**2), 0.0, 1.0)
    values = (errors[:-1] + share * de) ** 2 + tau * (lengths[:-1] + share * dl) ** 2
    at = int(values.argmin())
    return np.asarray((1 - share[at]) * found[at] + share[at] * found[at + 1], dtype=np.float64)


def needed(
    groups: dict[Kind, Group], chosen: dict[Kind, Array], total: float
) -> tuple[Integers, Array]:
    """The characters with a coefficient, and the sum of its squares over the queries.

    ``total`` is how much the number of records counts besides.
    """
    masks: list[Integers] = []
    errors: list[Array] = []
    for kind, group in groups.items():
        for level in np.flatnonzero(chosen[kind]).tolist():
            masks.append(group.masks[level])
            errors.append(group.sizes[level] * chosen[kind][level] ** 2)
    if total > 0:
        masks.append(np.zeros(1, dtype=np.int64))
        errors.append(np.array([total]))
    if not masks:
        raise PlanError(
            "the noise is so large that nothing measured of so few records is better than nothing; "
            "give more budget or ask less"
        )
    distinct, where = np.unique(np.concatenate(masks), return_inverse=True)
    if len(distinct) > MOST_CHARACTERS:
        raise TooLarge(
            f"{len(distinct):,} characters are needed, the most are {MOST_CHARACTERS:,}; ask for "
            "conjunctions of fewer attributes"
        )
    summed = np.bincount(where.reshape(-1), weights=np.concatenate(errors))
    return distinct, np.asarray(summed, dtype=np.float64)


@lru_cache(maxsize=256)
def sets_of(width: int, level: int) -> Integers:
    """All sets of ``level`` of ``width`` positions, a row each."""
    listed = list(combinations(range(width), level))
    out = np.array(listed, dtype=np.int64).reshape(len(listed), level)
    out.setflags(write=False)
    return out
