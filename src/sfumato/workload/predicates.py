# SPDX-License-Identifier: Apache-2.0
"""Conditions: boolean expressions over the cells of a domain, and the cells they tell apart.

The leaves say "this attribute is in one of these cells"; everything else is and, or, not. This
is the only form in which a condition reaches the vault: nothing that a person typed is ever
passed through to an engine.

    age = sf.attribute(domain, "age")
    condition = (age >= 25) & (age < 45) & ~(sf.attribute(domain, "sex") == "Male")

`Classes` merges the cells of each attribute that no condition tells apart, which makes small tables
of large domains.

`canonical_bytes` has groups of queries in the order in which they were written. `Workload.digest`
is their hash: searches are taken up again under it. The key of a request is that of
`normal_form.py`, which makes one form of all writings of the same queries. Labels and names do not
enter, only what is asked, in which order, and how much it matters. A condition enters as the truth
table over the cells it tells apart, so that ``a AND b`` is ``NOT (NOT b OR NOT a)``; only those
that tell more than 2^16 cells apart enter as they are written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import islice
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from sfumato.domain.attributes import Attribute, Comparison, Value
from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge, WorkloadError
from sfumato.text import did_you_mean, listing, shown
from sfumato.types import Array, Integers, Mask, Numbers
from sfumato.workload.queries import Json, hashed, joint_classes, widened
from sfumato.workload.workload_limits import LIMITS

if TYPE_CHECKING:
    from sfumato.workload.terms import Term

__all__ = [
    "And",
    "Attr",
    "Classes",
    "Condition",
    "Everything",
    "In",
    "Json",
    "Not",
    "Or",
    "attribute",
    "canonical_bytes",
    "cell_truth",
    "check_conditions",
    "coarsest",
    "condition_form",
    "indicator",
    "leaves",
    "truth_table",
    "written_condition",
    "written_term",
]


class Condition:
    """A boolean expression over cells; combine with ``&``, ``|`` and ``~``."""

    __slots__ = ()

    def __and__(self, other: Condition) -> Condition:
        return And((*_parts(self, And), *_parts(_checked(other), And)))

    def __or__(self, other: Condition) -> Condition:
        return Or((*_parts(self, Or), *_parts(_checked(other), Or)))

    def __invert__(self) -> Condition:
        return self.part if isinstance(self, Not) else Not(self)

    def __bool__(self) -> bool:
        raise WorkloadError("a condition has no truth value; combine conditions with &, | and ~")

    @property
    def attributes(self) -> frozenset[str]:
        """The names of the attributes it looks at."""
        return frozenset()


@dataclass(frozen=True, slots=True)
class Everything(Condition):
    """True for every record."""

    def __str__(self) -> str:
        return "everything"


@dataclass(frozen=True, slots=True)
class In(Condition):
    """True when the attribute is in one of the listed cells."""

    attribute: str
    codes: tuple[int, ...]
    text: str = ""

    @property
    def attributes(self) -> frozenset[str]:
        """The one attribute."""
        return frozenset((self.attribute,))

    def __str__(self) -> str:
        return self.text or f"{self.attribute} in cells {list(self.codes)}"


@dataclass(frozen=True, slots=True)
class And(Condition):
    """True when all parts are."""

    parts: tuple[Condition, ...]

    @property
    def attributes(self) -> frozenset[str]:
        """Those of the parts."""
        return frozenset().union(*(p.attributes for p in self.parts))

    def __str__(self) -> str:
        return " and ".join(f"({p})" if isinstance(p, Or) else str(p) for p in self.parts)


@dataclass(frozen=True, slots=True)
class Or(Condition):
    """True when some part is."""

    parts: tuple[Condition, ...]

    @property
    def attributes(self) -> frozenset[str]:
        """Those of the parts."""
        return frozenset().union(*(p.attributes for p in self.parts))

    def __str__(self) -> str:
        return " or ".join(f"({p})" if isinstance(p, And) else str(p) for p in self.parts)


@dataclass(frozen=True, slots=True)
class Not(Condition):
    """True when the part is not: the complement in cells, so it holds for missing values too."""

    part: Condition

    @property
    def attributes(self) -> frozenset[str]:
        """Those of the part."""
        return self.part.attributes

    def __str__(self) -> str:
        return f"not ({self.part})"


class Attr:
    """An attribute to compare: ``attr >= 25``, ``attr == "Male"``, ``attr.isin([...])``."""

    __slots__ = ("_attribute",)

    __array_ufunc__ = None  # numpy's numbers leave the comparison to this class

    def __init__(self, attribute: Attribute) -> None:
        self._attribute = attribute

    def _where(self, cells: Mask, text: str) -> Condition:
        codes = tuple(np.flatnonzero(cells).tolist())
        return In(self._attribute.name, codes, f"{self._attribute.name} {text}")

    def _compared(self, comparison: Comparison, value: object) -> Condition:
        constant = _constant(value)
        cells = self._attribute.select(comparison, constant)
        return self._where(cells, f"{comparison} {_label(constant)}")

    def __eq__(self, value: object) -> Condition:  # type: ignore[override]
        return self._compared("=", value)

    def __ne__(self, value: object) -> Condition:  # type: ignore[override]
        return self._compared("!=", value)

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, value: Value) -> Condition:
        return self._compared("<", value)

    def __le__(self, value: Value) -> Condition:
        return self._compared("<=", value)

    def __gt__(self, value: Value) -> Condition:
        return self._compared(">", value)

    def __ge__(self, value: Value) -> Condition:
        return self._compared(">=", value)

    def isin(self, values: Iterable[Value]) -> Condition:
        """True for any of the values."""
        name = self._attribute.name
        some = [values] if isinstance(values, str) else islice(values, LIMITS.condition_values + 1)
        listed = [_constant(v) for v in some]
        if not listed:
            raise WorkloadError(f"attribute {name!r}: the list of values is empty")
        if len(listed) > LIMITS.condition_values:
            raise TooLarge(
                f"attribute {name!r}: more than {LIMITS.condition_values:,} values are listed in "
                "one condition; ask for ranges, or for a level with wider groups"
            )
        cells = self._attribute.select_any(listed)
        return self._where(cells, f"in ({', '.join(map(_label, listed))})")

    def between(self, low: Value, high: Value) -> Condition:
        """True from ``low`` to ``high``, both included."""
        first, last = _constant(low), _constant(high)
        cells = self._attribute.select(">=", first) & self._attribute.select("<=", last)
        return self._where(cells, f"between {_label(first)} and {_label(last)}")

    def in_group(self, level: str, group: str) -> Condition:
        """True for the values of one group of a level."""
        groups = self._attribute.level(level).groups
        if group not in groups:
            raise WorkloadError(
                f"level {level!r} of {self._attribute.name!r} has no group {shown(group)}; it has: "
                f"{listing(groups)}{did_you_mean(group, groups)}"
            )
        number = groups.index(group)
        group_of = self._attribute.level(level).group_of
        codes = tuple(c for c, g in enumerate(group_of) if g == number)
        return In(self._attribute.name, codes, f"{self._attribute.name}.{level} = {group}")

    @property
    def is_missing(self) -> Condition:
        """True for nulls (an empty set where the schema drops them)."""
        code = self._attribute.missing_code
        codes = () if code is None else (code,)
        return In(self._attribute.name, codes, f"{self._attribute.name} is missing")

    @property
    def is_unparsed(self) -> Condition:
        """True for texts that stand for no value (an empty set without the cell of that name)."""
        code = self._attribute.unparsed_code
        codes = () if code is None else (code,)
        return In(self._attribute.name, codes, f"{self._attribute.name} is unparsed")


def attribute(domain: Domain, name: str) -> Attr:
    """The attribute of this name, ready to be compared.

    Args:
        domain: What a record may look like.
        name: The name of an attribute.

    Returns:
        Something that compares with constants: ``age >= 25`` is a condition, and conditions join by
        ``&``, ``|`` and ``~``.

    Raises:
        WorkloadError: There is no such attribute.
    """
    return Attr(domain[name])


def indicator(condition: Condition, domain: Domain, names: Sequence[str]) -> Mask:
    """The condition as an array of truth values over the cells of the named attributes."""
    shape = [domain[n].size for n in names]
    return truth_table(condition, names, shape, lambda leaf: _cells_of(leaf, domain))


def truth_table(
    condition: Condition,
    names: Sequence[str],
    shape: Sequence[int],
    cells_of: Callable[[In], Mask],
) -> Mask:
    """The condition over a table whose axes are the named attributes.

    ``cells_of`` says in which positions along its own axis a leaf holds: cells, or classes of
    cells that are not told apart.
    """
    if isinstance(condition, Everything):
        return np.ones(shape, dtype=np.bool_)
    if isinstance(condition, In):
        axis = names.index(condition.attribute)
        along = [1] * len(shape)
        along[axis] = shape[axis]
        return np.broadcast_to(cells_of(condition).reshape(along), shape)
    if isinstance(condition, Not):
        return ~truth_table(condition.part, names, shape, cells_of)
    if isinstance(condition, And | Or):
        combine = np.logical_and if isinstance(condition, And) else np.logical_or
        out = np.full(shape, isinstance(condition, And), dtype=np.bool_)
        for part in condition.parts:
            combine(out, truth_table(part, names, shape, cells_of), out=out)
        return out
    raise _not_a_condition(condition)


def cell_truth(domain: Domain, condition: Condition, names: Sequence[str]) -> Mask:
    """Whether the condition holds, for every cell of the table of these attributes.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"a": 3, "b": 2})
    >>> cell_truth(domain, sf.attribute(domain, "a") > 0, ("a",)).tolist()
    [False, True, True]
    """

    def cells_of(leaf: In) -> Mask:
        return np.isin(np.arange(domain[leaf.attribute].size), leaf.codes)

    return truth_table(condition, names, [domain[n].size for n in names], cells_of)


def leaves(condition: Condition) -> Iterator[In]:
    """The parts that look at one attribute."""
    waiting = [condition]
    while waiting:
        part = waiting.pop()
        if isinstance(part, In):
            yield part
        elif isinstance(part, Not):
            waiting.append(part.part)
        elif isinstance(part, And | Or):
            waiting.extend(part.parts)


def check_conditions(conditions: Iterable[object], domain: Domain) -> None:
    """Refuse what is not a condition on this domain, or is nested too deeply to walk over."""
    waiting = [(condition, 1) for condition in conditions]
    while waiting:
        condition, depth = waiting.pop()
        if depth > LIMITS.condition_depth:
            raise WorkloadError(
                f"a condition is nested more than {LIMITS.condition_depth} levels deep; write it "
                "with fewer brackets"
            )
        if isinstance(condition, In):
            size = domain[condition.attribute].size
            if condition.codes and not 0 <= min(condition.codes) <= max(condition.codes) < size:
                raise WorkloadError(
                    f"attribute {condition.attribute!r} has cells 0 to {size - 1}; a condition "
                    "names others"
                )
        elif isinstance(condition, Not):
            waiting.append((condition.part, depth + 1))
        elif isinstance(condition, And | Or):
            waiting.extend((part, depth + 1) for part in condition.parts)
        elif not isinstance(condition, Everything):
            raise _not_a_condition(condition)


def _cells_of(leaf: In, domain: Domain) -> Mask:
    cells = np.zeros(domain[leaf.attribute].size, dtype=np.bool_)
    cells[list(leaf.codes)] = True
    return cells


def _parts(condition: Condition, kind: type[And | Or]) -> tuple[Condition, ...]:
    """The parts of a condition of this kind, so that chains of one operator stay flat."""
    return condition.parts if isinstance(condition, kind) else (condition,)


def _checked(condition: object) -> Condition:
    if not isinstance(condition, Condition):
        raise WorkloadError(
            f"{shown(condition)} is not a condition; put comparisons in brackets: "
            "(a >= 1) & (b == 2)"
        )
    return condition


def _not_a_condition(value: object) -> WorkloadError:
    return WorkloadError(
        f"{shown(value)} is not a condition; build one with sf.attribute(domain, name)"
    )


def _label(constant: Value) -> str:
    """The constant in a label; Python refuses to write out integers of 4,300 digits."""
    return shown(constant) if isinstance(constant, int) else str(constant)


def _constant(value: object) -> Value:
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, str | int | float | bool | date):
        raise WorkloadError(
            f"an attribute is compared with a number, text or date, not {shown(value)}"
        )
    return value


# Classes of cells

PACKED = 60  # truth values that fit in one 64-bit key


@dataclass(frozen=True, eq=False)
class Classes:
    """Cells that no condition tells apart, merged attribute by attribute.

    A few conditions split even an attribute of a million values into a few classes. Every query of
    theirs is constant on products of classes, so the small table of classes holds all there is to
    know about them: their answers, their column norms, their meaning. This is the workload-based
    partition of Zhang, McKenna, Kotsogiannis, Hay, Machanavajjhala, Miklau 2018, "EKTELO: a
    framework for defining differentially-private computations", taken per attribute; it loses
    nothing.

    ``class_of`` is the class of every cell of each attribute, numbered by their first cell;
    ``counts`` is the number of classes of each attribute, where some of them may have no cell.
    """

    names: tuple[str, ...]
    class_of: tuple[Integers, ...]
    counts: tuple[int, ...] | None = None

    @classmethod
    def of(cls, conditions: Iterable[Condition], domain: Domain, names: tuple[str, ...]) -> Classes:
        """The classes of some conditions over the attributes ``names``.

        Cells of an attribute are in one class when every leaf holds for both or neither.
        """
        sets: dict[str, set[tuple[int, ...]]] = {name: set() for name in names}
        for condition in conditions:
            for leaf in leaves(condition):
                sets[leaf.attribute].add(leaf.codes)
        maps = tuple(_split(domain[name].size, sorted(sets[name])) for name in names)
        return cls(names, maps)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The number of classes of each attribute."""
        return self.counts or tuple(int(c.max()) + 1 for c in self.class_of)

    def at(self, cells: Sequence[Integers]) -> Classes:
        """The same classes, of some cells of each attribute only; some may then have none."""
        pairs = zip(self.class_of, cells, strict=True)
        return Classes(self.names, tuple(of[own] for of, own in pairs), self.shape)

    @property
    def cells(self) -> int:
        """The number of cells of the table of classes."""
        return prod(self.shape)

    @cached_property
    def sizes(self) -> Array:
        """The number of domain cells behind each cell of the table of classes."""
        out = np.ones((1,) * len(self.shape))
        for axis, classes in enumerate(self.class_of):
            along = [-1 if i == axis else 1 for i in range(len(self.shape))]
            out = out * np.bincount(classes).astype(np.float64).reshape(along)
        return out

    @cached_property
    def _first_cells(self) -> dict[str, Integers]:
        pairs = zip(self.names, self.class_of, strict=True)
        return {name: np.unique(classes, return_index=True)[1] for name, classes in pairs}

    def truth(self, condition: Condition) -> Mask:
        """The condition over the table of classes."""

        def cells_of(leaf: In) -> Mask:
            cells = np.zeros(len(self.class_of[self.names.index(leaf.attribute)]), dtype=np.bool_)
            cells[list(leaf.codes)] = True
            return cells[self._first_cells[leaf.attribute]]

        return truth_table(condition, self.names, self.shape, cells_of)

    def merge(self, table: Numbers) -> Numbers:
        """A table over cells summed to a table over classes; exact for integers."""
        out = widened(table)
        for axis, (classes, count) in enumerate(zip(self.class_of, self.shape, strict=True)):
            if count == len(classes) and (classes == np.arange(count)).all():
                continue
            moved = np.moveaxis(out, axis, 0)
            sums = np.zeros((count, *moved.shape[1:]), dtype=out.dtype)
            np.add.at(sums, classes, moved)
            out = np.moveaxis(sums, 0, axis)
        return out

    def expand(self, table: Numbers) -> Numbers:
        """The adjoint of ``merge``: every cell gets the value of its class."""
        return table[np.ix_(*self.class_of)] if self.names else table


