# SPDX-License-Identifier: Apache-2.0
"""The functions with which people write workloads: marginals, prefixes, ranges, products, ...

Each returns a `Workload` and refuses what does not fit the domain. Wherever an attribute is asked
cell by cell (the tables of ``marginals``, the ``by`` of the others), ``attribute.level`` asks for
the groups of that level instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from sfumato.domain.attributes import Attribute, Integer, Level, Numeric, short_number
from sfumato.domain.discovery import OpenDomain
from sfumato.domain.domain import Domain, base_of, with_moments, with_values
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.domain.values import Moments, Values
from sfumato.errors import TooLarge, WorkloadError
from sfumato.text import listing, shown
from sfumato.types import Array
from sfumato.workload.predicates import Condition, attribute, check_conditions
from sfumato.workload.queries import (
    Groups,
    Identity,
    Matrix,
    Prefix,
    QuerySet,
    Ranges,
    Total,
    Windows,
    check_entries,
    integer_entries,
    numeric_array,
)
from sfumato.workload.terms import Explicit, Predicates, Product, Term
from sfumato.workload.workload import (
    Ratio,
    SecondMoment,
    SecondMomentKind,
    Workload,
    union,
)
from sfumato.workload.workload_limits import LIMITS

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import csr_matrix

__all__ = [
    "MeanOfValues",
    "MomentsOfValues",
    "as_condition",
    "cell_queries",
    "check_domain",
    "circular_ranges",
    "conjunctions",
    "covariances",
    "explicit",
    "has_spread_values",
    "level_queries",
    "marginals",
    "mean_of_values",
    "means",
    "moments",
    "moments_of",
    "persons",
    "predicates",
    "predictions",
    "prefixes",
    "product",
    "ranges",
    "standard_deviations",
    "subsets",
    "sums",
    "unparsed",
    "variances",
    "windows",
    "workload_of",
]


QuerySpec = str | QuerySet | npt.NDArray[np.generic] | Sequence[Sequence[float]]


def check_domain(domain: object, what: str) -> None:
    """Refuse what is no domain, before anything is asked of it."""
    if isinstance(domain, OpenDomain):
        raise WorkloadError(
            f"{what} needs a closed domain, and here "
            f"{listing([each.name for each in domain.open])} is to be discovered; run "
            "sf.plan_discovery(domain, budget).release(table) and plan on its .domain (its .counts "
            "and .top(k) are the largest keys already; sf.plan_discovery also takes a SELECT ... "
            "ORDER BY COUNT(*) DESC LIMIT k)"
        )
    if not isinstance(domain, Domain):
        raise WorkloadError(
            f"{what} needs a domain, which says what a record may look like, got "
            f"{type(domain).__name__}; make one with sf.Domain.from_toml(path) or "
            "sf.Domain({'age': 100, 'sex': 2})"
        )


def _names(value: object, what: str) -> tuple[str, ...]:
    """Names of attributes; a lone text is one name."""
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, Iterable):
        raise WorkloadError(f"{what} takes names of attributes, ['sex'], got {shown(value)}")
    listed = tuple(names)
    for name in listed:
        if not isinstance(name, str):
            raise WorkloadError(f"{what} takes names of attributes, ['sex'], got {shown(name)}")
    return listed


def product(domain: Domain, queries: Mapping[str, QuerySpec], name: str | None = None) -> Workload:
    """All combinations of one query per named attribute; other attributes are totalled.

    A query set is ``"total"``, ``"identity"``, ``"prefix"``, ``"ranges"``, ``"windows(8)"``,
    ``"circular"``, ``"groups(LEVEL)"`` or a matrix with one row per query.

    Args:
        domain: What a record may look like.
        queries: By the name of an attribute, a query set.
        name: What the group is called.

    Returns:
        One query per combination.

    Raises:
        WorkloadError: A query set is none of these, or does not fit its attribute.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 100, "sex": 2})
    >>> len(sf.product(domain, {"age": "prefix", "sex": "identity"}))
    200
    """
    check_domain(domain, "product")
    if not isinstance(queries, Mapping):
        raise WorkloadError(
            f"a product takes a query set per attribute, {{'age': 'prefix'}}, got {shown(queries)}"
        )
    factors = []
    for attr in domain.in_order(queries):
        spec = queries[attr]
        if not isinstance(spec, Total) and not (isinstance(spec, str) and spec == "total"):
            factors.append((attr, _query_set(domain[attr], spec)))
    return Workload(domain, (Product(domain, name or _name(factors), 1.0, tuple(factors)),))


def marginals(domain: Domain, ways: int | Iterable[Sequence[str]]) -> Workload:
    """All tables over ``ways`` attributes, or the tables over the listed sets of attributes.

    Args:
        domain: What a record may look like.
        ways: A number of attributes, or sets of their names.

    Returns:
        One group of queries per table.

    Raises:
        WorkloadError: There are not so many attributes, or none of the name.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 100, "sex": 2, "race": 5})
    >>> [t.name for t in sf.marginals(domain, 2).terms]
    ['age x sex', 'age x race', 'sex x race']
    """
    check_domain(domain, "marginals")
    domain = base_of(domain)
    if isinstance(ways, int) and not isinstance(ways, bool):
        _check_cells(domain, ways)
        listed: Sequence[Sequence[str]] = subsets(domain.names, ways)
    else:
        listed = _listed(ways)
    # One object per attribute, however many tables it is in.
    queries = {name: cell_queries(domain, name) for name in {n for names in listed for n in names}}
    terms = []
    for names in listed:
        own = dict(queries[n] for n in names)
        if len(own) != len(names):
            raise WorkloadError(f"a marginal names an attribute twice: {', '.join(names)}")
        factors = tuple((attr, own[attr]) for attr in domain.in_order(own))
        terms.append(Product(domain, _name(factors), 1.0, factors))
    return Workload(domain, tuple(terms))


def persons(
    domain: Domain, unit: PrivacyUnit, ways: int | Iterable[Sequence[str]] = ((),)
) -> Workload:
    """The number of persons in every cell of some tables: ``COUNT(DISTINCT unit)`` by group.

    Plan it with the same unit. Each person must be counted once in every cell: a unit of one row
    (a person in one cell of all), or one with one row in a group, for tables by its groups (a
    person in at most ``unit.groups`` cells). Then it is a count of the rows that are counted.

    Args:
        domain: What a record may look like.
        unit: The privacy unit, whose column says who a person is.
        ways: As for `marginals`; by default the number of all persons.

    Returns:
        One group of queries per table.

    Raises:
        WorkloadError: The unit may count a person several times in a cell.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"day": 365, "sex": 2})
    >>> unit = sf.PrivacyUnit("person", groups=10, by="day")
    >>> [t.name for t in sf.persons(domain, unit, [["day"], ["day", "sex"]]).terms]
    ['persons by day', 'persons by day x sex']
    """
    if not isinstance(unit, PrivacyUnit):
        raise WorkloadError(f"persons are those of an sf.PrivacyUnit, got {shown(unit)}")
    work = marginals(domain, ways)
    for term in work.terms:
        is_once = unit.rows_per_group == 1 and term.separates(unit.by)
        if not (unit.is_one_row or is_once):
            raise WorkloadError(
                f"of one {unit.column!r} several rows may be counted in a cell of {term.name!r}: "
                "ask for tables by the groups of a unit with rows_per_group=1, or use "
                f"sf.PrivacyUnit({unit.column!r}, 1)"
            )
    named = (f"persons by {t.name}" if t.attributes else "persons" for t in work.terms)
    terms = tuple(replace(t, name=name) for t, name in zip(work.terms, named, strict=True))
    return replace(work, terms=terms)


def _check_cells(domain: Domain, ways: int) -> None:
    """Refuse very many tables of very many cells, before the first one is listed."""
    tables = comb(len(domain), max(ways, 0))
    # A few tables are refused where they are planned.
    if not LIMITS.tables_unchecked < tables <= LIMITS.terms:
        return
    together = [1] + [0] * ways  # elementary symmetric polynomials of the sizes
    for size in domain.shape:
        for k in range(ways, 0, -1):
            together[k] += size * together[k - 1]
    if together[ways] > LIMITS.marginal_cells:
        raise TooLarge(
            f"all {tables:,} tables of {ways} attributes have {together[ways]:,} cells together, "
            f"the most are {LIMITS.marginal_cells:,}: ask for fewer attributes at once, or list "
            "the tables that are needed"
        )


def _listed(ways: object) -> list[tuple[str, ...]]:
    sets = [] if isinstance(ways, str) or not isinstance(ways, Iterable) else list(ways)
    if len(sets) > 1 and all(isinstance(s, str) for s in sets):
        raise WorkloadError(
            f"marginals of {listing(sets)} could mean one table or {len(sets)}: write "
            f"[({', '.join(map(shown, sets[:3]))}{', ...' if len(sets) > 3 else ''})] for one "
            f"table of all of them, [({shown(sets[0])},), ({shown(sets[1])},)"
            f"{', ...' if len(sets) > 2 else ''}] for one table each"
        )
    sets = [(s,) if isinstance(s, str) else s for s in sets]
    if not sets or not all(
        isinstance(s, Sequence) and all(isinstance(name, str) for name in s) for s in sets
    ):
        raise WorkloadError(
            "marginals take a number of ways or a list of sets of names, [('age', 'sex'), ...], "
            f"got {shown(ways)}"
        )
    return [tuple(s) for s in sets]


def subsets(names: Sequence[str], ways: int) -> list[tuple[str, ...]]:
    """All sets of ``ways`` of the names, unless there are too many."""
    if not 0 <= ways <= len(names):
        raise WorkloadError(
            f"{shown(ways)}-way marginals cannot be asked of {len(names)} attributes; allowed are "
            f"0 to {len(names)}"
        )
    if comb(len(names), ways) > LIMITS.terms:
        raise TooLarge(
            f"{len(names)} attributes have {comb(len(names), ways):,} tables of {ways}; the most "
            f"in one workload are {LIMITS.terms:,}: list the ones that are needed"
        )
    return list(combinations(names, ways))


def prefixes(domain: Domain, attr: str, by: Sequence[str] = ()) -> Workload:
    """The running totals (CDF) of an attribute, for each combination of the ``by`` attributes.

    Args:
        domain: What a record may look like.
        attr: The attribute whose cells are in order.
        by: Attributes whose combinations each have their own totals.

    Returns:
        One query per cell and combination: how many records are in it or before it.

    Raises:
        WorkloadError: There is no such attribute.
    """
    return _along(domain, attr, by, "prefix")


def ranges(domain: Domain, attr: str, by: Sequence[str] = ()) -> Workload:
    """All intervals of an attribute, for each combination of the ``by`` attributes.

    Args:
        domain: What a record may look like.
        attr: The attribute whose cells are in order.
        by: Attributes whose combinations each have their own intervals.

    Returns:
        One query per interval and combination.

    Raises:
        WorkloadError: There is no such attribute.
    """
    return _along(domain, attr, by, "ranges")


def windows(domain: Domain, attr: str, width: int, by: Sequence[str] = ()) -> Workload:
    """All intervals of ``width`` neighbouring cells, for each combination of ``by``.

    Args:
        domain: What a record may look like.
        attr: The attribute whose cells are in order.
        width: How many cells an interval has.
        by: Attributes whose combinations each have their own intervals.

    Returns:
        One query per interval and combination.

    Raises:
        WorkloadError: There is no such attribute, or the width does not fit.
    """
    if isinstance(width, bool) or not isinstance(width, int):
        raise WorkloadError(f"the width of windows is a whole number, got {shown(width)}")
    return _along(domain, attr, by, f"windows({width})")


def circular_ranges(domain: Domain, attr: str, by: Sequence[str] = ()) -> Workload:
    """All intervals of neighbouring cells in a circle, for each combination of ``by``.

    The first cell follows the last one: hours from 22 to 5, or months from November to February. On
    n cells these are ``n (n - 1)`` intervals and the total.

    Args:
        domain: What a record may look like.
        attr: The attribute whose cells are in a circle, in the order of the schema.
        by: Attributes whose combinations each have their own intervals.

    Returns:
        One query per interval and combination.

    Raises:
        WorkloadError: There is no such attribute, or it has cells for other and missing values.
        TooLarge: The intervals of so many cells cannot be listed.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"hour": 24})
    >>> len(sf.circular_ranges(domain, "hour"))
    553
    """
    check_domain(domain, "circular_ranges")
    queries: dict[str, QuerySpec] = {attr: _circular(domain[attr])}
    for name in _names(by, "by"):
        other, cells = cell_queries(domain, name)
        if other in queries:
            raise WorkloadError(f"{attr!r} by {', '.join(by)} names {other!r} twice")
        queries[other] = cells
    return product(domain, queries, f"circular ranges {_by(attr, by)}")


def _circular(attribute: Attribute) -> Matrix:
    """The rows of all intervals in a circle: by length, then by the first cell; the total last."""
    n = attribute.size
    if n != attribute.value_count:
        raise WorkloadError(
            f"attribute {attribute.name!r} has cells for other or missing values, which are in "
            "no circle; drop them in the schema, or list the intervals with sf.predicates"
        )
    count = n * (n - 1) + 1
    check_entries(count * n, f"the circular ranges of {attribute.name!r}")
    lengths, first = np.divmod(np.arange(count), n)
    along = (np.arange(n) - first[:, None]) % n
    names = [str(label) for label in attribute.labels]
    last = (first + lengths) % n
    pairs = zip(first.tolist(), last.tolist(), lengths.tolist(), strict=True)
    labels = [names[a] if k == 0 else f"{names[a]} to {names[b]}" for a, b, k in pairs]
    labels[-1] = "all"
    return Matrix.of(along <= lengths[:, None], tuple(labels), "circular ranges")


def conjunctions(domain: Domain, ways: int, attributes: Sequence[str] | None = None) -> Workload:
    """All conjunctions of ``ways`` yes/no attributes or their negations.

    Over d yes/no attributes these are the C(d, ways) 2^ways "k-way marginal queries" of Definition
    9 in Nikolov's notes on the projection mechanism. Without ``attributes``, all attributes of two
    cells are used.

    Args:
        domain: What a record may look like.
        ways: How many attributes a conjunction has.
        attributes: Names of attributes of two cells; None for all of them.

    Returns:
        One query per conjunction.

    Raises:
        WorkloadError: An attribute has more than two cells, or there are too few.
    """
    domain = base_of(domain)
    check_domain(domain, "conjunctions")
    if attributes is None:
        chosen = [a.name for a in domain if a.size == 2]
    else:
        chosen = list(_names(attributes, "conjunctions"))
    wide = [n for n in chosen if domain[n].size != 2]
    if wide:
        raise WorkloadError(
            f"conjunctions need yes/no attributes of two cells; {', '.join(wide)} have more: use "
            "marginals or predicates for them"
        )
    if not chosen:
        raise WorkloadError(
            "conjunctions need yes/no attributes of two cells, there are none here: use marginals "
            "or predicates"
        )
    if isinstance(ways, bool) or not isinstance(ways, int) or not 1 <= ways <= len(chosen):
        raise WorkloadError(
            f"{shown(ways)}-way conjunctions cannot be asked of {len(chosen)} yes/no attributes; "
            f"allowed are 1 to {len(chosen)}"
        )
    return marginals(domain, subsets(domain.in_order(chosen), ways))


def predicates(
    domain: Domain, conditions: Sequence[Condition | str], labels: Sequence[str] = ()
) -> Workload:
    """One counting query per condition, built with ``sf.attribute`` or written as in SQL's WHERE.

    Args:
        domain: What a record may look like.
        conditions: What is counted.
        labels: What the queries are called; the conditions themselves if empty.

    Returns:
        One query per condition.

    Raises:
        WorkloadError: A condition cannot be asked on this domain.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 100, "sex": 2})
    >>> age = sf.attribute(domain, "age")
    >>> sf.predicates(domain, [(age >= 25) & (age < 45), "age < 18 OR sex = 1"]).terms[0].labels
    ('age >= 25 and age < 45', 'age < 18 OR sex = 1')
    """
    check_domain(domain, "predicates")
    if isinstance(conditions, Condition | str):
        conditions = [conditions]
    if isinstance(conditions, Mapping) or not isinstance(conditions, Iterable):
        raise WorkloadError(
            "predicates take a list of conditions, ['age < 18', ...], got " + shown(conditions)
        )
    conditions = list(conditions)
    if not isinstance(labels, Iterable):
        raise WorkloadError(f"labels are texts, one for every condition, got {shown(labels)}")
    if len(conditions) > LIMITS.conditions:
        raise TooLarge(
            f"{len(conditions):,} conditions are asked at once, the most are "
            f"{LIMITS.conditions:,}; ask for tables or ranges, of which they are sums"
        )
    listed = tuple(as_condition(domain, c) for c in conditions)
    check_conditions(listed, domain)
    written = tuple(str(c) for c in conditions) if not labels else tuple(labels)
    return Workload(domain, (Predicates(domain, "predicates", 1.0, listed, written),))


def unparsed(domain: Domain) -> Workload:
    """How many values of each attribute stand for nothing, of those with a cell for them.

    Args:
        domain: What a record may look like; attributes with ``unparsed="cell"`` are asked about.

    Returns:
        One counting query per such attribute, in order.

    Raises:
        WorkloadError: No attribute has the cell.

    >>> import sfumato as sf
    >>> domain = sf.Domain([sf.Integer("age", 0, 99, unparsed="cell")])
    >>> len(sf.unparsed(domain))
    1
    """
    check_domain(domain, "unparsed")
    names = [a.name for a in domain if a.unparsed_code is not None]
    if not names:
        raise WorkloadError(
            'no attribute has a cell for values that did not parse; declare unparsed = "cell" of '
            "those in question"
        )
    return predicates(domain, [attribute(domain, name).is_unparsed for name in names])


def as_condition(domain: Domain, condition: Condition | str) -> Condition:
    """The condition itself, or what a text means that is written as in SQL's WHERE."""
    if not isinstance(condition, str):
        return condition
    from sfumato.workload.sql_expressions import sql_condition

    return sql_condition(domain, condition)


