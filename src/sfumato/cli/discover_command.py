# SPDX-License-Identifier: Apache-2.0
"""``sfumato discover``: the values of columns that many people share, for epsilon and delta.

With ``--persons``, how many rows of one unit are to be counted, for epsilon alone.

Of a spec file whose schema says "discover", or of columns of a table that are named here. How many
people a value needs is said before anything is spent, on a terminal with a question. The discovery
itself is ``DiscoveryPlan.release``; a release of such a spec makes it first, by `discover_spec`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.cli_limits import LIMITS
from sfumato.cli.options import (
    Csv,
    Json,
    LedgerPath,
    Quiet,
    Yes,
    command_app,
    csv_source,
    examples,
    flag,
)
from sfumato.cli.output import Output, counts, facts, heading, table, write_text
from sfumato.cli.plan_command import discovery_facts
from sfumato.cli.release_command import discover_all, ledger_document, ledger_in_words
from sfumato.domain.discovery import OPEN_BOUND
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import PlanError, SchemaError, SfumatoError
from sfumato.text import STORED

if TYPE_CHECKING:
    from rich.table import Table as Shown

    from sfumato.cli.spec import OpenSpec
    from sfumato.domain.discovery import OpenDomain
    from sfumato.ledger.ledger import Ledger
    from sfumato.run.discover import Discovery
    from sfumato.vault.sources import CsvSource

__all__ = ["app", "discover"]


_BY_SQL = "SELECT city FROM data GROUP BY city ORDER BY COUNT(*) DESC LIMIT 3"
_NO_LEDGER = "nothing would remember what this discovery spends"

app = command_app()


@app.command(
    epilog=examples(
        "sfumato discover people.csv --column city --epsilon 1 --delta 1e-6 --no-ledger",
        "sfumato discover people.csv --column city --top 3 --epsilon 1 --delta 1e-6 --no-ledger",
        f'sfumato discover people.csv --sql "{_BY_SQL}" --epsilon 1 --delta 1e-6 --no-ledger',
        "sfumato discover people.csv --column state --column city --together --epsilon 1 --delta "
        "1e-6 --ledger people.ledger --out schema.toml",
        "sfumato discover visits.csv --unit patient --persons 100 --epsilon 0.1 --no-ledger",
        "sfumato discover release.toml --estimate",
        "sfumato discover release.toml --out schema.toml --yes",
    )
)
def discover(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help='A spec file (TOML) whose schema says values = "discover", or a table.',
        ),
    ],
    columns: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="NAME", help="A column of the table; may be repeated."),
    ] = None,
    together: Annotated[
        bool, flag("--together", text="Discover the tuples of all columns, not each by itself.")
    ] = False,
    epsilon: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="What may be spent, of a table.")
    ] = None,
    delta: Annotated[
        str | None,
        typer.Option(metavar="NUMBER", help="How often a value of one person may come out."),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(
            "--top",
            "--most",
            metavar="N",
            min=1,
            help="Publish the N values with the largest counts.",
        ),
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option(
            metavar="SELECT",
            help="Discover the groups of SELECT ... GROUP BY ... ORDER BY COUNT(*) DESC LIMIT N, "
            "in place of --column and --top.",
        ),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Protect all rows that share a value of this column."),
    ] = None,
    keys_per_unit: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Different values of one unit that count at most."),
    ] = None,
    persons: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Discover how many rows of one unit to count, in place of values: about N units "
            "have more.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the completed schema here.")
    ] = None,
    estimate: Annotated[
        bool, flag("--estimate", text="Say how many people a value needs; spends nothing.")
    ] = False,
    csv: Csv = None,
    ledger_path: LedgerPath = None,
    no_ledger: Annotated[
        bool, flag("--no-ledger", text="Discover without a ledger: you keep track of the budget.")
    ] = False,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find the values of columns that many people share, with their counts.

    What one person alone has comes out with probability delta at most. The
    published values and (other) are a schema to plan on. The cost is debited
    in the ledger before any noise is drawn, and the same discovery again
    costs nothing.
    """
    from sfumato.cli.spec import ledger_to_debit

    output = Output(json, quiet)
    if out is not None and out.exists():
        raise SfumatoError(
            f"{out} exists and may hold your work; name another file, or remove it first"
        )
    if source.endswith(".toml"):
        options = (columns, epsilon, delta, most, sql, unit, keys_per_unit, persons, csv)
        if together or any(option is not None for option in options):
            raise PlanError(
                f"{source} says what is discovered and for how much; leave out --column, "
                "--together, --epsilon, --delta, --top, --sql, --unit, --keys-per-unit, --persons "
                "and --csv, or name a table"
            )
        opened = _of_spec(Path(source))
    else:
        person, domain = _of_options(unit, keys_per_unit, persons, columns, together, most, sql)
        declared = csv_source(source, csv or ())
        opened = _of_table(source, declared, domain, epsilon, delta, person)
    plan = opened.plan()
    if estimate:
        shown = facts(discovery_facts(plan))
        output.result(plan.as_json(), heading("Nothing was spent"), shown)
        return
    at = ledger_to_debit(opened.path, opened.ledger, ledger_path, no_ledger, _NO_LEDGER)
    if at is not None and at.total is None and at.total_if_new is None:
        at = replace(at, total_if_new=opened.total)
    ledgers: list[Ledger | None] = []
    opened, result = discover_all(opened, at, output, yes, ledgers)
    schema = _schema(result)
    if out is not None and schema is not None:
        write_text(out, schema)
    files = {} if out is None or schema is None else {"schema": str(out)}
    if schema is None and not opened.is_of_bound:
        output.note("No value is shared by enough people; a larger budget may find some.")
    what = "how many rows to count" if opened.is_of_bound else f"{len(result.counts):,} values"
    output.result(
        _document(result, ledgers[0], files),
        heading(f"Discovered {what}", STORED if result.is_stored else ""),
        _found(result),
        _facts(result, ledgers[0], files),
    )


