# SPDX-License-Identifier: Apache-2.0
"""Polynomials of low degree that stand for a conjunction of yes/no literals.

A conjunction of w literals is true when all of them are: a function of s, the number of true ones.
So is every symmetric combination of characters of its attributes: if all characters of i of them
get the coefficient c_i, the sum at s is

    p(s) = sum_i c_i K_i(w - s),    K_i(x) = sum_j (-1)^j C(x, j) C(w - x, i - j),

with the Krawtchouk polynomials K_i, of degree i. The conjunction itself has ``c_i = 2^-w``.
With ``c_i = 0`` for i > t only marginals of t attributes are needed, and

* the Chebyshev polynomial T_t, moved so that it is small on s = 0 .. w - 1 and large at s = w,
  errs by ``1 / (1 + T_t((w + 1) / (w - 1)))`` at most: an error alpha needs t of the order of
  ``sqrt(w) log(1 / alpha)``, not w;
* for any error alpha a linear program finds the p within alpha of the conjunction at every s whose
  cost ``sum_i k_i |c_i|`` is least; over all degrees at once.

References: Thaler, Ullman, Vadhan 2012, "Faster algorithms for privately releasing marginals"
(Chebyshev polynomials for conjunctions); Chandrasekaran, Thaler, Ullman, Wan 2014, "Faster private
release of marginals on small databases"; Nisan, Szegedy 1994, "On the degree of Boolean functions
as real polynomials".
"""

from __future__ import annotations

from functools import lru_cache
from math import acosh, comb, cosh, sqrt

import numpy as np

from sfumato.errors import PlanError
from sfumato.workload.queries import Array

__all__ = [
    "chebyshev",
    "chebyshev_error",
    "conjunction",
    "gamma_of",
    "krawtchouk",
    "least_cost",
    "mean_square_error",
    "shrunk",
    "sup_error",
]

WIDEST = 40  # literals: C(40, 20) is still exact in a float
SLACK = 1e-12


@lru_cache(maxsize=64)
def _table(width: int) -> Array:
    """``K_i(w - s) / C(w, i)`` at row s, column i: between -1 and 1."""
    out = np.zeros((width + 1, width + 1))
    for s in range(width + 1):
        x = width - s
        for i in range(width + 1):
            sums = sum((-1) ** j * comb(x, j) * comb(s, i - j) for j in range(min(i, x) + 1))
            out[s, i] = sums / comb(width, i)
    out.setflags(write=False)
    return out


def krawtchouk(width: int, coefficients: Array) -> Array:
    """``p(s)`` for s = 0 .. w true literals."""
    _check(width)
    return np.asarray(_table(width) @ (coefficients * _counts(width)), dtype=np.float64)


def conjunction(width: int) -> Array:
    """The coefficients of the conjunction itself: ``2^-w``."""
    _check(width)
    return np.full(width + 1, 2.0**-width)


def sup_error(width: int, coefficients: Array) -> float:
    """``max_s |p(s) - [s = w]|``: the greatest bias of a query, per record; rounded up."""
    aim = np.zeros(width + 1)
    aim[-1] = 1.0
    scale = 1.0 + float(np.abs(coefficients * _counts(width)).sum())
    return float(np.abs(krawtchouk(width, coefficients) - aim).max()) + SLACK * scale


def mean_square_error(width: int, coefficients: Array) -> float:
    """``2^-w sum_s C(w, s) (p(s) - [s = w])^2 = sum_i C(w, i) (c_i - 2^-w)^2``.

    This is the mean squared bias, per record, over all 2^w conjunctions of the same attributes,
    and the same for every record.
    """
    _check(width)
    return float(_counts(width) @ (coefficients - 2.0**-width) ** 2)


def chebyshev_error(width: int, degree: int) -> float:
    """``1 / (1 + T_t((w + 1) / (w - 1)))``: the error of ``chebyshev``, in closed form."""
    _check(width)
    if degree >= width:
        return 0.0
    if degree == 0:
        return 0.5
    return 1 / (1 + cosh(degree * acosh((width + 1) / (width - 1))))


