# SPDX-License-Identifier: Apache-2.0
"""What a release takes: scans, cells, memory and time of every step, before anything is spent.

Public arithmetic: it follows from the plan and, where somebody states it, from a public number of
records; the table is not opened. Memory is an upper bound for the arrays that are held, plus what
the program takes by itself. Times are rough: CPU seconds of one core, from constants that
``python -m bench scale --all`` measured on all three engines, and puts beside new ones.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfumato.errors import PlanError, TooLarge
from sfumato.planning.forecast import Forecast
from sfumato.planning.planning_limits import LIMITS
from sfumato.workload.workload import (
    CELLS_TOGETHER,
    EngineName,
    counted_sets,
    most_groups,
    scanned_tables,
)
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ENGINES",
    "ResourceStep",
    "Resources",
    "engine_of",
    "machine_memory",
    "resources",
]


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds of one core: to begin, to encode a value, to count a record in one table.

    Of values as people have them: texts, whole numbers, truth values, amounts, dates.
    """

    start: float  # queries are planned and compiled; an estimate for DuckDB and PostgreSQL
    encode: float
    count: float
    is_here: bool  # whether its memory is that of this process


ENGINES: dict[EngineName, Rates] = {
    "duckdb": Rates(0.3, 28e-9, 28e-9, True),
    "postgres": Rates(0.3, 350e-9, 340e-9, False),
    # What 10^7 records take more than 10^6; the rest is Java that warms up.
    "spark": Rates(22.0, 220e-9, 115e-9, False),
}


NOISE, STORE, ANSWER, WRITE = 35e-9, 120e-9, 25e-9, 650e-9  # seconds of one core per number
MILLION = 10**6


@dataclass(frozen=True, slots=True)
class ResourceStep:
    """One step: numbers that do not depend on the records, and those per record.

    ``memory`` is the most that is held while the step runs, in bytes.
    """

    name: str
    scans: int
    cells: int
    memory: int
    seconds: float
    record_memory: int = 0
    record_seconds: float = 0.0
    groups: int = 0  # cells that the engine's hash tables in this process have room for at a time

    def memory_for(self, records: int) -> int:
        """Bytes for so many records; each occupies at most one cell of every scanned table."""
        occupied = min(self.groups, records * self.scans)
        return self.memory + records * self.record_memory + LIMITS.group_bytes * occupied

    @property
    def million_memory(self) -> int:
        """Bytes for one million records more than none."""
        return self.memory_for(MILLION) - self.memory

    def seconds_for(self, records: int) -> float:
        """Seconds for so many records."""
        return self.seconds + records * self.record_seconds


@dataclass(frozen=True, eq=False, repr=False)
class Resources:
    """All steps of a release; without a number of records, what one million more would take."""

    steps: tuple[ResourceStep, ...]
    engine: EngineName
    records: int | None

    @property
    def memory(self) -> int:
        """The peak in bytes, of the records too where their number is known."""
        return LIMITS.base_bytes + max(s.memory_for(self.records or 0) for s in self.steps)

    @property
    def seconds(self) -> float:
        """CPU seconds of one core, of the records too where their number is known."""
        return sum(s.seconds_for(self.records or 0) for s in self.steps)

    @property
    def million_seconds(self) -> float:
        """CPU seconds of one core for every million records."""
        return MILLION * sum(s.record_seconds for s in self.steps)

    @property
    def million_memory(self) -> int:
        """Bytes for every million records, in the process that sfumato runs in."""
        return max(s.million_memory for s in self.steps)

    def frame(self) -> pd.DataFrame:
        """One row per step."""
        import pandas as pd

        return pd.DataFrame([self._row(s) for s in self.steps])

    def as_json(self) -> dict[str, object]:
        """The same as JSON: the keys are described in docs/cli.md."""
        return {
            "engine": self.engine,
            "records": self.records,
            "memory": self.memory,
            "seconds": self.seconds,
            "million_records": {"memory": self.million_memory, "seconds": self.million_seconds},
            "steps": [self._row(s) for s in self.steps],
        }

    def _row(self, step: ResourceStep) -> dict[str, object]:
        records = self.records or 0
        return {
            "step": step.name,
            "scans": step.scans,
            "cells": step.cells,
            "memory": step.memory_for(records),
            "seconds": step.seconds_for(records),
            "million_memory": step.million_memory,
            "million_seconds": MILLION * step.record_seconds,
        }

    def check(self, memory: int | None = None) -> None:
        """Refuse what cannot fit in so many bytes, by default those of this machine."""
        have = machine_memory() if memory is None else memory
        if have is None or self.memory <= have:
            return
        worst = max(self.steps, key=lambda s: s.memory_for(self.records or 0))
        codes = (self.records or 0) * worst.record_memory
        held = f"{worst.cells:,} cells" + (f", {in_bytes(codes)} of codes" if codes else "")
        way = "ask about fewer attributes at once or declare wider bins"
        if codes > have // 2:
            way = "leave the table in PostgreSQL or Spark and count it there, or " + way
        raise TooLarge(
            f"this release needs {in_bytes(self.memory)} of memory to {worst.name} ({held}), this "
            f"machine has {in_bytes(have)}; {way}, or take a larger machine. Nothing was spent"
        )

    def __repr__(self) -> str:
        return (
            f"Resources on {self.engine}: {self.steps[0].scans} scan, "
            f"{self.steps[1].cells:,} cells, {in_bytes(self.memory)} of memory, {self.in_words}"
        )

    @property
    def in_words(self) -> str:
        """The time, roughly."""
        more = f"{in_seconds(self.million_seconds)} per million records"
        if self.records is None:
            return f"{in_seconds(self.seconds)} of one core and {more}"
        return f"{in_seconds(self.seconds)} of one core for {self.records:,} records"


