# SPDX-License-Identifier: Apache-2.0
"""Conditions as unions of boxes: a clause is one set of classes of cells per attribute.

Every boolean expression is an "or" of clauses, each an "and" of conditions on single attributes
(its disjunctive normal form). After some attributes are known, a clause is still possible or has
failed, so that a row of bits says all there is to know about all conditions. Cells of an attribute
that no condition tells apart are one class.

A condition of more clauses than ``MOST`` is not read: it counts as one that may always hold. That
is enough for upper bounds on how many conditions hold at once, and ``is_read`` says for which
conditions truth values are more than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.domain import Domain
from sfumato.errors import TooLarge
from sfumato.workload.classes import Classes
from sfumato.workload.predicates import And, Condition, Everything, In, Mask, Not, Or
from sfumato.workload.queries import Integers

__all__ = ["Clauses", "read_clauses"]

MOST = 64  # clauses of one condition
MOST_BITS = 2**27  # of all clauses over all classes

Box = dict[str, Mask]
Key = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, eq=False)
class Clauses:
    """``masks[a][class, clause]`` says whether the clause allows the class of attribute a.

    Clauses are sorted by condition: those of distinct condition q begin at ``first[q]``.
    ``places[i]`` is the number of asked condition i among the distinct ones, -1 if it never holds.
    Conditions may be distinct here and hold for the same cells: only equal boxes are recognised.
    ``names`` are the attributes of the masks.
    """

    masks: tuple[Mask, ...]
    first: Integers
    places: Integers
    is_read: Mask
    names: tuple[str, ...]

    @property
    def count(self) -> int:
        """Distinct conditions that can hold."""
        return len(self.first)

    @property
    def clauses(self) -> int:
        """Boxes in all."""
        return self.masks[0].shape[1] if self.masks else len(self.first)

    @property
    def is_complete(self) -> bool:
        """Whether all conditions were read."""
        return bool(self.is_read.all())

    @property
    def is_plain(self) -> bool:
        """Whether every condition is one box."""
        return self.clauses == self.count

    def holds(self, possible: Mask) -> Mask:
        """From rows of bits of clauses to rows of bits of conditions: some clause is possible."""
        if self.is_plain:
            return possible
        return np.asarray(np.logical_or.reduceat(possible, self.first, axis=1), dtype=np.bool_)

    def at(self, cells: Integers) -> Mask:
        """The clauses that hold at cells, given by a class per attribute in every row."""
        out = np.ones((len(cells), self.clauses), dtype=np.bool_)
        for a, mask in enumerate(self.masks):
            out &= mask[cells[:, a]]
        return out


def read_clauses(domain: Domain, conditions: Sequence[Condition]) -> Clauses:
    """All conditions, equal ones once; attributes that no clause restricts are left out."""
    names = domain.in_order(frozenset().union(*(c.attributes for c in conditions)))
    reader = _Reader(Classes.of(conditions, domain, names))
    boxes: list[Box] = []
    first: list[int] = []
    is_read: list[bool] = []
    places = np.full(len(conditions), -1, dtype=np.int64)
    known: dict[frozenset[Key] | int, int] = {}
    for i, condition in enumerate(conditions):
        found = reader.boxes(condition, False)
        key = i if found is None else frozenset(_key(box) for box in found)
        if found is not None and not found:
            continue
        place = known.setdefault(key, len(first))
        places[i] = place
        if place == len(first):
            first.append(len(boxes))
            boxes += [{}] if found is None else found
            is_read.append(found is not None)
    used = [n for n in names if any(n in box for box in boxes)]
    bits = len(boxes) * sum(reader.counts[n] for n in used)
    if bits > MOST_BITS:
        raise TooLarge(
            f"{len(conditions):,} conditions are {len(boxes):,} clauses over "
            f"{sum(reader.counts[n] for n in used):,} classes of cells, {bits:,} bits; at most "
            f"{MOST_BITS:,} are held: ask for fewer at once"
        )
    masks = tuple(reader.gathered(n, boxes) for n in used)
    return Clauses(
        masks,
        np.array(first, dtype=np.int64),
        places,
        np.array(is_read, dtype=np.bool_),
        tuple(used),
    )


class _Reader:
    """Turns conditions into boxes over classes of cells."""

    def __init__(self, classes: Classes) -> None:
        self.class_of = dict(zip(classes.names, classes.class_of, strict=True))
        self.counts = dict(zip(classes.names, classes.shape, strict=True))

    def boxes(self, condition: Condition, is_negated: bool) -> list[Box] | None:
        """The clauses of a condition or of its negation; None where there are too many."""
        if isinstance(condition, Everything):
            return [] if is_negated else [{}]
        if isinstance(condition, Not):
            return self.boxes(condition.part, not is_negated)
        if isinstance(condition, In):
            return self._leaf(condition, is_negated)
        if not isinstance(condition, And | Or):
            raise TypeError(f"{type(condition).__name__} is not a kind of condition")
        parts = [self.boxes(p, is_negated) for p in condition.parts]
        if isinstance(condition, And) != is_negated:
            return self._all_of(parts)
        return self._any_of(parts)

    def _leaf(self, leaf: In, is_negated: bool) -> list[Box]:
        holds = np.zeros(self.counts[leaf.attribute], dtype=np.bool_)
        holds[self.class_of[leaf.attribute][np.array(leaf.codes, dtype=np.int64)]] = True
        mask = ~holds if is_negated else holds
        if mask.all():
            return [{}]
        return [{leaf.attribute: mask}] if mask.any() else []

    def _all_of(self, parts: Sequence[list[Box] | None]) -> list[Box] | None:
        if any(p is not None and not p for p in parts):  # a part that never holds
            return []
        out: list[Box] = [{}]
        for part in sorted((p for p in parts if p is not None), key=len):
            out = self._distinct([b for x in out for y in part if (b := _both(x, y)) is not None])
            if len(out) > MOST:
                return None
        return None if any(p is None for p in parts) and out else out

    def _any_of(self, parts: Sequence[list[Box] | None]) -> list[Box] | None:
        known = [p for p in parts if p is not None]
        if any(not box for part in known for box in part):  # a part that always holds
            return [{}]
        out = self._distinct([box for part in known for box in part])
        return None if len(known) < len(parts) or len(out) > MOST else out

    @staticmethod
    def _distinct(boxes: Sequence[Box]) -> list[Box]:
        """Without repeats; boxes that restrict the same single attribute become one."""
        out: dict[Key, Box] = {}
        alone: Box = {}
        for box in boxes:
            if len(box) == 1:
                ((name, mask),) = box.items()
                alone[name] = alone[name] | mask if name in alone else mask
            else:
                out[_key(box)] = box
        if any(mask.all() for mask in alone.values()) or any(not box for box in out.values()):
            return [{}]
        return [*out.values(), *({name: mask} for name, mask in alone.items())]

    def gathered(self, name: str, boxes: Sequence[Box]) -> Mask:
        """One row of bits per class of an attribute."""
        out = np.ones((self.counts[name], len(boxes)), dtype=np.bool_)
        for i, box in enumerate(boxes):
            if name in box:
                out[:, i] = box[name]
        return out


def _key(box: Box) -> Key:
    """Equal for equal boxes only."""
    return tuple(sorted((name, mask.tobytes()) for name, mask in box.items()))


def _both(x: Box, y: Box) -> Box | None:
    """The common part of two boxes; None if there is none."""
    out = dict(x)
    for name, mask in y.items():
        joint = out[name] & mask if name in out else mask
        if not joint.any():
            return None
        out[name] = joint
    return out
