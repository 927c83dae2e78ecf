# SPDX-License-Identifier: Apache-2.0
"""Rows that can be records: impossible ones drawn again, weights raked to what is published.

The attributes of linked conditions are drawn again together, from the product of given shares,
conditional on being possible: classes of cells first (their shares are sums), then a cell within
each class. Other attributes stay as they are. Everything here is arithmetic on public numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.errors import TooLarge
from sfumato.refine.feasibility import witness
from sfumato.refine.fit import Fit, Part
from sfumato.refine.rows.raking import rake
from sfumato.workload.constraints import CLOSE, Constraints, Linked
from sfumato.workload.queries import Array, Integers

__all__ = ["MetRows", "make_possible", "meet_published", "with_published"]

HEAVY = 4.0  # published counts while rows are searched, against the greatest weight of an answer
SHARE = 1e-3  # of all weight, for rows that are added where published counts need some

Uniforms = Callable[[int], Array]  # so many numbers in [0, 1)


def make_possible(
    constraints: Constraints,
    codes: Integers,
    shares: Sequence[Array],
    uniforms: Uniforms,
    kept: Collection[str] = (),
) -> Integers:
    """The rows (attribute x row), with impossible ones drawn again as the shares say.

    Attributes in ``kept`` stay as they are; a row must then be possible as far as they tell.
    """
    out = codes.copy()
    for part in constraints.linked:
        at = [constraints.domain.index(n) for n in part.classes.names]
        pairs = zip(part.classes.class_of, at, strict=True)
        bad = np.flatnonzero(~part.possible[tuple(of[out[a]] for of, a in pairs)])
        held = [i for i, n in enumerate(part.classes.names) if n in kept]
        given = np.array([part.classes.class_of[i][out[at[i], bad]] for i in held], dtype=np.int64)
        cases, which = np.unique(given.reshape(len(held), len(bad)), axis=1, return_inverse=True)
        for case, classes in enumerate(cases.T):
            here = bad[which.reshape(-1) == case]
            drawn = _drawn(
                part,
                [shares[a] for a in at],
                len(here),
                uniforms,
                dict(zip(held, classes, strict=True)),
            )
            for i, a in enumerate(at):
                if i not in held:
                    out[a, here] = drawn[i]
    return out


def _drawn(
    part: Linked,
    shares: Sequence[Array],
    count: int,
    uniforms: Uniforms,
    given: Mapping[int, int],
) -> Integers:
    """Cells of linked attributes from the product of shares, given that they are possible.

    ``given`` are the classes of the attributes that are known.
    """
    possible = np.zeros_like(part.possible)
    at = tuple(given[i] if i in given else slice(None) for i in range(possible.ndim))
    possible[at] = part.possible[at]
    table = possible.astype(np.float64)
    for axis, (of, share) in enumerate(zip(part.classes.class_of, shares, strict=True)):
        if axis not in given:
            mass = np.bincount(of, share, minlength=table.shape[axis])
            table *= mass.reshape([-1 if i == axis else 1 for i in range(table.ndim)])
    if not table.sum() > 0:  # nothing possible has a share: all of it alike
        table = possible.astype(np.float64)
    classes = np.unravel_index(_searched(table.reshape(-1), uniforms(count)), table.shape)
    out = np.empty((table.ndim, count), dtype=np.int64)
    for axis, (of, share) in enumerate(zip(part.classes.class_of, shares, strict=True)):
        for label in np.unique(classes[axis]):
            cells, here = np.flatnonzero(of == label), np.flatnonzero(classes[axis] == label)
            held = share[cells] if share[cells].sum() > 0 else np.ones(len(cells))
            out[axis, here] = cells[_searched(held, uniforms(len(here)))]
    return out


def _searched(weights: Array, at: Array) -> Integers:
    """Places in proportion to weights; never one of weight 0."""
    edges = np.cumsum(weights)
    found = np.searchsorted(edges, at * edges[-1], side="right")
    return np.asarray(np.minimum(found, np.flatnonzero(weights > 0)[-1]), dtype=np.int64)


def with_published(fit: Fit, constraints: Constraints | None) -> Fit:
    """The fit with published tables as parts of great weight: a search is drawn towards them."""
    if constraints is None or not constraints.published:
        return fit
    greatest = max((float(p.weights.max(initial=0.0)) for p in fit.parts), default=0.0) or 1.0
    extra = []
    for table in constraints.published:
        weights = np.full(table.values.size, HEAVY * greatest)
        extra.append(Part(table.term(fit.domain), table.values.reshape(-1), weights))
    return Fit(fit.domain, (*fit.parts, *extra))


@dataclass(frozen=True, eq=False)
class MetRows:
    """Rows with raked weights; ``off`` is the largest miss of a published count, per record."""

    codes: Integers
    weights: Array
    off: float


def meet_published(constraints: Constraints, codes: Integers, weights: Array) -> MetRows:
    """The rows with weights that have the published margins, rows added where that needs some.

    Exact to ``CLOSE`` of the total where rows that meet them are known (``feasibility.py``);
    tables that no data set has are refused there.
    """
    met = _raked(constraints, codes, weights)
    if met.off > CLOSE:
        try:
            found = witness(constraints)
        except TooLarge:
            found = None
        if found is not None and len(found.weights):
            share = SHARE * constraints.published[0].total / float(found.weights.sum())
            both = np.concatenate([codes, found.codes], axis=1)
            added = np.append((1 - SHARE) * weights, share * found.weights)
            met = min(met, _raked(constraints, both, added), key=lambda m: m.off)
    held = met.weights > 0
    return MetRows(np.ascontiguousarray(met.codes[:, held]), met.weights[held], met.off)


def _raked(constraints: Constraints, codes: Integers, weights: Array) -> MetRows:
    places = []
    for table in constraints.published:
        columns = tuple(codes[constraints.domain.index(n)] for n in table.names)
        none = np.zeros(codes.shape[1], dtype=np.int64)
        places.append(np.ravel_multi_index(columns, table.values.shape) if columns else none)
    found = rake(weights, places, [t.values.reshape(-1) for t in constraints.published])
    return MetRows(codes, found.weights, found.off)
