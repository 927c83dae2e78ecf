# SPDX-License-Identifier: Apache-2.0
"""Codes of columns that Arrow reads: `ArrowColumns` turns batches of rows into batches of codes.

An expression over every record, as engines evaluate it (`encode`), decides anew for each record
what was decided for its value before. Here the values of a column are divided into classes whose
members have one code whatever the rules of the schema: whole numbers one by one, floats between
two edges, days, texts that are declared and those that are not. The engine says which code a class
has, from one of its values and by the very expression of `encode`, once per column; a record then
takes a comparison or two and a look into a short table. So there is one place for the rules, and
this module only has to be right about who shares a class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from math import inf, nextafter, prod
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from sfumato.domain.attributes import Attribute, Boolean, Category, DateTime, Integer, Numeric
from sfumato.types import Integers
from sfumato.vault.vault_limits import LIMITS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowColumns", "Codes", "LeftToEngine", "ValueCodes"]

_EPOCH: Final = datetime(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY: Final = timedelta(days=1)

Places = npt.NDArray[np.integer[Any]]
CodeArray = npt.NDArray[np.signedinteger[Any]]
ValueCodes = Callable[[Sequence[Attribute], Sequence["pa.Array"]], list[Integers]]
"""The codes that an engine gives some values of each attribute, -1 where the record is dropped."""


class LeftToEngine(Exception):
    """Codes that are better made by the engine; it says nothing about the records."""


@dataclass(frozen=True, slots=True, repr=False)
class Codes:
    """The codes of all records, batch by batch, in the order of ``names``.

    A batch is an array of codes for each name, all of one length; ``sizes`` are these lengths.
    """

    names: tuple[str, ...]
    batches: Sequence[Sequence[CodeArray]]
    sizes: Sequence[int]

    def counts(self, names: Sequence[str], shape: Sequence[int]) -> Integers:
        """How many records each cell over some attributes has, in row-major order.

        Direct-addressed: a cell is a place in the table. Tables that are longer than a batch are
        added to in place, shorter ones are counted by batch.
        """
        cells = prod(shape)
        out = np.zeros(cells, dtype=np.int64)
        places = [self.names.index(name) for name in names]
        if not places:
            out[0] = sum(self.sizes)
            return out
        is_short = cells <= np.iinfo(np.int32).max
        word: np.dtype[np.signedinteger[Any]] = np.dtype(np.int32 if is_short else np.int64)
        for batch in self.batches:
            cell = batch[places[0]].astype(word)
            for place, size in zip(places[1:], shape[1:], strict=True):
                cell *= size
                cell += batch[place]
            if cells > cell.size:
                np.add.at(out, cell, 1)
            else:
                out += np.bincount(cell, minlength=cells)
        return out

    def as_table(self, columns: Sequence[str]) -> pa.Table:
        """The same codes as an Arrow table with these names, without a copy of them."""
        import pyarrow as pa

        if not columns:
            return pa.table({"one": pa.array(np.zeros(sum(self.sizes), np.int8))})
        if not self.batches:
            return pa.table({column: pa.array([], pa.int8()) for column in columns})
        made = [[pa.array(batch[i]) for batch in self.batches] for i in range(len(columns))]
        return pa.table([pa.chunked_array(column) for column in made], names=list(columns))


class ArrowColumns:
    """Columns of Arrow in the codes of their attributes.

    Args:
        attributes: What is read, with the Arrow type of each column, or None for one of texts that
            stand for values.
        wanted: The names of attributes whose codes are returned; the others may drop records.
        codes: What an engine makes of some values.
    """

    def __init__(
        self,
        attributes: Sequence[tuple[Attribute, pa.DataType | None]],
        wanted: Sequence[str],
        codes: ValueCodes,
    ) -> None:
        self._attributes = [attribute for attribute, _ in attributes]
        classes = [
            Texts(attribute, codes) if kind is None else classes_of(attribute, kind)
            for attribute, kind in attributes
        ]
        self.is_complete = all(each is not None for each in classes)
        """Whether there are classes for all columns."""
        self._classes = [each for each in classes if each is not None]
        self._wanted = tuple(wanted)
        self._codes = codes

    def encoded(self, batches: Iterable[pa.Table]) -> Codes:
        """The codes of the records that no attribute drops.

        Raises:
            LeftToEngine: They would take more memory than is held beside it, or there are fewer
                records than classes of values.
        """
        parts = iter(batches)
        first = next(parts, None)
        coders = self._coders(0 if first is None else first.num_rows)
        names = [attribute.name for attribute in self._attributes]
        places = [names.index(name) for name in self._wanted]
        held, sizes, room = [], [], LIMITS.codes_held
        for batch in _cut(chain([] if first is None else [first], parts)):
            made = [coder(batch.column(i)) for i, coder in enumerate(coders)]
            size = batch.num_rows
            is_dropped = None
            for codes in made:
                if size and codes.min() < 0:
                    dropped = codes < 0
                    is_dropped = dropped if is_dropped is None else is_dropped | dropped
            chosen = [made[i] for i in places]
            if is_dropped is not None:
                chosen = [codes[~is_dropped] for codes in chosen]
                size -= int(np.count_nonzero(is_dropped))
            room -= sum(codes.nbytes for codes in chosen) or size
            if room < 0:
                raise LeftToEngine
            if size:
                held.append(chosen)
                sizes.append(size)
        return Codes(self._wanted, held, sizes)

    def _coders(self, rows: int) -> list[Callable[[pa.Array], CodeArray]]:
        """What makes the codes of each column; the engine is asked about all classes at once."""
        listed = [each for each in self._classes if not isinstance(each, Texts)]
        pairs = zip(self._attributes, self._classes, strict=True)
        attributes = [a for a, each in pairs if not isinstance(each, Texts)]
        values = [each.values() for each in listed]
        if max(map(len, values), default=0) > max(rows, LIMITS.classes_of_few):
            raise LeftToEngine
        codes = self._codes(attributes, values) if listed else []
        made = iter(zip(listed, attributes, codes, strict=True))
        return [
            each.codes if isinstance(each, Texts) else _Coder(*next(made)).codes
            for each in self._classes
        ]


def _cut(batches: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Batches short enough for the processor's cache."""
    for batch in batches:
        yield from batch.to_batches(max_chunksize=LIMITS.rows_together)


