# SPDX-License-Identifier: Apache-2.0
"""The command line, as a table of contents: each body is a function in ``commands``.

Exit codes: 0 done; 2 refused, with one message on standard error; 1 an error that should not
happen; 130 interrupted. Results go to standard output, progress and messages to standard error.
Heavy modules are imported by the bodies, so that ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sfumato.app.failures import INTERRUPTED, guarded
from sfumato.app.ledger_cli import ledger_app
from sfumato.app.options import Error, Json, Mechanism, Quiet, Seconds, SpecFile, examples, flag
from sfumato.app.output import Output

__all__ = [
    "app",
    "main",
]


app = typer.Typer(
    name="sfumato",
    help="Private answers to linear queries, as sharp as mathematics allows.",
    epilog=examples("sfumato demo", "sfumato plan release.toml", "sfumato release release.toml"),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(ledger_app, name="ledger")


def _version(is_asked: bool) -> None:
    if is_asked:
        from sfumato import __version__

        typer.echo(f"sfumato {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Private answers to linear queries, as sharp as mathematics allows."""


@app.command(
    epilog=examples("sfumato demo", "sfumato demo --epsilon 0.1 --out /tmp/small-budget"),
)
def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the files go.")] = Path(
        "sfumato-demo"
    ),
    epsilon: Annotated[str, typer.Option(metavar="NUMBER", help="The budget: epsilon.")] = "1",
    delta: Annotated[str, typer.Option(metavar="NUMBER", help="The budget: delta.")] = "1e-9",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Release a shipped table: answers, charts and a report in a minute.

    All 2-way marginals and the age distribution by sex of the Adult census
    table, with differential privacy.
    """
    from sfumato.app.commands.demo import demo as body

    body(out, epsilon, delta, Output(json, quiet))


@app.command(
    epilog=examples(
        "sfumato draft people.parquet",
        "sfumato draft people.csv --out schema.toml",
        "sfumato draft survey.duckdb::answers --out schema.toml",
        "sfumato draft postgres://me@host/survey::public.answers",
    ),
)
def draft(
    file: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="CSV, Parquet (globs too), FILE.duckdb::TABLE, "
            "postgres://USER@HOST/DATABASE::TABLE or spark:TABLE.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the draft here instead of to stdout."),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(metavar="SELECT", help="What to read of the source, in place of a table."),
    ] = None,
    json: Json = False,
) -> None:
    """Draft a schema from column types, for you to complete.

    Ranges and lists of values are left open on purpose: they must come from
    public knowledge, and would not be public if they were read off the data.
    """
    from sfumato.app.commands.draft import draft as body

    body(file, out, Output(json), query)


@app.command(
    epilog=examples(
        "sfumato plan release.toml",
        "sfumato plan release.toml --error 50",
        "sfumato plan release.toml --mechanism gaussian --json",
    ),
)
def plan(
    spec: SpecFile,
    mechanism: Mechanism = None,
    error: Error = None,
    seconds: Seconds = None,
    records: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Also forecast the error after projection for N records (default: plan.records).",
        ),
    ] = None,
    show_all: Annotated[bool, flag("--all", text="List every group, however many.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Forecast the errors of a release; touches no data, costs nothing.

    The source need not even exist. All mechanisms that fit are shown side by
    side; the one with the least forecast error is chosen.
    """
    from sfumato.app.commands.plan import plan as body

    body(spec, mechanism, error, seconds, records, show_all, Output(json, quiet))


