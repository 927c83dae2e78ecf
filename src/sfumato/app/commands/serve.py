# SPDX-License-Identifier: Apache-2.0
"""``sfumato serve`` and ``sfumato token``."""

from __future__ import annotations

import socket
from pathlib import Path

from sfumato.app.output import Output
from sfumato.app.server.tokens import hash_of, new_token
from sfumato.app.show import facts, heading
from sfumato.errors import SfumatoError

__all__ = ["serve", "token"]


def serve(path: Path, port: int | None, check: bool, page: bool | None, output: Output) -> None:
    """Read the configuration, open the ledgers, and answer until interrupted."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise SfumatoError(
            "the server needs fastapi and uvicorn; install them with: pip install 'sfumato[web]'"
        ) from None
    from dataclasses import replace

    from sfumato.app.server.app import run
    from sfumato.app.server.config import read_config

    config = read_config(path)
    config = config if port is None else replace(config, port=port)
    config = config if page is None else replace(config, page=page)
    if config.page:
        _check_page()
    if check:
        output.result(
            {"datasets": sorted(config.datasets), "analysts": [a.name for a in config.analysts]},
            heading(f"{path} is in order", "nothing was opened"),
            facts(
                [
                    ("datasets", ", ".join(sorted(config.datasets))),
                    ("analysts", ", ".join(f"{a.name} ({a.role})" for a in config.analysts)),
                    ("address", f"http://{config.host}:{config.port}"),
                    ("page", "at /page" if config.page else "none"),
                ]
            ),
        )
        return
    _check_address(config.host, config.port)
    where = f"http://{config.host}:{config.port}"
    shown = f"; the page is {where}/page" if config.page else ""
    datasets = "1 dataset" if len(config.datasets) == 1 else f"{len(config.datasets)} datasets"
    output.note(f"Serving {datasets} on {where}{shown}")
    run(config)


def _check_address(host: str, port: int) -> None:
    """Refuse an address that nobody could be answered at, before anything is opened."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        socket.create_server(address, family=family).close()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise SfumatoError(
            f"{host}, port {port} cannot be served ({reason}); stop the server that is there, give "
            "another --port, or change [server] of the configuration"
        ) from None


def _check_page() -> None:
    try:
        import nicegui  # noqa: F401
        import websockets  # noqa: F401
    except ImportError:
        raise SfumatoError(
            "the page needs nicegui; install it with: pip install 'sfumato[web]', or leave the "
            "page out with --no-page"
        ) from None


def token(output: Output) -> None:
    """Make a token, and its hash for the configuration."""
    made = new_token()
    output.result(
        {"token": made, "hash": hash_of(made)},
        heading("A new token", "shown once, kept nowhere"),
        facts([("token", made), ("hash", hash_of(made))]),
        "",
        "Give the token to the analyst; put the hash into token of [analysts.NAME] of the server.",
    )