def resources(
    plan: Forecast, records: int | None = None, engine: EngineName = "duckdb"
) -> Resources:
    """What a release of this plan takes, for a public number of records if it is given.

    Privacy: a function of the plan and of what the caller states; no table is opened.
    """
    if records is not None and (not isinstance(records, int) or records < 1):
        raise PlanError(f"records must be a whole number above 0, got {records!r}")
    if engine not in ENGINES:
        raise PlanError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    steps = (*_counting(plan, engine), *_noisy(plan), _project(plan), _write(plan))
    return Resources(steps, engine, records)


def _counting(plan: Forecast, engine: EngineName) -> tuple[ResourceStep, ResourceStep]:
    rates = ENGINES[engine]
    domain, unit = plan.measured_domain, plan.unit
    sets, conditions = counted_sets(b.term for b in plan.strategy.blocks)
    looked = {n for names in sets for n in names} | {n for t in conditions for n in t.attributes}
    width = sum(_code_bytes(domain[name].size) for name in looked)
    # A record is dropped by any attribute, asked or not; a unit's hash covers all of them.
    columns = len(domain) if unit or not domain.keeps_every_record else max(len(looked), 1)
    scan = ResourceStep(
        "scan",
        1,
        0,
        0,
        rates.start,
        width if rates.is_here else 0,
        rates.encode * columns + (LIMITS.unit_record_seconds if unit else 0.0),
    )
    scanned = scanned_tables(sets, domain, CELLS_TOGETHER[engine])
    cells = sum(domain.cells(names) for names in sets)
    comparisons = sum(t.rows for t in conditions)
    count = ResourceStep(
        "count",
        len(scanned) + (1 if conditions else 0),
        cells,
        8 * (cells + sum(plan.strategy.block_rows)),
        LIMITS.cell_seconds * cells,
        width if rates.is_here else 0,
        rates.count * (len(scanned) + comparisons),
        most_groups(scanned, domain) if rates.is_here else 0,
    )
    return scan, count


def _code_bytes(size: int) -> int:
    """The bytes of a code of so many cells: `vault.engine.Engine.integer`."""
    return next(width for width in (1, 2, 4, 8) if size <= 1 << (8 * width - 1))


def _noisy(plan: Forecast) -> tuple[ResourceStep, ResourceStep]:
    """Exact values, noise and the stored form; then noisy values as floats, and the answers."""
    values, answers = sum(plan.strategy.block_rows), _listed_rows(plan)
    measure = ResourceStep("measure", 0, values, 24 * values, (NOISE + STORE) * values)
    held = 8 * values + 8 * values + 16 * answers
    return measure, ResourceStep("reconstruct", 0, answers, held, ANSWER * (values + answers))


