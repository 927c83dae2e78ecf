# SPDX-License-Identifier: Apache-2.0
"""How wide the hull of possible answers is: Gaussian width and mean width.

With ``h_K`` the support function of K (``geometry.py``), G a standard normal vector and U uniform
on the unit sphere of R^k:

    Gaussian width   l*(K) = E h_K(G)
    mean width       M*(K) = E h_K(U) = l*(K) / c_k,   c_k = E |G|

(A. Nikolov, K. Talwar, L. Zhang 2013, "The geometry of differential privacy: the sparse and
approximate cases"; some authors call twice this the mean width). Both are those of one side: the
full width of K along y is ``h_K(y) + h_K(-y)``. They do not change when K is moved, and that of a
product of bodies is the sum of theirs. Which K is meant is said by ``body``:

    "hull"        conv {F e_j}: answers of exactly n records, over n
    "with-zero"   conv {0, F e_j}: answers of at most n records
    "symmetric"   conv {+-F e_j}: histograms with |h|_1 <= 1

Monte Carlo averages ``(h(G) + h(-G)) / 2``, which has the same mean and no first-order noise. It is
Lipschitz with constant L = half the diameter of K, so that the mean of N draws is farther than
``L sqrt(2 ln(2/beta) / N)`` from the width with probability at most beta (V. Sudakov, B. Tsirelson
1974; C. Borell 1975, "The Brunn-Minkowski inequality in Gauss space"): the interval is no
approximation. Closed forms bound it from above where no oracle is exact; docs/mechanisms/widths.md
has the proofs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import exp, inf, isfinite, lgamma, log, prod, sqrt
from typing import Literal, get_args

import numpy as np

from sfumato.errors import TooLarge, WorkloadError
from sfumato.refine.draws import Draws
from sfumato.refine.widths.geometry import Hull
from sfumato.workload.queries import Array
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload

__all__ = [
    "Body",
    "Width",
    "closed_form",
    "dimension_bound",
    "gaussian_width",
    "half_diameter",
    "mean_norm",
    "mean_width",
    "student",
]

Body = Literal["hull", "with-zero", "symmetric"]

EFFORT = 3e8  # additions spent on Monte Carlo, unless a number of draws is asked for
DRAWS = (24, 512)  # the least and the most draws
FEW = 16  # draws where only bounds on the support function are known, and those take longer
MOST_DRAWS = 10**6
BATCH = 256  # draws that are held at once
TOLD_APART = 2**18  # subsets of attributes that are listed for the dimension of the hull


@dataclass(frozen=True, slots=True)
class Width:
    """A width, with an interval that holds it with probability ``level``.

    ``value`` is the mean of the draws, of ``standard_error``. Where only bounds on the support
    function are known it is the mean of the lower ones, and where nothing was drawn it is the bound
    in closed form. As a number it is ``value``; forecasts that must not promise too much use
    ``upper``. ``method`` says where ``upper`` comes from.
    """

    value: float
    standard_error: float
    lower: float
    upper: float
    level: float
    draws: int
    method: str

    def __float__(self) -> float:
        return self.value

    def scaled(self, factor: float) -> Width:
        """The width of the body times a factor."""
        numbers = (self.value, self.standard_error, self.lower, self.upper)
        value, error, lower, upper = (factor * x for x in numbers)
        return replace(self, value=value, standard_error=error, lower=lower, upper=upper)


def gaussian_width(
    workload: Workload, body: Body = "hull", *, draws: int | None = None, level: float = 0.95
) -> Width:
    """``l*(K) = E max over cells of <G, column>`` of a workload; the same on every call.

    >>> import sfumato as sf
    >>> width = gaussian_width(sf.marginals(sf.Domain({"age": 2}), 1))  # E max(g, g') = 1/sqrt(pi)
    >>> abs(float(width) - 0.5642) < 4 * width.standard_error
    True
    """
    _check(workload, body, draws, level)
    bound, formula = closed_form(workload, body)
    fixed = Width(bound, 0.0, 0.0, bound, level, 0, formula)
    try:
        hull = Hull.of(workload)
    except TooLarge:
        return fixed
    if draws is None:
        draws = _enough(hull)
    if not draws:
        return fixed
    lows, highs = _sampled(hull, body, draws)
    return _estimated(lows, highs, fixed, half_diameter(workload, body), hull.is_exact)


def _enough(hull: Hull) -> int:
    """As many draws as take a second or a few."""
    few, many = DRAWS
    if hull.is_small:
        return min(8 * many, max(many, int(EFFORT / hull.matrix.size)))
    return min(many, max(few, int(EFFORT / hull.effort))) if hull.is_exact else FEW


def mean_width(
    workload: Workload, body: Body = "hull", *, draws: int | None = None, level: float = 0.95
) -> Width:
    """``M*(K) = E h_K(U)``, U uniform on the unit sphere: the Gaussian width over ``E |G|``."""
    found = gaussian_width(workload, body, draws=draws, level=level)
    return found.scaled(1 / mean_norm(workload.queries))


def mean_norm(k: int) -> float:
    """``c_k = E |G|`` in k dimensions; between ``k / sqrt(k + 1)`` and ``sqrt(k)``.

    >>> round(mean_norm(1), 6), round(mean_norm(2), 6)  # sqrt(2/pi), sqrt(pi/2)
    (0.797885, 1.253314)
    """
    if k > 10**6:  # lgamma of neighbours would cancel; the series errs by less than 1/k^4
        return sqrt(k) * (1 - 1 / (4 * k) + 1 / (32 * k**2))
    return sqrt(2) * exp(lgamma((k + 1) / 2) - lgamma(k / 2))


def closed_form(workload: Workload, body: Body = "hull") -> tuple[float, str]:
    """The least of the bounds that need no draws, and its formula.

    For M columns of norm at most R in d dimensions: ``sqrt(2 ln M) R`` (the notes' proof of their
    Theorem 4), ``c_d R``, and the sum over groups of the same, as ``h_K <= sum h_{K_t}``.
    """
    whole = _of_terms(workload, workload.terms, body)
    if len(workload.terms) == 1:
        return whole
    apart = sum(_of_terms(workload, (t,), body)[0] for t in workload.terms)
    return min(whole, (apart, f"{whole[1]}, group by group"))


def _of_terms(workload: Workload, terms: tuple[Term, ...], body: Body) -> tuple[float, str]:
    part = workload if terms == workload.terms else Workload(workload.domain, terms)
    radius = sqrt(part.column_norm(2).power)
    columns = workload.domain.cells(n for t in terms for n in t.attributes)
    points = {"hull": columns, "with-zero": columns + 1, "symmetric": 2 * columns}[body]
    dimension = dimension_bound(part, body)
    counted = (sqrt(2 * log(points)) * radius, "sqrt(2 ln M) R")
    if dimension == 0:
        return 0.0, "a single point"
    return min(counted, (mean_norm(dimension) * radius, "c_d R"))


def dimension_bound(workload: Workload, body: Body = "hull") -> int:
    """No less than the dimension of K: the number of queries, or of what their tables can say.

    A table over a set of attributes is a sum of interactions, one per subset, of
    ``prod (size - 1)`` dimensions each; the one of the empty subset is the number of records, which
    is the same all over the hull.
    """
    sets = {frozenset(t.attributes) for t in workload.terms}
    k = workload.queries
    if sum(2 ** len(s) for s in sets) > TOLD_APART:
        return k
    below = {sub for s in sets for sub in _subsets(tuple(s))}
    sizes = {n: workload.domain[n].size for s in sets for n in s}
    interactions = sum(prod(sizes[n] - 1 for n in sub) for sub in below)
    return min(k, interactions - (body == "hull"))


def _subsets(names: tuple[str, ...]) -> list[frozenset[str]]:
    out: list[frozenset[str]] = [frozenset()]
    for name in names:
        out += [s | {name} for s in out]
    return out


def _sampled(hull: Hull, body: Body, draws: int) -> tuple[Array, Array]:
    """``(h(G) + h(-G)) / 2`` from below and from above, one of each per draw."""
    k = hull.workload.queries
    source = Draws(f"width {hull.workload.digest()}")
    lows, highs = np.empty(draws), np.empty(draws)
    at_once = max(1, min(BATCH, 2**20 // k))
    done = 0
    while done < draws:
        normals = source.normals(k * min(at_once, draws - done)).reshape(-1, k)
        pairs = _written(hull, normals) if hull.is_small else map(hull.reach, normals)
        for low, high in pairs:
            lows[done], highs[done] = _both_ends(low, body), _both_ends(high, body)
            done += 1
    return lows, highs


def _written(hull: Hull, normals: Array) -> Iterator[tuple[Array, Array]]:
    """``reach`` for many directions at once, from the matrix."""
    step = max(1, 2**22 // hull.cells)
    for start in range(0, len(normals), step):
        reached = normals[start : start + step] @ hull.matrix
        ends = np.array([reached.max(axis=1), -reached.min(axis=1)]).T
        yield from zip(ends, ends, strict=True)


def _both_ends(ends: Array, body: Body) -> float:
    up, down = float(ends[0]), float(ends[1])
    if body == "symmetric":
        return max(up, down)
    return (up + down) / 2 if body == "hull" else (max(up, 0.0) + max(down, 0.0)) / 2


def half_diameter(workload: Workload, body: Body = "hull") -> float:
    """No less than half the diameter of K: R, and R / sqrt(2) where no coefficient is negative."""
    radius = sqrt(workload.column_norm(2).power)
    is_nonnegative = all(t.is_nonnegative for t in workload.terms)
    return radius / sqrt(2) if is_nonnegative and body != "symmetric" else radius


def _estimated(lows: Array, highs: Array, fixed: Width, slope: float, is_exact: bool) -> Width:
    count = len(lows)
    beta = 1 - fixed.level
    off = slope * sqrt(2 * log(2 / beta) / count)
    error = float(lows.std(ddof=1)) / sqrt(count) if count > 1 else inf
    value = float(lows.mean())
    # Upper bounds on the support function need not be Lipschitz, their mean is one of few draws:
    # Student's quantile for them.
    reached = value + off
    if not is_exact:
        reached = float(highs.mean()) + student(count, beta) * float(highs.std(ddof=1)) / sqrt(
            count
        )
    method = "Monte Carlo" if is_exact else "Monte Carlo of bounds"
    upper, method = min((reached, method), (fixed.upper, fixed.method))
    lower = max(0.0, value - off)
    return Width(min(value, upper), error, lower, upper, fixed.level, count, method)


def student(count: int, beta: float) -> float:
    """The quantile of Student's law for the mean of ``count`` draws, two-sided."""
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, 1 - beta / 2)) if count > 1 else inf


def _check(workload: object, body: object, draws: object, level: object) -> None:
    if not isinstance(workload, Workload):
        raise WorkloadError(
            f"a width is one of a workload such as sf.marginals(domain, 2), got "
            f"{type(workload).__name__}"
        )
    if body not in get_args(Body):
        raise WorkloadError(
            f"body must be one of {', '.join(map(repr, get_args(Body)))}, got {body!r}"
        )
    is_count = isinstance(draws, int) and not isinstance(draws, bool) and 0 <= draws <= MOST_DRAWS
    if draws is not None and not is_count:
        raise WorkloadError(
            f"draws must be a whole number from 0 (closed forms only) to {MOST_DRAWS:,}, got "
            f"{draws!r}"
        )
    if isinstance(level, bool) or not isinstance(level, int | float) or not isfinite(level):
        raise WorkloadError(f"level must be a number between 0 and 1, got {level!r}")
    if not 0 < level < 1:
        raise WorkloadError(f"level must be a number between 0 and 1, got {level!r}")
