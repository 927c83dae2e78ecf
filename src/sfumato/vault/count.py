# SPDX-License-Identifier: Apache-2.0
"""Exact numbers of records: per cell of a marginal, per condition, or of the cells that there are.

`count_marginals` and `count_conditions` return what a release measures, `list_cells` the cells of
a table with too many of them to be held, `public_cells` those of records that are public.

Only what is asked is counted, from one encoded copy of the table (`encode`), as plain SQL over
columns of small integers: a GROUP BY per table, several of them in one query. A marginal that is
part of another asked one is summed from it, and small ones are counted together, as one table over
all their attributes (`scanned_tables`). Cells that no record falls in are zero, and nothing about
the result but its numbers depends on the data.

Exact counts must appear in no log, traceback, repr, pickle or cache: they travel through the vault
inside a `Sensitive`, which shows nothing about itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from math import prod
from typing import Any, Final, Generic, NamedTuple, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from sfumato.domain.domain import Domain, unit_bits, valued
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.domain.values import UNIT_BITS, Fractional, Moments
from sfumato.errors import SfumatoError, TooLarge, WorkloadError
from sfumato.text import shown
from sfumato.types import Integers, Progress
from sfumato.vault.encode import (
    MISSING_VALUE,
    OTHER_VALUE,
    UNPARSED_VALUE,
    check_columns,
    engine_failed,
    read_records,
)
from sfumato.vault.engine import sealed
from sfumato.vault.tables import Records, Table
from sfumato.vault.vault_limits import LIMITS
from sfumato.workload.predicates import And, Condition, In, Not, Or, check_conditions
from sfumato.workload.workload import RECORD_BITS, scanned_tables, summed_from, tables_by_query

__all__ = [
    "MAXIMUM_COUNT",
    "Compiled",
    "Counts",
    "ListedCells",
    "Redacted",
    "Sensitive",
    "compile_condition",
    "count_conditions",
    "count_marginals",
    "list_cells",
    "public_cells",
]


# Exact data that only the vault opens


T = TypeVar("T")

SHOWN = "<exact counts: not shown>"


class Redacted:
    """Something that shows the same few words whatever it holds, and that cannot be copied out.

    >>> f"{Redacted():,d}"
    '<exact counts: not shown>'
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return SHOWN

    def __format__(self, spec: str) -> str:
        return SHOWN

    def __iter__(self) -> Iterator[NoReturn]:
        raise _refusal("iterated over")

    def __bool__(self) -> NoReturn:
        raise _refusal("tested for truth")

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        raise _refusal("turned into an array")

    def __getstate__(self) -> NoReturn:
        raise _refusal("copied or pickled")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise _refusal("copied or pickled")


class Sensitive(Redacted, Generic[T]):
    """Exact data that only the vault opens.

    Args:
        exact: The exact data.

    >>> import sfumato as sf
    >>> box = sf.study.Sensitive((17, 4))
    >>> box
    <exact counts: not shown>
    """

    __slots__ = ("_exact",)

    def __init__(self, exact: T) -> None:
        self._exact = exact

    def reveal(self) -> T:
        """The exact data; called inside the vault only.

        Returns:
            The exact data.
        """
        return self._exact


def _refusal(verb: str) -> SfumatoError:
    return SfumatoError(f"exact counts stay in the vault: they cannot be {verb}")


# Conditions as SQL over columns of codes


@dataclass(frozen=True, slots=True)
class Compiled:
    """A boolean SQL expression, the attributes it looks at, and its number of comparisons.

    It holds integers and the names of code columns, and nothing that a person typed. Codes are
    never null, so that AND, OR and NOT have two truth values, as in the domain.
    """

    sql: str
    attributes: frozenset[str]
    size: int