def means(
    domain: Domain,
    attr: str,
    by: Sequence[str] = (),
    values: Sequence[float] | None = None,
) -> Workload:
    """The mean of a number per record, for each combination of the ``by`` attributes.

    Two linear queries each, a sum and the number of records; the release shows their quotient with
    its interval. The values of numeric attributes, and of integers in bins, are added up
    themselves, clamped to the range of the schema: bins play no part. Cells ``(other)`` and
    ``(missing)`` count in neither sum nor number.

    Args:
        domain: The domain.
        attr: The attribute whose mean is asked.
        by: Attributes (or ``attribute.level``) for each of whose cells a mean is asked.
        values: A number for every declared value instead (a statistical query with values in
            [0, 1], say), or for every cell, where nan says that a cell counts in neither.

    Returns:
        The workload, over the domain with the values of the attribute beside its cells.

    Raises:
        WorkloadError: The attribute has no numbers, or the names do not fit.

    >>> import sfumato as sf
    >>> domain = sf.Domain([sf.Numeric("income", (0, 100_000)), sf.Category("sex", ("F", "M"))])
    >>> sf.means(domain, "income", by=["sex"]).ratios[0].name
    'mean income by sex'
    """
    check_domain(domain, "means")
    by = _names(by, "by")
    name = f"mean {_by(attr, by)}"
    if values is None and has_spread_values(domain[attr]):
        parts = mean_of_values(domain, attr)
        work, among = parts.domain, parts.values.name
        shares = Matrix.of(parts.centred, (parts.text,), "sum of")
        number = Matrix.of(parts.counted, (f"number of {attr}",), "number")
        terms = [
            *_along(work, among, by, shares, f"sum of {_by(parts.text, by)}").terms,
            *_along(work, among, by, number, f"number of {_by(attr, by)}").terms,
        ]
        return Workload(work, tuple(terms), (parts.ratio(name, 0),))
    numbers, counted = _numbers(domain[attr], values)
    rows = {"sum": np.where(counted, numbers, 0.0), "number": counted}
    terms = []
    for title, row in rows.items():
        matrix = Matrix.of(row, (f"{title} of {attr}",), title)
        terms += _along(domain, attr, by, matrix, f"{title} of {_by(attr, by)}").terms
    shared = tuple(t.in_its_own_unit() for t in terms)
    return Workload(domain, shared, (Ratio(name, 0, 1),))