def _shortest(size: int) -> np.dtype[np.signedinteger[Any]]:
    kinds = (np.int8, np.int16, np.int32)
    return np.dtype(next((k for k in kinds if size <= np.iinfo(k).max + 1), np.int64))


# Classes of values


class ValueClasses(Protocol):
    """A division of the values of a column; the last class is that of null."""

    def values(self) -> pa.Array:
        """One value of each class, the last one null."""

    def of(self, column: pa.Array) -> tuple[Places, npt.NDArray[np.bool_] | None]:
        """The class of each value, and which are null, if any is; of these, any class."""


class _Coder:
    """The codes of a column by its classes."""

    def __init__(self, classes: ValueClasses, attribute: Attribute, codes: Integers) -> None:
        self._classes = classes
        self._codes = codes.astype(_shortest(attribute.size))

    def codes(self, column: pa.Array) -> CodeArray:
        numbers, is_null = self._classes.of(column)
        codes = self._codes.take(numbers)
        if is_null is not None:
            codes[is_null] = self._codes[-1]
        return codes


def classes_of(attribute: Attribute, kind: pa.DataType) -> ValueClasses | None:
    """The classes of a column of this type for an attribute; None where there are none."""
    import pyarrow as pa

    if isinstance(attribute, Integer | Numeric) and attribute.duration is not None:
        return None
    is_whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    is_float = pa.types.is_float32(kind) or pa.types.is_float64(kind)
    if isinstance(attribute, Numeric):
        fits = (is_whole or is_float) and len(attribute.edges) < LIMITS.classes
        return Bins(attribute) if fits else None
    if isinstance(attribute, DateTime):
        return _moments(attribute, kind)
    if isinstance(attribute, Category) and isinstance(attribute.values[0], str):
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        is_text = pa.types.is_string(plain) or pa.types.is_large_string(plain)
        return Listed(attribute, plain) if is_text else None
    if isinstance(attribute, Integer | Boolean | Category) and (is_whole or is_float):
        return _whole_numbers(attribute, is_float)
    return None