def _project(plan: Forecast) -> ResourceStep:
    """Listed cells, or rows fitted to tables (``refine``); nothing where they are too many."""
    domain, terms = plan.workload.domain, plan.workload.terms
    answers = plan.workload.queries
    cells = sum(t.cells for t in terms if not t.is_wide)
    is_listed = (
        domain.cells(domain.in_order({n for t in terms for n in t.attributes}))
        <= LIMITS.histogram_cells
    )
    if answers > LIMITS.fitted_table_cells or (cells > LIMITS.fitted_table_cells and not is_listed):
        return ResourceStep("project", 0, 0, _held(plan), 0.0)
    looked = min(max(cells, answers), LIMITS.fitted_table_cells)
    seconds = LIMITS.projected_cell_seconds * looked + (0.0 if is_listed else LIMITS.rows_seconds)
    return ResourceStep(
        "project", 0, looked, _held(plan) + LIMITS.projected_cell_bytes * looked, seconds
    )


def _write(plan: Forecast) -> ResourceStep:
    """Some rows at a time; errors and bounds of a group are whole arrays where they are uneven."""
    uneven = max((t.rows for t in plan.workload.terms if not t.is_table), default=0)
    along = max((max(t.row_shape, default=1) for t in plan.workload.terms), default=0)
    answers = _listed_rows(plan)
    held = (
        _held(plan)
        + 40 * min(uneven, WORKLOAD_LIMITS.array_entries)
        + LIMITS.label_bytes * min(along, WORKLOAD_LIMITS.array_entries)
        + LIMITS.file_part_bytes
    )
    return ResourceStep("write", 0, answers, held, WRITE * answers)


def _held(plan: Forecast) -> int:
    """Measured integers, unbiased answers, and those that agree."""
    return 8 * sum(plan.strategy.block_rows) + 16 * _listed_rows(plan)


def _listed_rows(plan: Forecast) -> int:
    """Answers that are held: groups that nobody can list are answered when they are asked for."""
    rows = [t.rows for t in plan.workload.terms]
    return (
        sum(rows)
        if sum(rows) <= WORKLOAD_LIMITS.array_entries
        else min(max(rows), WORKLOAD_LIMITS.array_entries)
    )


def engine_of(source: str | None) -> EngineName:
    """The engine that counts a source of this name.

    >>> engine_of("people.parquet"), engine_of("postgresql://host/db::people")
    ('duckdb', 'postgres')
    """
    name = (source or "").partition(":")[0].lower()
    return "spark" if name == "spark" else "postgres" if name.startswith("postgres") else "duckdb"


def machine_memory() -> int | None:
    """The bytes of memory of this machine, None where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def in_bytes(count: int) -> str:
    """A size as people read it.

    >>> in_bytes(1200), in_bytes(3 * 2**30)
    ('1 KiB', '3.0 GiB')
    """
    if count < 2**20:
        return f"{count / 2**10:,.0f} KiB"
    return f"{count / 2**20:,.0f} MiB" if count < 2**30 else f"{count / 2**30:,.1f} GiB"


def in_seconds(seconds: float) -> str:
    """A time as people read it, to one or two digits: it is rough.

    >>> in_seconds(0.004), in_seconds(7.26), in_seconds(5000)
    ('below 0.1 s', '7.3 s', '83 min')
    """
    if seconds < 0.1:
        return "below 0.1 s"
    if seconds < 300:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 18000 else f"{seconds / 3600:,.0f} h"


def as_rows(resources_used: Resources) -> Sequence[Sequence[str]]:
    """The steps as texts, for a table."""
    records = resources_used.records or 0
    rows = []
    for step in resources_used.steps:
        memory, seconds = in_bytes(step.memory_for(records)), in_seconds(step.seconds_for(records))
        if resources_used.records is None and step.record_seconds:
            memory += f" + {in_bytes(step.million_memory)}/M"
            seconds += f" + {in_seconds(MILLION * step.record_seconds)}/M"
        cells = f"{step.cells:,}" if step.cells else "-"
        rows.append((step.name, str(step.scans or "-"), cells, memory, seconds))
    return rows