@app.command(
    epilog=examples(
        "sfumato release release.toml",
        "sfumato release release.toml --out results --notebook",
        "sfumato release release.toml --ledger people.ledger --key 2026-q1",
        "sfumato release release.toml --synthetic 10000 --yes",
        "sfumato release release.toml --intervals bootstrap",
    ),
)
def release(
    spec: SpecFile,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the files go (default: release.out of the spec)."),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="The ledger to debit (default: ledger.path of the spec)."
        ),
    ] = None,
    no_ledger: Annotated[
        bool, flag("--no-ledger", text="Release without a ledger: you keep track of the budget.")
    ] = False,
    mechanism: Mechanism = None,
    error: Error = None,
    notebook: Annotated[
        bool, flag("--notebook", text="Also write a notebook that reads the release.")
    ] = False,
    synthetic: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Also write N synthetic records, at no extra cost."),
    ] = None,
    csv: Annotated[
        bool, flag("--csv", text="Also write answers and synthetic records as CSV files.")
    ] = False,
    intervals: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="noise: they hold as often as they say; bootstrap: shorter, approximate "
            "(default: release.intervals of the spec, or noise).",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Name this request: the same key returns the stored answer, a new one spends.",
        ),
    ] = None,
    yes: Annotated[bool, flag("--yes", "-y", text="Do not ask before spending.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Count, debit, measure, and write the answers and a report.

    Writes answers.parquet, report.html and provenance.json. The cost is
    debited in the ledger before any noise is drawn. Running the same spec
    again returns the stored answer and costs nothing. On a terminal you are
    asked before anything is spent; without one, --yes is needed.
    """
    from sfumato.app.commands.release import Wishes
    from sfumato.app.commands.release import release as body

    wishes = Wishes(out, ledger, no_ledger, notebook, synthetic, key, yes, intervals, csv)
    body(spec, mechanism, error, wishes, Output(json, quiet))


@app.command(
    epilog=examples(
        "sfumato compare release.toml", "sfumato compare release.toml --rows 48842 --out compare"
    ),
)
def compare(
    spec: SpecFile,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the charts (PNG and HTML) here.")
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Also show errors as shares of N records, with the local model beside.",
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare all mechanisms on one workload: forecasts, bounds, charts.

    Touches no data and costs nothing.
    """
    from sfumato.app.commands.compare import compare as body

    body(spec, out, rows, Output(json, quiet))


@app.command(
    epilog=examples(
        'sfumato ask people.toml "SELECT COUNT(*) FROM data WHERE age >= 65"',
        "sfumato ask people.toml --file questions.sql --json",
        'sfumato ask people.toml "SELECT sex, COUNT(*) FROM data GROUP BY sex" --estimate',
        'sfumato ask people.toml "SELECT AVG(age) FROM data" --dummy',
    ),
)
def ask(
    spec: SpecFile,
    questions: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUESTION...", help="SELECTs that count or sum records."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also ask the questions of a file, one on each line."),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="The ledger to debit (default: ledger.path of the spec)."
        ),
    ] = None,
    no_ledger: Annotated[
        bool, flag("--no-ledger", text="Ask without a ledger: you keep track of the budget.")
    ] = False,
    estimate: Annotated[
        bool, flag("--estimate", text="Say what asking would cost; spends and tests nothing.")
    ] = False,
    untested: Annotated[
        bool,
        flag("--untested", text="When the budget is used up, show estimates without a promise."),
    ] = False,
    dummy: Annotated[
        bool, flag("--dummy", text="Ask made-up records: nothing is opened, nothing is spent.")
    ] = False,
    yes: Annotated[bool, flag("--yes", "-y", text="Do not ask before spending.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Ask one question at a time; most answers are free.

    An answer costs something only if what is known so far is wrong about it.
    The ledger remembers everything: the next call goes on with the same
    session, and the same question gets the same answer for nothing.
    """
    from sfumato.app.commands.ask import Wanted
    from sfumato.app.commands.ask import ask as body

    wanted = Wanted(questions or [], file, ledger, no_ledger, estimate, untested, dummy, yes)
    body(spec, wanted, Output(json, quiet))


@app.command(
    epilog=examples(
        "sfumato serve server.toml",
        "sfumato serve server.toml --check",
        "sfumato serve server.toml --no-page",
        "curl -H 'Authorization: Bearer TOKEN' http://127.0.0.1:8321/datasets",
    ),
)
def serve(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="The configuration of the server (TOML).")
    ],
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", min=0, max=65535, help="Another port than server.port."),
    ] = None,
    check: Annotated[
        bool, flag("--check", text="Read the configuration, say what is wrong, and stop.")
    ] = False,
    page: Annotated[
        bool | None,
        typer.Option("--page/--no-page", help="With or without the web page (server.page)."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Answer analysts over HTTP: datasets, plans, releases, questions, and a web page.

    Plain HTTP for a reverse proxy on the same machine, which does TLS. Every
    answer is debited in the ledger of its table before its noise is drawn.
    The page is at /page and loads nothing from elsewhere.
    """
    from sfumato.app.commands.serve import serve as body

    body(config, port, check, page, Output(json, quiet))


@app.command(epilog=examples("sfumato token", "sfumato token --json"))
def token(json: Json = False) -> None:
    """Make a token for an analyst, and its hash for the server."""
    from sfumato.app.commands.serve import token as body

    body(Output(json))


@app.command(
    epilog=examples(
        "sfumato audit",
        "sfumato audit --only gaussian",
        "sfumato audit --full --out audit",
        "sfumato audit --workers 1",
        "sfumato audit --json > audit.json",
    ),
)
def audit(
    full: Annotated[
        bool, flag("--full", text="Many more runs and pairs (an hour of processor time).")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Only mechanisms whose name holds this text."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the charts (PNG) here.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Processes; one per core unless said otherwise."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Try to break every privacy claim, on made-up tables.

    Lower bounds on the privacy loss of every mechanism, from many runs on
    neighbouring tables, beside its claim; and mechanisms known to be wrong,
    which must be caught. Exit code 1 if a claim is refuted, a wrong one is
    not caught, or a mechanism has no audit.
    """
    from sfumato.app.commands.audit import audit as body

    code = body(out, only, full, workers, Output(json, quiet))
    if code:
        raise typer.Exit(code)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    with guarded():
        try:
            app(args=None if arguments is None else list(arguments), prog_name="sfumato")
        except SystemExit as left:
            if left.code == INTERRUPTED:  # typer's, which says nothing
                raise KeyboardInterrupt from None
            raise
    sys.exit(0)
