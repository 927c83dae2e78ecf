# SPDX-License-Identifier: Apache-2.0
"""Labels of released numbers: what each is the answer to, in the words of the schema.

A product of query sets is labelled axis by axis: every attribute gives one column (two for
intervals), and a text for people. Labels come from the domain, which is public, and are built as
arrays, so that a group of a million queries is labelled in a moment. `record_frame` has
synthetic records with values in place of cells.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sfumato.domain.attributes import Attribute, DateTime, Integer, Numeric
from sfumato.domain.domain import Domain, valued
from sfumato.domain.values import Fractional
from sfumato.random import WordSource, integers_below
from sfumato.refine.synthesize import Synthetic
from sfumato.types import Integers
from sfumato.workload.queries import QuerySet
from sfumato.workload.terms import StructuredLabel, Term
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "DERIVED_NUMBERS",
    "RESERVED",
    "SECOND_MOMENTS",
    "LabelAxis",
    "Labels",
    "RowWords",
    "axes_of",
    "cell_labels",
    "columns_of",
    "has_whole_days",
    "label_text",
    "lower_ends",
    "places_along",
    "record_frame",
    "texts_of",
    "title_of",
    "upper_ends",
    "words_of",
]


Labels = npt.NDArray[Any]  # whole numbers, numbers, truth values, times, or objects (texts, mixed)

_QUERY_COLUMNS: Final = ("group", "query", "value", "standard_error", "low", "high", "unbiased")
SECOND_MOMENTS: Final = ("variance", "standard_deviation", "covariance", "correlation")
DERIVED_NUMBERS: Final = ("sum", "count", "mean", *SECOND_MOMENTS)
"""Columns of what follows from several answers, and of the numbers beside it."""
RESERVED: Final = frozenset([*_QUERY_COLUMNS, *DERIVED_NUMBERS, "probability"])
"""Columns of answers; an attribute of such a name gets `` (attribute)`` after it."""


@dataclass(frozen=True, slots=True)
class LabelAxis:
    """The queries along one attribute: label columns, and one text per query."""

    rows: int
    columns: tuple[tuple[str, Labels], ...]
    texts: npt.NDArray[np.object_]


def axes_of(term: Term) -> tuple[LabelAxis, ...]:
    """The axes of a term, whose queries are all combinations in row-major order."""
    product = term.as_product()
    if product is not None:
        # The values that a sum is of tell no two queries apart; alone they say what is summed.
        factors = [(n, q) for n, q in product.factors if q.rows > 1 or not valued(term.domain, [n])]
        return tuple(
            _axis(term.domain, name, queries) for name, queries in factors or product.factors
        )
    texts = _texts_of_rows(term)
    return (LabelAxis(term.rows, _group_columns(term.domain, texts), _objects(texts)),)


def columns_of(term: Term, rows: slice = slice(None)) -> dict[str, Labels]:
    """One array of labels per column, with an entry for every query, or for some."""
    axes = axes_of(term)
    if term.as_product() is None:
        columns = {**dict(axes[0].columns), "query": axes[0].texts}
        return {name: labels[rows] for name, labels in columns.items()}
    shape = [axis.rows for axis in axes]
    return {
        name: labels[places_along(shape, i, rows)]
        for i, axis in enumerate(axes)
        for name, labels in axis.columns
    }


def places_along(shape: Sequence[int], axis: int, rows: slice = slice(None)) -> Integers:
    """The position along one axis of every entry of an array, or of some, in row-major order.

    >>> places_along([2, 3], 0).tolist(), places_along([2, 3], 1).tolist()
    ([0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2])
    """
    entries = np.arange(*rows.indices(prod(shape)), dtype=np.int64)
    return entries // prod(shape[axis + 1 :]) % shape[axis]


def texts_of(term: Term) -> npt.NDArray[np.object_]:
    """One line per query: ``age <= 30, sex = Male``."""
    out = None
    for axis in axes_of(term):
        out = axis.texts if out is None else np.add.outer(out + ", ", axis.texts).reshape(-1)
    return _objects(["everything"]) if out is None else out


def cell_labels(attribute: Attribute) -> Labels:
    """The label of every cell; numbers and times stay numbers and times where all cells are."""
    has_extra = attribute.size > attribute.value_count
    if has_extra:
        return _objects(attribute.labels)
    if isinstance(attribute, Integer) and attribute.width == 1:
        return lower_ends(attribute)
    if isinstance(attribute, DateTime):
        return lower_ends(attribute)
    if attribute.kind == "boolean":
        return np.array([False, True])
    return _plain(attribute.labels)


def lower_ends(attribute: Attribute) -> Labels:
    """The least value of every declared bin (the value itself where bins are single values)."""
    if isinstance(attribute, Integer):
        return attribute.min + attribute.width * _counting(attribute)
    if isinstance(attribute, Numeric):
        return np.array(attribute.edges[:-1])
    if isinstance(attribute, DateTime):
        return np.array(attribute.starts, dtype="datetime64[us]")
    return _plain([attribute.value_label(c) for c in range(attribute.value_count)])


def upper_ends(attribute: Attribute) -> Labels:
    """The greatest value of every declared bin; the upper edge for numeric bins and for times.

    Bins of whole days end with their last day; bins of hours and minutes at the instant where the
    next one starts.
    """
    if isinstance(attribute, Integer):
        ends = attribute.min + attribute.width * (_counting(attribute) + 1) - 1
        return np.asarray(np.minimum(ends, attribute.max))
    if isinstance(attribute, Numeric):
        return np.array(attribute.edges[1:])
    if isinstance(attribute, DateTime):
        after = [*attribute.starts[1:], attribute.end]
        if has_whole_days(attribute):
            after = [_last_day(moment) for moment in after]
        return np.array(after, dtype="datetime64[us]")
    return lower_ends(attribute)


def has_whole_days(attribute: DateTime) -> bool:
    """Whether every bin starts at midnight, so that its labels are dates."""
    return not isinstance(attribute.value_label(0), datetime)


def _last_day(after: datetime) -> datetime:
    """The last day that has an instant before ``after``."""
    before = after - timedelta(microseconds=1)
    return datetime(before.year, before.month, before.day)


def _counting(attribute: Attribute) -> Labels:
    # Integers of more than 62 bits are legal in a schema; Python integers hold them.
    fits = isinstance(attribute, Integer) and max(abs(attribute.min), abs(attribute.max)) < 2**62
    return np.arange(attribute.value_count, dtype=np.int64).astype(np.int64 if fits else object)


def _axis(domain: Domain, name: str, queries: QuerySet) -> LabelAxis:
    attribute = domain[name]
    column = title_of(name, domain)
    if queries.label_kind == "cells":
        labels = cell_labels(attribute)
        return LabelAxis(queries.rows, ((column, labels),), _worded(f"{name} = ", attribute.labels))
    if queries.label_kind == "ends":
        ends = _ends(attribute, upper_ends(attribute))
        return LabelAxis(queries.rows, ((column, ends),), _prefix_texts(attribute, ends))
    intervals = queries.intervals()
    if queries.label_kind == "ranges" and intervals is not None:
        starts, stops = intervals
        low = _ends(attribute, lower_ends(attribute))
        high = _ends(attribute, upper_ends(attribute))
        first = _worded(f"{name} from ", _as_days(attribute, low))
        last = _worded(" to ", _as_days(attribute, high))
        texts = first[starts] + last[stops - 1]
        begin, end = _free(f"{name}_from", domain), _free(f"{name}_to", domain)
        return LabelAxis(queries.rows, ((begin, low[starts]), (end, high[stops - 1])), texts)
    if queries.label_kind == "groups":
        labels = _objects(queries.row_labels)
        texts = _worded(f"{queries.titled(name)} = ", labels)
        return LabelAxis(queries.rows, ((column, labels),), texts)
    if queries.label_kind == "total":
        return LabelAxis(1, (), _objects([f"all {name}"]))
    labels = _objects(_matrix_labels(queries))
    # One query tells nothing apart: it needs no column.
    columns = ((column, labels),) if queries.rows > 1 else ()
    if valued(domain, [name]):
        return LabelAxis(queries.rows, columns, labels)
    texts = [text if text.startswith(name) else f"{name}: {text}" for text in map(str, labels)]
    return LabelAxis(queries.rows, columns, _objects(texts))


def _prefix_texts(attribute: Attribute, ends: Labels) -> npt.NDArray[np.object_]:
    """``age <= 30``; ``<`` where the end is the start of the next bin."""
    is_open = isinstance(attribute, Numeric) or (
        isinstance(attribute, DateTime) and not has_whole_days(attribute)
    )
    sign = "<" if is_open else "<="
    texts = _worded(f"{attribute.name} {sign} ", _as_days(attribute, ends))
    last = attribute.value_count - 1
    if isinstance(attribute, Numeric):  # the last bin holds its upper edge
        texts[last] = f"{attribute.name} <= {label_text(ends[last])}"
    for code in range(attribute.value_count, attribute.size):
        texts[code] = f"{attribute.name} up to {ends[code]}"
    return texts


def title_of(name: str, domain: Domain, taken: Collection[str] = RESERVED) -> str:
    """The column of labels of this name, told apart from columns of numbers."""
    return name if name not in taken else _free(f"{name} (attribute)", domain)


def _free(column: str, domain: Domain) -> str:
    """A column name that is no attribute's."""
    while column in domain:
        column += "_"
    return column


