# SPDX-License-Identifier: Apache-2.0
"""The command line: the commands by name, and errors as messages and exit codes.

Exit codes: 0 done; 2 refused, with one message on standard error; 1 an error that should not
happen; 130 interrupted. Results go to standard output, progress and messages to standard error.
The module of a command is imported when the command is run, or when the help lists it.

Errors that sfumato raises on purpose are written for people and hold public things only. The
message of any other exception may quote a value of the data (engines like to), so it is not
shown: only its type and the place in the code are, both of which depend on the code alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution
from typing import Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command

from sfumato.cli.options import examples
from sfumato.errors import SfumatoError, places_of

__all__ = ["FRAMES", "GROUP", "INTERRUPTED", "app", "guarded", "main"]


INTERRUPTED: Final = 130
"""The exit code of an interrupted command, as shells have it."""

FRAMES: Final = "SFUMATO_FRAMES"
"""Environment variable: if set, unexpected errors also list the lines of code they passed."""

GROUP: Final = "sfumato.commands"
"""The group of entry points that register further commands, each a ``typer.Typer``."""

_OWN: Final = (
    *(
        "demo",
        "draft",
        "describe",
        "discover",
        "plan",
        "release",
        "show",
        "select",
        "compare",
        "ask",
    ),
    "ledger",
)
_ORDER: Final = (*_OWN[:-1], "serve", "token", "audit", _OWN[-1])


@cache
def _registered() -> dict[str, EntryPoint]:
    """The entry points of this distribution, so that no other package adds a command."""
    try:
        return {
            point.name: point for point in distribution("sfumato").entry_points.select(group=GROUP)
        }
    except PackageNotFoundError:  # sources that are not installed
        return {}


class _Commands(Mapping[str, Any]):
    """The commands by name in the order of the help, each imported on first use."""

    def __getitem__(self, name: str) -> Any:
        if name in _OWN:
            return get_command(import_module(f"sfumato.cli.{name}_command").app)
        return get_command(_registered()[name].load())

    def __iter__(self) -> Iterator[str]:
        names = {*_OWN, *_registered()}
        return iter([*(n for n in _ORDER if n in names), *sorted(names.difference(_ORDER))])

    def __len__(self) -> int:
        return len(list(iter(self)))


class _Group(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()  # type: ignore[assignment]  # nothing is added later


app = typer.Typer(
    name="sfumato",
    cls=_Group,
    help="Private answers to linear queries, as sharp as mathematics allows.",
    epilog=examples("sfumato demo", "sfumato plan release.toml", "sfumato release release.toml"),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from sfumato import __version__

        typer.echo(f"sfumato {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar="",
            callback=_print_version,
            is_eager=True,
            help="Print the version.",
        ),
    ] = False,
) -> None:
    """Private answers to linear queries, as sharp as mathematics allows."""


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


@contextmanager
def guarded() -> Iterator[None]:
    """Turn exceptions into a message on standard error and an exit code."""
    try:
        yield
    except SfumatoError as error:
        _leave(str(error), 2)
    except KeyboardInterrupt:
        _leave("interrupted", INTERRUPTED)
    except MemoryError:
        _leave(
            "there is not enough memory for this; ask for fewer or coarser queries, or use a "
            "machine with more",
            2,
        )
    except Exception as error:
        _leave(_unexpected(error), 1)


def _leave(message: str, code: int) -> NoReturn:
    sys.stderr.write(f"sfumato: {message}\n")
    raise SystemExit(code) from None


def _unexpected(error: Exception) -> str:
    """The type and the place of an error, without its message and without local variables."""
    places = places_of(error)
    lines = [
        f"unexpected {type(error).__name__} at {places[-1]}",
        "This should not happen; please report it. The message of the error is not shown because "
        "it could hold a value of the data.",
    ]
    if os.environ.get(FRAMES):
        lines += [f"  {place}" for place in places]
    else:
        lines.append(f"Set {FRAMES}=1 to list the lines of code that led here.")
    return "\n".join(lines)
