# SPDX-License-Identifier: Apache-2.0
"""The records of a table as codes: what every count of a release is made from.

One scan turns the table into a temporary table of small integers: a column per attribute that is
asked for, a row per record that no rule drops. A record is dropped when *any* attribute of the
domain says so, asked for or not, so that all counts describe the same records. With a privacy
unit, at most ``rows`` records of each unit are kept.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfumato.domain import Attribute, Domain
from sfumato.domain.unit import PrivacyUnit
from sfumato.randomness import WordSource, system_words
from sfumato.vault.encode import always_kept, cell_code
from sfumato.vault.engine import Engine
from sfumato.vault.fit import check_columns
from sfumato.vault.hold import Held, held, identifier, interpreted
from sfumato.vault.lookup import with_lookups
from sfumato.vault.sensitive import sealed
from sfumato.vault.tables import Reading, Table
from sfumato.wording import listing

if TYPE_CHECKING:
    import ibis.expr.types as ir

__all__ = ["Records", "engine_failed", "read_records"]


@dataclass(frozen=True, eq=False)
class Records:
    """A temporary table of codes in the engine, dropped when the last user of it is gone."""

    engine: Engine
    name: str
    domain: Domain
    unit: PrivacyUnit | None
    attributes: frozenset[str]

    def __post_init__(self) -> None:
        weakref.finalize(self, _forget, self.engine, self.name)

    def column(self, attribute: str) -> str:
        """The name of the column of codes of an attribute."""
        return f"c{self.domain.index(attribute)}"


def read_records(
    table: Table,
    domain: Domain,
    attributes: Iterable[str],
    unit: PrivacyUnit | None = None,
    words: WordSource | None = None,
) -> Records:
    """The codes of these attributes for every record that is kept; read once per table.

    Privacy: with a unit, the rows kept of one unit are a function of that unit's records and of a
    random key: those whose keyed hash is least. Adding or removing a unit changes the rows of no
    other one, hence changes the histogram by at most ``unit.rows`` in L1.
    Neighbours: one unit more or less; without a unit, one row.
    """
    check_columns(table, domain, unit)
    wanted = frozenset(attributes)
    held = table.records
    is_same = held is not None and held.domain == domain and held.unit == unit
    if held is not None and is_same:
        if wanted <= held.attributes:
            return held
        wanted |= held.attributes
    if unit is not None and table.secret is None:
        source = system_words() if words is None else words
        table.secret = source.words(4).tobytes().hex()
    name = sealed(
        lambda: _kept(table, domain, wanted, unit),
        engine_failed(table, domain),
    )
    table.records = Records(table.engine, name, domain, unit, wanted)
    return table.records


def engine_failed(table: Table, domain: Domain) -> str:
    """What to say when the engine gives up, whatever it was that it could not do."""
    return (
        f"the table {table.name} could not be counted over {listing(domain.names)}; check that it "
        "is complete and readable, and that its codes fit in memory"
    )


def _kept(table: Table, domain: Domain, wanted: frozenset[str], unit: PrivacyUnit | None) -> str:
    """The name of a table of the kept records, with a column c<i> per wanted attribute i."""
    engine = table.engine
    # Which rows of a unit are kept must not hang on what is asked: the hash covers all codes.
    needed = [a for a in domain if unit or a.name in wanted or not always_kept(a)]
    reading, encoded = _encoded(table, domain, needed, unit)
    asked = [f"c{domain.index(name)}" for name in domain.in_order(wanted)]
    query = encoded if unit else _selected(asked, encoded)
    name = ""
    for _ in reading.blocks:
        if name:
            engine.add(name, query)
        else:
            name = engine.keep(query)
    if unit is None:
        return name
    codes = [f"c{domain.index(a.name)}" for a in needed]
    turn = engine.hashed(str(table.secret), ["twin", *codes, "owner"])
    bounded = engine.keep(_selected(asked, _bounded(name, codes, unit.rows, turn)))
    engine.drop(name)
    return bounded


def _encoded(
    table: Table, domain: Domain, needed: Sequence[Attribute], unit: PrivacyUnit | None
) -> tuple[Reading, str]:
    """SQL for the codes of the records that no rule drops, and their owner if there are units."""
    names = [a.name for a in needed] + ([unit.column] if unit else [])
    reading = table.read(names or [domain.names[0]])
    rows, columns = _typed(table, reading, needed)
    codes: dict[str, ir.Column] = {}
    if unit is not None:
        place = reading.places[-1]
        is_untyped = unit.column in table.untyped
        codes["owner"] = identifier(rows[place], table.types[unit.column], is_untyped)
    rows, found = with_lookups(rows, table.engine, needed, columns)
    for attribute, column in zip(needed, columns, strict=True):
        code = cell_code(attribute, column, found.get(attribute.name))
        codes[f"c{domain.index(attribute.name)}"] = code.cast(_small_integer(attribute.size))
    droppers = [f"c{domain.index(a.name)}" for a in needed if not always_kept(a)]
    encoded = table.engine.compile(rows.select(**(codes or {"one": _one()})))
    return reading, table.engine.complete(encoded, [*droppers, *(["owner"] if unit else [])])


def _typed(
    table: Table, reading: Reading, needed: Sequence[Attribute]
) -> tuple[ir.Table, list[Held]]:
    """The needed columns as typed values; texts without a type are interpreted first."""
    rows = reading.rows
    meant: dict[str, ir.Column] = {}
    for i, attribute in enumerate(needed):
        if attribute.name in table.untyped:
            value, is_null = interpreted(attribute, rows[reading.places[i]])
            meant |= {f"sfumato_value_of_{i}": value, f"sfumato_null_{i}": is_null}
    if meant:
        # As a view of its own, so that each text is interpreted once, however often it is used.
        rows = table.engine.view(table.engine.compile(rows.mutate(**meant)))
    columns = []
    for i, attribute in enumerate(needed):
        if attribute.name in table.untyped:
            value = rows[f"sfumato_value_of_{i}"]
            columns.append(Held(value, value.type(), rows[f"sfumato_null_{i}"]))
        else:
            columns.append(held(rows[reading.places[i]], table.types[attribute.name]))
    return rows, columns


def _selected(columns: Sequence[str], rows: str) -> str:
    return f"SELECT {', '.join(columns) or '1 AS one'} FROM ({rows}) AS chosen"  # noqa: S608


def _bounded(name: str, codes: Sequence[str], most: int, turn: str) -> str:
    """At most ``most`` rows of each owner, those with the least keyed hash.

    Equal rows of one owner are numbered, so that each of them counts as a draw of its own; which
    of them gets which number is of no consequence, for they are equal. Every row thus has a hash
    of its own, and every choice of ``most`` rows is equally likely.
    """
    twins = ", ".join(["owner", *codes])
    return (
        f"SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY owner ORDER BY {turn}) AS place "  # noqa: S608
        f"FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {twins}) AS twin FROM {name}) "
        f"AS numbered) AS drawn WHERE place <= {most}"
    )


def _one() -> ir.Scalar:
    import ibis

    return ibis.literal(1, type="int16")


def _small_integer(size: int) -> str:
    if size <= 1 << 7:
        return "int8"
    return "int16" if size <= 1 << 15 else "int32" if size <= 1 << 31 else "int64"


def _forget(engine: Engine, name: str) -> None:
    # At the end of the process the connection may be gone before the table is.
    import contextlib

    with contextlib.suppress(Exception):
        engine.drop(name)
