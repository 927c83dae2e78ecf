# SPDX-License-Identifier: Apache-2.0
"""``sfumato show``: a saved release, read again: its groups, chosen answers, or SQL over them."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.cli_limits import LIMITS
from sfumato.cli.options import Json, command_app, examples
from sfumato.cli.output import Output, counts, facts, heading, table, write_text

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table as Shown

    from sfumato.release.release import Release

__all__ = ["app", "show"]

app = command_app()


@app.command(
    epilog=examples(
        "sfumato show adult-release",
        "sfumato show adult-release --by age --by sex",
        "sfumato show adult-release --sql 'SELECT sex, SUM(value) FROM \"age x sex\" GROUP BY sex'",
        "sfumato show adult-release --ledger adult.ledger --report report.html --level 0.99",
    )
)
def show(
    path: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a release.")],
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Answers over these attributes, rolled up where they have to be."
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="The answers of one group.")
    ] = None,
    sql: Annotated[
        str | None, typer.Option(metavar="SELECT", help="A SELECT over the released groups.")
    ] = None,
    level: Annotated[
        float, typer.Option(metavar="P", help="The probability of intervals.", show_default=True)
    ] = 0.95,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report with these intervals.")
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(metavar="LEDGER", help="Check that this ledger paid for it and stored it."),
    ] = None,
    json: Json = False,
) -> None:
    """Show a release that was saved: no data is read, nothing is spent.

    The files must be those that were saved together, and the answers must follow
    from what was measured; with a ledger, from what it stored.
    """
    from sfumato.release.saved import read_release

    output = Output(json)
    release = read_release(path, ledger)
    if report is not None:
        write_text(report, release.report(level))
    if sql is not None:
        frame = release.sql(sql, level)
    elif by or group is not None:
        frame = release.answers(by, group=group, level=level)
    else:
        output.result(_document(release), heading("A saved release"), _facts(release))
        return
    first = frame.head(LIMITS.keys_shown)
    remark = "" if len(first) == len(frame) else f"the first {len(first)} of {len(frame):,} rows"
    document = {"rows": json_text.loads(frame.to_json(orient="records", date_format="iso"))}
    output.result(document, heading("Answers", remark), _rows(first))


def _rows(frame: pd.DataFrame) -> Shown:
    is_number = [frame[n].dtype.kind == "f" for n in frame]
    rows = [
        [counts(v) if n else str(v) for v, n in zip(row, is_number, strict=True)]
        for row in frame.itertuples(index=False)
    ]
    return table(list(map(str, frame.columns)), rows, sum(not n for n in is_number))


def _facts(release: Release) -> Shown:
    from sfumato.release.provenance import first_numbers_in_words

    record = release.provenance
    first = first_numbers_in_words(record)
    shown = release.groups[: LIMITS.keys_shown]
    more = len(release.groups) - len(shown)
    return facts(
        [
            ("promise", str(record["guarantee"])),
            ("spent", str(record["cost_in_words"])),
            ("mechanism", str(record["mechanism"])),
            *([("measured first", first)] if first else []),
            ("created", str(record["created"])),
            ("answers", f"{release.workload.queries:,}"),
            ("groups", "\n".join([*shown, *([f"and {more} more"] if more > 0 else [])])),
        ]
    )


def _document(release: Release) -> dict[str, object]:
    return {"groups": list(release.groups), "provenance": dict(release.provenance)}
