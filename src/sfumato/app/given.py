# SPDX-License-Identifier: Apache-2.0
"""What the TOML files of the app say of a table: its source, domain, privacy unit and budget.

Shared by the spec of a release and the configuration of the server. ``at`` is the place of the
table in its file, for the line in a message.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pydantic import BaseModel, ConfigDict

from sfumato.app.shipped import is_shipped, shipped_domain, shipped_table
from sfumato.domain.domain import domain_from
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import BudgetError, SchemaError, TableError
from sfumato.privacy.budget import Budget
from sfumato.toml import STRICT, KeyPath, TomlFile, read_toml
from sfumato.vault.warehouse import CsvRule, CsvSource, SqlSource, engine_source, placed

if TYPE_CHECKING:
    from sfumato.domain.domain import Domain

__all__ = [
    "Amount",
    "PlannedTable",
    "budget_from",
    "named_domain",
    "source_from",
    "table_from",
    "total_from",
    "unit_from",
]


Amount = int | float | str


class _Amounts(Protocol):
    """A table of the file that may name a budget."""

    epsilon: Amount | None
    delta: Amount | None
    rho: Amount | None
    mu: Amount | None


class PlannedTable(BaseModel):
    """A release that is planned from a ledger: ``epsilon`` and ``delta``, or ``epsilon`` alone."""

    model_config = ConfigDict(**STRICT)

    epsilon: Amount | None = None
    delta: Amount | None = None
    rho: Amount | None = None
    mu: Amount | None = None


class _Total(_Amounts, Protocol):
    """A table of the file that names the total of a ledger, and perhaps its lanes."""

    pure: Amount | None
    planned: list[PlannedTable] | None


def named_domain(file: TomlFile, named: str, at: KeyPath) -> Domain:
    """The domain in another file, whose path starts at the folder of this one, or a shipped one."""
    if is_shipped(named):
        return domain_from(read_toml(_shipped(file, at, shipped_domain, named)))
    return domain_from(read_toml((file.folder or Path()) / named))


def source_from(file: TomlFile, named: str | None, at: KeyPath) -> str | None:
    """The source as ``open_table`` takes it; a relative path starts at the folder of the file."""
    if named is None:
        return None
    if is_shipped(named):
        return str(_shipped(file, at, shipped_table, named))
    try:
        engine_source(named)
    except TableError as error:
        raise file.error(str(error), at) from None
    return placed(named, file.folder or Path())


def table_from(
    file: TomlFile, named: str | None, query: str | None, csv: CsvRule | None, at: KeyPath
) -> str | SqlSource | CsvSource | None:
    """The source of the records, with what its file says about it.

    That is the query that says what to read of it, or what a record of a CSV file is.
    """
    source = source_from(file, named, (*at, "source"))
    if query is None and csv is None:
        return source
    if source is None:
        key, what = ("query", "a query") if query is not None else ("csv", "what is said of lines")
        raise file.error(f"{what} needs a source that it is about", (*at, key))
    if csv is None:
        return SqlSource(source, str(query))
    if query is not None:
        raise file.error("a CSV file has no types, so no query runs on it", (*at, "query"))
    return CsvSource(source, csv)


def unit_from(
    file: TomlFile, column: str | None, rows: int | None, at: KeyPath
) -> PrivacyUnit | None:
    """The privacy unit of a table of the file, from its column and its bound."""
    if (column is None) != (rows is None):
        raise file.error(
            "a privacy unit needs both its column (unit) and a bound on the rows of one unit "
            '(rows_per_unit), for example unit = "person_id" and rows_per_unit = 5',
            (*at, "unit" if column is not None else "rows_per_unit"),
        )
    try:
        return None if column is None or rows is None else PrivacyUnit(column, rows)
    except SchemaError as error:
        raise file.error(str(error), (*at, "rows_per_unit")) from None


def budget_from(file: TomlFile, table: _Amounts, at: KeyPath) -> Budget:
    """The budget of a table of the file; its faults get the line of the key they are about."""
    try:
        budget = Budget(epsilon=table.epsilon, delta=table.delta, rho=table.rho, mu=table.mu)
        if table.delta is not None and not budget.delta:
            raise BudgetError("delta must lie in (0, 1), got 0; for a pure budget leave it out")
        return budget
    except BudgetError as error:
        message = str(error)
        first = message.split(maxsplit=1)[0]
        is_key = first in ("epsilon", "delta", "rho", "mu")
        raise file.error(message, (*at, first) if is_key else at) from None


def total_from(file: TomlFile, table: _Total, at: KeyPath) -> Budget:
    """The total of a ledger: a budget whose lanes are declared by ``pure`` or ``planned``."""
    total = budget_from(file, table, at)
    planned = [
        budget_from(file, each, (*at, "planned", i)) for i, each in enumerate(table.planned or [])
    ]
    if table.pure is None and not planned:
        return total
    if table.pure is not None and planned:
        raise file.error(
            "pure and planned both declare lanes; keep pure, or the list of what is planned",
            (*at, "pure"),
        )
    try:
        if planned:
            return total.with_lanes_for(planned)
        return Budget(epsilon=total.epsilon, delta=total.delta, rho=total.rho, mu=total.mu,
                      pure=table.pure)  # fmt: skip
    except BudgetError as error:
        raise file.error(str(error), (*at, "planned" if planned else "pure")) from None


def _shipped(file: TomlFile, at: KeyPath, find: Callable[[str], Path], name: str) -> Path:
    try:
        return find(name)
    except SchemaError as error:
        raise file.error(str(error), at) from None
