# SPDX-License-Identifier: Apache-2.0
"""The privacy unit: whose presence is protected."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.errors import SchemaError

__all__ = ["PrivacyUnit"]


@dataclass(frozen=True, slots=True)
class PrivacyUnit:
    """All records that share a value of ``column`` belong to one person.

    At most ``rows`` of them are counted, chosen at random in the vault, so that one person moves
    the histogram by at most ``rows``. Without a privacy unit, one row is one person.
    """

    column: str
    rows: int

    def __post_init__(self) -> None:
        if not self.column:
            raise SchemaError("a privacy unit needs the name of its column")
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1:
            raise SchemaError(
                f"a privacy unit needs a bound of at least 1 row per unit, got {self.rows!r}"
            )