def _as_days(attribute: Attribute, ends: Labels) -> Labels:
    """Dates without a time where bins are whole days."""
    if isinstance(attribute, DateTime) and has_whole_days(attribute) and ends.dtype.kind == "M":
        return ends.astype("datetime64[D]")
    return ends


def _ends(attribute: Attribute, ends: Labels) -> Labels:
    """Ends of the declared bins, then the labels of the cells for other and missing values."""
    if attribute.size == attribute.value_count:
        return ends
    extra = [attribute.label(code) for code in range(attribute.value_count, attribute.size)]
    return _objects([*_as_days(attribute, ends).tolist(), *extra])


def _matrix_labels(queries: QuerySet) -> Sequence[object]:
    if queries.row_labels:
        return queries.row_labels
    if queries.rows == 1:
        return [queries.name]
    return [f"{queries.name} {i + 1}" for i in range(queries.rows)]


def _group_columns(domain: Domain, texts: Sequence[object]) -> tuple[tuple[str, Labels], ...]:
    """The columns of labels that all know the groups of the same columns."""
    groups_of = [text.groups if isinstance(text, StructuredLabel) else () for text in texts]
    names = {tuple(name for name, _ in groups) for groups in groups_of}
    if len(names) != 1:
        return ()
    titles = [title_of(n, domain) for n in names.pop()]
    columns = zip(*([value for _, value in groups] for groups in groups_of), strict=True)
    return tuple((title, _objects(c)) for title, c in zip(titles, columns, strict=True))


