# SPDX-License-Identifier: Apache-2.0
"""What a fit minimises: entries of Gram matrices without the matrices."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.refine.problem import long_gram
from sfumato.workload.queries import Groups, Identity, Matrix, QuerySet


@pytest.mark.parametrize(
    "queries",
    [
        Identity(30),
        Groups(30, "level", ("a", "b", "c"), tuple(i % 4 - 1 for i in range(30))),
        Matrix.of(np.arange(120).reshape(4, 30) % 7 - 2),
    ],
    ids=lambda q: q.name,
)
def test_entries_of_a_long_attribute_are_those_of_its_gram_matrix(queries: QuerySet) -> None:
    random = np.random.default_rng(0)
    rows, columns = random.integers(0, 30, 12), random.integers(0, 30, 7)
    expected = queries.gram()[np.ix_(rows, columns)]
    np.testing.assert_allclose(long_gram(queries, rows, columns), expected, atol=1e-9)
