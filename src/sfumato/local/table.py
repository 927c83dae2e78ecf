# SPDX-License-Identifier: Apache-2.0
"""Several attributes at once: randomized response on the joint cell of a row.

One coin for the whole row, so that one report spends epsilon once and every product query (any
marginal, any conjunction) has an unbiased answer. The number of joint cells is the product of the
sizes and the error grows with it: keep the attributes few and coarse.

P. Kairouz, K. Bonawitz, D. Ramage, 2016, "Discrete distribution estimation under local privacy".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import cast

import numpy as np
import numpy.typing as npt

from sfumato.errors import SchemaError, TooLarge, WorkloadError
from sfumato.local.accuracy import Floats
from sfumato.local.estimation import LocalEstimate, estimate
from sfumato.local.randomized_response import (
    LARGEST_SIZE,
    Codes,
    RandomizedResponse,
    checked_codes,
)
from sfumato.randomness import WordSource

__all__ = [
    "LARGEST_QUERIES",
    "encode_table",
    "estimate_table",
    "joint_response",
    "product_queries",
]

LARGEST_QUERIES = 100_000_000
"""Most entries (queries times cells) that ``product_queries`` writes out (800 MB)."""


def joint_response(sizes: Sequence[int], epsilon: Fraction | float) -> RandomizedResponse:
    """Randomized response over the ``prod(sizes)`` joint cells; the last attribute moves fastest.

    >>> joint_response((3, 2), 1).size
    6
    """
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise SchemaError(f"sizes hold {size!r}; each must be an integer of at least 1")
    # Python ints: a product beyond 64 bits must be refused with its true size.
    cells = math.prod(int(size) for size in sizes)
    if cells > LARGEST_SIZE:
        raise TooLarge(
            f"the {len(sizes)} attributes have {cells} joint cells; at most {LARGEST_SIZE} are "
            "allowed; report fewer attributes together, or coarser ones"
        )
    return RandomizedResponse(epsilon, cells)


def encode_table(
    codes: npt.ArrayLike,
    sizes: Sequence[int],
    epsilon: Fraction | float,
    words: WordSource | None = None,
) -> Codes:
    """One report for each row of ``codes`` (n x d), again a row of d codes; runs at the client.

    Privacy: the whole row is epsilon-locally private (``RandomizedResponse`` on its joint cell).
    Neighbours: all codes of one row replaced by any others.
    """
    response = joint_response(sizes, epsilon)
    reports = response.encode(_cells(codes, sizes, "codes"), words)
    return cast(Codes, np.stack(np.unravel_index(reports, tuple(sizes)), axis=1).astype(np.int64))


def estimate_table(
    reports: npt.ArrayLike, sizes: Sequence[int], epsilon: Fraction | float
) -> LocalEstimate:
    """Unbiased counts of the joint cells from the rows that ``encode_table`` reported.

    ``result.counts.reshape(sizes)`` is the table; ``product_queries`` gives its marginals.
    Privacy: post-processing, costs nothing. Neighbours: as in ``encode_table``.
    """
    return estimate(joint_response(sizes, epsilon), _cells(reports, sizes, "reports"))


def product_queries(*factors: npt.ArrayLike) -> Floats:
    """The Kronecker product of one query set for each attribute: rows are all product queries.

    An identity matrix asks for every value, a row of ones sums the attribute out.

    >>> product_queries(np.eye(2), np.ones((1, 3)))
    array([[1., 1., 1., 0., 0., 0.],
           [0., 0., 0., 1., 1., 1.]])
    """
    matrices = [np.asarray(factor, dtype=np.float64) for factor in factors]
    if not matrices or any(matrix.ndim != 2 for matrix in matrices):
        raise WorkloadError(
            f"product_queries got factors of shapes {[matrix.shape for matrix in matrices]}; "
            "allowed is one matrix of shape (queries, size) for each attribute"
        )
    entries = math.prod(int(matrix.size) for matrix in matrices)
    if entries > LARGEST_QUERIES:
        raise TooLarge(
            f"the product queries have {entries} entries; at most {LARGEST_QUERIES} are written "
            "out; ask for fewer of them at a time"
        )
    product: Floats = matrices[0]
    for matrix in matrices[1:]:
        product = cast(Floats, np.kron(product, matrix))
    return product


def _cells(table: npt.ArrayLike, sizes: Sequence[int], name: str) -> Codes:
    """The joint cell of each row, in row-major order of the attributes."""
    array = np.asarray(table)
    if array.ndim != 2 or array.shape[1] != len(sizes):
        raise SchemaError(
            f"{name} have shape {array.shape}; allowed is (rows, {len(sizes)}): one column for "
            "each attribute"
        )
    cells = np.zeros(len(array), dtype=np.int64)
    for column, size in zip(array.T, sizes, strict=True):
        cells = cells * size + checked_codes(column, size, name)
    return cells
