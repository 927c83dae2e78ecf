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

from sfumato.domain import Attribute, Category, Domain
from sfumato.domain.unit import PrivacyUnit
from sfumato.randomness import WordSource, system_words
from sfumato.vault.encode import Held, always_kept, cell_code, lookup, lookup_key, needs_lookup
from sfumato.vault.engine import Engine
from sfumato.vault.fit import check_columns
from sfumato.vault.sensitive import sealed
from sfumato.vault.tables import Table
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
        lambda: table.engine.keep(_query(table, domain, wanted, unit)),
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


def _query(table: Table, domain: Domain, wanted: frozenset[str], unit: PrivacyUnit | None) -> str:
    """SQL for the kept records: a column c<i> per wanted attribute number i."""
    # Which rows of a unit are kept must not hang on what is asked: the hash covers all codes.
    needed = [a for a in domain if unit or a.name in wanted or not always_kept(a)]
    names = [a.name for a in needed] + ([unit.column] if unit else [])
    rows, places = table.read(names or [domain.names[0]])
    held = [
        Held(rows[place], table.types[name], name in table.untyped)
        for place, name in zip(places, names, strict=False)
    ]
    rows, found = _with_lookups(rows, table.engine, needed, held)
    columns = {
        f"c{domain.index(a.name)}": cell_code(a, h, found.get(a.name)).cast(_small_integer(a.size))
        for a, h in zip(needed, held, strict=False)
    }
    codes = list(columns)
    droppers = [f"c{domain.index(a.name)}" for a in needed if not always_kept(a)]
    if unit is not None:
        columns["owner"] = _owner(held[-1])
        droppers.append("owner")
    encoded = rows.select(**columns) if columns else rows.select(one=_one())
    kept = _without_dropped(table.engine.compile(encoded), droppers)
    if unit is not None:
        turn = table.engine.hashed(str(table.secret), ["twin", *codes, "owner"])
        kept = _bounded(kept, codes, unit.rows, turn)
    asked = [f"c{domain.index(name)}" for name in domain.in_order(wanted)]
    return f"SELECT {', '.join(asked) or '1 AS one'} FROM ({kept}) AS kept"  # noqa: S608


def _with_lookups(
    rows: ir.Table, engine: Engine, needed: Sequence[Attribute], held: Sequence[Held]
) -> tuple[ir.Table, dict[str, ir.Column]]:
    """The code of each long category by a hash join, whose cost hardly grows with the values."""
    names = {}
    for i, (attribute, column) in enumerate(zip(needed, held, strict=False)):
        if isinstance(attribute, Category) and needs_lookup(attribute):
            key, code = f"sfumato_key_{i}", f"sfumato_code_{i}"
            codes = engine.upload(lookup(attribute, column, key, code))
            rows = rows.left_join(codes, lookup_key(attribute, column) == codes[key])
            names[attribute.name] = code
    return rows, {name: rows[code] for name, code in names.items()}


def _without_dropped(encoded: str, columns: Sequence[str]) -> str:
    if not columns:
        return encoded
    conditions = " AND ".join(f"{column} IS NOT NULL" for column in columns)
    return f"SELECT * FROM ({encoded}) AS encoded WHERE {conditions}"  # noqa: S608


def _owner(held: Held) -> ir.Column:
    """The unit of a row as text; null where there is none, which drops the row."""
    if held.is_untyped:
        return held.value.strip().nullif("")
    if held.family == "float":
        return held.value.isnan().ifelse(None, held.value).cast("string")
    return held.value.cast("string")


def _bounded(kept: str, codes: Sequence[str], most: int, turn: str) -> str:
    """At most ``most`` rows of each owner, those with the least keyed hash.

    Equal rows of one owner are numbered, so that each of them counts as a draw of its own; which
    of them gets which number is of no consequence, for they are equal. Every row thus has a hash
    of its own, and every choice of ``most`` rows is equally likely.
    """
    twins = ", ".join(["owner", *codes])
    return (
        f"SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY owner ORDER BY {turn}) AS place "  # noqa: S608
        f"FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {twins}) AS twin FROM ({kept}) AS kept) "
        f"AS numbered) AS drawn WHERE place <= {most}"
    )


def _one() -> ir.Scalar:
    import ibis

    return ibis.literal(1, type="int16")


def _small_integer(size: int) -> str:
    return "int16" if size <= 1 << 15 else "int32" if size <= 1 << 31 else "int64"


def _forget(engine: Engine, name: str) -> None:
    # At the end of the process the connection may be gone before the table is.
    import contextlib

    with contextlib.suppress(Exception):
        engine.drop(name)
