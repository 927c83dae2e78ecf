# SPDX-License-Identifier: Apache-2.0
"""The words with which workloads are written: marginals, prefixes, ranges, products, ..."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from sfumato.domain import Attribute, Domain
from sfumato.errors import WorkloadError
from sfumato.workload.coefficients import Groups, Matrix, integer_entries
from sfumato.workload.predicates import Condition
from sfumato.workload.queries import Identity, Prefix, QuerySet, Ranges, Total, Windows
from sfumato.workload.terms import Explicit, Predicates, Product, Term
from sfumato.workload.workload import Ratio, Workload

__all__ = [
    "conjunctions",
    "explicit",
    "marginals",
    "means",
    "predicates",
    "prefixes",
    "product",
    "ranges",
]

Asked = str | QuerySet | npt.NDArray[np.generic] | Sequence[Sequence[float]]


def product(domain: Domain, queries: Mapping[str, Asked], name: str | None = None) -> Workload:
    """All combinations of one query per named attribute; other attributes are totalled.

    A query set is ``"total"``, ``"identity"``, ``"prefix"``, ``"ranges"``, ``"windows(8)"``,
    ``"groups(LEVEL)"`` or a matrix with one row per query.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 100, "sex": 2})
    >>> len(product(domain, {"age": "prefix", "sex": "identity"}))
    200
    """
    factors = []
    for attr in domain.in_order(queries):
        found = _query_set(domain[attr], queries[attr])
        if not isinstance(found, Total):
            factors.append((attr, found))
    return Workload(domain, (Product(domain, name or _name(factors), 1.0, tuple(factors)),))


def marginals(domain: Domain, ways: int | Iterable[Sequence[str]]) -> Workload:
    """All tables over ``ways`` attributes, or the tables over the listed sets of attributes.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 100, "sex": 2, "race": 5})
    >>> [t.name for t in sf.marginals(domain, 2).terms]
    ['age x sex', 'age x race', 'sex x race']
    """
    if isinstance(ways, int) and not isinstance(ways, bool):
        if not 0 <= ways <= len(domain):
            raise WorkloadError(
                f"{ways}-way marginals cannot be asked of {len(domain)} attributes; allowed are 0 "
                f"to {len(domain)}"
            )
        listed: list[Sequence[str]] = list(combinations(domain.names, ways))
    elif isinstance(ways, str) or not isinstance(ways, Iterable):
        raise WorkloadError(f"marginals take a number of ways or a list of names, got {ways!r}")
    else:
        listed = [(s,) if isinstance(s, str) else tuple(s) for s in ways]
    if not listed:
        raise WorkloadError("the list of marginals is empty; name at least one set of attributes")
    terms = []
    for names in listed:
        if len(set(names)) != len(names):
            raise WorkloadError(f"a marginal names an attribute twice: {', '.join(names)}")
        factors = tuple((n, Identity(domain[n].size)) for n in domain.in_order(names))
        terms.append(Product(domain, _name(list(factors)), 1.0, factors))
    return Workload(domain, tuple(terms))


def prefixes(domain: Domain, attr: str, by: Sequence[str] = ()) -> Workload:
    """The running totals (CDF) of an attribute, for each combination of the ``by`` attributes."""
    return _along(domain, attr, by, "prefix")


def ranges(domain: Domain, attr: str, by: Sequence[str] = ()) -> Workload:
    """All intervals of an attribute, for each combination of the ``by`` attributes."""
    return _along(domain, attr, by, "ranges")


def conjunctions(domain: Domain, ways: int, attributes: Sequence[str] | None = None) -> Workload:
    """All conjunctions of ``ways`` yes/no attributes or their negations.

    Over d yes/no attributes these are the C(d, ways) 2^ways "k-way marginal queries" of Definition
    9 in Nikolov's notes on the projection mechanism. Without ``attributes``, all attributes of two
    cells are used.
    """
    chosen = [a.name for a in domain if a.size == 2] if attributes is None else list(attributes)
    wide = [n for n in chosen if domain[n].size != 2]
    if wide:
        raise WorkloadError(
            f"conjunctions need yes/no attributes of two cells; {', '.join(wide)} have more: use "
            "marginals or predicates for them"
        )
    if not 1 <= ways <= len(chosen):
        raise WorkloadError(
            f"{ways}-way conjunctions cannot be asked of {len(chosen)} yes/no attributes"
        )
    return marginals(domain, list(combinations(domain.in_order(chosen), ways)))


def predicates(
    domain: Domain, conditions: Sequence[Condition], labels: Sequence[str] = ()
) -> Workload:
    """One counting query per condition (see ``sf.attribute``)."""
    listed = tuple(conditions)
    term = Predicates(domain, "predicates", 1.0, listed, tuple(labels))
    for name in term.attributes:
        domain.index(name)
    return Workload(domain, (term,))


def means(
    domain: Domain,
    attr: str,
    by: Sequence[str] = (),
    values: Sequence[float] | None = None,
) -> Workload:
    """The mean of a number per record, for each combination of the ``by`` attributes.

    Two linear queries each: the sum (of the middle of the bin, so the schema's range is the
    clipping bound) and the count; the release shows their quotient with its interval. ``values``
    gives a number for every cell instead (a statistical query with values in [0, 1], say).
    """
    attribute = domain[attr]
    numbers = attribute.numbers() if values is None else np.asarray(values, dtype=np.float64)
    if numbers.shape != (attribute.size,):
        raise WorkloadError(
            f"attribute {attr!r} has {attribute.size} cells, {numbers.size} values were given"
        )
    if attr in by:
        raise WorkloadError(f"the mean of {attr!r} cannot also be by {attr!r}")
    row = Matrix.of(numbers, title="sum")
    counted = (numbers != 0) | (np.arange(attribute.size) < attribute.value_count)
    ones = Matrix.of(counted.astype(np.int64), title="count")
    group = product(domain, {attr: row, **dict.fromkeys(by, "identity")}, f"sum of {_by(attr, by)}")
    count = product(
        domain, {attr: ones, **dict.fromkeys(by, "identity")}, f"number of {_by(attr, by)}"
    )
    joined = group | count
    return Workload(domain, joined.terms, (Ratio(f"mean {_by(attr, by)}", 0, 1),))


def explicit(
    domain: Domain, attrs: Sequence[str], matrix: object, labels: Sequence[str] = ()
) -> Workload:
    """Given coefficients: one row per query, one column per cell of the named attributes.

    Cells are in row-major order of ``attrs``. Dense arrays and scipy sparse matrices are taken;
    coefficients are kept to multiples of 2^-20.
    """
    from scipy.sparse import csr_matrix, issparse

    names = domain.in_order(attrs)
    if len(names) != len(tuple(attrs)):
        raise WorkloadError(f"an attribute is named twice in {list(attrs)}")
    given = (
        csr_matrix(matrix) if issparse(matrix) else csr_matrix(np.atleast_2d(np.asarray(matrix)))
    )
    if given.shape[0] < 1 or given.shape[1] != domain.cells(names):
        raise WorkloadError(
            f"the attributes {', '.join(attrs)} have {domain.cells(names):,} cells, the matrix has "
            f"shape {given.shape}; give one row per query and one column per cell"
        )
    data, bits = integer_entries(given.data)
    entries = csr_matrix((data, given.indices, given.indptr), shape=given.shape)
    if names != tuple(attrs):
        sizes = [domain[a].size for a in attrs]
        cells = np.arange(domain.cells(attrs)).reshape(sizes)
        entries = entries[:, cells.transpose([list(attrs).index(n) for n in names]).reshape(-1)]
    title = f"explicit {' x '.join(names)}".strip()
    term: Term = Explicit(domain, title, 1.0, names, entries, bits, tuple(labels))
    return Workload(domain, (term,))


def _along(domain: Domain, attr: str, by: Sequence[str], kind: str) -> Workload:
    if isinstance(by, str):
        by = [by]
    if attr in by:
        raise WorkloadError(f"{attr!r} cannot be both the attribute and in by")
    if not domain[attr].is_ordered:
        raise WorkloadError(
            f"attribute {attr!r} is a {domain[attr].kind} and has no order; {kind} queries need an "
            "integer, numeric or datetime attribute"
        )
    return product(domain, {attr: kind, **dict.fromkeys(by, "identity")}, f"{kind} {_by(attr, by)}")


def _by(attr: str, by: Sequence[str]) -> str:
    return f"{attr} by {', '.join(by)}" if by else attr


def _name(factors: list[tuple[str, QuerySet]]) -> str:
    if not factors:
        return "total"
    plain = [n if isinstance(q, Identity) else f"{q.name} {n}" for n, q in factors]
    return " x ".join(plain)


def _query_set(attribute: Attribute, asked: Asked) -> QuerySet:
    if isinstance(asked, QuerySet):
        return asked
    if not isinstance(asked, str):
        return Matrix.of(asked)
    word, _, argument = asked.strip().removesuffix(")").partition("(")
    simple: dict[str, type[Total | Identity | Prefix | Ranges]] = {
        "total": Total,
        "identity": Identity,
        "prefix": Prefix,
        "ranges": Ranges,
    }
    if word in simple and not argument:
        return simple[word](attribute.size)
    if word == "windows" and argument.strip().isdigit():
        return Windows(attribute.size, int(argument))
    if word == "groups":
        level = attribute.level(argument.strip())
        extra = (-1,) * (attribute.size - attribute.value_count)
        return Groups(attribute.size, level.name, level.groups, level.group_of + extra)
    raise WorkloadError(
        f"attribute {attribute.name!r}: {asked!r} is not a query set; allowed are total, identity, "
        "prefix, ranges, windows(WIDTH), groups(LEVEL) or a matrix"
    )
