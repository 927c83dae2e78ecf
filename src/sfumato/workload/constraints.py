# SPDX-License-Identifier: Apache-2.0
"""Constraints, public knowledge about the data: impossible combinations and published counts.

    impossible = ["age < 15 and married = 'yes'"]          no record is there (structural zeros)
    published  = [(["sex"], [5012, 4988])]                  these counts are public already

Both restrict the histograms that answers can come from, h >= 0, to

    P = {h : h_x = 0 where a condition holds, margin_S(h) = b for every published table (S, b)},

and every projection onto answers of such histograms keeps its guarantees, for the truth is among
them. A constraint is public knowledge (a law, a form, an earlier census); one that was read off
the data is a leak that no budget pays for.

Conditions that share attributes, directly or through others, are looked at together, on classes of
cells that none of them tells apart (`Classes`); those that share none are independent. So whether a
cell of some attributes is possible, that is has a possible completion, is decided exactly.

The projections of ``refine`` restrict their histograms by `Constraints`; `workload_file.py` reads
them from a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from math import prod

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge, WorkloadError
from sfumato.text import listing, shown
from sfumato.types import Array, Integers, Mask, Names
from sfumato.workload.build import as_condition
from sfumato.workload.predicates import Classes, Condition, check_conditions, truth_table
from sfumato.workload.queries import Identity
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload
from sfumato.workload.workload_limits import LIMITS

__all__ = [
    "Constraints",
    "Linked",
    "Published",
    "agreed_total",
]


PublishedCounts = tuple[Workload | str | Sequence[str], object]


@dataclass(frozen=True, eq=False)
class Published:
    """The public counts over some attributes, axes in the order of the domain."""

    names: Names
    values: Array

    @property
    def total(self) -> float:
        """The number of records."""
        return float(self.values.sum())

    def margin(self, names: Iterable[str]) -> Array:
        """The counts over some of its attributes, summed over the others."""
        rest = tuple(i for i, n in enumerate(self.names) if n not in frozenset(names))
        return np.asarray(self.values.sum(axis=rest), dtype=np.float64)

    def over(self, domain: Domain) -> Published:
        """Its margin over the attributes of a smaller domain."""
        names = tuple(n for n in self.names if n in domain.names)
        return Published(names, self.margin(names))

    def term(self, domain: Domain) -> Product:
        """The table as queries."""
        factors = tuple((n, Identity(domain[n].size)) for n in self.names)
        return Product(domain, f"published {' x '.join(self.names) or 'total'}", 1.0, factors)


@dataclass(frozen=True, eq=False)
class Linked:
    """Conditions that share attributes: ``possible`` says which classes of cells are left."""

    classes: Classes
    possible: Mask

    def possible_over(self, names: Iterable[str]) -> Mask:
        """Over the classes of some of the attributes: whether some completion is possible."""
        own = frozenset(names)
        rest = tuple(i for i, n in enumerate(self.classes.names) if n not in own)
        return np.asarray(self.possible.any(axis=rest))

    def over(self, domain: Domain) -> Linked:
        """What it says about the attributes of a smaller domain."""
        own = self.classes
        inside = [i for i, n in enumerate(own.names) if n in domain.names]
        names = tuple(own.names[i] for i in inside)
        classes = Classes(names, tuple(own.class_of[i] for i in inside))
        return Linked(classes, self.possible_over(names))


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Constraints:
    """Impossible combinations and published counts, checked against each other.

    Privacy: public knowledge; nothing is spent, and nothing of it may come from the data.

    Args:
        domain: What a record may look like.
        impossible: Conditions that no record meets, built with ``sf.attribute`` or written as in
            SQL's WHERE.
        published: Pairs of attributes (or a workload of tables; no attributes: the total) and
            counts, their axes in the order in which the attributes are named.

    Raises:
        WorkloadError: They contradict each other, or do not fit the domain.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 100, "married": 2, "sex": 2})
    >>> public = sf.Constraints(domain, ["age < 15 and married = 1"], [(["sex"], [51, 49])])
    >>> public.total, int(public.possible(("age", "married")).sum())
    (100.0, 185)
    """

    domain: Domain
    impossible: tuple[Condition, ...]
    published: tuple[Published, ...]
    linked: tuple[Linked, ...]

    def __init__(
        self,
        domain: Domain,
        impossible: Sequence[Condition | str] = (),
        published: Sequence[PublishedCounts] = (),
    ) -> None:
        if not isinstance(domain, Domain):
            raise WorkloadError(f"constraints are about an sf.Domain, got {shown(domain)}")
        if isinstance(impossible, Condition | str):
            impossible = [impossible]
        if not isinstance(impossible, Iterable) or not isinstance(published, Iterable):
            raise WorkloadError(
                "constraints take a list of conditions, ['age < 15 and married = 1'], and a list "
                "of tables, [(['sex'], [51, 49])], got "
                f"{shown(impossible if not isinstance(impossible, Iterable) else published)}"
            )
        conditions = tuple(as_condition(domain, c) for c in impossible)
        check_conditions(conditions, domain)
        tables = [t for pair in published for t in _read(domain, pair)]
        set_ = object.__setattr__
        set_(self, "domain", domain)
        set_(self, "impossible", conditions)
        set_(self, "published", tuple(tables))
        set_(self, "linked", _linked(domain, conditions))
        _check_totals(tables)
        _check_shared(tables)
        for table in tables:
            self._check_mass(table)

    def __repr__(self) -> str:
        parts = [f"{len(self.impossible)} impossible"] if self.impossible else []
        parts += [f"published {listing([' x '.join(p.names) or 'total' for p in self.published])}"]
        return f"Constraints({', '.join(parts if self.published else parts[:-1]) or 'none'})"

    @property
    def total(self) -> float | None:
        """The number of records, where something published says it."""
        return self.published[0].total if self.published else None

    def possible(self, names: Sequence[str], cells: Sequence[Integers] | None = None) -> Mask:
        """Whether a record can be there, for the cells of the table of some attributes.

        Args:
            names: Names of attributes.
            cells: The cells of each attribute that are looked at; None for all of them.

        Returns:
            One truth value per cell of their table.
        """
        if cells is None:
            cells = [np.arange(self.domain[n].size) for n in names]
        shape = tuple(len(c) for c in cells)
        if prod(shape) > LIMITS.array_entries:
            raise TooLarge(
                f"{' x '.join(names)} has {prod(shape):,} cells, the limit is "
                f"{LIMITS.array_entries:,}; ask about fewer attributes at once or use wider bins"
            )
        out = np.ones(shape, dtype=np.bool_)
        for part in self.linked:
            class_of = dict(zip(part.classes.names, part.classes.class_of, strict=True))
            shared = [n for n in part.classes.names if n in names]
            if not shared:
                continue
            looked = part.possible_over(shared)[
                np.ix_(*(class_of[n][cells[names.index(n)]] for n in shared))
            ]
            order = sorted(range(len(shared)), key=lambda i: names.index(shared[i]))
            along = [len(c) if n in shared else 1 for n, c in zip(names, cells, strict=True)]
            out &= looked.transpose(order).reshape(along)
        return out

    def labels(self) -> dict[str, Integers]:
        """The class of every cell of the attributes that conditions look at.

        Returns:
            By the name of an attribute, the number of the class of every cell: cells of one class
            are in the same conditions.
        """
        pairs = (zip(p.classes.names, p.classes.class_of, strict=True) for p in self.linked)
        return dict(pair for part in pairs for pair in part)

    def are_possible(self, codes: Integers) -> Mask:
        """Whether rows of codes (attribute x row) can be records.

        Args:
            codes: A column per row, with its cell of every attribute.

        Returns:
            One truth value per row.
        """
        out = np.ones(codes.shape[1], dtype=np.bool_)
        for part in self.linked:
            pairs = zip(part.classes.names, part.classes.class_of, strict=True)
            out &= part.possible[tuple(of[codes[self.domain.index(n)]] for n, of in pairs)]
        return out

    def beside(self, domain: Domain) -> Constraints:
        """These constraints in a domain that has the values of some attributes as well.

        Args:
            domain: A domain with all attributes of this one.

        Returns:
            The same constraints in that domain.
        """
        out = copy(self)
        object.__setattr__(out, "domain", domain)
        return out

    def within(self, domain: Domain) -> Constraints:
        """The constraints on some of the attributes, which form a domain of their own.

        Conditions by what can be completed, tables by their margins; what couples attributes only
        through others that are left out is lost.

        Args:
            domain: A domain of some of the attributes.

        Returns:
            The constraints that are about these alone.
        """
        out = object.__new__(Constraints)
        set_ = object.__setattr__
        set_(out, "domain", domain)
        set_(out, "impossible", self.impossible)
        set_(out, "published", tuple(t.over(domain) for t in self.published))
        shared = [p for p in self.linked if set(p.classes.names) & set(domain.names)]
        set_(out, "linked", tuple(p.over(domain) for p in shared))
        return out

    def completed(self, names: Sequence[str], cells: Integers) -> Integers:
        """A possible row of codes (attribute x row) for every cell, which must be possible.

        Args:
            names: Names of attributes.
            cells: Possible cells of these attributes, a column for each.

        Returns:
            A possible record in each of the cells, as a column of codes of all attributes.
        """
        out = np.zeros((len(self.domain), len(cells)), dtype=np.int64)
        for n, column in zip(names, cells.T, strict=True):
            out[self.domain.index(n)] = column
        for part in self.linked:
            own, class_of = part.classes.names, part.classes.class_of
            first = [np.unique(of, return_index=True)[1] for of in class_of]
            held = [i for i, n in enumerate(own) if n in names]
            free = [i for i, n in enumerate(own) if n not in names]
            if not free:
                continue
            turned = part.possible.transpose([*held, *free])
            flat = turned.reshape(*turned.shape[: len(held)], -1)
            at = tuple(class_of[i][out[self.domain.index(own[i])]] for i in held)
            chosen = np.broadcast_to(flat.argmax(axis=-1)[at], len(cells))
            by_axis = np.unravel_index(chosen, turned.shape[len(held) :])
            for i, classes in zip(free, by_axis, strict=True):
                out[self.domain.index(own[i])] = first[i][classes]
        return out

    def published_for(self, names: Iterable[str]) -> tuple[Published, ...]:
        """What is published, without what cannot matter to answers about some attributes.

        An attribute of one table only, that is neither asked about nor in a condition, is summed
        out: for any values of the others, it can be distributed as the table says. A table within
        another says nothing new.

        Args:
            names: Names of attributes.

        Returns:
            The published tables that matter to answers about them.
        """
        needed = set(names).union(*(p.classes.names for p in self.linked))
        tables = list(self.published)
        while True:
            seen = [n for t in tables for n in t.names]
            names_left = [
                self.domain.in_order(n for n in t.names if n in needed or seen.count(n) > 1)
                for t in tables
            ]
            margins = [Published(n, t.margin(n)) for n, t in zip(names_left, tables, strict=True)]
            maximal: list[Published] = []
            for table in sorted(margins, key=lambda t: -len(t.names)):
                if not any(set(table.names) <= set(other.names) for other in maximal):
                    maximal.append(table)
            if [t.names for t in maximal] == [t.names for t in tables]:
                return tuple(maximal)
            tables = maximal

    def _check_mass(self, table: Published) -> None:
        is_off = ~self.possible(table.names) & (table.values > LIMITS.published_gap * table.total)
        if is_off.any():
            at = np.argwhere(is_off)[0]
            cell = ", ".join(
                f"{n} = {self.domain[n].label(int(c))}"
                for n, c in zip(table.names, at, strict=True)
            )
            raise WorkloadError(
                f"{table.values[tuple(at)]:,.6g} records are published where none is possible: "
                f"{cell or 'at all'}; correct the table or the impossible conditions"
            )


def agreed_total(total: float | None, constraints: Constraints | None) -> float | None:
    """The number of records, as passed or as published; refused where the two differ."""
    published = None if constraints is None else constraints.total
    if published is None or total is None:
        return total if published is None else published
    if abs(total - published) > LIMITS.published_gap * max(total, published):
        raise WorkloadError(
            f"the number of records is given as {total:,.10g}, but the published tables add up to "
            f"{published:,.10g}; leave n out, or correct one of them"
        )
    return published


def _read(domain: Domain, pair: PublishedCounts) -> list[Published]:
    """The tables of one entry of ``published``: one, or those of a workload."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise WorkloadError(
            "published counts are pairs (attributes, counts) or (workload, counts), got "
            f"{shown(pair)}"
        )
    what, values = pair
    if isinstance(what, Workload):
        return _of_workload(domain, what, values)
    names = (what,) if isinstance(what, str) else tuple(what)
    ordered = domain.in_order(names)
    if len(ordered) != len(names):
        raise WorkloadError(f"an attribute is named twice in the published {listing(names)}")
    table = _counts(values, names, tuple(domain[n].size for n in names))
    turned = table.transpose([names.index(n) for n in ordered])
    return [Published(ordered, np.ascontiguousarray(turned))]