def sums(domain: Domain, attr: str, by: Sequence[str] = (), power: int = 1) -> Workload:
    """The sum of the values of an attribute, or of their squares, by the ``by`` attributes.

    Values of numeric attributes, and of integers in bins, are clamped to the range of the schema
    and added up themselves: bins play no part. Records without a number add nothing.

    Args:
        domain: The domain.
        attr: The attribute that is summed.
        by: Attributes (or ``attribute.level``) for each of whose cells a sum is asked.
        power: 1, or 2 for the sum of squares.

    Returns:
        The workload, over the domain with the values of the attribute beside its cells.

    Raises:
        WorkloadError: The attribute has no numbers, or the names do not fit.
    """
    if isinstance(power, bool) or power not in (1, 2):
        raise WorkloadError(f"sums are of numbers (power 1) or squares (power 2), got {power!r}")
    name = f"sum of {'squares of ' if power == 2 else ''}{attr}"
    if has_spread_values(domain[attr]):
        work, values = with_values(domain, attr, power)
        row = Matrix.of_values(values.powers(power), (name,), "sum")
        summed = _along(work, values.name, by, row, _by(name, by))
    else:
        numbers, counted = _numbers(domain[attr], None)
        row = Matrix.of(np.where(counted, numbers, 0.0) ** power, (name,), "sum")
        summed = _along(domain, attr, by, row, _by(name, by))
    return Workload(summed.domain, tuple(t.in_its_own_unit() for t in summed.terms))