def _whole_numbers(attribute: Integer | Boolean | Category, is_float: bool) -> ValueClasses | None:
    if isinstance(attribute, Integer):
        low, high = attribute.min - 1, attribute.max + 1
    elif isinstance(attribute, Category):
        low, high = min(map(int, attribute.values)) - 1, max(map(int, attribute.values)) + 1
    else:
        low, high = -1, 2
    if high - low < LIMITS.classes:
        return Halves(low, high) if is_float else Numbers(low, high)
    if isinstance(attribute, Integer) and 2 * attribute.value_count < LIMITS.classes:
        return Widths(attribute, is_float)
    return None


def _moments(attribute: DateTime, kind: pa.DataType) -> ValueClasses | None:
    import pyarrow as pa

    if pa.types.is_date32(kind):
        first = (attribute.start - _EPOCH) // _DAY - 1
        last = (attribute.end - _EPOCH) // _DAY + 1
        return Days(first, last) if last - first < LIMITS.classes else None
    is_time = pa.types.is_timestamp(kind) and kind.unit in ("us", "ns")
    is_local = is_time and kind.tz is not None and attribute.timezone is not None
    if not is_time or is_local or attribute.value_count >= LIMITS.moment_classes:
        return None
    return Instants(attribute, kind)


def _with_null(values: Sequence[object] | npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    return pa.concat_arrays([pa.array(values, kind), pa.nulls(1, kind)])


def _numbers(column: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """The values of a column of numbers, and which of them are null."""
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    if not column.null_count:
        return column.to_numpy(zero_copy_only=False), None
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    return column.fill_null(0).to_numpy(zero_copy_only=False), is_null


def _words(column: pa.Array) -> tuple[Integers, npt.NDArray[np.bool_] | None]:
    """Whole numbers of 64 bits; unsigned ones that are greater become the greatest."""
    numbers, is_null = _numbers(column)
    if numbers.dtype == np.uint64:
        numbers = np.minimum(numbers, np.uint64(2**63 - 1))
    return numbers.astype(np.int64, copy=False), is_null


@dataclass(frozen=True, slots=True)
class Numbers:
    """Whole numbers one by one from ``low`` to ``high``, which stand for all beyond them."""

    low: int
    high: int

    def values(self) -> pa.Array:
        """The numbers themselves."""
        import pyarrow as pa

        return _with_null(np.arange(self.low, self.high + 1), pa.int64())

    def of(self, column: pa.Array) -> tuple[Places, npt.NDArray[np.bool_] | None]:
        """The place of each number between the ends."""
        words, is_null = _words(column)
        places = np.clip(words, self.low, self.high)
        places -= self.low
        return places, is_null


@dataclass(frozen=True, slots=True)
class Halves:
    """Floats, each whole number and what lies between two of them by itself."""

    low: int
    high: int

    def values(self) -> pa.Array:
        """Whole and half numbers in turn."""
        import pyarrow as pa

        return _with_null(np.arange(2 * self.low, 2 * self.high + 1) / 2, pa.float64())

    def of(self, column: pa.Array) -> tuple[Places, npt.NDArray[np.bool_] | None]:
        """Twice the distance from the low end, and one if there is a fraction."""
        floats, is_null = _floats(column)
        near = np.clip(floats, self.low, self.high)
        floors = np.floor(near)
        places = floors.astype(np.int64)
        places -= self.low
        places *= 2
        places += near != floors
        return places, is_null


@dataclass(frozen=True, slots=True)
class Widths:
    """Numbers by the bins of an attribute, whole ones and others, below and above."""

    attribute: Integer
    is_float: bool

    def values(self) -> pa.Array:
        """What lies below, a whole number and a half of every bin in turn, and what lies above."""
        import pyarrow as pa

        low, high, width = self.attribute.min, self.attribute.max, self.attribute.width
        wholes = [low - 1, *range(low, high + 1, width), high + 1]
        if not self.is_float:
            return _with_null(wholes, pa.int64())
        # Half a number beyond the last one stands for nobody: it lies above.
        halves = [value for start in wholes[1:-1] for value in (float(start), start + 0.5)]
        return _with_null([float(wholes[0]), *halves, float(wholes[-1])], pa.float64())

    def of(self, column: pa.Array) -> tuple[Places, npt.NDArray[np.bool_] | None]:
        """The number of the bin from 1, or of its half."""
        low, high, width = self.attribute.min, self.attribute.max, self.attribute.width
        numbers, is_null = _floats(column) if self.is_float else _words(column)
        near = np.clip(numbers, low, high)
        floors = np.floor(near)
        places = floors.astype(np.int64)
        places -= low
        places //= width
        if self.is_float:
            places *= 2
            places += near != floors
        places += 1
        places[numbers < low] = 0
        places[numbers > high] = (1 + self.is_float) * self.attribute.value_count + 1
        return places, is_null


def _floats(column: pa.Array) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_] | None]:
    """Floats of 64 bits; NaN is null, and 0 stands in its place."""
    numbers, is_null = _numbers(column)
    floats = numbers.astype(np.float64, copy=False)
    if numbers.dtype.kind == "f":
        is_nan = np.isnan(floats)
        if is_nan.any():
            is_null = is_nan if is_null is None else is_null | is_nan
            floats = np.where(is_nan, 0.0, floats)
    return floats, is_null