def _of_workload(domain: Domain, work: Workload, values: object) -> list[Published]:
    if work.domain != domain:
        raise WorkloadError("a published workload is about another domain than the constraints")
    for term in work.terms:
        if not (term.is_table and term.weight == 1):
            raise WorkloadError(
                f"group {term.name!r} of a published workload is not a table of counts; publish "
                "marginals, such as sf.marginals(domain, [['sex']])"
            )
    parts = _split(values, [t.rows for t in work.terms])
    return [
        Published(t.attributes, _counts(v, t.attributes, t.shape))
        for t, v in zip(work.terms, parts, strict=True)
    ]


def _split(values: object, sizes: Sequence[int]) -> Sequence[object]:
    """Counts per table, from one vector or a vector per table."""
    if len(sizes) == 1:
        return [values]
    if isinstance(values, Sequence) and len(values) == len(sizes) and all(map(np.ndim, values)):
        return values
    flat = np.asarray(values)
    if flat.shape != (sum(sizes),):
        raise WorkloadError(
            f"a published workload of {len(sizes)} tables takes a list of {len(sizes)} tables, or "
            f"one vector of {sum(sizes):,} counts; got shape {flat.shape}"
        )
    return np.split(flat, np.cumsum(sizes)[:-1])


def _counts(values: object, names: Names, shape: tuple[int, ...]) -> Array:
    """Counts as a table: numbers of 0 or more, as many as there are cells."""
    called = " x ".join(names) or "total"
    try:
        counts = np.asarray(values)
    except ValueError as error:
        raise WorkloadError(f"published {called}: counts must be a table of numbers") from error
    if counts.dtype.kind not in "iuf":
        raise WorkloadError(f"published {called}: counts must be numbers, got {counts.dtype}")
    if counts.shape not in (shape, (prod(shape),)):
        raise WorkloadError(
            f"published {called} has {' x '.join(map(str, shape)) or 'one'} cells, got counts of "
            f"shape {counts.shape}"
        )
    table = counts.astype(np.float64).reshape(shape)
    if not (np.isfinite(table) & (table >= 0)).all():
        raise WorkloadError(f"published {called}: counts are finite numbers of 0 or more")
    return table


