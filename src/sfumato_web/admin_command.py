# SPDX-License-Identifier: Apache-2.0
"""``sfumato admin``: people, tokens, allowances, totals and periods of a server that runs.

Registered as an entry point of ``sfumato.commands``. Every command is a request to the server with
the token of a curator, which stands in a file or in SFUMATO_TOKEN and never on the command line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast
from urllib.parse import quote

import typer

from sfumato.cli.options import Json, examples
from sfumato.cli.output import Output, facts, heading, table
from sfumato.errors import SchemaError

if TYPE_CHECKING:
    from sfumato.session.client import Client

__all__ = ["admin_app"]


admin_app = typer.Typer(
    name="admin",
    add_completion=False,
    rich_markup_mode="rich",
    help="Change who may use a server that runs, and what they may spend.",
    no_args_is_help=True,
    epilog=examples(
        "export SFUMATO_URL=https://stats.example.org SFUMATO_TOKEN=sfu_...",
        "sfumato admin people",
        "sfumato admin add eve --dataset people --expires-days 90 --reason 'joins the team'",
        "sfumato admin allow eve people --epsilon 0.5 --delta 1e-9 --reason 'her project'",
        "sfumato admin record",
    ),
)

Url = Annotated[str | None, typer.Option(metavar="URL", help="The server (default: SFUMATO_URL).")]
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A file with a curator's token (default: SFUMATO_TOKEN)."),
]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; it is recorded and stays there.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Whom.")]
Days = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, max=3_650, help="The token ends after so many days."),
]
RoleOption = Annotated[
    str | None, typer.Option(metavar="ROLE", help="analyst, curator, auditor or scraper.")
]
DatasetsOption = Annotated[
    list[str] | None,
    typer.Option("--dataset", metavar="NAME", help="A dataset; may be given several times."),
]
Amount = Annotated[str | None, typer.Option(metavar="NUMBER", help="A part of the budget.")]
DatasetName = Annotated[str, typer.Argument(metavar="DATASET", help="The dataset.")]


def _client(url: str | None, token_file: Path | None) -> Client:
    from sfumato.session.client import Client

    where = url or os.environ.get("SFUMATO_URL")
    if not where:
        raise SchemaError("which server? give --url https://HOST, or set SFUMATO_URL")
    token = os.environ.get("SFUMATO_TOKEN", "")
    if token_file is not None:
        try:
            token = token_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SchemaError(f"{token_file} cannot be read ({type(error).__name__})") from None
    if not token.strip().isascii() or not token.strip():
        raise SchemaError("whose token? give --token-file FILE, or set SFUMATO_TOKEN")
    # Once: who is let in twice would be refused, and a token that got lost is revoked by its id.
    return Client(where, token.strip(), tries=1)


def _sent(url: str | None, token_file: Path | None, path: str, **body: object) -> Mapping[str, Any]:
    sent = {name: value for name, value in body.items() if value is not None}
    if "budget" in body:
        sent["budget"] = body["budget"]
    return cast(Mapping[str, Any], _client(url, token_file).call("POST", path, sent))


def _at(*parts: str) -> str:
    return "/" + "/".join(quote(part, safe="") for part in parts)


def _person(shown: Mapping[str, Any], output: Output, title: str) -> None:
    """Somebody, and their token if it is new."""
    tokens = ", ".join(f"{t['id']} ({t['expires'] or 'never ends'})" for t in shown["tokens"])
    rows = [
        ("role", shown["role"]),
        ("datasets", ", ".join(shown["datasets"]) or "none"),
        ("tokens", tokens or "none"),
    ]
    if shown.get("token"):
        rows.append(("new token", f"{shown['token']}   (shown once, kept nowhere)"))
    output.result(dict(shown), heading(title), facts(rows))


@admin_app.command("people", epilog=examples("sfumato admin people --json"))
def people(url: Url = None, token_file: TokenFile = None, json: Json = False) -> None:
    """List who may use the server: roles, datasets, tokens and when they end."""
    rows = cast(list[Mapping[str, Any]], _client(url, token_file).call("GET", "/people"))
    listed = [
        (
            str(p["name"]),
            str(p["role"]),
            ", ".join(p["datasets"]),
            ", ".join(f"{t['id']} ({t['expires'] or 'never ends'})" for t in p["tokens"]),
            str(p["set_in"]),
        )
        for p in rows
    ]
    heads = ["name", "role", "datasets", "tokens", "set in"]
    Output(json).result({"people": rows}, table(heads, listed, text_columns=5))


@admin_app.command(
    "add",
    epilog=examples(
        "sfumato admin add eve --dataset people --reason 'joins the team'",
        "sfumato admin add prometheus --role scraper --dataset people --reason monitoring",
    ),
)
def add(
    name: Name,
    reason: Reason,
    role: RoleOption = "analyst",
    dataset: DatasetsOption = None,
    expires_days: Days = None,
    url: Url = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Let somebody in, and print their token, once."""
    body = {"name": name, "role": role, "datasets": dataset or [], "expires_days": expires_days}
    shown = _sent(url, token_file, "/people", reason=reason, **body)
    _person(shown, Output(json), f"{name} may use the server")


