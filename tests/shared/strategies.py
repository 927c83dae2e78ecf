# SPDX-License-Identifier: Apache-2.0
"""Hypothesis generators for domains, query sets, conditions and workloads of any shape.

Domains are small enough that a test can enumerate every cell; everything else varies: kinds of
attributes, cells for other and missing values, levels, matrices with fractions, weights.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from sfumato.domain.attributes import Attribute, Boolean, Category, Integer, Level, Numeric
from sfumato.domain.domain import Domain
from sfumato.workload.predicates import And, Condition, Everything, In, Not, Or
from sfumato.workload.queries import (
    Groups,
    Identity,
    Matrix,
    Prefix,
    QuerySet,
    Ranges,
    Total,
    Windows,
)
from sfumato.workload.terms import Explicit, Predicates, Product, Term
from sfumato.workload.workload import Workload

__all__ = [
    "attributes",
    "conditions",
    "counts",
    "domains",
    "query_sets",
    "terms",
    "workloads",
]

# Halves and quarters are exact in floats; thirds are rounded to 2^-20 as the product says.
coefficients = st.integers(-8, 8).map(lambda n: n / 4) | st.sampled_from([0.0, 1.0, 1 / 3])


@st.composite
def levels(draw: st.DrawFn, size: int) -> Level:
    groups = draw(st.integers(1, 3))
    group_of = draw(st.lists(st.integers(-1, groups - 1), min_size=size, max_size=size))
    return Level("level", tuple(f"group {g}" for g in range(groups)), tuple(group_of))


@st.composite
def attributes(draw: st.DrawFn, name: str, most: int = 5) -> Attribute:
    """Any kind of attribute with at most ``most`` declared values."""
    size = draw(st.integers(1, most))
    nulls = draw(st.sampled_from(["drop", "missing"]))
    outside = draw(st.sampled_from(["drop", "other"]))
    kind = draw(st.sampled_from(["category", "integer", "numeric", "boolean"]))
    if kind == "boolean":
        return Boolean(name, nulls=nulls, outside=outside)
    given = (draw(levels(size)),) if draw(st.booleans()) else ()
    if kind == "category":
        values = tuple(f"v{i}" for i in range(size))
        return Category(name, values, nulls=nulls, outside=outside, levels=given)
    if kind == "integer":
        low = draw(st.integers(-2, 3))
        return Integer(name, low, low + size - 1, nulls=nulls, outside=outside, levels=given)
    edges = tuple(float(e) for e in range(size + 1))
    return Numeric(name, edges, nulls=nulls, outside=outside, levels=given)


@st.composite
def domains(draw: st.DrawFn, most_attributes: int = 3, most_values: int = 5) -> Domain:
    """One to three attributes, at most 7 cells each."""
    count = draw(st.integers(1, most_attributes))
    return Domain([draw(attributes(name, most_values)) for name in "abcdef"[:count]])


@st.composite
def query_sets(draw: st.DrawFn, size: int) -> QuerySet:
    """Any query set on ``size`` cells."""
    kind = draw(st.sampled_from(["total", "identity", "prefix", "ranges", "windows", "groups"]))
    kind = draw(st.sampled_from([kind, kind, "matrix"]))
    if kind == "windows":
        return Windows(size, draw(st.integers(1, size)))
    if kind == "groups":
        given = draw(levels(size))
        return Groups(size, given.name, given.groups, given.group_of)
    if kind == "matrix":
        rows = draw(st.integers(1, 3))
        entries = draw(st.lists(coefficients, min_size=rows * size, max_size=rows * size))
        return Matrix.of(np.array(entries).reshape(rows, size))
    return {"total": Total, "identity": Identity, "prefix": Prefix, "ranges": Ranges}[kind](size)


@st.composite
def leaves(draw: st.DrawFn, domain: Domain) -> Condition:
    if draw(st.integers(0, 9)) == 0:
        return Everything()
    name = draw(st.sampled_from(domain.names))
    codes = st.integers(0, domain[name].size - 1)
    return In(name, tuple(draw(st.lists(codes, max_size=4))))


def conditions(domain: Domain) -> st.SearchStrategy[Condition]:
    """Any condition, with and, or, not to any reasonable depth."""
    return st.recursive(
        leaves(domain),
        lambda inner: (
            inner.map(Not)
            | st.lists(inner, max_size=3).map(lambda parts: And(tuple(parts)))
            | st.lists(inner, max_size=3).map(lambda parts: Or(tuple(parts)))
        ),
        max_leaves=6,
    )


@st.composite
def terms(draw: st.DrawFn, domain: Domain, name: str = "t") -> Term:
    """A product, an explicit matrix, or conditions."""
    weight = draw(st.sampled_from([1.0, 0.5, 3.0]))
    kind = draw(st.sampled_from(["product", "product", "explicit", "predicates"]))
    subsets = [s for k in range(len(domain) + 1) for s in combinations(domain.names, k)]
    if kind == "predicates":
        listed = draw(st.lists(conditions(domain), min_size=1, max_size=3))
        return Predicates(domain, name, weight, tuple(listed))
    over = draw(st.sampled_from(subsets))
    if kind == "product":
        factors = tuple((n, draw(query_sets(domain[n].size))) for n in over)
        return Product(domain, name, weight, factors)
    cells, rows = domain.cells(over), draw(st.integers(1, 3))
    entries = st.integers(-4, 4) | st.just(0)
    listed = draw(st.lists(entries, min_size=rows * cells, max_size=rows * cells))
    matrix = csr_matrix(np.array(listed, dtype=np.int64).reshape(rows, cells))
    return Explicit(domain, name, weight, over, matrix, draw(st.integers(0, 2)))


@st.composite
def workloads(draw: st.DrawFn, domain: Domain | None = None, most_terms: int = 4) -> Workload:
    """A weighted union of terms over one domain."""
    over = draw(domains()) if domain is None else domain
    count = draw(st.integers(1, most_terms))
    return Workload(over, tuple(draw(terms(over, f"t{i}")) for i in range(count)))


@st.composite
def counts(draw: st.DrawFn, domain: Domain, most: int = 1000) -> np.ndarray:
    """An array of counts of the domain's shape."""
    size = domain.size
    listed = draw(st.lists(st.integers(0, most), min_size=size, max_size=size))
    return np.array(listed, dtype=np.int64).reshape(domain.shape)
