# SPDX-License-Identifier: Apache-2.0
"""Conditions over too many cells to tabulate, evaluated on rows.

Every condition is a union of boxes (``workload/clauses.py``); a row is in a box when no attribute
fails it, so that changing one attribute of a row turns only conditions that look at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.domain import Domain
from sfumato.errors import TooLarge
from sfumato.refine.fit import Part
from sfumato.workload.classes import Classes
from sfumato.workload.clauses import read_clauses
from sfumato.workload.predicates import Condition, Mask
from sfumato.workload.queries import Array, Integers
from sfumato.workload.terms import Predicates

__all__ = ["Codes", "Conditions", "is_wide", "joined", "read_conditions", "read_impossible"]

CHUNK = 2**24  # truth values that are held at once

Codes = Integers  # attribute x row


def is_wide(part: Part) -> bool:
    """Whether the table of a part is never built."""
    return part.term.is_wide


@dataclass(frozen=True, eq=False)
class Conditions:
    """Distinct conditions as boxes; ``values`` and ``weights`` are summed over equal ones.

    Asked conditions that are equal have one answer x; ``sum w (x - y)^2`` is then the sum of the
    weights times ``(x - mean)^2``, plus ``fixed``, which nothing can change.
    """

    first: Integers
    condition: Integers
    look_start: Integers
    look_clause: Integers
    look_mask: Integers
    masks: Mask
    places: tuple[Integers, ...]
    values: Array
    weights: Array
    fixed: float

    @property
    def count(self) -> int:
        """Distinct conditions that can hold."""
        return len(self.first)

    def truth(self, codes: Codes) -> Mask:
        """Row by condition."""
        out = np.ones((codes.shape[1], len(self.condition)), dtype=np.bool_)
        for a, row in enumerate(codes):
            for e in range(self.look_start[a], self.look_start[a + 1]):
                out[:, self.look_clause[e]] &= self.masks[self.look_mask[e] + row]
        if not self.count:
            return out[:, :0]
        return np.asarray(np.logical_or.reduceat(out, self.first, axis=1), dtype=np.bool_)

    def answers(self, codes: Codes, weights: Array) -> Array:
        """The weight of the rows in each condition."""
        out = np.zeros(self.count)
        for part in self._chunks(codes):
            out += weights[part] @ self.truth(codes[:, part])
        return out

    def scores(self, codes: Codes, pull: Array) -> Array:
        """For each row, the sum of the pulls of the conditions it is in."""
        out = np.zeros(codes.shape[1])
        for part in self._chunks(codes):
            out[part] = self.truth(codes[:, part]) @ pull
        return out

    def of_parts(self, answers: Array) -> list[Array]:
        """The answers in the order they were asked in; 0 where a condition never holds."""
        padded = np.append(answers, 0.0)
        return [padded[places] for places in self.places]

    def _chunks(self, codes: Codes) -> list[slice]:
        step = max(1, CHUNK // max(1, len(self.condition)))
        return [slice(i, i + step) for i in range(0, codes.shape[1], step)]


def read_conditions(domain: Domain, parts: Sequence[Part]) -> Conditions:
    """The conditions of the wide parts; none gives an empty set of them."""
    terms = [p.term for p in parts if p.term.as_conditions()]
    asked = [c for t in terms for c in t.as_conditions()]
    if not asked:
        none = np.zeros(0, dtype=np.int64)
        first = np.zeros(len(domain.names) + 1, dtype=np.int64)
        flags = np.zeros(0, dtype=np.bool_)
        return Conditions(none, none, first, none, none, flags, (), np.zeros(0), np.zeros(0), 0.0)
    clauses = read_clauses(domain, asked)
    if not clauses.is_complete:
        raise TooLarge(
            "a condition over many attributes is a union of more than 64 boxes; write it as "
            "several conditions, or ask about fewer attributes at once"
        )
    ends = np.append(clauses.first, clauses.clauses)
    condition = np.repeat(np.arange(clauses.count), np.diff(ends))
    classes = Classes.of(asked, domain, domain.in_order({n for t in terms for n in t.attributes}))
    class_of = dict(zip(classes.names, classes.class_of, strict=True))
    known = dict(zip(clauses.names, clauses.masks, strict=True))
    start, look, at, length = [0], [], [], 0
    masks: list[Mask] = []
    for name in domain.names:
        if name in known:
            cells = known[name][class_of[name]]  # cell x clause
            for c in np.flatnonzero(~cells.all(axis=0)):
                look.append(int(c))
                at.append(length)
                masks.append(cells[:, c])
                length += len(cells)
        start.append(len(look))
    places = np.split(clauses.places, np.cumsum([t.rows for t in terms])[:-1])
    values, weights, fixed = _merged(parts, clauses.places, clauses.count)
    return Conditions(
        clauses.first,
        condition.astype(np.int64),
        np.array(start, dtype=np.int64),
        np.array(look, dtype=np.int64),
        np.array(at, dtype=np.int64),
        np.concatenate(masks) if masks else np.zeros(0, dtype=np.bool_),
        tuple(places),
        values,
        weights,
        fixed,
    )


def read_impossible(domain: Domain, impossible: Sequence[Condition]) -> Conditions:
    """Conditions that no row may meet, as ones of no weight."""
    held = tuple(c for c in impossible if c.attributes)
    if not held:
        return read_conditions(domain, ())
    term = Predicates(domain, "impossible", 1.0, held, tuple(map(str, held)))
    return read_conditions(domain, [Part(term, np.zeros(len(held)), np.zeros(len(held)))])


def joined(one: Conditions, other: Conditions) -> Conditions:
    """The clauses of both, those of the other after those of the one; for the compiled loops."""
    if not other.count:
        return one
    start, look, at = [0], [], []
    for a in range(len(one.look_start) - 1):
        for c, clause, mask in ((one, 0, 0), (other, len(one.condition), len(one.masks))):
            entries = slice(c.look_start[a], c.look_start[a + 1])
            look.append(c.look_clause[entries] + clause)
            at.append(c.look_mask[entries] + mask)
        start.append(start[-1] + len(look[-2]) + len(look[-1]))
    return Conditions(
        np.concatenate([one.first, other.first + len(one.condition)]),
        np.concatenate([one.condition, other.condition + one.count]),
        np.array(start, dtype=np.int64),
        np.concatenate(look),
        np.concatenate(at),
        np.concatenate([one.masks, other.masks]),
        one.places,
        np.concatenate([one.values, other.values]),
        np.concatenate([one.weights, other.weights]),
        one.fixed,
    )


def _merged(parts: Sequence[Part], places: Integers, count: int) -> tuple[Array, Array, float]:
    """Per distinct condition the weighted mean of its values, its weight, and the rest of f."""
    values = np.concatenate([p.values for p in parts])
    weights = np.concatenate([p.weights for p in parts])
    total = np.bincount(places + 1, weights=weights, minlength=count + 1)[1:].astype(np.float64)
    sums = np.bincount(places + 1, weights=weights * values, minlength=count + 1)[1:]
    means = np.divide(sums, total, out=np.zeros(count), where=total > 0)
    held = np.append(means, 0.0)[places]  # the last: conditions that never hold answer 0
    return means, total, 0.5 * float(weights @ (values - held) ** 2)
