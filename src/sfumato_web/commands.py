# SPDX-License-Identifier: Apache-2.0
"""``sfumato serve`` and ``sfumato token``, registered as entry points of ``sfumato.commands``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.options import Json, Quiet, command_app, examples, flag
from sfumato.cli.output import Output, facts, heading
from sfumato.errors import SfumatoError

if TYPE_CHECKING:
    from sfumato_web.server.config import Config

__all__ = ["serve", "serve_app", "token", "token_app"]


serve_app, token_app = command_app(), command_app()


@serve_app.command(
    epilog=examples(
        "sfumato serve server.toml",
        "sfumato serve server.toml --check",
        "sfumato serve server.toml --no-page",
        "curl -H 'Authorization: Bearer TOKEN' http://127.0.0.1:8321/datasets",
    )
)
def serve(
    path: Annotated[
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
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise SfumatoError(
            "the server needs fastapi and uvicorn; install them with: pip install 'sfumato[web]'"
        ) from None
    from dataclasses import replace

    from sfumato_web.app import run
    from sfumato_web.server.config import check_address, read_config

    output = Output(json, quiet)
    config = read_config(path)
    config = config if port is None else replace(config, port=port)
    config = config if page is None else replace(config, page=page)
    if config.page:
        _check_page()
    if check:
        _check(path, config, output)
        return
    check_address(config.host, config.port)
    where = f"http://{config.host}:{config.port}"
    shown = f"; the page is {where}/page" if config.page else ""
    datasets = "1 dataset" if len(config.datasets) == 1 else f"{len(config.datasets)} datasets"
    run(config, lambda: output.note(f"Serving {datasets} on {where}{shown}"))


def _check(path: Path, config: Config, output: Output) -> None:
    """Open all that the server would open, and say what is wrong; nothing is written or spent."""
    from sfumato_web.server.config import faults

    listed = faults(config)
    if listed:
        words = "\n".join(f"  {each}" for each in listed)
        number = "1 fault" if len(listed) == 1 else f"{len(listed)} faults"
        raise SfumatoError(f"{path} cannot be served as it stands, {number}:\n{words}")
    output.result(
        {"datasets": sorted(config.datasets), "analysts": [a.name for a in config.analysts]},
        heading(f"{path} is in order", "ledgers, tables, columns and state were opened"),
        facts(
            [
                ("datasets", ", ".join(sorted(config.datasets))),
                ("analysts", ", ".join(f"{a.name} ({a.role})" for a in config.analysts)),
                ("address", f"http://{config.host}:{config.port}"),
                ("page", "at /page" if config.page else "none"),
            ]
        ),
    )


def _check_page() -> None:
    try:
        import nicegui  # noqa: F401
        import websockets  # noqa: F401
    except ImportError:
        raise SfumatoError(
            "the page needs nicegui; install it with: pip install 'sfumato[web]', or leave the "
            "page out with --no-page"
        ) from None


@token_app.command(epilog=examples("sfumato token", "sfumato token --json"))
def token(json: Json = False) -> None:
    """Make a token for an analyst, and its hash for the server."""
    from sfumato_web.server.config import hash_of, new_token

    made = new_token()
    Output(json).result(
        {"token": made, "hash": hash_of(made)},
        heading("A new token", "shown once, kept nowhere"),
        facts([("token", made), ("hash", hash_of(made))]),
        "",
        "Give the token to the analyst; put the hash into token of [analysts.NAME] of the server.",
    )
