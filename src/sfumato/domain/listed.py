# SPDX-License-Identifier: Apache-2.0
"""Attributes whose values are listed and have no order: categories and booleans."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from sfumato.domain.base import (
    MISSING,
    OTHER,
    Attribute,
    Comparison,
    Value,
    given_list,
    is_text,
    whole_number,
)
from sfumato.errors import WorkloadError
from sfumato.wording import did_you_mean, listing, shown

__all__ = ["Boolean", "Category", "first_repeat"]


@dataclass(frozen=True)
class Category(Attribute):
    """A listed set of values, all texts or all whole numbers, in the order given.

    >>> Category("sex", ("Female", "Male")).size
    2
    """

    values: tuple[str | int, ...]

    kind: ClassVar[str] = "category"
    is_ordered: ClassVar[bool] = False

    def __post_init__(self) -> None:
        values = given_list(self.name, "values", self.values)
        object.__setattr__(self, "values", tuple(self._checked(v) for v in values))
        if not self.values:
            raise self._fault("values lists nothing; give at least one value")
        if len({isinstance(v, str) for v in self.values}) > 1:
            raise self._fault(
                "values mixes texts and whole numbers; a column holds one or the other"
            )
        at = first_repeat(self.values)
        if at is not None:
            raise self._fault(f"values lists {shown(self.values[at])} twice")
        super().__post_init__()
        extra = [OTHER] * (self.outside == "other") + [MISSING] * (self.nulls == "missing")
        taken = [label for label in extra if label in self.values]
        if taken:
            raise self._fault(
                f"values lists {taken[0]!r}, which is the label of the extra cell; leave it out or "
                "choose another rule for outside and nulls"
            )

    def _checked(self, value: object) -> str | int:
        if isinstance(value, bool | np.bool_):
            raise self._fault('values holds true or false; use kind = "boolean" for such a column')
        if isinstance(value, str):
            if value and not is_text(value):
                raise self._fault(f"values holds {value!r}, which is no text that databases hold")
            return str(value)
        return whole_number(self.name, "values", value)

    @property
    def value_count(self) -> int:
        """Number of listed values."""
        return len(self.values)

    def value_label(self, code: int) -> Value:
        """The listed value itself."""
        return self.values[code]

    @cached_property
    def _code_of(self) -> dict[str | int, int]:
        return {value: code for code, value in enumerate(self.values)}

    def code(self, value: object) -> int | None:
        """The cell of a listed value, or None.

        >>> Category("size", (1, 2)).code(2), Category("size", (1, 2)).code(True)
        (1, None)
        """
        # True == 1 in Python, but a column of whole numbers holds no truth values.
        if isinstance(value, bool | np.bool_) or not isinstance(value, Hashable):
            return None
        return self._code_of.get(value)  # type: ignore[call-overload, no-any-return]

    def _codes_where(self, comparison: Comparison, constant: Value) -> range:
        if comparison not in ("=", "!="):
            raise WorkloadError(
                f"attribute {self.name!r} is a category and has no order, so {comparison!r} cannot "
                "be asked; use =, !=, IN or list its values"
            )
        code = self.code(constant)
        if code is None:
            raise WorkloadError(
                f"attribute {self.name!r} has no value {shown(constant)}; its values are "
                f"{listing(self.values)}{did_you_mean(constant, self.values)}"
            )
        return range(code, code + 1)


@dataclass(frozen=True)
class Boolean(Attribute):
    """False, then true.

    >>> Boolean("employed", nulls="missing").labels
    (False, True, '(missing)')
    """

    kind: ClassVar[str] = "boolean"
    is_ordered: ClassVar[bool] = False

    @property
    def value_count(self) -> int:
        """Always two."""
        return 2

    def value_label(self, code: int) -> Value:
        """False or true."""
        return bool(code)

    def numbers(self) -> npt.NDArray[np.float64]:
        """0 and 1."""
        return self._with_no_number(np.array([0.0, 1.0]))

    def _codes_where(self, comparison: Comparison, constant: Value) -> range:
        if comparison not in ("=", "!=") or constant not in (True, False):
            raise WorkloadError(
                f"attribute {self.name!r} is a boolean: it can be compared with = or != to true or "
                f"false, not {comparison} {shown(constant)}"
            )
        code = int(constant)  # type: ignore[arg-type]
        return range(code, code + 1)


def first_repeat(values: Sequence[object]) -> int | None:
    """The position of the first value that was listed before.

    >>> first_repeat(["a", "b", "a"])
    2
    """
    seen: set[object] = set()
    for position, value in enumerate(values):
        if value in seen:
            return position
        seen.add(value)
    return None