def _check_totals(tables: Sequence[Published]) -> None:
    for table in tables[1:]:
        if abs(table.total - tables[0].total) > LIMITS.published_gap * max(
            table.total, tables[0].total
        ):
            raise WorkloadError(
                f"published {_title(tables[0])} adds up to {tables[0].total:,.10g} records, "
                f"{_title(table)} to {table.total:,.10g}; tables of the same data have one total: "
                "publish one of them, or scale them to the right one"
            )


def _check_shared(tables: Sequence[Published]) -> None:
    for i, one in enumerate(tables):
        for other in tables[:i]:
            shared = [n for n in one.names if n in other.names]
            off = float(np.abs(one.margin(shared) - other.margin(shared)).max(initial=0.0))
            if off > LIMITS.published_gap * one.total:
                raise WorkloadError(
                    f"published {_title(other)} and {_title(one)} disagree on "
                    f"{' x '.join(shared)}, by up to {off:,.6g} records; correct one of them "
                    "or leave it out"
                )


def _title(table: Published) -> str:
    return " x ".join(table.names) or "total"


def _linked(domain: Domain, conditions: Sequence[Condition]) -> tuple[Linked, ...]:
    """The conditions in groups that share no attribute, each with the combinations left."""
    groups: list[tuple[set[str], list[Condition]]] = []
    for condition in conditions:
        if not condition.attributes:
            if bool(truth_table(condition, (), (), lambda _: np.zeros(0, dtype=np.bool_))):
                raise WorkloadError("everything is impossible: a condition holds for all records")
            continue
        names, members = set(condition.attributes), [condition]
        for group in [g for g in groups if g[0] & names]:
            names |= group[0]
            members = [*group[1], *members]
            groups.remove(group)
        groups.append((names, members))
    return tuple(_link(domain, names, members) for names, members in groups)


def _link(domain: Domain, names: set[str], conditions: Sequence[Condition]) -> Linked:
    classes = Classes.of(conditions, domain, domain.in_order(names))
    if classes.cells > LIMITS.linked_classes:
        raise TooLarge(
            f"impossible conditions that share attributes tell {classes.cells:,} combinations of "
            f"{len(names)} attributes apart, the limit is {LIMITS.linked_classes:,}; leave some "
            "out, or use fewer different bounds"
        )
    possible = np.ones(classes.shape, dtype=np.bool_)
    for condition in conditions:
        possible &= ~classes.truth(condition)
    if not possible.any():
        raise WorkloadError(
            f"everything is impossible: the conditions on {listing(sorted(names))} leave no record"
        )
    return Linked(classes, possible)
