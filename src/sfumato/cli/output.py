# SPDX-License-Identifier: Apache-2.0
"""What commands write: tables, JSON, progress bars, and files.

Results go to standard output, everything else to standard error. All numbers are public: steps and
totals of a bar are numbers of mechanisms, marginals or blocks, and depend neither on a value nor on
the number of records. Files appear whole or not at all: they are written beside their place, then
moved into it.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from sfumato.errors import SfumatoError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress, TaskID

    from sfumato.domain.privacy_unit import PrivacyUnit
    from sfumato.privacy.budget import Budget
    from sfumato.session.session import Session
    from sfumato.session.session_answers import QuestionForecast

__all__ = [
    "Bars",
    "Output",
    "bars",
    "budget_document",
    "check_folder",
    "check_ledger_folder",
    "counts",
    "facts",
    "filled_folder",
    "forecasts_document",
    "heading",
    "interval_in_words",
    "neighbours_in_words",
    "statement_cells",
    "table",
    "write_text",
]


@dataclass(frozen=True, slots=True)
class Output:
    """How one run of a command shows its results.

    With ``as_json`` standard output holds one JSON document and nothing else.
    """

    as_json: bool = False
    is_quiet: bool = False

    def result(self, document: Mapping[str, object], *shown: RenderableType) -> None:
        """Write the result: the document as JSON, or what is shown to people."""
        if self.as_json:
            sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")
            return
        console = Console(highlight=False, soft_wrap=False)
        for part in shown:  # brackets in a line are no markup
            console.print(Text(part) if isinstance(part, str) else part)

    def text(self, text: str) -> None:
        """Write plain text to standard output, as it is."""
        sys.stdout.write(text)

    def note(self, message: str) -> None:
        """Write a remark for people to standard error."""
        if not self.is_quiet:
            sys.stderr.write(message + "\n")

    @contextmanager
    def bars(self) -> Iterator[Bars]:
        """Progress bars on standard error; none when it is not a terminal."""
        is_shown = sys.stderr.isatty() and not self.is_quiet and not self.as_json
        with bars(is_shown) as shown:
            yield shown

    def confirm(self, what: str) -> None:
        """Ask on a terminal before anything is spent; without one nothing is, unless --yes says so.

        Raises:
            SfumatoError: If the answer is no, or there is nobody to ask.
        """
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise SfumatoError(
                f"{what} There is no terminal to ask on, so nothing was spent; give --yes to spend "
                "it without being asked"
            )
        sys.stderr.write(f"{what} Go on? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise SfumatoError("stopped before anything was spent")


_PHASES: Final = {
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
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[detail]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        shown = Bars(progress)
        yield shown
        for task in shown.tasks.values():
            progress.update(task, completed=progress.tasks[task].total, detail="")


def counts(value: float | None) -> str:
    """A number of counts, as short as is honest.

    >>> counts(1234.56), counts(41.07), counts(0.0123), counts(None)
    ('1,235', '41.1', '0.0123', '-')
    """
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def interval_in_words(low: float | None, high: float | None, none: str = "no promise") -> str:
    """An interval as people read it.

    >>> interval_in_words(3.14159, 1234.5), interval_in_words(None, None)
    ('3.14 to 1,234', 'no promise')
    """
    return none if low is None or high is None else f"{counts(low)} to {counts(high)}"


def statement_cells(
    columns: Sequence[Mapping[str, Any]],
) -> tuple[list[str], list[tuple[str, ...]]]:
    """The heads and the rows of a statement as texts.

    Args:
        columns: Those of `statement_document`.

    >>> statement_cells([
    ...     {"name": "sex", "values": ["F"], "low": None, "high": None},
    ...     {"name": "n", "values": [41.2], "low": [30.0], "high": [52.5]},
    ... ])
    (['sex', 'n', 'n: interval'], [('F', '41.2', '30.0 to 52.5')])
    """
    heads: list[str] = []
    texts: list[list[str]] = []
    for column in columns:
        heads.append(column["name"])
        low, high = column["low"], column["high"]
        if low is None or high is None:
            texts.append([_text(value, _label) for value in column["values"]])
            continue
        texts.append([_text(value, _number) for value in column["values"]])
        heads.append(f"{column['name']}: interval")
        ends = zip(low, high, strict=True)
        texts.append([f"{_text(a, _number)} to {_text(b, _number)}" for a, b in ends])
    return heads, list(zip(*texts, strict=True))


def _text(value: object, written: Callable[[Any], str]) -> str:
    return "-" if value is None else written(value)


def _label(value: object) -> str:
    from sfumato.release.labels import label_text

    return label_text(value)


def _number(value: object) -> str:
    return counts(value) if isinstance(value, int | float) else _label(value)


def heading(text: str, remark: str = "") -> Text:
    """A line in bold, with a remark behind it."""
    return Text.assemble((text, "bold"), (f"  {remark}" if remark else "", "dim"))


def facts(rows: Iterable[tuple[str, str]]) -> Table:
    """Names and values in two columns."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(f" {name}", escape(value))
    return grid


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> Table:
    """A table whose first ``text_columns`` (and any column called ``note``) are text."""
    shown = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=True,
        padding=(0, 1, 0, 1),
        collapse_padding=True,
        header_style="bold",
    )
    for i, name in enumerate(columns):
        is_text = i < text_columns or name == "note"
        side: Literal["left", "right"] = "left" if is_text else "right"
        is_whole = i > 0 and name != "note"
        shown.add_column(name, justify=side, overflow="fold", no_wrap=is_whole, min_width=len(name))
    for row in rows:
        shown.add_row(*(escape(cell) for cell in row))
    return shown