def _among(starts: npt.NDArray[Any], values: npt.NDArray[Any]) -> npt.NDArray[np.integer[Any]]:
    """How many of some sorted starts are at or below each value."""
    if starts.size > LIMITS.starts_compared:
        return np.searchsorted(starts, values, side="right")
    places = np.zeros(values.size, dtype=np.uint8)
    is_past = np.empty(values.size, dtype=np.bool_)
    for start in starts:
        np.greater_equal(values, start, out=is_past)
        places += is_past.view(np.uint8)
    return places


class Bins:
    """Numbers between the edges of an attribute, below and above; the last bin is closed."""

    def __init__(self, attribute: Numeric) -> None:
        *starts, end = attribute.edges
        self._starts = np.array([*starts, nextafter(end, inf)], dtype=np.float64)

    def values(self) -> pa.Array:
        """The start of every class."""
        import pyarrow as pa

        return _with_null(np.concatenate([[-np.inf], self._starts]), pa.float64())

    def of(self, column: pa.Array) -> tuple[Places, npt.NDArray[np.bool_] | None]:
        """How many starts are at or below the number."""
        floats, is_null = _floats(column)
        return _among(self._starts, floats), is_null


@dataclass(frozen=True, slots=True)
class Days:
    """Dates one by one between two days, which stand for all beyond them."""

    first: int
    last: int

    def values(self) -> pa.Array:
        """The days themselves."""
        import pyarrow as pa

        return _with_null(np.arange(self.first, self.last + 1, dtype=np.int32), pa.date32())

    def of(self, column: pa.Array) -> tuple[Places, npt.NDArray[np.bool_] | None]:
        """The place of each day between the ends."""
        import pyarrow as pa

        days, is_null = _words(column.cast(pa.int32()))
        places = np.clip(days, self.first, self.last)
        places -= self.first
        return places, is_null