def chebyshev(width: int, degree: int) -> Array:
    """Coefficients, zero beyond the degree, of ``T_t(2 s / (w - 1) - 1) / (1 + T_t(...(w)))``."""
    _check(width)
    if degree >= width:
        return conjunction(width)
    out = np.zeros(width + 1)
    if degree == 0:
        out[0] = 0.5
        return out
    from numpy.polynomial import chebyshev as series

    s = np.arange(width + 1)
    basis = np.zeros(degree + 1)
    basis[-1] = 1.0
    values = series.chebval(2 * s / (width - 1) - 1, basis)
    values = values / (1 + cosh(degree * acosh((width + 1) / (width - 1))))
    # Krawtchouk polynomials are orthogonal with weights C(w, s); the degree is exact.
    binomial = _counts(width) * 2.0**-width
    out[: degree + 1] = (_table(width).T @ (binomial * values))[: degree + 1]
    return out


def least_cost(width: int, costs: Array, error: float) -> Array | None:
    """Coefficients with ``|p(s) - [s = w]| <= error`` at every s and least ``sum_i k_i |c_i|``.

    Characters with infinite cost are not used; None where the error cannot be reached without.
    """
    from scipy.optimize import linprog

    _check(width)
    used = np.flatnonzero(np.isfinite(costs))
    if error >= 1:
        return np.zeros(width + 1)
    table = _table(width)[:, used]
    per_unit = costs[used] / _counts(width)[used]
    scale = float(per_unit.max())
    aim = np.zeros(width + 1)
    aim[-1] = 1.0
    both = np.hstack([table, -table])  # positive and negative parts
    found = linprog(
        np.concatenate([per_unit, per_unit]) / scale,
        A_ub=np.vstack([both, -both]),
        b_ub=np.concatenate([aim + error, error - aim]),
        bounds=(0, None),
        method="highs",
    )
    if found.x is None:
        return None
    out = np.zeros(width + 1)
    out[used] = (found.x[: len(used)] - found.x[len(used) :]) / _counts(width)[used]
    return out


def shrunk(width: int, costs: Array, tau: float) -> Array:
    """``min sum_i C(w, i) (c_i - 2^-w)^2 + tau (sum_i k_i |c_i|)^2``, in closed form.

    ``c_i = max(0, 2^-w - z k_i / C(w, i))``, where z = tau sum_i k_i c_i is found by bisection.
    """
    _check(width)
    exact, per_unit = 2.0**-width, costs / _counts(width)
    finite = np.isfinite(costs)

    def at(z: float) -> Array:
        return np.where(finite, np.maximum(0.0, exact - z * np.where(finite, per_unit, 0.0)), 0.0)

    low, high = 0.0, tau * float((costs[finite] * exact).sum())
    for _ in range(200):
        z = (low + high) / 2
        if tau * float((np.where(finite, costs, 0.0) * at(z)).sum()) > z:
            low = z
        else:
            high = z
    return at(high)


def gamma_of(attributes: int, width: int, coefficients: Array) -> float:
    """``sum_i sqrt(C(d, i) C(w, i)) |c_i|``: gamma for all conjunctions of w of d attributes.

    Every character of i attributes is measured with the share that is best for its summed squared
    coefficients; ``C(d, i) C(d - i, w - i) = C(d, w) C(w, i)`` does the rest.
    """
    _check(width)
    sizes = [sqrt(comb(attributes, i) * comb(width, i)) for i in range(width + 1)]
    return float(np.array(sizes) @ np.abs(coefficients))


def _counts(width: int) -> Array:
    return np.array([comb(width, i) for i in range(width + 1)], dtype=np.float64)


def _check(width: int) -> None:
    if not 0 <= width <= WIDEST:
        raise PlanError(
            f"a conjunction of {width} literals; polynomials are made for at most {WIDEST}"
        )