def variances(domain: Domain, attr: str, by: Sequence[str] = ()) -> Workload:
    """The variance of the values of an attribute, for each combination of the ``by`` attributes.

    Three linear queries each, from which number, mean and variance follow; the release shows them
    with an interval that holds the variance of the clamped values, divided by their number (that of
    the table, as ``VAR_POP`` in SQL). Values are clamped to the range of the schema: bins play no
    part, also for integers with a cell for every number.

    Args:
        domain: The domain.
        attr: The attribute whose variance is asked.
        by: Attributes (or ``attribute.level``) for each of whose cells a variance is asked.

    Returns:
        The workload, over the domain with the moments of the attribute beside its cells.

    Raises:
        WorkloadError: The attribute has no range of numbers, or the names do not fit.

    >>> import sfumato as sf
    >>> domain = sf.Domain([sf.Numeric("income", (0, 100_000)), sf.Category("sex", ("F", "M"))])
    >>> sf.variances(domain, "income", by=["sex"]).ratios[0].name
    'variance income by sex'
    """
    return _spread_of(domain, attr, by, "variance")


def standard_deviations(domain: Domain, attr: str, by: Sequence[str] = ()) -> Workload:
    """The standard deviation of an attribute, for each combination of the ``by`` attributes.

    The root of the variance, from the same queries: asked beside ``sf.variances`` it costs nothing.

    Args:
        domain: The domain.
        attr: The attribute whose standard deviation is asked.
        by: Attributes (or ``attribute.level``) for each of whose cells it is asked.

    Returns:
        The workload, over the domain with the moments of the attribute beside its cells.

    Raises:
        WorkloadError: The attribute has no range of numbers, or the names do not fit.
    """
    return _spread_of(domain, attr, by, "standard_deviation")