def compile_condition(condition: Condition, column: Callable[[str], str]) -> Compiled:
    """A checked condition as SQL, with ``column(name)`` the column of codes of an attribute.

    >>> wanted = And((In("age", (25, 26, 27)), Not(In("sex", (0,)))))
    >>> compile_condition(wanted, lambda name: name).sql
    '((age BETWEEN 25 AND 27) AND (NOT (sex = 0)))'
    """
    if isinstance(condition, In):
        return _membership(condition, column)
    if isinstance(condition, Not):
        part = compile_condition(condition.part, column)
        return Compiled(f"(NOT {part.sql})", part.attributes, part.size)
    if isinstance(condition, And | Or):
        parts = [compile_condition(part, column) for part in condition.parts]
        word, empty = ("AND", "TRUE") if isinstance(condition, And) else ("OR", "FALSE")
        joined = f" {word} ".join(part.sql for part in parts)
        return Compiled(
            f"({joined})" if parts else empty,
            frozenset().union(*(part.attributes for part in parts)),
            1 + sum(part.size for part in parts),
        )
    return Compiled("TRUE", frozenset(), 1)  # Everything


def _membership(condition: In, column: Callable[[str], str]) -> Compiled:
    """Membership in a set of cells, as one comparison per run of neighbouring cells."""
    codes = sorted({int(code) for code in condition.codes})
    if not codes:
        return Compiled("FALSE", frozenset(), 1)
    name = column(condition.attribute)
    runs = [_comparison(name, first, last) for first, last in _runs(codes)]
    return Compiled(f"({' OR '.join(runs)})", frozenset((condition.attribute,)), len(runs))


def _runs(codes: Sequence[int]) -> list[tuple[int, int]]:
    """The first and the last of each run of consecutive numbers.

    >>> _runs([1, 2, 3, 7, 9])
    [(1, 3), (7, 7), (9, 9)]
    """
    breaks = [i for i, (a, b) in enumerate(pairwise(codes), 1) if b != a + 1]
    starts, ends = [0, *breaks], [*breaks, len(codes)]
    return [(codes[s], codes[e - 1]) for s, e in zip(starts, ends, strict=True)]


def _comparison(name: str, first: int, last: int) -> str:
    return f"{name} = {first}" if first == last else f"{name} BETWEEN {first} AND {last}"


# Marginals

MAXIMUM_COUNT: Final = 2**RECORD_BITS
"""Counts are clamped at the most records that a table can have: no count reaches it.

A smaller bound would be reached by some counts before others. Then a record that is replaced would
leave one of them as it is, and move ``h`` by one cell in place of two: farther in ``M h`` than two
cells that M hardly tells apart (docs/proofs/measuring.md).
"""

_PART_BITS: Final = 17  # weights are added up in three parts: 2^44 records fit in 64 bits

AttributeSet = tuple[str, ...]


class Counts(Redacted):
    """The exact table of every asked attribute set; which sets there are is public.

    >>> Counts({(): np.array(104729)})
    <exact counts: not shown>
    """

    __slots__ = ("_tables",)

    def __init__(self, tables: Mapping[AttributeSet, Integers]) -> None:
        self._tables = dict(tables)

    @property
    def attribute_sets(self) -> tuple[AttributeSet, ...]:
        """What was counted."""
        return tuple(self._tables)

    def reveal(self, attributes: AttributeSet) -> Integers:
        """The exact table over these attributes, an axis each; called inside the vault only."""
        try:
            return self._tables[attributes]
        except (KeyError, TypeError):
            pass
        raise WorkloadError(f"the marginal over {shown(attributes)} was not counted")