class Instants:
    """Times between the starts of the steps of an attribute, before and after.

    Engines round nanoseconds to microseconds, some up and some down: every place where such
    a rounding may go over into the next step begins a class of its own.
    """

    def __init__(self, attribute: DateTime, kind: pa.DataType) -> None:
        self._kind = kind
        moments = [attribute.bin_start(code) for code in range(attribute.value_count)]
        micros = [(moment - _EPOCH) // _MICROSECOND for moment in (*moments, attribute.end)]
        starts: list[int] = micros
        if kind.unit == "ns":
            starts = [1000 * each + shift for each in micros for shift in (-999, -500, -499, 0)]
        # Nanoseconds do not reach the whole calendar.
        self._starts = np.array(sorted(s for s in starts if abs(s) < 2**63 - 1), dtype=np.int64)

    def values(self) -> pa.Array:
        """A time before all starts, and every start."""
        import pyarrow as pa

        first = self._starts[:1] - 1 if self._starts.size else np.zeros(1, np.int64)
        return _with_null(np.concatenate([first, self._starts]), pa.int64()).cast(self._kind)

    def of(self, column: pa.Array) -> tuple[Places, npt.NDArray[np.bool_] | None]:
        """How many starts are at or before the time."""
        import pyarrow as pa

        words, is_null = _words(column.cast(pa.int64()))
        return _among(self._starts, words), is_null


class Listed:
    """The declared texts of a category, each by itself, and all others together."""

    def __init__(self, attribute: Category, kind: pa.DataType) -> None:
        import pyarrow as pa

        texts = [str(value) for value in attribute.values]
        self._texts = pa.array(texts, kind)
        self._other = "x" * (max(map(len, texts)) + 1)
        self._last: tuple[pa.Array, npt.NDArray[np.intp]] | None = None

    def values(self) -> pa.Array:
        """The texts, and one that is longer than any."""
        import pyarrow as pa

        return _with_null([*self._texts.to_pylist(), self._other], pa.string())

    def of(self, column: pa.Array) -> tuple[Places, npt.NDArray[np.bool_] | None]:
        """The place among the declared texts, or the one behind them."""
        import pyarrow as pa

        if not pa.types.is_dictionary(column.type):
            is_null = column.is_null().to_numpy(zero_copy_only=False)
            return self._places(column), is_null if column.null_count else None
        numbers, is_null = _numbers(column.indices)
        places = self._in_dictionary(column.dictionary)
        if not places.size:  # all are null
            return np.zeros(len(column), np.intp), np.ones(len(column), np.bool_)
        own = places.take(numbers)
        if column.dictionary.null_count:
            inside = own == len(self._texts) + 1
            is_null = inside if is_null is None else is_null | inside
        return own, is_null

    def _in_dictionary(self, dictionary: pa.Array) -> npt.NDArray[np.intp]:
        """The places of the texts of a dictionary, which many batches share."""
        if self._last is None or not _is_same(self._last[0], dictionary):
            places = self._places(dictionary)
            if dictionary.null_count:
                is_null = dictionary.is_null().to_numpy(zero_copy_only=False)
                places[is_null] = len(self._texts) + 1
            self._last = (dictionary, places)
        return self._last[1]

    def _places(self, texts: pa.Array) -> npt.NDArray[np.intp]:
        import pyarrow.compute as pc

        texts.validate(full=True)  # what is no UTF-8 is left to the engine
        places = pc.index_in(texts, value_set=self._texts)
        numbers: Places = places.fill_null(len(self._texts)).to_numpy(zero_copy_only=False)
        return numbers.astype(np.intp)


def _is_same(one: pa.Array, other: pa.Array) -> bool:
    """Whether two arrays are the same memory."""

    def where(array: pa.Array) -> list[int | None]:
        return [None if buffer is None else buffer.address for buffer in array.buffers()]

    return (len(one), one.offset) == (len(other), other.offset) and where(one) == where(other)


class Texts:
    """Texts that stand for values: the engine reads each text that differs, and no text twice.

    Where most of them differ, it reads them all: telling them apart would take longer.
    """

    def __init__(self, attribute: Attribute, codes: ValueCodes) -> None:
        import pyarrow as pa

        self._attribute = attribute
        self._engine_codes = codes
        self._before = pa.array([], pa.string())
        self._codes_before = np.zeros(0, np.int64)
        self._null: int | None = None
        self._mostly_differ = False

    def codes(self, column: pa.Array) -> CodeArray:
        """The codes of a column of texts."""
        import pyarrow as pa

        column = column.cast(pa.string()) if column.type != pa.string() else column
        column.validate(full=True)  # what is no UTF-8 is left to the engine
        kind = _shortest(self._attribute.size)
        if self._mostly_differ:
            (made,) = self._engine_codes([self._attribute], [column])
            return made.astype(kind)
        encoded = column.dictionary_encode()
        self._mostly_differ = 2 * len(encoded.dictionary) > len(column)
        codes = self._of_texts(encoded.dictionary)
        numbers, is_null = _numbers(encoded.indices)
        if not codes.size:
            return np.full(len(column), self._null, dtype=kind)
        out = codes.astype(kind).take(numbers)
        if is_null is not None:
            out[is_null] = self._null
        return out

    def _of_texts(self, texts: pa.Array) -> Integers:
        """The codes of some texts, all different."""
        import pyarrow as pa
        import pyarrow.compute as pc

        places = pc.index_in(texts, value_set=self._before)
        fresh = texts.filter(places.is_null())
        if len(fresh) or self._null is None:
            values = pa.concat_arrays([fresh, pa.nulls(1, pa.string())])
            (made,) = self._engine_codes([self._attribute], [values])
            self._null = int(made[-1])
            every = pa.concat_arrays([self._before, fresh])
            codes = np.concatenate([self._codes_before, made[:-1]])
            places = pc.index_in(texts, value_set=every)
            if len(every) <= LIMITS.classes:
                self._before, self._codes_before = every, codes
        else:
            codes = self._codes_before
        return codes.take(places.to_numpy(zero_copy_only=False)) if len(texts) else codes[:0]