@admin_app.command(
    "change", epilog=examples("sfumato admin change eve --role auditor --reason 'moved'")
)
def change(
    name: Name,
    reason: Reason,
    role: RoleOption = None,
    dataset: DatasetsOption = None,
    url: Url = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Give somebody another role, or other datasets in place of theirs."""
    shown = _sent(url, token_file, _at("people", name), reason=reason, role=role, datasets=dataset)
    _person(shown, Output(json), f"{name} is changed")


@admin_app.command("remove", epilog=examples("sfumato admin remove eve --reason 'left'"))
def remove(
    name: Name, reason: Reason, url: Url = None, token_file: TokenFile = None, json: Json = False
) -> None:
    """Let somebody in no more; what was spent and answered stays."""
    shown = _sent(url, token_file, _at("people", name, "remove"), reason=reason)
    Output(json).result(dict(shown), heading(f"{name} may not use the server any more"))


@admin_app.command(
    "token", epilog=examples("sfumato admin token eve --expires-days 90 --reason rotation")
)
def token(
    name: Name,
    reason: Reason,
    expires_days: Days = None,
    url: Url = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Make one more token, and print it, once; the old ones hold until they are revoked."""
    path = _at("people", name, "tokens")
    shown = _sent(url, token_file, path, reason=reason, expires_days=expires_days)
    _person(shown, Output(json), f"{name} has one more token")


@admin_app.command(
    "revoke", epilog=examples("sfumato admin revoke eve 0123456789ab --reason 'was lost'")
)
def revoke(
    name: Name,
    token: Annotated[str, typer.Argument(metavar="ID", help="The id of the token.")],
    reason: Reason,
    url: Url = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """End a token at once."""
    shown = _sent(url, token_file, _at("people", name, "tokens", token, "revoke"), reason=reason)
    _person(shown, Output(json), f"{name} has a token less")


@admin_app.command(
    "allow",
    epilog=examples(
        "sfumato admin allow eve people --epsilon 0.5 --delta 1e-9 --reason 'her project'",
        "sfumato admin allow eve people --reason 'no limit of her own any more'",
    ),
)
def allow(
    name: Name,
    dataset: DatasetName,
    reason: Reason,
    epsilon: Amount = None,
    delta: Amount = None,
    rho: Amount = None,
    mu: Amount = None,
    url: Url = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Set what somebody may spend of a dataset; without an amount only the table limits them."""
    budget = _budget(epsilon, delta, rho, mu)
    path = _at("datasets", dataset, "allowances", name)
    shown = _sent(url, token_file, path, reason=reason, budget=budget)
    said = "no allowance of their own" if budget is None else f"an allowance of {_words(budget)}"
    Output(json).result(dict(shown), heading(f"{name} has {said} in {dataset}"))


@admin_app.command(
    "total",
    epilog=examples("sfumato admin total people --epsilon 8 --delta 1e-9 --reason 'board of May'"),
)
def total(
    dataset: DatasetName,
    reason: Reason,
    epsilon: Amount = None,
    delta: Amount = None,
    rho: Amount = None,
    mu: Amount = None,
    url: Url = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Set what all may spend of a dataset together; the ledger records who and why.

    More is a weaker promise to the people in the table; decide it without
    looking at answers. Write it into server.toml as well, where a lower one
    takes effect at the next start.
    """
    budget = _budget(epsilon, delta, rho, mu) or {}
    shown = _sent(url, token_file, _at("datasets", dataset, "total"), reason=reason, budget=budget)
    Output(json).result(
        dict(shown),
        heading(f"{dataset} has a total of {_words(budget)}"),
        "Write it into the configuration, too: a lower one there takes effect at the next start.",
    )


@admin_app.command(
    "renew",
    epilog=examples("sfumato admin renew survey --period 2026-04 --reason 'survey of April'"),
)
def renew(
    series: Annotated[str, typer.Argument(metavar="SERIES", help="The series.")],
    period: Annotated[str, typer.Option(metavar="NAME", help="The period that begins.")],
    reason: Reason,
    url: Url = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Begin the next period of a series: a new table with a budget of its own.

    The ledger of the period before records who did it and why. The table must
    be there, and must not have been chosen by looking at answers.
    """
    path = _at("series", series, "periods")
    shown = _sent(url, token_file, path, period=period, reason=reason)
    _series([shown], Output(json), dict(shown), f"{series}@{period} has begun")


@admin_app.command("series", epilog=examples("sfumato admin series --json"))
def series(url: Url = None, token_file: TokenFile = None, json: Json = False) -> None:
    """List series: their periods, who began them and why, what they promise together."""
    listed = cast(list[Mapping[str, Any]], _client(url, token_file).call("GET", "/series"))
    _series(listed, Output(json), {"series": listed}, "Series of periods")


def _series(
    listed: list[Mapping[str, Any]], output: Output, document: dict[str, Any], title: str
) -> None:
    rows = [
        (p["dataset"], _words(_numbers(p["budget"])), p["by"] or "", p["reason"] or "")
        for each in listed
        for p in each["periods"]
    ]
    promised = [
        (f"who is in {k} of {each['name']}", f"{_words(_numbers(budget))} at most")
        for each in listed
        for k, budget in enumerate(each["promised"], 1)
    ]
    heads = ["dataset", "total", "begun by", "why"]
    parts = (table(heads, rows, text_columns=4), facts(promised))
    output.result(document, heading(title), *parts)


def _numbers(budget: Mapping[str, Any]) -> dict[str, str]:
    return {name: f"{value:g}" for name, value in budget.items() if value is not None}


@admin_app.command("record", epilog=examples("sfumato admin record --json"))
def record(url: Url = None, token_file: TokenFile = None, json: Json = False) -> None:
    """Show who changed people and allowances, when and why."""
    lines = _client(url, token_file).changes()
    records = [cast(Mapping[str, str], line["record"]) for line in lines]
    rows = [(r["time"], r["by"], r["act"], r["person"], r["reason"]) for r in records]
    heads = ["time", "by", "what", "whom", "why"]
    Output(json).result({"changes": lines}, table(heads, rows, text_columns=5))


def _budget(*parts: str | None) -> dict[str, str] | None:
    named = zip(("epsilon", "delta", "rho", "mu"), parts, strict=True)
    return {name: value for name, value in named if value is not None} or None


def _words(budget: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in budget.items())
