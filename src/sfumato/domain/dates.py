# SPDX-License-Identifier: Apache-2.0
"""Attributes whose values are dates or times, in equal steps of the calendar."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import cached_property
from typing import ClassVar

from sfumato.domain.base import Attribute, Comparison, Value
from sfumato.errors import WorkloadError
from sfumato.wording import did_you_mean, shown

__all__ = ["DateTime"]

_MICROSECOND = timedelta(microseconds=1)
_FIXED_STEPS = {
    "minute": timedelta(minutes=1) // _MICROSECOND,
    "hour": timedelta(hours=1) // _MICROSECOND,
    "day": timedelta(days=1) // _MICROSECOND,
    "week": timedelta(weeks=1) // _MICROSECOND,
}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


@dataclass(frozen=True)
class DateTime(Attribute):
    """Dates or times from ``start`` (included) to ``end`` (excluded) in equal calendar steps.

    ``step`` is ``minute, hour, day, week, month, quarter`` or ``year``, with an optional count
    (``"15 minute"``). Months, quarters and years start at the day of the month of ``start``,
    which must be the 28th or earlier. The last step may be cut short by ``end``.

    >>> DateTime("visit", datetime(2024, 1, 1), datetime(2025, 1, 1), "month").size
    12
    """

    start: datetime
    end: datetime
    step: str = "day"

    kind: ClassVar[str] = "datetime"

    def __post_init__(self) -> None:
        for key in ("start", "end"):
            object.__setattr__(self, key, self._moment(key, getattr(self, key)))
        if not self.start < self.end:
            raise self._fault(f"end = {self.end} must come after start = {self.start}")
        count, unit = self._parsed_step()
        object.__setattr__(self, "step", unit if count == 1 else f"{count} {unit}")
        if unit in _MONTHS and self.start.day > 28:
            raise self._fault(
                f"start = {self.start}: steps of a {unit} must start on day 1 to 28 of a month, "
                "which every month has"
            )
        super().__post_init__()

    def _moment(self, key: str, value: object) -> datetime:
        if isinstance(value, datetime):
            if value.tzinfo is not None:
                raise self._fault(
                    f"{key} = {value} carries a time zone; times are compared as they are stored, "
                    "so leave it out"
                )
            # Rebuilt, because subclasses such as pandas.Timestamp carry more than is used here.
            day, clock = date(value.year, value.month, value.day), value.time()
            return datetime.combine(day, clock.replace(fold=0))
        if isinstance(value, date):
            return datetime(value.year, value.month, value.day)
        raise self._fault(f"{key} = {shown(value)} is not a date or a date with a time")

    def _parsed_step(self) -> tuple[int, str]:
        units = (*_FIXED_STEPS, *_MONTHS)
        words = self.step.split() if isinstance(self.step, str) else []
        unit = words[-1].removesuffix("s") if words else ""
        count = words[0] if len(words) == 2 else "1"
        is_count = count.isascii() and count.isdigit() and len(count) <= 9 and int(count) > 0
        if len(words) > 2 or not is_count or unit not in units:
            raise self._fault(
                f"step = {shown(self.step)} is not one of {', '.join(units)}, with a count before "
                f"it if wanted ('15 minute'){did_you_mean(unit, units)}"
            )
        return int(count), unit

    @cached_property
    def _length(self) -> tuple[int, bool]:
        """The length of a step, and whether it is in months (else in microseconds)."""
        count, unit = self._parsed_step()
        return count * {**_FIXED_STEPS, **_MONTHS}[unit], unit in _MONTHS

    def bin_start(self, code: int) -> datetime:
        """The first instant of step ``code``."""
        length, is_months = self._length
        if not is_months:
            return self.start + code * length * _MICROSECOND
        years, month = divmod(self.start.month - 1 + code * length, 12)
        return self.start.replace(year=self.start.year + years, month=month + 1)

    def _steps_before(self, moment: datetime) -> int:
        """How many steps, were there no end, start before ``moment``."""
        length, is_months = self._length
        if not is_months:
            return max(0, -((self.start - moment) // _MICROSECOND // length))
        months = 12 * (moment.year - self.start.year) + moment.month - self.start.month
        # The step of the same month starts earlier iff its day and time do.
        if (moment.day, moment.time()) <= (self.start.day, self.start.time()):
            months -= 1
        return max(0, months // length + 1)

    @cached_property
    def _step_count(self) -> int:
        return self._steps_before(self.end)

    @property
    def value_count(self) -> int:
        """Number of steps; the last may be cut by ``end``."""
        return self._step_count

    @cached_property
    def starts(self) -> tuple[datetime, ...]:
        """The first instant of every bin."""
        self._require_listable()
        return tuple(self.bin_start(code) for code in range(self.value_count))

    @cached_property
    def _has_whole_days(self) -> bool:
        _, unit = self._parsed_step()
        return self.start.time() == time.min and unit not in ("minute", "hour")

    def value_label(self, code: int) -> Value:
        """The first instant of the bin, as a date when every bin starts at midnight."""
        start = self.bin_start(code)
        return start.date() if self._has_whole_days else start

    def _codes_where(self, comparison: Comparison, constant: Value) -> range:
        """A date without a time means the whole day where every bin is made of whole days."""
        moment, is_day = _moment(self, constant)
        length = timedelta(days=1) if is_day and self._has_whole_days else _MICROSECOND
        after = moment + min(length, datetime.max - moment)
        asked = f"{comparison} {shown(str(constant))}"
        if comparison in ("=", "!="):
            return range(self._cut(moment, asked), self._cut(after, asked))
        cut = self._cut(moment if comparison in ("<", ">=") else after, asked)
        return self._codes_around(comparison, cut)

    def _cut(self, moment: datetime, asked: str) -> int:
        bins = self.bins_before(moment)
        if bins is None:
            raise WorkloadError(
                f"attribute {self.name!r} has steps of {self._step_words()} from {self.start}, so "
                f"{asked} would cut one; ask < or >= at the start of a step"
            )
        return bins

    def bins_before(self, moment: datetime) -> int | None:
        """The number of bins before ``moment``, or None when it is inside one."""
        if moment >= self.end:
            return self.value_count
        code = self._steps_before(moment)
        if moment <= self.start:
            return code
        return code if code < self.value_count and self.bin_start(code) == moment else None

    def _step_words(self) -> str:
        count, unit = self._parsed_step()
        return f"one {unit}" if count == 1 else f"{count} {unit}s"


def _moment(attribute: Attribute, constant: Value) -> tuple[datetime, bool]:
    """The constant as an instant, and whether it was a date without a time."""
    moment: datetime | None = None
    is_day = False
    if isinstance(constant, datetime):
        moment = constant
    elif isinstance(constant, date):
        moment, is_day = datetime(constant.year, constant.month, constant.day), True
    elif isinstance(constant, str):
        for read, without_time in ((date.fromisoformat, True), (datetime.fromisoformat, False)):
            with contextlib.suppress(ValueError):
                found = read(constant)
                moment, is_day = datetime.fromisoformat(found.isoformat()), without_time
                break
    if moment is None:
        raise WorkloadError(
            f"attribute {attribute.name!r} is a date or time: compare it with one such as "
            f"'2024-01-31', not {shown(constant)}"
        )
    if moment.tzinfo is not None:
        raise WorkloadError(
            f"attribute {attribute.name!r} holds times as they are stored, without a time zone; "
            f"leave it out of {shown(str(constant))}"
        )
    return moment, is_day