def coarsest(
    names: Sequence[str], class_of: Sequence[Integers], table: Integers | Mask
) -> tuple[list[str], list[Integers], Integers]:
    """Names, classes and table of a query over its coarsest classes of cells.

    Equal slices are one class, numbered by its first cell; an axis of one class is left out.
    """
    axis_names, axis_classes, axis = [], [], 0
    for name, classes in zip(names, class_of, strict=True):
        slices = np.moveaxis(table, axis, 0)
        _, first, merged = np.unique(
            slices.reshape(len(slices), -1), axis=0, return_index=True, return_inverse=True
        )
        fine = merged.reshape(-1).astype(np.int64)[classes]
        old, where = np.unique(fine, return_index=True)
        order = old[np.argsort(where)]
        rank = np.empty(int(old.max()) + 1, dtype=np.int64)
        rank[order] = np.arange(len(order))
        table = np.moveaxis(slices[first[order]], 0, axis)
        if len(order) > 1:
            axis_names.append(name)
            axis_classes.append(rank[fine])
            axis += 1
        else:
            table = np.take(table, 0, axis=axis)
    return axis_names, axis_classes, np.array(table, dtype=np.int64, order="C")


def _split(size: int, listed: Sequence[tuple[int, ...]]) -> Integers:
    """The classes of ``size`` cells that the listed sets of cells tell apart."""
    keys = [np.zeros(size, dtype=np.int64)]
    for start in range(0, len(listed), PACKED):
        packed = np.zeros(size, dtype=np.int64)
        for bit, codes in enumerate(listed[start : start + PACKED]):
            packed[list(set(codes))] += 1 << bit
        keys.append(np.unique(packed, return_inverse=True)[1].astype(np.int64).reshape(-1))
    return joint_classes(keys)