def count_marginals(
    table: Table,
    domain: Domain,
    attribute_sets: Iterable[AttributeSet],
    unit: PrivacyUnit | None = None,
    progress: Progress | None = None,
    *,
    most_cells: int = LIMITS.cells_held,
    with_values: bool = False,
) -> Counts:
    """The tables ``h_A[c]`` = number of kept records in cell ``c``, for each attribute set ``A``.

    The empty set is the number of kept records. Names stand in the order of the domain. Counts are
    clamped at `MAXIMUM_COUNT`. Tables with `Values` among their attributes hold Python integers,
    in steps of 2^-UNIT_BITS records.

    Privacy: none; the result is exact and stays in the vault. Sizes, errors and the queries that
    run depend on public inputs only.
    Neighbours: one row (or one unit) more or less changes each table by at most 1 (or
    ``unit.rows``) in L1, since a record falls in exactly one cell of each, or is spread over the
    cells of its values with weights that add up to 1; the same weights in every table
    (docs/proofs/values.md, Theorem 1).
    """
    every = list(dict.fromkeys(tuple(names) for names in attribute_sets))
    _check_sets(every, domain, most_cells)
    check_columns(table, domain, unit)
    plain = [names for names in every if not valued(domain, names)]
    weighed = [names for names in every if valued(domain, names)]
    if weighed and not with_values:  # whoever does not know their steps would misread them
        raise WorkloadError(
            f"the table over {shown(weighed[0])} holds sums of values, which are released with "
            "sf.plan only; ask about the attributes of the schema"
        )
    sources = summed_from(plain, domain)
    covers = scanned_tables(plain, domain, table.engine.cells_together)
    show = progress or _silent
    steps = len(covers) + len(weighed) + 1
    show(0, steps, "reading")
    read = {name for names in (*covers, *weighed) for name in names}
    records = read_records(table, domain, read, unit)
    tables: dict[AttributeSet, Integers] = {}
    done = 1
    for group in tables_by_query(list(covers), domain, table.engine.marginals_per_query):
        show(done, steps, "counting")
        wide = sealed(partial(_scan, records, group), engine_failed(table, domain))
        tables |= {names: _summed(wide[c], c, names) for c in group for names in covers[c]}
        done += len(group)
    # Larger sets first: what a table is summed from is there already.
    for names in sorted(plain, key=len, reverse=True):
        if names not in tables:
            tables[names] = _summed(tables[sources[names]], sources[names], names)
    counts = {names: _clamped(tables[names], MAXIMUM_COUNT) for names in plain}
    for names in weighed:
        show(done, steps, "counting")
        exact = sealed(partial(_scan_values, records, names), engine_failed(table, domain))
        counts[names] = _clamped(exact, MAXIMUM_COUNT << UNIT_BITS)
        done += 1
    show(steps, steps, "counting")
    return Counts(counts)


def count_conditions(
    table: Table, domain: Domain, conditions: Sequence[Condition], unit: PrivacyUnit | None = None
) -> Sensitive[Integers]:
    """The numbers ``q_i(h)`` of kept records for which condition ``i`` holds.

    Privacy: none; the result is exact and stays in the vault.
    Neighbours: one row (or one unit) more or less changes each number by at most 1 (or
    ``unit.rows``).
    """
    check_conditions(conditions, domain)
    if valued(domain, {name for c in conditions for name in c.attributes}):
        raise WorkloadError("conditions on the cells of values are answered from their table")
    compiled = [compile_condition(c, lambda name: f"c{domain.index(name)}") for c in conditions]
    check_columns(table, domain, unit)
    records = read_records(
        table, domain, frozenset().union(*(c.attributes for c in compiled)), unit
    )
    scan = partial(_scan_conditions, records)
    failed = engine_failed(table, domain)
    counts = [sealed(partial(scan, group), failed) for group in _chunks(compiled)]
    counted = np.concatenate([np.zeros(0, np.int64), *counts])
    return Sensitive(_clamped(counted, MAXIMUM_COUNT))


# The cells of records


class ListedCells(NamedTuple):
    """The distinct cells of the records: codes by attribute, and how many records each has."""

    codes: tuple[Integers, ...]
    counts: Integers


def list_cells(
    table: Table, domain: Domain, names: AttributeSet, unit: PrivacyUnit | None
) -> ListedCells:
    """The cells over some attributes that hold a record, in row-major order, with their counts.

    As exact as a table of all cells, and never longer than the records: it stays in the vault.
    """
    _refuse_values(domain, names)
    records = read_records(table, domain, names, unit)
    codes = [records.column(name) for name in names]
    columns = ", ".join(codes)
    query = f"SELECT {columns}, COUNT(*) AS records FROM {records.name} GROUP BY {columns}"  # noqa: S608
    fetch = partial(records.engine.fetch, query, [*codes, "records"])
    rows = sealed(fetch, engine_failed(table, domain))
    # In one order whatever the engine's: sums do not depend on it, a public start does.
    order = np.lexsort([rows[code] for code in reversed(codes)])
    return ListedCells(tuple(rows[code][order] for code in codes), rows["records"][order])


