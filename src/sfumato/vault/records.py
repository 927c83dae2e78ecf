# SPDX-License-Identifier: Apache-2.0
"""The records of a table as codes: what every count of a release is made from.

One scan turns the table into a temporary table of small integers: a column per attribute that is
asked for, a row per record that no rule drops. A record is dropped when *any* attribute of the
domain says so, asked for or not, so that all counts describe the same records. With a privacy
unit, at most ``rows`` records of each unit are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sfumato.domain.attributes import Attribute
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.domain.values import UNIT_BITS, Values
from sfumato.random import WordSource, system_words
from sfumato.text import listing
from sfumato.vault.duckdb import DuckDB
from sfumato.vault.encode import (
    Held,
    always_kept,
    cell_code,
    check_columns,
    interpreted,
    matches,
    needs_lookup,
    typed,
    unit_text,
    values_table,
)
from sfumato.vault.engine import Engine
from sfumato.vault.sensitive import sealed
from sfumato.vault.tables import Reading, Records, Table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "engine_failed",
    "read_records",
]


def read_records(
    table: Table,
    domain: Domain,
    attributes: Iterable[str],
    unit: PrivacyUnit | None = None,
    random: WordSource | None = None,
) -> Records:
    """The codes of these attributes for every record that is kept; read once per table.

    Privacy: with a unit, the rows kept of one unit are a function of that unit's records and of a
    random key, drawn anew for every release (`Table.opened_again`): those whose keyed hash is
    least. Adding or removing a unit changes the rows of no other one, hence changes the histogram
    by at most ``unit.rows`` in L1.
    Neighbours: one unit more or less; without a unit, one row.
    """
    check_columns(table, domain, unit)
    wanted = frozenset(domain.names if table.engine.reads_all else attributes)
    # Without units nothing is drawn, and whoever opens the table may have the same codes.
    holder = (table.origin or table) if unit is None else table
    held = holder.records
    if held is not None and held.domain == domain and held.unit == unit:
        if wanted <= held.attributes:
            return held
        wanted |= held.attributes
    if unit is not None and table.secret is None:
        source = system_words() if random is None else random
        table.secret = source.words(4).tobytes().hex()
    name = sealed(
        lambda: _kept_of_any(table, domain, wanted, unit),
        engine_failed(table, domain),
    )
    holder.records = Records(table.engine, name, domain, unit, wanted)
    return holder.records


def engine_failed(table: Table, domain: Domain) -> str:
    """What to say when the engine gives up, whatever it was that it could not do."""
    return (
        f"the table {table.name} could not be counted over {listing(domain.names)}; check that it "
        "is complete and readable, and that its codes fit in memory"
    )


def _kept_of_any(
    table: Table, domain: Domain, wanted: frozenset[str], unit: PrivacyUnit | None
) -> str:
    """The same records whatever they hold: one value never makes a table unreadable.

    Privacy: none of its own. Whether a table can be read must not depend on its records; which of
    two ways it was read is seen in the time only.
    """
    try:
        return _kept(table, domain, wanted, unit)
    except Exception:
        if not table.has_careful_reader:
            raise
    return _kept(table, domain, wanted, unit, is_careful=True)


def _kept(
    table: Table,
    domain: Domain,
    wanted: frozenset[str],
    unit: PrivacyUnit | None,
    *,
    is_careful: bool = False,
) -> str:
    """The name of a table of the kept records, with a column c<i> per wanted attribute i."""
    engine = table.engine
    # Which rows of a unit are kept must not hang on what is asked: the hash covers all codes.
    needed = [a for a in domain if unit or a.name in wanted or not always_kept(a)]
    names = [a.column for a in needed] + ([unit.column] if unit else [])
    reading = table.read(names or [domain.attributes[0].column], is_careful=is_careful)
    uploads: list[str] = []
    try:
        query = _encoded(table, reading, domain, needed, unit, uploads)
        asked = [f"c{domain.index(name)}" for name in domain.in_order(wanted)]
        if unit is None:
            return _filled(engine, reading, _selected(asked, query))
        codes = [f"c{domain.index(a.name)}" for a in needed]
        key = _uploaded(engine, _secret_table(table), uploads)
        if reading.blocks is None:
            bounded = _bounded(engine, f"({query}) AS encoded", codes, unit.rows, key)
            return engine.keep(_selected(asked, bounded))
        whole = _filled(engine, reading, query)
        name = engine.keep(_selected(asked, _bounded(engine, whole, codes, unit.rows, key)))
        engine.drop(whole)
        return name
    finally:
        for upload in uploads:
            engine.forget(upload)


def _filled(engine: Engine, reading: Reading, query: str) -> str:
    """A temporary table with the rows of every block."""
    if reading.blocks is None:
        return engine.keep(query)
    assert isinstance(engine, DuckDB)  # noqa: S101  which reads all files in blocks
    name = ""
    try:
        for _ in reading.blocks:
            if name:
                engine.add(name, query)
            else:
                name = engine.keep(query)
    except BaseException:
        if name:
            engine.drop(name)
        raise
    return name


def _encoded(
    table: Table,
    reading: Reading,
    domain: Domain,
    needed: Sequence[Attribute],
    unit: PrivacyUnit | None,
    uploads: list[str],
) -> str:
    """SQL for the codes of the records that no rule drops, and their owner if there are units."""
    engine = table.engine
    values: dict[str, str] = {}
    columns: list[Held] = []
    for i, attribute in enumerate(needed):
        column = engine.column(reading.places[i])
        kind = attribute.of if isinstance(attribute, Values) else attribute
        if attribute.column in table.untyped:
            made = interpreted(kind, column, engine)
        else:
            made = typed(kind, column, table.types[attribute.column], engine)
        values[f"v{i}"] = made.value
        if made.is_null is not None:
            values[f"n{i}"] = made.is_null
        columns.append(Held(f"v{i}", made.form, f"n{i}" if made.is_null else f"(v{i} IS NULL)"))
    if unit is not None:
        column = engine.column(reading.places[-1])
        is_untyped = unit.column in table.untyped
        values["owner"] = unit_text(column, table.types[unit.column], is_untyped, engine)
    made_values = ", ".join(f"{value} AS {name}" for name, value in values.items())
    # As a query of its own, so that each value is made once, however often it is used.
    rows = f"(SELECT {made_values or '1 AS one'} FROM {reading.rows} AS source) AS given"  # noqa: S608
    codes = {"owner": "owner"} if unit is not None else {}
    for i, (attribute, held) in enumerate(zip(needed, columns, strict=True)):
        found = None
        if needs_lookup(attribute, held, engine):
            # Each value stands in one row of the table, so that the join repeats no record.
            name = _uploaded(engine, values_table(attribute, held), uploads)
            rows += f" LEFT JOIN {name} AS l{i} ON {matches(attribute, held, f'l{i}')}"
            found = f"l{i}.code"
        code = cell_code(attribute, held, engine, found)
        most = 2**UNIT_BITS + 1 if isinstance(attribute, Values) else attribute.size
        codes[f"c{domain.index(attribute.name)}"] = f"CAST({code} AS {engine.integer(most)})"
    made_codes = ", ".join(f"{code} AS {name}" for name, code in codes.items())
    droppers = [f"c{domain.index(a.name)}" for a in needed if not always_kept(a)]
    encoded = f"SELECT {made_codes or '1 AS one'} FROM {rows}"  # noqa: S608
    return engine.complete(encoded, [*droppers, *(["owner"] if unit else [])])


def _uploaded(engine: Engine, rows: pa.Table, uploads: list[str]) -> str:
    uploads.append(engine.upload(rows))
    return uploads[-1]


def _secret_table(table: Table) -> pa.Table:
    """The key as a table of one row: no text of a query, plan or log of an engine holds it."""
    import pyarrow as pa

    return pa.table({"secret": [str(table.secret)]})


def _selected(columns: Sequence[str], rows: str) -> str:
    return f"SELECT {', '.join(columns) or '1 AS one'} FROM ({rows}) AS chosen"  # noqa: S608


def _bounded(engine: Engine, name: str, codes: Sequence[str], most: int, key: str) -> str:
    """At most ``most`` rows of each owner, those with the least keyed hash.

    Equal rows of one owner are numbered, so that each of them counts as a draw of its own; which
    of them gets which number is of no consequence, for they are equal. Every row thus has a hash
    of its own, and every choice of ``most`` rows is equally likely. The hashed text is the same on
    every engine.
    """
    twins = ", ".join(["owner", *codes])
    turn = engine.hashed(f"concat_ws(',', {', '.join(hashed_parts(codes))})")
    return (
        f"SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY owner ORDER BY {turn}) AS place "  # noqa: S608
        f"FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {twins} ORDER BY owner) AS twin "
        f"FROM {name}) AS numbered CROSS JOIN {key} AS held) AS drawn WHERE place <= {most}"
    )


def hashed_parts(codes: Sequence[str]) -> list[str]:
    """What the draw of a row is made from, in order; the owner last, who may hold a comma."""
    return ["secret", "twin", *codes, "owner"]
