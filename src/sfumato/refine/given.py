# SPDX-License-Identifier: Apache-2.0
"""What is given to a projection, checked: answers, weights, covariances, numbers of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sfumato.domain.values import base_of
from sfumato.errors import WorkloadError
from sfumato.refine.cells.metric import inverse_covariance
from sfumato.refine.fit import Fit
from sfumato.wording import listing, shown
from sfumato.workload.constraints import Constraints
from sfumato.workload.queries import Array
from sfumato.workload.workload import Workload

__all__ = [
    "Numbered",
    "by_group",
    "check_size",
    "checked_constraints",
    "covariance_of",
    "inverse_variances",
    "total_of",
]

Numbered = Array | Sequence[float] | Sequence[Array] | Mapping[str, Array]

LARGEST = 1e100  # of an answer or a total: squares of it times weights are still floats
SMALLEST = 1e-100


def checked_constraints(constraints: Constraints | None, workload: Workload) -> Constraints | None:
    """The constraints, if they are some, and about the domain of the workload."""
    if constraints is None:
        return None
    if not isinstance(constraints, Constraints):
        raise WorkloadError(
            "constraints are sf.Constraints(domain, impossible, published), got "
            f"{shown(constraints)}"
        )
    if constraints.domain == workload.domain:
        return constraints
    if base_of(constraints.domain) != base_of(workload.domain):
        raise WorkloadError("the constraints are about another domain than the workload")
    return constraints.beside(workload.domain)


def by_group(given: Numbered, workload: Workload, what: str) -> list[Array]:
    """Numbers per group, from one vector, a sequence of vectors, or vectors by name."""
    if not isinstance(workload, Workload):
        raise WorkloadError(
            f"{what} are those of a workload such as sf.marginals(domain, 2), got {shown(workload)}"
        )
    names = [t.name for t in workload.terms]
    if isinstance(given, Mapping):
        if set(given) != set(names):
            raise WorkloadError(
                f"{what} by group need one vector for each of {listing(names)}; got "
                f"{listing(list(given))}"
            )
        return [_numbers(given[name], what) for name in names]
    is_nested = not isinstance(given, np.ndarray) and any(np.ndim(g) for g in given)
    if is_nested:
        if len(given) != len(names):
            raise WorkloadError(
                f"the workload has {len(names)} groups, got {what} for {len(given)}"
            )
        return [_numbers(g, what) for g in given]
    vector = _numbers(given, what)
    if vector.shape != (workload.queries,):
        raise WorkloadError(
            f"the workload has {workload.queries:,} queries, got {what} of shape {vector.shape}"
        )
    return list(np.split(vector, np.cumsum([t.rows for t in workload.terms])[:-1]))


def _numbers(given: object, what: str) -> Array:
    try:
        found = np.asarray(given)
    except ValueError as error:
        raise WorkloadError(f"{what} must be vectors of numbers") from error
    if found.dtype.kind not in "iuf":
        raise WorkloadError(f"{what} must be numbers, got an array of {found.dtype}")
    return found.astype(np.float64)


def covariance_of(weights: Numbered | None) -> Array | None:
    """A matrix is a covariance; everything else is weights."""
    is_matrix = isinstance(weights, np.ndarray) and weights.ndim == 2
    return np.asarray(weights) if is_matrix else None


def inverse_variances(covariance: Array, queries: int) -> Array:
    """Weights that measure every difference in its own standard deviation."""
    inverse_covariance(covariance, queries)  # refuses what is none
    variances = np.diag(covariance).astype(np.float64)
    if not (variances > 0).all():
        raise WorkloadError(
            "a variance of 0 says that an answer is exact; the largest difference in standard "
            "deviations needs all of them above 0"
        )
    return 1 / variances


def total_of(n: object) -> tuple[float | None, tuple[float, float] | None]:
    """The public total, or the noisy one with its standard error."""
    if n is None:
        return None, None
    if isinstance(n, tuple):
        value, error = (_number(v) for v in n) if len(n) == 2 else (None, None)
        if value is None or error is None or not error > SMALLEST:
            raise WorkloadError(
                f"a noisy number of records is (value, standard error above 0), got {shown(n)}"
            )
        return None, (value, error)
    known = _number(n)
    if known is None or known < 0:
        raise WorkloadError(
            f"the number of records is 0 or more, None if unknown, or (value, standard error); got "
            f"{shown(n)}"
        )
    return known, None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return None
    return float(value) if -LARGEST < value < LARGEST else None


def check_size(fit: Fit) -> None:
    """Refuse answers whose squares are no floats."""
    for part in fit.parts:
        if float(np.abs(part.values).max(initial=0.0)) >= LARGEST:
            raise WorkloadError(
                f"an answer of group {part.term.name!r} is beyond {LARGEST:g}; answers are counts "
                "or sums of data, give them in larger units"
            )