def canonical_bytes(terms: Iterable[Term]) -> bytes:
    """The terms in order, as canonical JSON."""
    forms: dict[int, list[Json]] = {}
    listed = list(terms)  # held, so that no number in ``forms`` is used twice
    return json.dumps([written_term(t, forms) for t in listed], separators=(",", ":")).encode()


def written_term(term: Term, forms: dict[int, list[Json]]) -> Json:
    """The form of a term; ``forms`` collects those of query sets, by the number of the object."""
    return [term.canonical(forms), float(term.weight)]


def condition_form(condition: Condition, domain: Domain) -> Json:
    """A condition as its truth table over the coarsest classes of cells that it tells apart."""
    classes = Classes.of([condition], domain, domain.in_order(condition.attributes))
    if classes.cells > LIMITS.truth_cells:
        return written_condition(condition)
    names, class_of, truth = coarsest(classes.names, classes.class_of, classes.truth(condition))
    axes: list[Json] = [[name, hashed(of)] for name, of in zip(names, class_of, strict=True)]
    return ["cells", axes, _bits(truth.astype(np.bool_))]


def _bits(truth: Mask) -> str:
    """The truth values in row-major order, and how many they are."""
    return np.packbits(truth.reshape(-1)).tobytes().hex() + f"/{truth.size}"


def written_condition(condition: Condition) -> Json:
    """A condition as it is written; parts of And and Or sorted, each once, nested ones opened."""
    if isinstance(condition, In):
        return ["in", condition.attribute, hashed(np.unique(condition.codes))]
    if isinstance(condition, Not):
        return ["not", written_condition(condition.part)]
    if isinstance(condition, And | Or):
        word = "and" if isinstance(condition, And) else "or"
        parts: dict[str, Json] = {}
        for part in condition.parts:
            form = written_condition(part)
            nested = isinstance(form, list) and form[0] == word
            for each in form[1] if nested else [form]:  # type: ignore[index,union-attr]
                parts[json.dumps(each)] = each
        return [word, [parts[key] for key in sorted(parts)]]
    if isinstance(condition, Everything):
        return ["everything"]
    raise TypeError(f"no canonical form for {type(condition).__name__}")
