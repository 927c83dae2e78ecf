# SPDX-License-Identifier: Apache-2.0
"""The privacy unit: whose presence a guarantee protects.

A `Unit` is one row, one event of a series, or a `PrivacyUnit`: all records that share a value of a
column. Plans state it, the vault bounds what it contributes, and a ledger adds up the costs of one
unit only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Literal, TypeAlias

from sfumato.domain.domain_limits import LIMITS
from sfumato.domain.values import Fractional
from sfumato.errors import SchemaError
from sfumato.text import did_you_mean, listing, shown

if TYPE_CHECKING:
    from sfumato.domain.attributes import Attribute
    from sfumato.domain.discovery import OpenUnit

__all__ = [
    "PrivacyUnit",
    "Unit",
    "check_privacy_unit",
    "check_unit",
    "counted_rows",
    "protects_alike",
    "unit_from_json",
    "unit_in_words",
    "unit_json",
]


@dataclass(frozen=True, slots=True, init=False, repr=False)
class PrivacyUnit:
    """All records that share a value of ``column`` belong to one person.

    At most ``rows`` of them are counted, chosen at random in the vault, so that one person moves
    the histogram by at most ``rows``. Without a privacy unit, one row is one person.

    With ``groups`` they lie in at most so many groups, which are the combinations of cells of the
    attributes ``by``, with at most ``rows_per_group`` in each. Tables by group then need less
    noise: a person with 10 rows on 10 days moves the counts by day by sqrt(10) in L2, not by 10.

    Args:
        column: The name of the column.
        rows: The most rows of one value that are counted: a whole number from 1 to 2^44, the most
            records that a table can have. With groups it may be left out: their product.
        groups: The most groups that the counted rows of one value lie in.
        rows_per_group: The most rows in one of these groups; 1 unless it is said.
        by: The attributes whose cells are the groups, such as ``("day",)``.

    Raises:
        SchemaError: If it is anything else.
    """

    column: str
    rows: int
    groups: int | None = None
    rows_per_group: int | None = None
    by: tuple[str, ...] = ()

    def __init__(
        self,
        column: str,
        rows: int | None = None,
        groups: int | None = None,
        rows_per_group: int | None = None,
        by: str | Iterable[str] = (),
    ) -> None:
        if not isinstance(column, str) or not column:
            raise SchemaError(f"a privacy unit needs the name of its column, got {shown(column)}")
        bounds = _group_bounds(groups, rows_per_group, by)
        if rows is None and bounds is not None:
            rows = min(bounds[0] * bounds[1], LIMITS.rows_per_unit)
        most = _bound(rows)
        if most is None:
            raise SchemaError(
                f"a privacy unit needs a bound on the rows of one unit, a whole number from 1 to "
                f"{LIMITS.rows_per_unit:,}, got {shown(rows)}; for example "
                f"PrivacyUnit({shown(column)}, 5)"
            )
        object.__setattr__(self, "column", column)
        if bounds is None:
            _set(self, most, None, None, ())
        else:
            # What no choice of rows can reach is no bound: equal meaning, equal units.
            each = min(bounds[1], most)
            _set(
                self, min(most, min(bounds[0], most) * each), min(bounds[0], most), each, bounds[2]
            )

    @staticmethod
    def discover(column: str, persons: int, *, most: int = LIMITS.bound_most) -> OpenUnit:
        """The bound on the rows of one unit, to be discovered for a price.

        Args:
            column: The name of the column that says whose record it is.
            persons: About how many units may have more rows than are counted. The noise of answers
                grows with the bound, what they lose shrinks with it: the two are in balance where
                as many units have more rows as the errors of all answers with a bound of 1 come to,
                over how many answers count one row.
            most: The largest bound.

        Returns:
            What `sf.plan_discovery` takes.

        Raises:
            SchemaError: An argument is none of these.

        >>> import sfumato as sf
        >>> sf.PrivacyUnit.discover("patient", persons=100).grid[:10]
        (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)
        """
        from sfumato.domain.attributes import OPEN_KINDS

        made: OpenUnit = OPEN_KINDS["unit"]((column,), persons=persons, most=most)
        return made

    def __repr__(self) -> str:
        return f"PrivacyUnit({', '.join(self._arguments())})"

    def _arguments(self) -> list[str]:
        """The arguments that make it, as Python writes them."""
        out = [f"column={self.column!r}", f"rows={self.rows}"]
        if self.groups is not None:
            out += [f"groups={self.groups}", f"rows_per_group={self.rows_per_group}"]
            out.append(f"by={self.by!r}")
        return out

    @property
    def greatest_square(self) -> int:
        """The greatest sum over groups of the squared number of rows; ``rows^2`` without groups.

        Full groups first: ``sum n_g^2`` with ``n_g <= rows_per_group`` and ``sum n_g <= rows`` is
        convex, so it is greatest at a corner.
        """
        if self.rows_per_group is None:
            return self.rows**2
        full, rest = divmod(self.rows, self.rows_per_group)
        return full * self.rows_per_group**2 + rest**2

    @property
    def rows_alone(self) -> PrivacyUnit:
        """The same persons with as many rows in any groups: never less of a bound on rows."""
        return PrivacyUnit(self.column, self.rows)

    @property
    def is_one_row(self) -> bool:
        """Whether a person has one row at most, in any group."""
        return self.rows == 1

    @property
    def full_groups(self) -> int:
        """How many groups can have all the rows that a group may have; 1 without groups."""
        return 1 if self.rows_per_group is None else self.rows // self.rows_per_group

    def as_json(self) -> dict[str, object]:
        """Its arguments as JSON, as requests, provenance and ledgers hold them.

        Returns:
            The column and the bounds by name; those of groups only where there are any.

        >>> import sfumato as sf
        >>> sf.PrivacyUnit("patient", 5).as_json()
        {'column': 'patient', 'rows': 5}
        """
        out: dict[str, object] = {"column": self.column, "rows": self.rows}
        if self.groups is not None:
            out |= {"groups": self.groups, "rows_per_group": self.rows_per_group}
            out["by"] = list(self.by)
        return out


def _set(
    unit: PrivacyUnit, rows: int, groups: int | None, each: int | None, by: tuple[str, ...]
) -> None:
    values = {"rows": rows, "groups": groups, "rows_per_group": each, "by": by}
    for name, value in values.items():
        object.__setattr__(unit, name, value)


def _bound(value: object) -> int | None:
    """A bound on rows or groups as a Python integer, or None if it is none."""
    whole = _whole(value)
    return whole if whole is not None and 1 <= whole <= LIMITS.rows_per_unit else None


def _group_bounds(
    groups: object, rows_per_group: object, by: object
) -> tuple[int, int, tuple[str, ...]] | None:
    """The bounds on groups and on rows in a group, and the attributes, sorted; None without."""
    names = (by,) if isinstance(by, str) else tuple(by) if isinstance(by, Iterable) else (by,)
    if not all(isinstance(name, str) and name for name in names):
        raise SchemaError(
            f"by names the attributes whose cells are the groups of a privacy unit, got "
            f'{shown(by)}; for example by=("day",)'
        )
    if groups is None and rows_per_group is None and not names:
        return None
    if groups is None or not names:
        raise SchemaError(
            "groups of a privacy unit need their number and their attributes, for example "
            'PrivacyUnit("person", groups=10, rows_per_group=1, by=("day",))'
        )
    most, each = _bound(groups), _bound(1 if rows_per_group is None else rows_per_group)
    if most is None or each is None:
        what, got = ("groups", groups) if most is None else ("rows_per_group", rows_per_group)
        raise SchemaError(
            f"{what} of a privacy unit must be a whole number from 1 to "
            f"{LIMITS.rows_per_unit:,}, got {shown(got)}"
        )
    return most, each, tuple(sorted(set(names)))


def _whole(value: object) -> int | None:
    """A whole number of any kind as a Python integer; None for all else, also True and 3.0."""
    if isinstance(value, bool):
        return None
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


_KEYS = {"column", "rows"}
_GROUP_KEYS = {"groups", "rows_per_group", "by"}

Unit: TypeAlias = PrivacyUnit | Literal["row", "event"]
"""What two neighbouring inputs differ in: all records of one person, one row of a table, or one
event of a series (what one person adds to one step of a stream, or to the counts of a watch)."""


def check_privacy_unit(
    value: object, attributes: Iterable[Attribute] | None = None
) -> PrivacyUnit | None:
    """Return ``value`` if it is the privacy unit of a plan on a table, or None.

    Its groups must be cells of the attributes, where these are given: a record with values is
    spread over several.
    """
    if isinstance(value, PrivacyUnit) and attributes is not None:
        names = [a.name for a in attributes if not isinstance(a, Fractional)]
        lacking = [name for name in value.by if name not in names]
        if lacking:
            raise SchemaError(
                f"the groups of a privacy unit are cells of attributes of the domain, and "
                f"{listing(lacking)} is none; declare it in the schema, or change by"
                f"{did_you_mean(lacking[0], names)}"
            )
    if value is None or isinstance(value, PrivacyUnit):
        return value
    column = value if isinstance(value, str) else "id"
    raise SchemaError(
        f"unit must be sf.PrivacyUnit(column, rows) or None, got {shown(value)}; "
        f"sf.PrivacyUnit({shown(column)}, rows=10) protects all rows that share a value of the "
        "column and counts at most 10 of them"
    )


def check_unit(value: object) -> Unit:
    """Return ``value`` if it is a unit.

    >>> check_unit("row"), check_unit(PrivacyUnit("patient", 5))
    ('row', PrivacyUnit(column='patient', rows=5))
    """
    if isinstance(value, PrivacyUnit):
        return value
    if value == "row":
        return "row"
    if value == "event":
        return "event"
    got = repr(value) if isinstance(value, str) else type(value).__name__
    raise SchemaError(
        f'a unit is "row", "event" or PrivacyUnit(column, rows), got {got[:60]}; say whose '
        "presence is protected"
    )


def protects_alike(one: Unit, other: Unit) -> bool:
    """Whether two units have the same neighbours: then costs for them add up.

    Bounds are part of the mechanism, which counts no more: whatever they are, all rows of a person
    are protected (docs/proofs/ledger.md, claim 14).

    >>> protects_alike(PrivacyUnit("patient", 5), PrivacyUnit("patient", 10))
    True
    >>> protects_alike(PrivacyUnit("patient", 5), "row")
    False
    """
    if isinstance(one, PrivacyUnit) and isinstance(other, PrivacyUnit):
        return one.column == other.column
    return one == other


def unit_json(unit: Unit) -> object:
    """Return a unit as JSON.

    >>> unit_json(PrivacyUnit("patient", 5)), unit_json("row")
    ({'column': 'patient', 'rows': 5}, 'row')
    >>> unit_json(PrivacyUnit("patient", groups=7, rows_per_group=2, by="day"))
    {'column': 'patient', 'rows': 14, 'groups': 7, 'rows_per_group': 2, 'by': ['day']}
    """
    return unit if isinstance(unit, str) else unit.as_json()


def unit_from_json(value: object) -> Unit:
    """Read what `unit_json` wrote."""
    if isinstance(value, Mapping) and set(value) in (_KEYS, _KEYS | _GROUP_KEYS):
        return PrivacyUnit(**{str(name): each for name, each in value.items()})
    return check_unit(value)


def unit_in_words(unit: Unit) -> str:
    """Return whose presence a unit protects, however many rows are counted.

    >>> unit_in_words(PrivacyUnit("patient", 5))
    "all rows that share a value of 'patient'"
    """
    if isinstance(unit, str):
        return f"one {unit}"
    return f"all rows that share a value of {unit.column!r}"


def counted_rows(unit: PrivacyUnit) -> str:
    """Return how many rows of one unit are counted, in words.

    >>> counted_rows(PrivacyUnit("patient", 5))
    '5 of them'
    >>> counted_rows(PrivacyUnit("patient", groups=7, rows_per_group=2, by="day"))
    "14 of them, in at most 7 groups by 'day' and 2 in each"
    """
    rows = f"{unit.rows:,} of them"
    if unit.groups is None:
        return rows
    by = " and ".join(repr(name) for name in unit.by)
    return f"{rows}, in at most {unit.groups:,} groups by {by} and {unit.rows_per_group:,} in each"
