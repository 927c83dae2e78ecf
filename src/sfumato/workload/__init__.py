# SPDX-License-Identifier: Apache-2.0
"""What is asked: products of 1-D query sets, predicates, SQL. Public; sees no data."""

from sfumato.workload.build import (
    conjunctions,
    explicit,
    marginals,
    means,
    predicates,
    prefixes,
    product,
    ranges,
    sums,
    windows,
)
from sfumato.workload.constraints import Constraints
from sfumato.workload.predicates import attribute
from sfumato.workload.sql.statements import sql
from sfumato.workload.workload import Workload

__all__ = [
    "Constraints",
    "Workload",
    "attribute",
    "conjunctions",
    "explicit",
    "marginals",
    "means",
    "predicates",
    "prefixes",
    "product",
    "ranges",
    "sql",
    "sums",
    "windows",
]