def public_cells(
    table: Table, domain: Domain, names: AttributeSet, *, with_values: bool = False
) -> tuple[Integers, npt.NDArray[np.float64]]:
    """The cells of records that are public by declaration: codes in row-major order, and counts.

    Counts are fractions of records where ``names`` hold `Values`, which need ``with_values``.

    Privacy: none; whoever calls it declares that anybody may see these records.
    """
    if not with_values:
        _refuse_values(domain, names)
    if domain.cells(names) > LIMITS.cells_dense:
        cells = list_cells(table, domain, names, None)
        return np.stack(cells.codes, axis=1), cells.counts.astype(np.float64)
    exact = count_marginals(table, domain, [names], with_values=True).reveal(names)
    counts = np.ldexp(exact.astype(np.float64), -unit_bits(domain, names))
    return np.argwhere(counts > 0), counts[counts > 0]


def _refuse_values(domain: Domain, names: AttributeSet) -> None:
    if valued(domain, names):
        raise WorkloadError("sums of values cannot be asked one by one; ask in bins")


# Checks and queries


def _check_sets(sets: Sequence[AttributeSet], domain: Domain, most_cells: int) -> None:
    for names in sets:
        if prod(a.size for a in valued(domain, names)) > LIMITS.value_cells:
            raise TooLarge(
                f"the values of {len(valued(domain, names))} columns cannot be added up in one "
                "table; ask for their means in separate releases"
            )
        if names != domain.in_order(names):
            raise WorkloadError(
                f"the attributes {shown(names)} must be named once, in the order of the domain: "
                f"{shown(domain.in_order(names))}"
            )
    cells = sum(domain.cells(names) for names in sets)
    if cells > most_cells:
        largest = max(sets, key=domain.cells)
        raise TooLarge(
            f"counting needs {cells:,} cells ({8 * cells:,} bytes), {domain.cells(largest):,} of "
            f"them over {', '.join(largest)}; at most {most_cells:,} ({8 * most_cells:,} bytes) "
            "are held: ask for fewer attributes at a time, or declare wider bins"
        )


def _scan(records: Records, group: Sequence[AttributeSet]) -> dict[AttributeSet, Integers]:
    """The counts of every set of the group, by one query or from codes that Arrow has made."""
    shapes = [tuple(records.domain[name].size for name in names) for names in group]
    if (codes := records.codes) is not None:
        pairs = zip(group, shapes, strict=True)
        return {names: codes.counts(names, shape).reshape(shape) for names, shape in pairs}
    flat = [np.zeros(prod(shape), dtype=np.int64) for shape in shapes]
    query = records.engine.counting(records.name, [_cell(records, names) for names in group])
    names, most = ["marginal", "cell", "records"], sum(counts.size for counts in flat)
    for rows in records.engine.batches(query, names, most):
        for i, counts in enumerate(flat):
            mine = slice(None) if len(flat) == 1 else rows["marginal"] == i
            counts[rows["cell"][mine]] = rows["records"][mine]
    return {n: c.reshape(s) for n, c, s in zip(group, flat, shapes, strict=True)}


def _scan_values(records: Records, names: AttributeSet) -> Integers:
    """The weights of all records, added up by cell, in Python integers; by one query.

    A record is spread over the units 0 to 2^UNIT_BITS - 1, and every attribute of values or moments
    says of each unit in which of its cells it lies: so all tables describe one fractional record,
    and the weights of a table over several of them add up to those of each.
    """
    values = valued(records.domain, names)
    plain = tuple(n for n in names if not isinstance(records.domain[n], Fractional))
    spread = list(product(*(range(a.size) for a in values)))
    engine = records.engine
    made = [f"CAST({_cell(records, plain)} AS BIGINT) AS cell"]
    sums, columns = ["cell"], ["cell"]
    step = 2**_PART_BITS
    source, edges = _cut(records, values)
    for i, chosen in enumerate(spread):
        pairs = [edges[a.name](c) for a, c in zip(values, chosen, strict=True)]
        made.append(f"{_weight(pairs)} AS w{i}")
        high, middle = (engine.quotient(f"w{i}", step**k) for k in (2, 1))
        parts = (f"(w{i} - {step} * {middle})", f"({middle} - {step} * {high})", high)
        for k, part in enumerate(parts):
            sums.append(f"CAST(SUM({part}) AS BIGINT) AS p{k}_{i}")
            columns.append(f"p{k}_{i}")
    query = (
        f"SELECT {', '.join(sums)} FROM (SELECT {', '.join(made)} FROM {source}) AS weighed "  # noqa: S608
        "GROUP BY cell"
    )
    cells = records.domain.cells(plain)
    out: npt.NDArray[Any] = np.zeros((cells, len(spread)), dtype=object)
    for rows in engine.batches(query, columns, cells):
        for i in range(len(spread)):
            low, middle, high = (rows[f"p{k}_{i}"].astype(object) * step**k for k in range(3))
            out[rows["cell"], i] = low + middle + high
    return out.reshape([records.domain[name].size for name in names])


