# SPDX-License-Identifier: Apache-2.0
"""Progress bars for planning, counting and measuring.

Steps and totals are public (numbers of mechanisms, marginals, blocks); no bar depends on a value
or on the number of records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = [
    "Bars",
    "bars",
]


_PHASES = {
    "measuring": "measuring",
    "choosing and measuring": "measuring",
    "sampling and measuring": "measuring",
    "projecting": "projecting",
    "bootstrapping": "repeating",
}


@dataclass(frozen=True, slots=True)
class Bars:
    """One bar per phase of the work, or nothing at all."""

    shown: Progress | None = None
    tasks: dict[str, TaskID] = field(default_factory=dict)

    def phase(self, name: str) -> Callable[[int, int, str], None] | None:
        """A callable (done, total, label) that moves the bar of one phase."""
        if self.shown is None:
            return None
        return lambda done, total, label: self._move(name, done, total, label)

    def of_release(self) -> Callable[[int, int, str], None] | None:
        """A callable (done, total, label) for ``Plan.release``: it counts, measures, projects."""
        if self.shown is None:
            return None
        return self._released

    def _released(self, done: int, total: int, label: str) -> None:
        name = _PHASES.get(label, "counting")
        self._move(name, done, total, "")

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A bar that is empty while one piece of work goes on, and then full."""
        self._move(name, 0, 1, "")
        yield
        self._move(name, 1, 1, "")

    def _move(self, name: str, done: int, total: int, detail: str) -> None:
        if self.shown is None:
            return
        if name not in self.tasks:
            self.tasks[name] = self.shown.add_task(name, total=total, detail="")
        self.shown.update(self.tasks[name], completed=done, total=total, detail=detail)


@contextmanager
def bars(is_shown: bool) -> Iterator[Bars]:
    """Bars on standard error for as long as the work goes on; all are full at its end."""
    if not is_shown:
        yield Bars()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[detail]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        found = Bars(progress)
        yield found
        for task in found.tasks.values():
            progress.update(task, completed=progress.tasks[task].total, detail="")