def covariances(domain: Domain, a: str, b: str, by: Sequence[str] = ()) -> Workload:
    """The covariance of two attributes, for each combination of the ``by`` attributes.

    Four linear queries each, over the records that have a number in both columns; the release shows
    the covariance of the clamped values, divided by their number, with its interval.

    Args:
        domain: The domain.
        a: An attribute.
        b: Another one.
        by: Attributes (or ``attribute.level``) for each of whose cells a covariance is asked.

    Returns:
        The workload, over the domain with the products of both attributes beside its cells.

    Raises:
        WorkloadError: An attribute has no range of numbers, or the names do not fit.

    >>> import sfumato as sf
    >>> domain = sf.Domain([sf.Numeric("age", (17, 90)), sf.Numeric("hours", (1, 99))])
    >>> len(sf.covariances(domain, "age", "hours"))
    4
    """
    by = _names(by, "by")
    parts = moments_of(domain, [*_names(a, "covariances"), *_names(b, "covariances")], 1)
    first, second = parts.columns
    return _moment_workload(parts, by, [parts.statistic("covariance", first, second)])


def moments(domain: Domain, attrs: Sequence[str], by: Sequence[str] = ()) -> Workload:
    """All first and second moments of several attributes, for each combination of ``by``.

    Number, sums, sums of squares and of products, over the records that have a number in every
    column, planned as one: what ``sf.regress`` fits from. The release shows the variance of every
    column, and the covariance and the correlation of every two.

    Args:
        domain: The domain.
        attrs: Two to five attributes.
        by: Attributes (or ``attribute.level``) for each of whose cells the moments are asked.

    Returns:
        The workload, over the domain with the moments of the attributes beside its cells.

    Raises:
        WorkloadError: An attribute has no range of numbers, there are too many of them, or the
            names do not fit.

    >>> import sfumato as sf
    >>> domain = sf.Domain([sf.Numeric("age", (17, 90)), sf.Numeric("hours", (1, 99))])
    >>> [r.name for r in sf.moments(domain, ["age", "hours"]).ratios]
    ['variance age', 'variance hours', 'covariance age, hours', 'correlation age, hours']
    """
    by = _names(by, "by")
    names = _names(attrs, "moments")
    if not 2 <= len(names) <= LIMITS.moment_columns:
        raise WorkloadError(
            f"moments are of 2 to {LIMITS.moment_columns} attributes together, got {len(names)}; "
            "of one, ask for sf.variances"
        )
    parts = moments_of(domain, names, 2)
    of_one = [parts.statistic("variance", name, name) for name in parts.columns]
    pairs = list(combinations(parts.columns, 2))
    of_two = [
        parts.statistic(kind, a, b) for a, b in pairs for kind in ("covariance", "correlation")
    ]
    return _moment_workload(parts, by, [*of_one, *of_two])


def _spread_of(domain: Domain, attr: str, by: Sequence[str], kind: SecondMomentKind) -> Workload:
    by = _names(by, "by")
    parts = moments_of(domain, _names(attr, f"{kind.replace('_', ' ')}s"), 2)
    return _moment_workload(parts, by, [parts.statistic(kind, attr, attr)])


def _moment_workload(
    parts: MomentsOfValues, by: Sequence[str], statistics: Sequence[SecondMoment]
) -> Workload:
    terms: list[Term] = []
    for text, row in parts.queries:
        matrix = Matrix.of(row, (text,), "sum of")
        terms += _along(
            parts.domain, parts.moments.name, by, matrix, f"sum of {_by(text, by)}"
        ).terms
    named = tuple(s.renamed(_by(s.name, by)) for s in statistics)
    return Workload(parts.domain, tuple(t.in_its_own_unit() for t in terms), named)