def _texts_of_rows(term: Term) -> Sequence[object]:
    if term.row_labels:
        return term.row_labels
    if conditions := term.as_conditions():
        return [str(condition) for condition in conditions]
    return [f"query {i + 1}" for i in range(term.rows)]


def _plain(labels: Sequence[object]) -> Labels:
    """Whole numbers as such, everything else as objects."""
    if all(isinstance(v, int) and not isinstance(v, bool) and abs(v) < 2**62 for v in labels):
        return np.array(labels, dtype=np.int64)
    return _objects(labels)


def _objects(labels: Sequence[object]) -> npt.NDArray[np.object_]:
    out = np.empty(len(labels), dtype=object)
    out[:] = labels
    return out


def _worded(before: str, labels: Sequence[object] | Labels) -> npt.NDArray[np.object_]:
    values = labels.tolist() if isinstance(labels, np.ndarray) else labels
    return _objects([before + label_text(v) for v in values])


def label_text(value: object) -> str:
    """A label as people read it: no needless fraction, no needless seconds.

    >>> label_text(5000.0), label_text(datetime(2024, 1, 1, 8)), label_text("Male")
    ('5000', '2024-01-01 08:00', 'Male')
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, datetime):
        is_whole = value.second == value.microsecond == 0
        return value.isoformat(sep=" ", timespec="minutes" if is_whole else "auto")
    return str(value)


# Synthetic records, with values in place of cells


FRACTION_BITS = 53


def record_frame(domain: Domain, synthetic: Synthetic, random: WordSource) -> pd.DataFrame:
    """Listed values as they are, bins by a uniform draw inside, missing values as nulls.

    The notes of the draw are in ``frame.attrs["notes"]``.
    """
    import pandas as pd

    declared = [a for a in domain if not isinstance(a, Fractional)]
    columns = {a.name: _column(a, synthetic.codes[a.name], random) for a in declared}
    frame = pd.DataFrame(columns)
    frame.attrs["notes"] = list(synthetic.notes)
    return frame


def _column(attribute: Attribute, codes: Integers, random: WordSource) -> pd.Series[Any]:
    import pandas as pd

    is_listed = not isinstance(attribute, Integer | Numeric | DateTime)
    if is_listed:
        drawn: pd.Series[Any] = pd.Series(cell_labels(attribute)[codes])
        is_null = (codes == attribute.missing_code) | (codes == attribute.unparsed_code)
    else:
        declared = np.minimum(codes, attribute.value_count - 1)
        drawn = pd.Series(_inside(attribute, declared, random))
        # A value outside the declared ones is not known, so it is left open as well.
        is_null = codes >= attribute.value_count
    if attribute.missing_code is None and not is_null.any():
        return drawn
    if drawn.dtype.kind == "i":
        drawn = drawn.astype("Int64")
    return drawn.mask(pd.Series(is_null))


def _inside(attribute: Attribute, codes: Integers, random: WordSource) -> Labels:
    """A uniform point of every bin."""
    low, high = lower_ends(attribute)[codes], upper_ends(attribute)[codes]
    if isinstance(attribute, Integer) and attribute.width == 1:
        return low
    part = integers_below(1 << FRACTION_BITS, codes.size, random) * 2.0**-FRACTION_BITS
    if isinstance(attribute, Integer):
        steps = np.floor((high - low + 1).astype(np.float64) * part).astype(np.int64)
        return np.asarray(low + steps)
    if isinstance(attribute, DateTime):
        if has_whole_days(attribute):
            days = (high - low).astype("timedelta64[D]").astype(np.int64) + 1
            return np.asarray(low + np.floor(days * part).astype("timedelta64[D]"))
        span = (high - low).astype("timedelta64[s]").astype(np.int64)
        return np.asarray(low + np.floor(span * part).astype("timedelta64[s]"))
    return np.asarray(low + (high - low) * part, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class RowWords:
    """What a query of a workload is called by who asks: as a whole, and by its parts."""

    name: str
    aggregate: str
    condition: str
    groups: tuple[tuple[str, object], ...]
    binned: str


def words_of(workload: Workload) -> Iterator[RowWords]:
    """The words of every query of a workload, group after group, as this asker wrote them."""
    for term in workload.terms:
        texts, columns = texts_of(term), columns_of(term)
        columns.pop("query", None)
        name = term.name
        label = name if isinstance(name, StructuredLabel) else None
        for row in range(term.rows):
            groups = tuple((title, _json_label(labels[row])) for title, labels in columns.items())
            is_listed = term.rows > 1 and texts[row]
            yield RowWords(
                f"{name}: {texts[row]}" if is_listed else "",
                (label.aggregate if label else "") or "COUNT(*)",
                label.condition if label else "",
                groups,
                label.binned if label else "",
            )


def _json_label(label: object) -> object:
    """A label as JSON can have it."""
    value = label.item() if isinstance(label, np.generic) else label
    return value.isoformat() if isinstance(value, date | datetime) else value
