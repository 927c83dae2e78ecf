# SPDX-License-Identifier: Apache-2.0
"""What the values of a column without types look like, still to be learnt: for a price.

A CSV file has texts. Whether those of a column are whole numbers, numbers, dates, yes or no, or
texts is not public: one odd row more or less may change it. An `OpenKind` cuts the records into
classes, of which each record is in one; their noisy sizes are published, and `voted` makes a kind
of them and of the name. Proof: docs/proofs/kinds.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import product
from math import inf
from typing import ClassVar, Final, Literal, get_args

from sfumato.domain.attributes import Attribute, Boolean, DateTime, Integer
from sfumato.domain.discovery import Findings, OpenAttribute
from sfumato.domain.domain import Domain
from sfumato.domain.domain_limits import LIMITS
from sfumato.domain.draft import Kind, guessed
from sfumato.errors import SchemaError

__all__ = ["CLASSES", "OpenKind", "ValueClass", "voted"]

ValueClass = Literal["whole", "bit", "fraction", "date", "truth", "text"]
"""What a text looks like: a whole number, 0 or 1, another number, a date, yes or no, or none."""
CLASSES: Final[tuple[ValueClass, ...]] = get_args(ValueClass)

_EXACT: Final = 2**53 - 1  # whole numbers that floats hold exactly, as an integer attribute reads


@dataclass(frozen=True)
class OpenKind(OpenAttribute):
    """How many values of a column are whole numbers, fractions, dates, yes or no, or other texts.

    Args:
        columns: The name of the column.

    Raises:
        SchemaError: Several columns are named.
    """

    kind: ClassVar[str] = "kind"
    mechanism: ClassVar[str] = "kinds"
    families: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.columns) != 1:
            raise SchemaError(f"{self.name}: a kind is that of one column, got {self.columns}")

    def _way_out(self, family: str) -> str:
        del family
        return "a column with a type needs no vote, for its type is public"

    @cached_property
    def domain(self) -> Domain:
        """The column read in three ways: as a whole number, as a date, as yes or no."""
        (name,) = self.columns
        first, last = datetime(1, 1, 1), datetime(9999, 1, 1)
        width = 2 * _EXACT + 1
        whole = Integer("whole", -_EXACT, _EXACT, width=width, outside="other", nulls="missing")
        moment = DateTime("moment", first, last, "9998 year", outside="other", nulls="missing")
        truth = Boolean("truth", outside="other", nulls="missing")
        several: tuple[Attribute, ...] = (whole, moment, truth)
        return Domain([replace(each, from_column=name, unparsed="cell") for each in several])

    @cached_property
    def places(self) -> tuple[int | None, ...]:
        """For each cell of the table of all three, the place of its class; None for nulls."""
        whole, moment, truth = self.domain
        cells = product(range(whole.size), range(moment.size), range(truth.size))
        return tuple(_place(whole, w, moment, m, truth, t) for w, m, t in cells)

    def closed(self, findings: Findings) -> tuple[Attribute, ...]:
        """None: a kind is no attribute yet."""
        del findings
        return ()

    def table(self) -> dict[str, object]:
        """Nothing: a schema says what a column is."""
        return {}


def _place(
    whole: Attribute, w: int, moment: Attribute, m: int, truth: Attribute, t: int
) -> int | None:
    """The place of the class of a cell: numbers first, then dates, then yes or no."""
    is_truth = t < truth.value_count
    if w == whole.null_cell:
        return None
    made: ValueClass
    if w < whole.value_count:
        made = "bit" if is_truth else "whole"
    elif w == whole.other_code:
        made = "fraction"
    elif m < moment.value_count or m == moment.other_code:
        made = "date"
    else:
        made = "truth" if is_truth else "text"
    return CLASSES.index(made)


# From sizes to a kind

_PROFILES: Final[tuple[tuple[Kind, bool, dict[ValueClass, float]], ...]] = (
    ("boolean", True, {"truth": 1.0}),
    ("boolean", True, {"bit": 1.0}),
    ("boolean", False, {"truth": 0.8, "text": 0.2}),
    ("integer", True, {"whole": 0.9, "bit": 0.1}),
    ("integer", True, {"bit": 1.0}),
    ("integer", False, {"whole": 0.4, "bit": 0.6}),
    ("integer", False, {"whole": 0.1, "bit": 0.9}),
    ("integer", False, {"whole": 0.65, "bit": 0.1, "text": 0.25}),
    ("numeric", True, {"fraction": 0.9, "whole": 0.1}),
    ("numeric", False, {"fraction": 0.5, "whole": 0.5}),
    ("numeric", False, {"fraction": 0.1, "whole": 0.9}),
    ("numeric", False, {"fraction": 0.7, "whole": 0.05, "text": 0.25}),
    ("datetime", True, {"date": 1.0}),
    ("datetime", False, {"date": 0.75, "text": 0.25}),
    ("category", True, {"text": 1.0}),
    ("category", False, {"text": 0.5, "whole": 0.5}),
    ("category", False, {"text": 0.5, "truth": 0.5}),
)
"""What columns of a kind look like, and whether that is usual: shares of the classes. Of equals the
first is taken."""
_CODES: Final[tuple[tuple[Kind, bool, dict[ValueClass, float]], ...]] = (
    ("category", True, {"whole": 0.9, "bit": 0.1}),
    ("category", True, {"whole": 0.9, "text": 0.1}),
    ("category", True, {"bit": 1.0}),
)
"""Codes: what categories with a name that says so may look like besides."""


def voted(name: str, sizes: Mapping[ValueClass, float], scale: float) -> Kind:
    """What a column of this name holds, by the noisy sizes of the classes of its values.

    The kind of largest posterior: how likely Laplace noise of this scale is around a number of
    values with the shares of a profile, times how often such a name, and such a profile, is right.
    Where noise is larger than the classes, the name decides.

    Args:
        name: The name of the column.
        sizes: About how many values are in each class.
        scale: The scale of the noise of each size.

    >>> sizes = {"whole": 990, "bit": -40, "fraction": 25, "date": 10, "truth": -3, "text": 12}
    >>> voted("points", sizes, 20), voted("zip", sizes, 20), voted("is_new", sizes, 500)
    ('integer', 'category', 'boolean')
    """
    guess = guessed(name)
    is_code = guess.kind == "category" and not guess.is_default
    fits: dict[Kind, float] = {}
    for kind, is_usual, shares in (*_PROFILES, *(_CODES if is_code else ())):
        fit = _likelihood(sizes, shares, scale) - (0.0 if is_usual else LIMITS.vote_rare)
        fits[kind] = max(fit, fits.get(kind, -inf))
    fits[guess.kind] += LIMITS.vote_default if guess.is_default else LIMITS.vote_name
    return max(fits, key=fits.__getitem__)


def _likelihood(
    sizes: Mapping[ValueClass, float], shares: Mapping[ValueClass, float], scale: float
) -> float:
    """The largest logarithm of the likelihood of the sizes over all numbers of values."""
    several = [max(sizes[each] / share, 0.0) for each, share in shares.items()]
    apart = (sum(abs(sizes[c] - n * shares.get(c, 0.0)) for c in CLASSES) for n in several)
    return -min(apart) / scale