@dataclass(frozen=True, eq=False, slots=True)
class MomentsOfValues:
    """Moments of columns as linear queries over the cells of `Moments`, and what follows from them.

    Of one column the Bernstein polynomials of degree 2 are asked, of two columns of degree 1 the
    products of (1 - s, s) and (1 - t, t), s and t the places in both ranges: no record adds more
    than 1 to all of them together, and pure noise is added to these very queries. Of columns of
    degree 2 the number, the sums and the products themselves are asked.
    """

    domain: Domain
    moments: Moments

    @property
    def columns(self) -> tuple[str, ...]:
        """The attributes, in the order of the domain."""
        return tuple(each.name for each in self.moments.of)

    @property
    def _powers(self) -> list[tuple[int, ...]]:
        """The products of powers of u that are spanned: number first."""
        p = len(self.columns)
        unit = [tuple(int(i == j) for j in range(p)) for i in range(p)]
        squares = [tuple(2 * k for k in row) for row in unit] if self.moments.degree > 1 else []
        crossed = [
            tuple(a + b for a, b in zip(x, y, strict=True)) for x, y in combinations(unit, 2)
        ]
        return [(0,) * p, *unit, *squares, *crossed]

    @property
    def _basis(self) -> Array | None:
        """The asked queries in terms of these products; None where they are the same."""
        if len(self.columns) == 1:
            return np.array([[1, -2, 1], [2, 0, -2], [1, 2, 1]]) / 4
        if self.moments.degree == 1:
            return np.array([[1, -1, -1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, 1, 1, 1]]) / 4
        return None

    @property
    def queries(self) -> list[tuple[str, Array]]:
        """What each asked query is the sum of, and its coefficients."""
        rows = np.stack([self.moments.coefficients(p) for p in self._powers])
        if self._basis is not None:
            rows = self._basis @ rows
        return list(zip(self._texts, rows, strict=True))

    @property
    def _texts(self) -> list[str]:
        up, down, centred = [], [], []
        for values in self.moments.sources:
            name, (low, high) = values.of.name, (short_number(end) for end in values.ends)
            width = short_number(values.ends[1] - values.ends[0])
            up.append(f"(({name} - {low}) / {width})")
            down.append(f"(({high} - {name}) / {width})")
            centred.append(_centred_text(values))
        if len(self.columns) == 1:
            return [f"{down[0]}^2", f"2 {up[0]} {down[0]}", f"{up[0]}^2"]
        if self.moments.degree == 1:
            return [f"{a} {b}" for a in (down[0], up[0]) for b in (down[1], up[1])]
        return [
            " ".join(
                f"({t})" + ("^2" if k == 2 else "") for t, k in zip(centred, p, strict=True) if k
            )
            or "1"
            for p in self._powers
        ]

    def statistic(self, kind: SecondMomentKind, a: str, b: str, lost: int = 0) -> SecondMoment:
        """A variance, covariance and so on; its groups are the queries, in order, from 0."""
        powers = self._powers
        from_products = np.eye(len(powers)) if self._basis is None else np.linalg.inv(self._basis)
        places = {name: i for i, name in enumerate(self.columns)}
        x, y = (powers[1 + places[name]] for name in (a, b))
        wanted = [powers[0], x, y, tuple(i + j for i, j in zip(x, y, strict=True))]
        if kind == "correlation":
            wanted += [tuple(2 * k for k in p) for p in (x, y)]
        forms = tuple(tuple(from_products[powers.index(p)].tolist()) for p in wanted)
        ends = [self.moments.sources[places[name]].ends for name in (a, b)]
        text = f"{kind.replace('_', ' ')} {a if a == b else f'{a}, {b}'}"
        return SecondMoment(
            text,
            kind,
            (a, b),
            tuple(range(len(powers))),
            forms,
            (sum(ends[0]) / 2, sum(ends[1]) / 2),
            (ends[0][1] / 2 - ends[0][0] / 2, ends[1][1] / 2 - ends[1][0] / 2),
            self.moments.rounding,
            lost,
        )


def moments_of(domain: Domain, names: Sequence[str], degree: int) -> MomentsOfValues:
    """The moments of attributes as queries over the domain with these."""
    check_domain(domain, "moments")
    return MomentsOfValues(*with_moments(domain, names, degree))


@dataclass(frozen=True, eq=False, slots=True)
class MeanOfValues:
    """A mean of values as two queries: ``middle + half * (centred sum) / (number)``.

    The coefficients of both are whole numbers over the cells of the values: -1 and 1 at the ends
    of the range, and 1 and 1. Measured cell by cell they have the least error there is for means
    anywhere in the range, whatever the range; a sum of values far from 0 would be measured for its
    large common part.
    """

    domain: Domain
    values: Values

    @property
    def centred(self) -> Array:
        """The coefficients of ``(x - middle) / half``."""
        return _padded(self.values, np.linspace(-1.0, 1.0, self.values.value_count))

    @property
    def counted(self) -> Array:
        """The coefficients of the number of records with a value."""
        return self.values.powers(0)

    @property
    def text(self) -> str:
        """What the centred sum is of."""
        return _centred_text(self.values)

    @property
    def _middle(self) -> float:
        low, high = self.values.ends
        return low / 2 + high / 2

    @property
    def _half(self) -> float:
        low, high = self.values.ends
        return high / 2 - low / 2

    def ratio(self, name: str, numerator: int) -> Ratio:
        """The ratio that is the mean: the number of records is the term after the sum."""
        hidden = self.values.rounding
        return Ratio(name, numerator, numerator + 1, self._half, self._middle, hidden)


def _centred_text(values: Values) -> str:
    low, high = values.ends
    return f"({values.of.name} - {low / 2 + high / 2:.12g}) / {high / 2 - low / 2:.12g}"


def _padded(values: Values, coefficients: Array) -> Array:
    """The coefficients of values, followed by 0 for other and missing."""
    return np.concatenate([coefficients, np.zeros(values.size - values.value_count)])