def neighbours_in_words(neighbours: str, unit: PrivacyUnit | None, *, counted: bool = True) -> str:
    """Who is protected, in plain words; with how many rows of a unit are ``counted``."""
    if unit is None:
        who = "one record"
    else:
        from sfumato.domain.privacy_unit import counted_rows

        rows = unit.rows if unit.groups is None else counted_rows(unit)
        who = f"all records of one {unit.column}"
        who += f" (at most {rows} are counted)" if counted else ""
    change = "added or removed" if neighbours == "add-remove" else "replaced"
    return f"{neighbours}: {who} may be {change}"


def budget_document(budget: Budget) -> dict[str, float]:
    """A budget as JSON numbers."""
    parts = {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "rho": budget.rho,
        "mu": budget.mu,
        "pure": budget.pure,
        "event_delta": budget.event_delta,
    }
    return {name: float(value) for name, value in parts.items() if value}


def forecasts_document(
    session: Session, forecasts: Sequence[QuestionForecast]
) -> dict[str, object]:
    """What asking would cost, as JSON."""
    return {
        "session": session.name,
        "questions": [
            {
                "key": one.key,
                "question": one.question,
                "value": one.value,
                "is_stored": one.is_stored,
                "free_bound": one.free_bound,
                "paid_error": one.paid_error,
                "paid_bound": one.paid_bound,
                "level": one.level,
                "cost": one.cost.as_json(),
                **(
                    {}
                    if one.least_error is None
                    else {
                        "standard_error": one.standard_error,
                        "least_error": one.least_error,
                        "why": one.why,
                    }
                ),
            }
            for one in forecasts
        ],
        "paid_answers_left": session.left().paid_answers,
    }


def write_text(path: Path, text: str) -> None:
    """Write a text file; an interrupted write leaves nothing behind."""
    check_folder(path.parent)
    with filled_folder(path.parent) as staging:
        (staging / path.name).write_text(text, encoding="utf-8")


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to, before anything is spent on filling it."""
    nearest = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not nearest.is_dir():
        raise SfumatoError(f"{nearest} is a file, so {folder} cannot be a folder; name another one")
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise SfumatoError(
            f"{nearest} cannot be written to ({reason}); name another folder or change its rights"
        ) from None


def check_ledger_folder(place: str) -> None:
    """Refuse a new ledger in a folder that cannot be written to; an address has no folder."""
    if "://" not in place:
        check_folder(Path(place).parent)


@contextmanager
def filled_folder(folder: Path) -> Iterator[Path]:
    """An empty folder to write to; at the end all its files move into ``folder`` together."""
    nearest = next(p for p in (folder, *folder.absolute().parents) if p.is_dir())
    staging = Path(tempfile.mkdtemp(prefix=".sfumato-", dir=nearest))
    try:
        yield staging
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(staging.iterdir()):
            path.replace(folder / path.name)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise SfumatoError(
            f"the files could not be written to {folder} ({reason}); make room or name another "
            "folder, then run this again (a release that is in a ledger costs nothing again)"
        ) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