_Ends = tuple[str, str]


def _weight(pairs: Sequence[_Ends]) -> str:
    """How many units of a record lie in one cell of each of its values."""
    starts = ", ".join(["CAST(0 AS BIGINT)", *(start for start, _ in pairs)])
    ends = ", ".join([str(2**UNIT_BITS), *(end for _, end in pairs)])
    return f"GREATEST(CAST(0 AS BIGINT), LEAST({ends}) - GREATEST({starts}))"


def _cut(
    records: Records, values: Sequence[Fractional]
) -> tuple[str, dict[str, Callable[[int], _Ends]]]:
    """The rows to weigh, and for each attribute the first and the last unit of a record in a cell.

    The cell of the upper end comes first; the last unit is excluded. Moments of several columns
    cut the units column by column, each in a query around the one before.
    """
    source = records.name
    ends: dict[str, Callable[[int], _Ends]] = {}
    for number, attribute in enumerate(values):
        columns = [records.column(each.name) for each in attribute.sources]
        if len(columns) > 1:
            assert isinstance(attribute, Moments)  # noqa: S101  values have one column
            source, edges = _cut_in_turn(records, attribute, columns, source, f"e{number}")
        else:
            edges = ["0", *_cuts(columns[0], attribute, records.engine.double), str(2**UNIT_BITS)]
        ends[attribute.name] = partial(_units, columns, attribute, edges)
    return source, ends


def _units(columns: Sequence[str], attribute: Fractional, edges: Sequence[str], cell: int) -> _Ends:
    """The first and the last unit (excluded) of a record in one cell of its values."""
    whole = 2**UNIT_BITS
    if len(columns) == 1 and not isinstance(attribute, Moments):
        (value,) = columns
        lacks = f"{value} < 0"
        if cell >= attribute.value_count:
            marks = {attribute.other_code: OTHER_VALUE, attribute.missing_code: MISSING_VALUE}
            mark = marks.get(cell, UNPARSED_VALUE)
            return "0", f"(CASE WHEN {value} = {mark} THEN {whole} ELSE 0 END)"
    else:
        lacks = " OR ".join(f"{value} < 0" for value in columns)
        if cell >= attribute.value_count:
            return "0", f"(CASE WHEN {lacks} THEN {whole} ELSE 0 END)"
    place = attribute.value_count - 1 - cell
    return edges[place], f"(CASE WHEN {lacks} THEN 0 ELSE {edges[place + 1]} END)"


def _cuts(value: str, attribute: Fractional, double: str) -> list[str]:
    """Where the units of a record go over from one cell of a column to the one below.

    Squares are rounded down in floats and kept within what leaves no weight negative; the mean of
    the weights stays that of the value.
    """
    whole, half = 2**UNIT_BITS, 2 ** (UNIT_BITS - 1)
    degree, pieces = getattr(attribute, "degree", 1), getattr(attribute, "pieces", 1)
    if degree == 1:
        return [value]
    if pieces == 1:
        top = f"LEAST({value}, GREATEST(2 * {value} - {whole}, {_square(value, whole, double)}))"
        return [top, f"(2 * {value} - {top})"]
    # Twice the distance to the nearer end is the place in its piece; its square, halved:
    near = f"LEAST({value}, {whole} - {value})"
    square = f"LEAST({near}, GREATEST(2 * {near} - {half}, {_square(near, half, double)}))"
    is_low = f"CASE WHEN {value} <= {half} THEN"
    return [
        f"({is_low} 0 ELSE {whole} - 4 * {near} + 2 * {square} END)",
        f"({is_low} {square} ELSE {whole} - {square} END)",
        f"({is_low} 4 * {near} - 2 * {square} ELSE {whole} END)",
    ]