def mean_of_values(domain: Domain, attr: str) -> MeanOfValues:
    """The mean of an attribute's values as two queries over its domain with values."""
    return MeanOfValues(*with_values(domain, attr))


def has_spread_values(attribute: Attribute) -> bool:
    """Whether cells do not tell its numbers exactly: bins of more than one number."""
    if isinstance(attribute, Integer):
        return attribute.width > 1 and attribute.max > attribute.min
    return isinstance(attribute, Numeric)


def _numbers(
    attribute: Attribute, values: Sequence[float] | None
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """One number per cell, and which cells have one."""
    check_entries(attribute.size, f"a number for every cell of {attribute.name!r}")
    declared = np.arange(attribute.size) < attribute.value_count
    if values is None:
        return attribute.numbers(), declared
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise WorkloadError(
            f"values are numbers, one for every value of {attribute.name!r}, got {shown(values)}"
        ) from None
    if numbers.shape == (attribute.value_count,):
        extra = np.full(attribute.size - attribute.value_count, np.nan)
        numbers = np.concatenate([numbers, extra])
    if numbers.shape != (attribute.size,):
        raise WorkloadError(
            f"attribute {attribute.name!r} has {attribute.value_count} values and "
            f"{attribute.size} cells, {numbers.size} numbers were given"
        )
    missing = attribute.missing_code
    if missing is not None and not (np.isnan(numbers[missing]) or numbers[missing] == 0):
        raise WorkloadError(
            f"attribute {attribute.name!r}: a missing value counts in neither the sum nor the "
            "number; give nan for it"
        )
    counted = ~np.isnan(numbers)
    if missing is not None:
        counted[missing] = False
    return numbers, counted


def explicit(
    domain: Domain, attrs: Sequence[str], matrix: object, labels: Sequence[str] = ()
) -> Workload:
    """Given coefficients: one row per query, one column per cell of the named attributes.

    Cells are in row-major order of ``attrs``. Dense arrays and scipy sparse matrices are taken;
    coefficients are kept to multiples of 2^-20.

    Args:
        domain: What a record may look like.
        attrs: Names of attributes.
        matrix: One row per query, one column per cell.
        labels: What the queries are called.

    Returns:
        The queries, in the order of the rows.

    Raises:
        WorkloadError: The matrix has another shape, or is not finite.
    """
    from scipy.sparse import csr_matrix

    check_domain(domain, "explicit")
    attrs = _names(attrs, "explicit")
    names = domain.in_order(attrs)
    if len(names) != len(attrs):
        raise WorkloadError(f"an attribute is named twice in {', '.join(attrs)}")
    cells = domain.cells(names)
    check_entries(cells, f"the table of {' x '.join(names)}")
    sparse = _sparse(matrix)
    if sparse.shape[0] < 1 or sparse.shape[1] != cells:
        raise WorkloadError(
            f"the attributes {', '.join(attrs)} have {cells:,} cells, the matrix has shape "
            f"{sparse.shape}; give one row per query and one column per cell"
        )
    data, bits = integer_entries(sparse.data)
    entries = csr_matrix((data, sparse.indices, sparse.indptr), shape=sparse.shape)
    if names != attrs:
        columns = np.arange(cells).reshape([domain[a].size for a in attrs])
        entries = entries[:, columns.transpose([attrs.index(n) for n in names]).reshape(-1)]
    title = f"explicit {' x '.join(names)}".strip()
    term = Explicit(domain, title, 1.0, names, entries, bits, tuple(labels))
    return Workload(domain, (term,))


Model: TypeAlias = "str | Callable[[pd.DataFrame], Iterable[object]]"
"""A public model: the attribute that holds its predictions, or a function of a dataframe."""


def predictions(
    domain: Domain, target: str, models: Mapping[str, Model], by: Sequence[str] = ()
) -> Workload:
    """How many records each public model gets right: one query per model.

    A model is a column of predictions, by its name, or a function. That is called once with a
    dataframe of all combinations of cells of ``by``, by their labels, and returns one label of
    ``target`` for each: it sees no record. Models must be public; one that was trained on the table
    is not.

    Args:
        domain: What a record may look like.
        target: The attribute that is predicted.
        models: Names, and columns of predictions or functions of a dataframe.
        by: The attributes that functions look at.

    Returns:
        One query per model, in their order.

    Raises:
        WorkloadError: A model predicts what is no value of the target, or is none.
        TooLarge: The attributes of ``by`` have too many cells together.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 4, "ill": 2})
    >>> models = {"nobody": lambda people: [0] * len(people), "old": lambda p: (p["age"] > 2) * 1}
    >>> sf.predictions(domain, "ill", models, by=["age"]).evaluate([[5, 0], [4, 1], [3, 1], [0, 9]])
    array([12., 21.])
    """
    check_domain(domain, "predictions")
    names = _names(by, "predictions")
    if not isinstance(models, Mapping) or not models:
        raise WorkloadError(
            "models are a mapping from names to columns or functions, {'rule': function, ...}, got "
            + shown(models)
        )
    if target in names:
        raise WorkloadError(f"the target {target!r} is in by: a model may not see what it predicts")
    works = []
    for name, model in models.items():
        if isinstance(model, str):
            attrs: tuple[str, ...] = (model, target)
            right = _right(domain, target, domain[model].labels, "")
        elif callable(model):
            attrs = (*names, target)
            check_entries(domain.cells(attrs), f"the table of {' x '.join(attrs)}")
            right = _right(domain, target, list(model(_cells_frame(domain, names))), str(name))
        else:
            raise WorkloadError(
                f"model {name!r} is the name of an attribute or a function, got {shown(model)}"
            )
        if right.shape[0] * right.shape[1] != domain.cells(attrs):
            raise WorkloadError(
                f"model {name!r} gives {right.shape[0]:,} predictions for "
                f"{domain.cells(names):,} rows; give one for each"
            )
        work = explicit(domain, attrs, right.reshape(1, -1), [str(name)])
        works.append(replace(work, terms=(replace(work.terms[0], name=str(name)),)))
    return union(works)


def _right(domain: Domain, target: str, guesses: Sequence[object], name: str) -> Array:
    """Where a guess is the label of the target: one row per guess, one column per cell.

    A function, which has a name, may guess nothing but labels of the target; a column may hold
    other values, which are never right.
    """
    codes = {str(label): code for code, label in enumerate(domain[target].labels)}
    out = np.zeros((len(guesses), domain[target].size))
    for row, guess in enumerate(guesses):
        code = codes.get(str(guess))
        if code is not None:
            out[row, code] = 1.0
        elif name:
            raise WorkloadError(
                f"model {name!r} predicts {shown(guess)}, which is no value of {target!r}; these "
                f"are {listing(list(codes)[:10])}"
            )
    return out


def _cells_frame(domain: Domain, names: Sequence[str]) -> pd.DataFrame:
    """All combinations of cells of some attributes, by their labels, in row-major order."""
    import pandas as pd

    sizes = [domain[name].size for name in names]
    codes = np.indices(sizes).reshape(len(sizes), -1)
    labels = {n: [domain[n].labels[c] for c in row] for n, row in zip(names, codes, strict=True)}
    return pd.DataFrame(labels, index=range(codes.shape[1] if sizes else 1))


def _sparse(matrix: object) -> csr_matrix:
    from scipy.sparse import csr_matrix, issparse

    if not issparse(matrix):
        dense = np.atleast_2d(numeric_array(matrix))
        if dense.ndim != 2:
            raise WorkloadError(f"a matrix of queries has two axes, got shape {dense.shape}")
        return csr_matrix(dense)
    sparse = csr_matrix(matrix)
    numeric_array(sparse.data)
    sparse.sum_duplicates()
    return sparse


def workload_of(queries: object) -> Workload:
    """A workload as it is; of a matrix with a row per query, the one over a single attribute.

    >>> workload_of([[1, 0, 0], [1, 1, 0]]).queries
    2
    """
    if isinstance(queries, Workload):
        return queries
    matrix = np.asarray(queries)
    if matrix.ndim != 2 or not matrix.size or matrix.dtype.kind not in "biuf":
        raise WorkloadError(
            "queries are a workload such as sf.marginals(domain, 2), or a matrix of numbers with "
            f"a row per query, got {shown(queries)}"
        )
    return product(Domain({"cell": matrix.shape[1]}), {"cell": matrix}, "queries")


def cell_queries(domain: Domain, name: str) -> tuple[str, QuerySet]:
    """An attribute's name and its queries cell by cell; of ``attribute.level``, group by group."""
    if name not in domain and isinstance(name, str):
        attr, dot, level = name.rpartition(".")
        if dot and attr in domain:
            return attr, level_queries(domain[attr], domain[attr].level(level))
    return name, Identity(domain[name].size)


def level_queries(attribute: Attribute, level: Level) -> Groups:
    """The groups of a level; cells ``(other)`` and ``(missing)`` are in none."""
    extra = (-1,) * (attribute.size - attribute.value_count)
    return Groups(attribute.size, level.name, level.groups, level.group_of + extra)


def _along(
    domain: Domain, attr: str, by: Sequence[str], kind: str | Matrix, title: str = ""
) -> Workload:
    check_domain(domain, "a query along an attribute")
    by = _names(by, "by")
    if isinstance(kind, str) and not domain[attr].is_ordered:
        raise WorkloadError(
            f"attribute {attr!r} is a {domain[attr].kind} and has no order; {kind} queries need an "
            "integer, numeric or datetime attribute"
        )
    queries: dict[str, QuerySpec] = {attr: kind}
    for name in by:
        other, cells = cell_queries(domain, name)
        if other in queries:
            raise WorkloadError(f"{attr!r} by {', '.join(by)} names {other!r} twice")
        queries[other] = cells
    return product(domain, queries, title or f"{kind} {_by(attr, by)}")


def _by(attr: str, by: Sequence[str]) -> str:
    by = (by,) if isinstance(by, str) else by
    return f"{attr} by {', '.join(by)}" if by else attr


def _name(factors: Sequence[tuple[str, QuerySet]]) -> str:
    return " x ".join(q.titled(n) for n, q in factors) or "total"


def _query_set(attribute: Attribute, spec: QuerySpec) -> QuerySet:
    if isinstance(spec, QuerySet):
        return spec
    if not isinstance(spec, str):
        return Matrix.of(spec)
    simple: dict[str, type[Identity | Prefix | Ranges]] = {
        "identity": Identity,
        "prefix": Prefix,
        "ranges": Ranges,
    }
    if spec.strip() in simple:
        return simple[spec.strip()](attribute.size)
    if spec.strip() == "circular":
        return _circular(attribute)
    match = re.fullmatch(r"\s*(windows|groups)\s*\((.*)\)\s*", spec, re.DOTALL)
    if match and match[1] == "groups":
        return level_queries(attribute, attribute.level(match[2].strip()))
    if match and re.fullmatch(r"\s*[0-9]{1,18}\s*", match[2]):
        return Windows(attribute.size, int(match[2]))
    raise WorkloadError(
        f"attribute {attribute.name!r}: {shown(spec)} is not a query set; allowed are total, "
        "identity, prefix, ranges, windows(WIDTH), circular, groups(LEVEL) or a matrix"
    )
