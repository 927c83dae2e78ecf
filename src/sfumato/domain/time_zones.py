# SPDX-License-Identifier: Apache-2.0
"""How far the clocks of a time zone are from UTC: `zone_offsets` lists when that changes.

Engines have time zones of their own, of different years and with different words for the same; one
list, made here from the IANA database of this machine, gives the same local times on all of them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from sfumato.domain.domain_limits import LIMITS
from sfumato.errors import SchemaError
from sfumato.text import shown

__all__ = [
    "check_zone",
    "zone_offsets",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)
_MICROSECOND = timedelta(microseconds=1)


def check_zone(name: object) -> tzinfo:
    """The zone of this name; SchemaError if there is none."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)  # type: ignore[arg-type]
    except Exception:
        raise SchemaError(
            f"timezone = {shown(name)} is no zone of the IANA database; write one such as "
            "Europe/Rome, America/New_York or UTC"
        ) from None


@lru_cache(maxsize=64)
def zone_offsets(
    name: str, start: datetime, end: datetime
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """When clocks change between two moments, and what is added to UTC before, between and after.

    Args:
        name: The zone.
        start: The first moment, by the clocks of the zone.
        end: The last one.

    Returns:
        Instants in microseconds since 1970, rising, and offsets in microseconds, one more of them.

    Raises:
        SchemaError: There is no such zone, or clocks change too often in between.

    >>> changes, offsets = zone_offsets("Europe/Rome", datetime(2024, 1, 1), datetime(2025, 1, 1))
    >>> [datetime.fromtimestamp(c / 1e6, timezone.utc).isoformat()[:16] for c in changes]
    ['2024-03-31T01:00', '2024-10-27T01:00']
    >>> [offset // 3_600_000_000 for offset in offsets]
    [1, 2, 1]
    """
    zone = check_zone(name)

    def offset(moment: datetime) -> timedelta:
        return moment.astimezone(zone).utcoffset() or timedelta(0)

    # Clocks differ from UTC by less than a day. Years 1 and 9999 have no day before or after.
    first = _midnight(max(start, datetime.min + 3 * _DAY)) - 2 * _DAY
    last = _midnight(min(end, datetime.max - 4 * _DAY)) + 3 * _DAY
    changes: list[int] = []
    offsets = [offset(first)]
    moment = first
    while moment < last:
        later = moment + _DAY
        if offset(later) != offsets[-1]:
            low, high = moment, later
            while high - low > _SECOND:
                middle = low + (high - low) // 2 // _SECOND * _SECOND
                low, high = (middle, high) if offset(middle) == offsets[-1] else (low, middle)
            changes.append((high - _EPOCH) // _MICROSECOND)
            offsets.append(offset(later))
            if len(changes) > LIMITS.zone_changes:
                raise SchemaError(
                    f"timezone: clocks of {name} change more than {LIMITS.zone_changes} times "
                    "between start and end; declare a shorter time"
                )
        moment = later
    return tuple(changes), tuple(each // _MICROSECOND for each in offsets)


def _midnight(moment: datetime) -> datetime:
    return datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
