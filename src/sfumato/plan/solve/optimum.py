# SPDX-License-Identifier: Apache-2.0
"""The exact optimum of factorization, with a lower bound that proves it.

Over all factorizations ``F = R M`` the least root mean square error at unit noise is gamma(F),

    k gamma^2 = min tr(V X^-1)  over X = M'M with X_jj <= 1,      V = F' W F.

Weak duality gives, for any v >= 0 and D = diag(v), with A = D^1/2 V D^1/2,

    (tr A^1/2)^2 / sum(v)  <=  k gamma^2,

and equality holds at the fixed point ``v = diag(A^1/2)``, where X = D^-1/2 A^1/2 D^-1/2 has unit
diagonal (or less, where v = 0). Two ways there, with one certificate:

* L-BFGS on the bound with v = z^2: the gradient costs no more than the bound, and squaring lets
  cells that do not bind reach v = 0 quickly;
* the fixed point itself on log v with Anderson mixing, where all cells bind (prefixes, ranges): it
  keeps its pace on a million cells, where differences of the bound drown in rounding.

Every step gives a valid bound and a feasible X (scaled to diagonal at most 1), so the result is
certified whatever the optimiser does. v = 1 is the singular value bound of Li and Miklau 2013. The
search ends early when the steps of the plan are used up, and is not made twice (``effort.py``).

References: Li, Miklau, Hay, McGregor, Rastogi 2015, "The matrix mechanism: optimizing linear
counting queries under differential privacy"; Edmonds, Nikolov, Ullman 2020, "The power of
factorization mechanisms"; Liu, Nocedal 1989 for L-BFGS; Walker,
Ni 2011 for Anderson mixing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import log, sqrt

import numpy as np

from sfumato.errors import PlanError
from sfumato.plan.effort import Searched, current, must_stop, spend
from sfumato.workload.queries import Array

__all__ = ["Certified", "certified_optimum"]

STARTS = 4
CORRECTIONS = 20  # pairs that L-BFGS remembers
MEMORY = 8  # steps that Anderson mixing remembers
RELAXATION = 1.5
LONGEST = 4.0  # the longest step of log v that mixing may take
LEAST = 1e-14  # added to z^2, so that no cell is lost for good
NUMBERS = 5  # of a stored search: scale, upper, lower, steps, multiplications
SAME = 1e-9  # relative: a bound that is computed again


@dataclass(frozen=True, slots=True)
class Certified:
    """The best weights found; ``upper`` and ``lower`` enclose ``k gamma^2``.

    ``v`` gives the feasible X whose error is ``upper``: ``D^-1/2 A^1/2 D^-1/2 / scale``.
    """

    v: Array
    scale: float
    upper: float
    lower: float
    steps: int

    @property
    def certificate(self) -> float:
        """Root mean square error over its lower bound."""
        return sqrt(self.upper / self.lower)


def certified_optimum(
    root_diagonal: Callable[[Array], Array],
    cells: int,
    tolerance: float = 1e-4,
    most_steps: int = 300,
    all_bind: bool = False,
    multiplicity: Array | None = None,
    start: Array | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Certified:
    """Maximise the bound over v until the certificate is within ``1 + tolerance``.

    ``root_diagonal(v)`` returns the diagonal of A^1/2 for cell weights v > 0; ``all_bind`` says
    that no cell is expected to have weight 0 at the optimum. ``multiplicity`` counts the cells that
    share a weight by symmetry; ``start`` is a first guess of v.
    """
    from scipy.optimize import minimize

    copies = np.ones(cells) if multiplicity is None else multiplicity
    count = float(copies.mean())
    copies = copies / count  # of order 1, whatever the size of the domain
    search = _Search(root_diagonal, copies, (1 + tolerance) ** 2, most_steps, progress)
    first = np.ones(cells) if start is None else start
    plan = current()
    number = plan.next_search()
    asked = _asked(search, first, all_bind)
    before = plan.spent
    stored = _proved(search, plan.recall(number, asked, cells))
    plan.spent = before
    if stored is not None:
        plan.spent += float(stored.numbers[-1])  # as much as the search that it stands for
        scale, upper, lower, steps = stored.numbers[:-1].tolist()
        return Certified(stored.best, scale, upper * count, lower * count, int(steps))
    with suppress(_Reached):
        if all_bind:
            _mix(search, np.log(first))
        for _ in range(STARTS):  # a line search that fails for rounding is started afresh
            minimize(
                search.negative_log_bound,
                np.sqrt(copies * (first if search.v is None else search.v)),
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": most_steps, "maxcor": CORRECTIONS, "ftol": 0.0, "gtol": 0.0},
            )
    best = search.best()
    numbers = np.array([best.scale, best.upper, best.lower, best.steps, plan.spent - before])
    plan.keep(number, Searched(asked, best.v, search.lower_v, numbers))
    return replace(best, upper=best.upper * count, lower=best.lower * count)


def _asked(search: _Search, first: Array, all_bind: bool) -> bytes:
    """What identifies a search, but for the matrix: that is known by its workload and number."""
    out = hashlib.sha256(repr((len(first), search.ratio, search.most_steps, all_bind)).encode())
    for numbers in (first, search.copies):
        out.update(np.ascontiguousarray(numbers, dtype=np.float64).tobytes())
    return out.digest()


def _proved(search: _Search, stored: Searched | None) -> Searched | None:
    """A stored result whose error and bound are those of its weights, else None."""
    if stored is None or len(stored.numbers) != NUMBERS:
        return None
    _, upper, lower, _, _ = stored.numbers.tolist()
    of_best, of_bound = search.root_diagonal(stored.best), search.root_diagonal(stored.bound)
    trace = float(search.copies @ of_bound)
    again = trace**2 / float(search.copies @ stored.bound)
    error = float(search.copies @ of_best) * float((of_best / stored.best).max())
    is_so = abs(again - lower) <= SAME * lower and abs(error - upper) <= SAME * upper
    return stored if is_so and lower > 0 else None


class _Reached(Exception):
    """The certificate is good enough, or the steps are used up."""


class _Search:
    """What has been proved so far: the greatest lower bound, the least error of a feasible X."""

    def __init__(
        self,
        root_diagonal: Callable[[Array], Array],
        copies: Array,
        ratio: float,
        most_steps: int,
        progress: Callable[[int, float], None] | None,
    ) -> None:
        self.root_diagonal, self.copies, self.ratio = root_diagonal, copies, ratio
        self.most_steps, self.progress = most_steps, progress
        self.steps, self.lower, self.upper, self.scale = 0, 0.0, np.inf, 1.0
        self.v: Array | None = None
        self.lower_v = np.zeros(0)

    def prove(self, v: Array) -> tuple[float, float, Array]:
        """``tr A^1/2``, ``sum(v)`` and the diagonal of X; raises _Reached when it is enough."""
        self.steps += 1
        d = self.root_diagonal(v)
        spend(CORRECTIONS * len(v))
        trace, total, diagonal = float(self.copies @ d), float(self.copies @ v), d / v
        if trace <= 0:
            raise PlanError("all queries are zero: there is nothing to factorize")
        if trace**2 / total > self.lower:
            self.lower, self.lower_v = trace**2 / total, v
        if trace * float(diagonal.max()) < self.upper:
            self.scale = float(diagonal.max())
            self.upper, self.v = trace * self.scale, v
        if self.progress is not None:
            self.progress(self.steps, sqrt(self.upper / self.lower) - 1)
        current().tell(sqrt(self.upper / self.lower) - 1)
        is_proved = self.upper <= self.lower * self.ratio
        if is_proved or self.steps >= self.most_steps or must_stop():
            raise _Reached
        return trace, total, diagonal

    def negative_log_bound(self, z: Array) -> tuple[float, Array]:
        """``log sum(v) - 2 log tr A^1/2`` and its gradient; d tr A^1/2 / dv = diag(A^1/2) / 2v.

        v = z^2 / copies, as if every copy had its own coordinate.
        """
        trace, total, diagonal = self.prove(z**2 / self.copies + LEAST)
        return log(total) - 2 * log(trace), (1 / total - diagonal / trace) * 2 * z

    def best(self) -> Certified:
        if self.v is None:
            raise PlanError("all queries are zero: there is nothing to factorize")
        return Certified(self.v, self.scale, self.upper, self.lower, self.steps)


def _mix(search: _Search, x: Array, most_steps: int = 60) -> None:
    """``log v <- log v + log diag(X)``, relaxed and mixed."""
    positions: list[Array] = []
    residuals: list[Array] = []
    for _ in range(most_steps):
        trace, total, diagonal = search.prove(np.exp(x))
        residual = RELAXATION * np.log(diagonal * total / trace)
        positions = [*positions, x][-MEMORY - 1 :]
        residuals = [*residuals, residual][-MEMORY - 1 :]
        step = residual
        if len(residuals) > 1:
            dr = np.diff(np.array(residuals), axis=0)
            dx = np.diff(np.array(positions), axis=0)
            # the normal equations: at most MEMORY unknowns, whatever the number of cells
            mix, *_ = np.linalg.lstsq(dr @ dr.T, dr @ residual, rcond=1e-12)
            step = residual - mix @ (dx + dr)
        x = x + np.clip(step, -LONGEST, LONGEST)