def _square(number: str, unit: int, double: str) -> str:
    """``number^2 / unit``, rounded down."""
    value = f"CAST({number} AS {double})"
    return f"CAST(FLOOR({value} * {value} / CAST({unit} AS {double})) AS BIGINT)"


def _cut_in_turn(
    records: Records, attribute: Moments, columns: Sequence[str], source: str, name: str
) -> tuple[str, list[str]]:
    """Rows with the edges of all cells of several columns, and the names of these edges.

    The units of a cell are cut for the next column where its own cuts lie among all units, rounded
    down: rising with the cut, from none to all, so that every part is whole and at least 0.
    """
    double, whole = records.engine.double, 2**UNIT_BITS
    cuts = [_cuts(column, attribute, double) for column in columns]
    edges = ["CAST(0 AS BIGINT)", *cuts[0], f"CAST({whole} AS BIGINT)"]
    edges, source = _named_columns(edges, f"{name}_0", source)
    for turn, own in enumerate(cuts[1:], 1):
        places, source = _named_columns(own, f"{name}_{turn}_at", source)
        finer = [edges[0]]
        for start, end in pairwise(edges):
            units = f"CAST({end} - {start} AS {double})"
            part = f"{units} * CAST({{}} AS {double}) / CAST({whole} AS {double})"
            finer += [f"({start} + CAST(FLOOR({part.format(at)}) AS BIGINT))" for at in places]
            finer.append(end)
        edges, source = _named_columns(finer, f"{name}_{turn}", source)
    return source, edges


def _named_columns(made: Sequence[str], name: str, source: str) -> tuple[list[str], str]:
    """Expressions as columns beside those of the rows: their names, and the wider rows."""
    names = [f"{name}_{i}" for i in range(len(made))]
    listed = ", ".join(f"{one} AS {column}" for one, column in zip(made, names, strict=True))
    return names, f"(SELECT *, {listed} FROM {source}) AS {name}_rows"  # noqa: S608


def _cell(records: Records, names: AttributeSet) -> str:
    """The number of the cell of a record, in row-major order."""
    cell = "0"
    for name in names:
        column = f"CAST({records.column(name)} AS BIGINT)"
        cell = column if cell == "0" else f"({cell} * {records.domain[name].size} + {column})"
    return cell


def _scan_conditions(records: Records, group: Sequence[Compiled]) -> Integers:
    """The number of records that satisfy each condition, by one query."""
    sums = ", ".join(f"COUNT(CASE WHEN {c.sql} THEN 1 END) AS q{i}" for i, c in enumerate(group))
    names = [f"q{i}" for i in range(len(group))]
    row = records.engine.fetch(f"SELECT {sums} FROM {records.name}", names)  # noqa: S608
    return np.array([row[name][0] for name in names], dtype=np.int64)


def _chunks(compiled: Sequence[Compiled]) -> list[list[Compiled]]:
    chunks: list[list[Compiled]] = []
    room = 0
    for condition in compiled:
        if not chunks or condition.size > room:
            chunks.append([])
            room = LIMITS.comparisons_per_query
        chunks[-1].append(condition)
        room -= condition.size
    return chunks


def _summed(wide: Integers, source: AttributeSet, names: AttributeSet) -> Integers:
    """The table over ``names`` from one over more attributes."""
    if source == names:
        return wide
    axes = tuple(i for i, name in enumerate(source) if name not in names)
    return np.asarray(wide.sum(axis=axes, dtype=np.int64))


def _clamped(counts: Integers, maximum: int) -> Integers:
    """The counts, clamped in place: long tables are held once."""
    np.minimum(counts, maximum, out=counts)
    counts.setflags(write=False)
    return counts


def _silent(done: int, total: int, label: str) -> None:
    """Progress that nobody watches."""