def _of_spec(path: Path) -> OpenSpec:
    from sfumato.cli.spec import open_spec

    opened = open_spec(path)
    if opened is None:
        raise PlanError(
            f'{path} leaves nothing to be discovered; write values = "discover" in the table '
            "[domain.NAME] of a column"
        )
    return opened


def _of_options(
    unit: str | None,
    keys_per_unit: int | None,
    persons: int | None,
    columns: list[str] | None,
    together: bool,
    most: int | None,
    sql: str | None,
) -> tuple[PrivacyUnit | None, OpenDomain]:
    """Whose presence the options protect, and what they want to be discovered."""
    from sfumato.domain.discovery import OpenDomain

    if persons is not None:
        if unit is None or columns or sql is not None or (keys_per_unit, most) != (None, None):
            raise PlanError(
                "--persons finds how many rows of one unit to count; it needs --unit, and leaves "
                "--column, --top, --sql and --keys-per-unit to a discovery of its own"
            )
        return PrivacyUnit(unit, 1), OpenDomain([PrivacyUnit.discover(unit, persons)])
    if (unit is None) != (keys_per_unit is None):
        raise PlanError("--unit and --keys-per-unit belong together; give both or none")
    person = None if unit is None or keys_per_unit is None else PrivacyUnit(unit, keys_per_unit)
    return person, _wanted(columns, together, most, sql, person)


def _wanted(
    columns: list[str] | None,
    together: bool,
    most: int | None,
    sql: str | None,
    unit: PrivacyUnit | None,
) -> OpenDomain:
    """What the options want to be discovered."""
    from sfumato.domain.attributes import Category
    from sfumato.domain.discovery import OpenDomain
    from sfumato.domain.domain_limits import LIMITS as DOMAIN_LIMITS
    from sfumato.workload.statements.sql_top import top_keys

    if sql is not None:
        if columns or together or most is not None:
            raise PlanError(
                "--sql says by GROUP BY which columns and by LIMIT how many; leave --column, "
                "--together and --top out"
            )
        return OpenDomain([top_keys(sql, unit)])
    if not columns:
        raise PlanError("say which columns: --column NAME, once for each, or --sql SELECT")
    many = DOMAIN_LIMITS.keys_published if most is None else most
    groups = [columns] if together else [[column] for column in columns]
    return OpenDomain([Category.discover(group, most=many) for group in groups])


def _of_table(
    source: str,
    declared: str | CsvSource,
    domain: OpenDomain,
    epsilon: str | None,
    delta: str | None,
    unit: PrivacyUnit | None,
) -> OpenSpec:
    """A discovery in a table that the options name."""
    from sfumato.cli.spec import OpenSpec
    from sfumato.privacy.budget import Budget

    needs_delta = any(each.mechanism != OPEN_BOUND for each in domain.open)
    if epsilon is None or (delta is None and needs_delta):
        raise PlanError(
            "a discovery spends epsilon and delta: give --epsilon 1 --delta 1e-6 for example"
        )
    budget = Budget(epsilon, delta)
    return OpenSpec(
        path=Path(source),
        source=declared,
        name=None,
        domain=domain,
        neighbours="add-remove",
        unit=unit,
        total=budget,
        budget=budget,
        rest=None,
        ledger=None,
    )


def _schema(result: Discovery) -> str | None:
    """The closed domain as a schema file; None if nothing was published."""
    try:
        return result.to_toml()
    except SchemaError:
        return None


def _found(result: Discovery) -> Shown:
    """The first keys of every column."""
    first = result.counts.groupby("column", sort=False).head(LIMITS.keys_shown)
    rows = [
        [f"{row['column']} = {row['key']}", *(counts(row[n]) for n in ("count", "low", "high"))]
        for row in first.to_dict("records")
    ]
    return table(["value", "people", "low", "high"], rows)


def _facts(result: Discovery, ledger: Ledger | None, files: dict[str, str]) -> Shown:
    from sfumato.release.provenance import cost_in_words

    plan = result.plan
    cost = cost_in_words(plan.cost, plan.budget)
    spent = f"nothing now; {cost} when it was first discovered" if result.is_stored else cost
    rows = [row for row in discovery_facts(plan) if row[0] != "cost"]
    return facts([*rows, ("spent", spent), ("ledger", ledger_in_words(ledger)), *files.items()])


def _document(result: Discovery, ledger: Ledger | None, files: dict[str, str]) -> dict[str, object]:
    """A discovery as JSON: what was published, what holds of it, and what it left."""
    paid = result.entry
    entry = None if paid is None else {"sequence": paid.sequence, "hash": paid.hash}
    return {
        **result.as_json(),
        "is_stored": result.is_stored,
        "ledger": ledger_document(entry, ledger),
        "files": files,
    }
