# SPDX-License-Identifier: Apache-2.0
"""How far from the projection an estimate can be, whatever solver found it.

Let ``g = F'W(F h - y)``, ``D = |F h - p|_W`` with p the projection ``F h*``. The parabola f has

    f(h*) = f(h) + <g, h* - h> + D^2 / 2     and     f(h) - f(h*) >= D^2 / 2,

the second because h* is optimal. Together ``D^2 <= <g, h - h*>`` and ``f(h) - f(h*) <= <g, h -
h*>``.

*Known total n.* ``<g, h - h*> <= <g, h> - n min_x g_x``: the gap of Frank, Wolfe 1956, "An
algorithm for quadratic programming" (Jaggi 2013, "Revisiting Frank-Wolfe"). So ``D <= sqrt(gap)``.

*Unknown total.* Let q be a vector with ``<f_x, q>_W >= 1`` for every column ``f_x`` that is not
zero and ``e = max(0, -min_x g_x)``. Some optimal h* has no weight on zero columns, so its total is
at most ``<q, F h*>_W = <q, F h>_W + <q, p - F h>_W <= <q, F h>_W + |q|_W D``. Hence

    D^2 <= <g, h - h*> <= a + b D     with a = max(0, <g, h> + e <q, F h>_W), b = e |q|_W,

so ``D <= R = (b + sqrt(b^2 + 4 a)) / 2`` and ``f(h) - f(h*) <= a + b R = R^2``: R^2 is the gap
here. The shortest q is ``p0 / |p0|^2`` for the point p0 of least norm in the hull of the columns,
which is itself a projection (of y = 0 with total 1); there is none when the hull holds zero, as
when differences are asked and nothing else. Then nothing is certified unless g >= 0: the gap is
infinite.

*Floats.* A slope is a sum of numbers up to ``s = max_x sum_q |F_qx| (|W| |y|)_q``, so it is known
to a few ulps of s; that is a part of the gap of the same few ulps of ``n s``, or of ``|q|_W |y|_W
s`` where n is unknown (the projection is no longer than y). Gaps below this ``blur`` are noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np

from sfumato.refine.cells.quadratic import Quadratic
from sfumato.workload.queries import Array

__all__ = ["ROUNDING", "Bound", "known_total", "unknown_total"]

ROUNDING = 1e-14  # of what slopes are sums of: gaps below it are those of float arithmetic
TRIED = 4  # groups that are looked at for a vector q, the smallest first


@dataclass(frozen=True, eq=False)
class Bound:
    """What turns slopes into a gap: the total n, or the vector q by its slopes and its length."""

    total: float | None
    lift: Array | None = None
    length: float = inf

    def gap(self, least: float, slope: float, t: Array) -> float:
        """The gap, from ``min g``, ``<g, h>`` and the margins of h."""
        if self.total is not None:
            return max(0.0, slope - self.total * least)
        e = max(0.0, -least)
        if e == 0:
            return max(0.0, slope)
        if self.lift is None:
            return inf
        a, b = max(0.0, slope + e * float(self.lift @ t)), e * self.length
        return ((b + sqrt(b * b + 4 * a)) / 2) ** 2

    def blur(self, q: Quadratic) -> float:
        """The gap that floats cannot tell from none."""
        if self.total is not None:
            return ROUNDING * self.total * q.magnitude
        least = 0.5 * q.norm(q.values) ** 2
        return ROUNDING * (
            least if self.lift is None else self.length * q.norm(q.values) * q.magnitude
        )


def known_total(total: float) -> Bound:
    """For histograms of a public number of records."""
    return Bound(total)


def unknown_total(q: Quadratic, least_norm: Callable[[Quadratic], Array]) -> Bound:
    """For histograms of any size; ``least_norm`` finds the point p0 of a quadratic with y = 0.

    A group of queries of which every cell is in one or more, such as a table, gives a q at once:
    the reciprocal weights; so does one query that has a coefficient on every cell, such as the
    total. The shortest of those is taken if there is one.
    """
    best = Bound(None)
    starts = np.cumsum([0, *(p.term.rows for p in q.fit.parts)])
    for i in sorted(range(len(q.fit.parts)), key=lambda i: q.fit.parts[i].term.rows)[:TRIED]:
        part, rows = q.fit.parts[i], np.arange(starts[i], starts[i + 1])
        if (part.weights > 0).all() and part.term.is_nonnegative and q.precision is None:
            pointers = [(rows, 1 / part.weights)]
            reach = part.term.coefficient_bounds()[0] * np.sqrt(part.weights)
            if reach.max() > 0:
                pointers.append((rows[[reach.argmax()]], np.ones(1)))
            for at, values in pointers:
                pointer = np.zeros(len(q.values))
                pointer[at] = values
                best = min(best, _pointing(q, pointer), key=lambda b: b.length)
    if best.lift is None:
        best = _pointing(q, least_norm(q))
    return best


def _pointing(q: Quadratic, pointer: Array) -> Bound:
    """The bound from a vector, scaled so that its slope is 1 or more on every column."""
    lift = q.adjoint(q.weigh(pointer))
    slopes = q.spread(lift)[q.is_seen]
    least = float(slopes.min()) if slopes.size else 1.0
    length = q.norm(pointer)
    if least <= 1e-9 * float(np.abs(slopes).max(initial=0.0)) or least <= 1e-12 * length:
        return Bound(None)
    return Bound(None, lift / least, length / least)
