# SPDX-License-Identifier: Apache-2.0
"""What a discovery reads and draws: keys, the range and the kind of a column, rows of a unit.

`read_keys` returns all values of its columns, exact and unseen, with how many people have each:
they stay in a temporary table of the engine, and only the numbers of people come into memory, so
that ten million different values fit. After the debit `ExactKeys.published` adds noise to every
number and fetches the few keys that pass the threshold. A person is a row, or a privacy unit, of
which at most ``rows`` different keys count.

Null, a text of more than `key_characters`, and a number that is not whole or too large is no key:
such records are counted by later releases as the rules of the attribute say.

`read_grids` counts the records of every cell of public grids, as one table each; `search_range`
returns the noisy number of records, a cell near the median and the two ends
(``privacy/discovery_laws.py``). Only existing mechanisms are drawn from: `answer`,
`permute_and_flip` and `above_threshold`.

Papers: Korolova, Kenthapadi, Mishra, Ntoulas 2009, "Releasing search queries and clicks privately";
Desfontaines, Voss, Gipson, Mandayam 2020, "Differentially private partition selection". Proofs:
``docs/proofs/keys.md``, ``docs/proofs/ranges.md``, ``docs/proofs/kinds.md``.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from sfumato.domain.attributes import MISSING, OTHER, is_text
from sfumato.domain.column_kinds import CLASSES, OpenKind
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.domain.range_grids import RangeGrid
from sfumato.errors import TableError
from sfumato.privacy.discovery_laws import BITS, GaussianKeys, KeyLaw, OptimalKeys, RangeLaw
from sfumato.privacy.sparse_vector import NoiseLaw, SparseLaw
from sfumato.random import WordSource
from sfumato.text import listing
from sfumato.types import Integers, Progress
from sfumato.vault.count import Redacted, Sensitive, count_marginals
from sfumato.vault.encode import draw_secret, family, filled, secret_table, unit_text
from sfumato.vault.engine import Engine, sealed
from sfumato.vault.mechanisms.noise import rounded_gaussian
from sfumato.vault.mechanisms.select import permute_and_flip
from sfumato.vault.mechanisms.sparse import above_threshold, answer, answer_many
from sfumato.vault.tables import Table
from sfumato.vault.vault_limits import LIMITS

if TYPE_CHECKING:
    from sfumato.vault.tables import ColumnReading

__all__ = [
    "ExactKeys",
    "RangePlaces",
    "noisy_classes",
    "published_numbers",
    "read_bounds",
    "read_classes",
    "read_grids",
    "read_keys",
    "search_bound",
    "search_range",
]


_EXACT_IN_FLOATS: Final = 2**53
_EXACT_IN_WORDS: Final = 2**62
_WORDS: Final = BITS // 64


class ExactKeys(Redacted):
    """All keys of a table, in a temporary table of its engine, and their numbers of people."""

    __slots__ = ("__weakref__", "_columns", "_engine", "_failed", "_name", "_people")

    def __init__(
        self, engine: Engine, name: str, columns: int, people: Integers, failed: str
    ) -> None:
        self._engine, self._name, self._columns = engine, name, columns
        self._people, self._failed = people, failed
        weakref.finalize(self, _dropped, engine, name)

    def published(
        self, law: KeyLaw, most: int, random: WordSource
    ) -> tuple[list[tuple[str | int, ...]], list[int], int]:
        """The keys whose noisy number of people passes the threshold, the largest first.

        At most so many; the third part is how many passed, of which these are the largest.

        Equal numbers stand in the order of the keys, so that nothing of the order of the rows is
        shown. What no schema can hold is left out: texts with a zero character, and the labels of
        the cells for other and missing values.

        Privacy: costs ``law.cost``, which is debited before: docs/proofs/keys.md, Theorems 2 and 3.
        Neighbours: at most ``law.moved`` keys have one person more or less.
        """
        places, numbers = published_numbers(self._people, law, random)
        passed = int(places.size)
        order = np.lexsort([places, -numbers])[:most]
        places, numbers = places[order], numbers[order]
        keys = sealed(partial(self._fetched, places), self._failed) if places.size else {}
        pairs = [
            (keys[place], number)
            for place, number in zip(places.tolist(), numbers.tolist(), strict=True)
            if all(map(_is_listable, keys[place]))
        ]
        return [key for key, _ in pairs], [number for _, number in pairs], passed

    def _fetched(self, places: Integers) -> dict[int, tuple[str | int, ...]]:
        import pyarrow as pa

        wanted = self._engine.upload(pa.table({"place": pa.array(places + 1, pa.int64())}))
        columns = ", ".join(f"k{i}" for i in range(self._columns))
        query = (
            f"SELECT keys.place, {columns} FROM {self._name} AS keys "  # noqa: S608
            f"JOIN {wanted} AS wanted ON keys.place = wanted.place"
        )
        rows = self._engine.listed(query)
        self._engine.forget(wanted)
        return {int(place) - 1: tuple(key) for place, *key in rows}


def published_numbers(
    people: Integers, law: KeyLaw, random: WordSource
) -> tuple[Integers, Integers]:
    """The places of the keys that are published, and their noisy numbers of people.

    Privacy: costs ``law.cost``: docs/proofs/keys.md, Theorems 2 and 3.
    Neighbours: ``people`` changes by one at ``law.moved`` keys at most, and keys of nobody are
    not in it.
    """
    places: list[Integers] = []
    numbers: list[Integers] = []
    for start in range(0, people.size, LIMITS.values_at_once):
        part = people[start : start + LIMITS.values_at_once]
        noisy = _NOISY[law.name](law, part, random)
        (passed,) = np.nonzero((noisy >= law.threshold) & (part > 0))
        places.append(passed + start)
        numbers.append(noisy[passed])
    nothing = np.zeros(0, dtype=np.int64)
    return np.concatenate([nothing, *places]), np.concatenate([nothing, *numbers])


# Noise

_HIDDEN: Final = -(2**62)  # the number of a key that is not published


def _optimal(law: KeyLaw, people: Integers, random: WordSource) -> Integers:
    """The noisy numbers of the keys that are published, far below 0 those of the others.

    One uniform number u decides on a key: it is published if u < pi(n), with the noise at u. The
    first word of u decides nearly always; where it is that of a probability, all words do.
    """
    assert isinstance(law, OptimalKeys)  # noqa: S101  by its name
    words = random.words(people.size)
    noise_leads, key_leads = _leads(law.noise_tails), _leads(law.published)
    above = np.searchsorted(noise_leads, words, side="right")
    is_open = np.searchsorted(noise_leads, words, side="left") != above
    lead = key_leads[np.minimum(people, len(law.published)) - 1]
    is_sure = people >= len(law.published)
    is_open |= (words == lead) & ~is_sure
    noisy = people + law.reach - above
    noisy = np.where((words < lead) | is_sure, np.maximum(noisy, law.threshold), _HIDDEN)
    for place in np.flatnonzero(is_open):
        uniform = int(words[place])
        for word in random.words(_WORDS - 1):
            uniform = (uniform << 64) | int(word)
        n = int(people[place])
        number = n + law.reach - bisect_right(law.noise_tails, uniform)
        is_published = uniform < law.published[min(n, len(law.published)) - 1]
        noisy[place] = max(number, law.threshold) if is_published else _HIDDEN
    return np.asarray(noisy, dtype=np.int64)


def _leads(probabilities: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """The first words of probabilities; of 1, which is the last, the greatest word."""
    return np.array([min(p >> (BITS - 64), 2**64 - 1) for p in probabilities], dtype=np.uint64)


def _gaussian(law: KeyLaw, people: Integers, random: WordSource) -> Integers:
    """The noisy numbers of all keys."""
    assert isinstance(law, GaussianKeys)  # noqa: S101  by its name
    return people + rounded_gaussian(law.sigma, people.size, random)


_NOISY: Final[dict[str, Callable[[KeyLaw, Integers, WordSource], Integers]]] = {
    OptimalKeys.name: _optimal,
    GaussianKeys.name: _gaussian,
}


# Counting


def read_keys(table: Table, columns: Sequence[str], unit: PrivacyUnit | None = None) -> ExactKeys:
    """All keys over these columns, with their numbers of people: rows, or privacy units.

    Privacy: none; the result is exact and stays in the vault. With a unit, the keys that count of
    one are a function of that unit's records and of a random key: those with the smallest keyed
    hashes among its different ones.
    Neighbours: one row more or less changes the number of one key by 1; one unit that of at most
    ``unit.rows`` keys by 1 each.
    """
    failed = (
        f"the values of {listing(tuple(columns))} in the table {table.name} could not be counted; "
        "check that it is complete and readable, and that its different values fit in memory"
    )
    if unit is not None:
        draw_secret(table)

    def counted(is_careful: bool) -> ExactKeys:
        name = _kept(table, columns, unit, is_careful)
        parts = list(table.engine.batches(f"SELECT place, people FROM {name}", _NAMES))  # noqa: S608
        places = np.concatenate([np.zeros(0, np.int64), *(part["place"] for part in parts)])
        people = np.zeros(places.size, dtype=np.int64)
        people[places - 1] = np.concatenate([people[:0], *(part["people"] for part in parts)])
        return ExactKeys(table.engine, name, len(columns), people, failed)

    def of_any() -> ExactKeys:
        try:
            return counted(False)
        except Exception:
            if not table.has_careful_reader:
                raise
        return counted(True)

    return sealed(of_any, failed)


_NAMES: Final = ("place", "people")


def _kept(table: Table, columns: Sequence[str], unit: PrivacyUnit | None, is_careful: bool) -> str:
    """The name of a temporary table of keys, their numbers of people, and their places."""
    engine = table.engine
    read = [*columns, *([unit.column] if unit else [])]
    reading = table.read(read, is_careful=is_careful)
    keys = [f"k{i}" for i in range(len(columns))]
    listed = ", ".join(keys)
    rows = filled(engine, reading, _rows(table, reading, columns, unit))
    uploads: list[str] = []
    try:
        people = rows
        if unit is not None:
            uploads.append(engine.upload(secret_table(table)))
            people = f"({_bounded(engine, rows, keys, unit.rows, uploads[-1])}) AS bounded"
        query = f"SELECT {listed}, COUNT(*) AS people FROM {people} GROUP BY {listed}"  # noqa: S608
        return engine.keep(
            f"SELECT *, ROW_NUMBER() OVER (ORDER BY {listed}) AS place FROM ({query}) AS counted"  # noqa: S608
        )
    finally:
        for upload in uploads:
            engine.forget(upload)
        engine.drop(rows)


def _rows(
    table: Table, reading: ColumnReading, columns: Sequence[str], unit: PrivacyUnit | None
) -> str:
    """SQL for the key of every row that has one, and its owner if there are units."""
    engine = table.engine
    made = {f"k{i}": _key(table, reading.places[i], column) for i, column in enumerate(columns)}
    if unit is not None:
        place = engine.column(reading.places[-1])
        is_untyped = unit.column in table.untyped
        made["owner"] = unit_text(place, table.types[unit.column], is_untyped, engine, table.texts)
    values = ", ".join(f"{value} AS {name}" for name, value in made.items())
    return engine.complete(f"SELECT {values} FROM {reading.rows} AS source", list(made))  # noqa: S608


def _key(table: Table, place: str, name: str) -> str:
    """A value in the form of a key: a text or a whole number; null where it is none."""
    engine, kind, column = table.engine, table.types[name], table.engine.column(place)
    if name in table.untyped:
        return _short(unit_text(column, kind, True, engine, table.texts))
    sort = family(kind)
    if sort == "text":
        return _short(engine.text(column, kind))
    if sort == "integer":
        whole = engine.whole(column, kind)
        return f"CASE WHEN abs({whole}) < {_EXACT_IN_WORDS} THEN {whole} END"
    if sort not in ("float", "decimal"):  # refused before, by check_columns
        raise TableError(f"the column {name!r} holds neither texts nor numbers")
    number = engine.number(column, kind)
    bound = engine.float_literal(_EXACT_IN_FLOATS)
    inside = f"(CASE WHEN abs({number}) < {bound} THEN {number} END)"
    return f"CAST(CASE WHEN {inside} = FLOOR({inside}) THEN {inside} END AS BIGINT)"


def _short(text: str) -> str:
    return f"CASE WHEN length({text}) <= {LIMITS.key_characters} THEN {text} END"


def _bounded(engine: Engine, rows: str, keys: Sequence[str], most: int, secret: str) -> str:
    """SQL for at most ``most`` different keys of each owner, those with the smallest keyed hashes.

    The length of every text stands before it, so that two tuples never make the same text.
    """
    texts = [f"CAST({key} AS {engine.string})" for key in keys]
    parts = [part for text in texts for part in (f"CAST(length({text}) AS {engine.string})", text)]
    turn = engine.hashed(f"concat_ws(',', secret, {', '.join(parts)}, owner)")
    listed = ", ".join(["owner", *keys])
    return (
        f"SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY owner ORDER BY {turn}) AS turn "  # noqa: S608
        f"FROM (SELECT DISTINCT {listed} FROM {rows}) AS pairs CROSS JOIN {secret} AS held) "
        f"AS drawn WHERE turn <= {most}"
    )


def _is_listable(value: str | int) -> bool:
    """Whether a schema can list a value."""
    if isinstance(value, str):
        return value not in (OTHER, MISSING) and (not value or is_text(value))
    return True


def _dropped(engine: Engine, name: str) -> None:
    # At the end of the process the connection may be gone before the table is.
    with suppress(Exception):
        engine.drop(name)


# The range of a column


@dataclass(frozen=True, slots=True)
class RangePlaces:
    """What a search returns: public, for it was paid for.

    Attributes:
        number: How many records have a value, with noise.
        middle: The cell near the median.
        low: The edge that the range begins with.
        high: The edge that it ends with.
    """

    number: int
    middle: int
    low: int
    high: int


def read_grids(
    table: Table,
    grids: Sequence[RangeGrid],
    unit: PrivacyUnit | None = None,
    progress: Progress | None = None,
) -> tuple[Sensitive[Integers], ...]:
    """The exact numbers of records in the cells of every grid, nulls left out.

    Every record has one cell of each grid, or is null there: none is dropped.

    Privacy: none; the result is exact and stays in the vault.
    Neighbours: one row (or one unit) more or less changes the cells of a grid by at most 1 (or
    ``unit.rows``) in L1: docs/proofs/ranges.md, Lemma 1.
    """
    domain = Domain([grid.attribute for grid in grids])
    names = [(grid.name,) for grid in grids]
    counts = count_marginals(table, domain, names, unit, progress)
    return tuple(Sensitive(counts.reveal((grid.name,))[: grid.cells]) for grid in grids)


def search_range(
    counts: Sensitive[Integers], grid: RangeGrid, law: RangeLaw, random: WordSource
) -> RangePlaces:
    """The noisy number of records, a cell near their median, and the ends of a range around it.

    The middle is the cell whose ranks are nearest to half of the records. An end is the first edge
    outwards beyond which about ``law.beyond`` of them lie, or fewer; the last edge if none is
    discovered. Below the middle only the cells below it are looked at, above it those above.

    Privacy: costs ``law.cost``: docs/proofs/ranges.md, Theorem 2.
    Neighbours: tables whose counts differ by at most ``law.moves`` in L1.

    Args:
        counts: The exact numbers of records in the cells of the grid.
        grid: The grid.
        law: Its noise, and where a range ends.
        random: A source of random words.

    Returns:
        Places on the grid.
    """
    exact = np.asarray(counts.reveal(), dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(exact)])  # records before edge e
    total = int(before[-1])
    number = answer(Sensitive(total), law.number, random)
    # Twice the distance of half of the records from the ranks of the cell: moves by one.
    apart = np.maximum(np.maximum(2 * before[:-1] - total, total - 2 * before[1:]), 0)
    middle = permute_and_flip(Sensitive(-apart), law.rate, random)
    below, above = grid.outward(middle)
    threshold = law.threshold(number)
    low = _end(below, before[list(below)], threshold, law, random)
    high = _end(above, total - before[list(above)], threshold, law, random)
    return RangePlaces(number, middle, low, high)


def _end(
    edges: Sequence[int], beyond: Integers, threshold: int, law: RangeLaw, random: WordSource
) -> int:
    """The first edge beyond which the records are discovered to be few."""
    scores: Sensitive[Sequence[int]] = Sensitive([-int(records) for records in beyond])
    place = above_threshold(scores, [-threshold] * len(edges), law.ends, random)
    return edges[-1 if place is None else place]


# How many rows one unit has: docs/proofs/units.md, Theorem 8


def read_bounds(table: Table, column: str, bounds: Sequence[int]) -> Sensitive[Integers]:
    """The exact numbers of units that have more rows than each of the bounds.

    Rows without a unit belong to nobody.

    Privacy: none; the result is exact and stays in the vault.
    Neighbours: all rows of one unit more or less, or others in their place, move all numbers in one
    direction, by at most 1 each, however many rows there are.
    """
    failed = (
        f"the rows of each value of {column!r} in the table {table.name} could not be counted; "
        "check that it is complete and readable, and that its different values fit in memory"
    )
    engine = table.engine

    def counted(is_careful: bool) -> Integers:
        reading = table.read([column], is_careful=is_careful)
        place, is_untyped = engine.column(reading.places[0]), column in table.untyped
        owner = unit_text(place, table.types[column], is_untyped, engine, table.texts)
        query = f"SELECT {owner} AS owner FROM {reading.rows} AS source"  # noqa: S608
        rows = filled(engine, reading, engine.complete(query, ["owner"]))
        try:
            sizes = f"SELECT COUNT(*) AS size FROM {rows} GROUP BY owner"  # noqa: S608
            people = f"SELECT size, COUNT(*) AS people FROM ({sizes}) AS counted GROUP BY size"  # noqa: S608
            parts = list(engine.batches(people, ("size", "people")))
        finally:
            engine.drop(rows)
        out = np.zeros(len(bounds), dtype=np.int64)
        for part in parts:
            for place_of, bound in enumerate(bounds):
                out[place_of] += int(np.sum(part["people"][part["size"] > bound]))
        return out

    def of_any() -> Integers:
        try:
            return counted(False)
        except Exception:
            if not table.has_careful_reader:
                raise
        return counted(True)

    return Sensitive(sealed(of_any, failed))


def search_bound(
    beyond: Sensitive[Integers], persons: int, law: SparseLaw, random: WordSource
) -> int | None:
    """The place of the first bound that about so many units exceed, or fewer; None if none is.

    Privacy: costs ``law.cost``: docs/proofs/units.md, Theorem 8.
    Neighbours: numbers that all move in one direction, by at most 1 each.
    """
    scores: Sensitive[Sequence[int]] = Sensitive([-int(units) for units in beyond.reveal()])
    return above_threshold(scores, [-persons] * len(beyond.reveal()), law, random)


# Classes of the values of a column without types: docs/proofs/kinds.md


def read_classes(
    table: Table, attribute: OpenKind, unit: PrivacyUnit | None = None
) -> Sensitive[Integers]:
    """The exact numbers of records in the classes of a column, nulls left out.

    Privacy: none; the result is exact and stays in the vault.
    Neighbours: one row (or one unit) more or less changes the numbers by at most 1 (or
    ``unit.rows``) in L1: docs/proofs/kinds.md, Lemma 1.
    """
    names = attribute.domain.names
    counts = count_marginals(table, attribute.domain, [names], unit)
    cells = np.ravel(counts.reveal(names))
    sizes = np.zeros(len(CLASSES), dtype=np.int64)
    for place, cell in zip(attribute.places, cells.tolist(), strict=True):
        if place is not None:
            sizes[place] += cell
    return Sensitive(sizes)


def noisy_classes(sizes: Sensitive[Integers], law: NoiseLaw, random: WordSource) -> list[int]:
    """The numbers of records in the classes, each with Laplace noise.

    Privacy: costs ``moves / law.scale`` for numbers that move by ``moves`` in L1:
    docs/proofs/kinds.md, Theorem 1.
    Neighbours: tables whose numbers differ by at most ``moves`` in L1.
    """
    return answer_many(Sensitive([int(size) for size in sizes.reveal()]), law, random)
