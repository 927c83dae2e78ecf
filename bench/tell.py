# SPDX-License-Identifier: Apache-2.0
"""How sections speak: tables as Markdown, on a terminal and in the report alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Effort", "is_within", "show"]

Effort = Literal["quick", "usual", "all"]
EFFORTS: tuple[Effort, ...] = ("quick", "usual", "all")


def is_within(least: Effort, asked: Effort) -> bool:
    """Whether a row that takes at least this effort is run when so much is asked."""
    return EFFORTS.index(least) <= EFFORTS.index(asked)


def show(table: Table) -> None:
    """Print a table with its title above it, as Markdown."""
    from rich import box
    from rich.console import Console

    title, table.title = table.title, None
    table.box = box.MARKDOWN
    for row in table.rows:
        row.end_section = False  # Markdown has no lines between rows
    console = Console(width=400)
    with console.capture() as drawn:
        console.print(table)
    lines = [line for line in drawn.get().splitlines() if line.strip()]
    print(f"\n**{title}**\n", *lines, sep="\n", flush=True)
