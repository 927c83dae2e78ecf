# SPDX-License-Identifier: Apache-2.0
"""Synthetic records with values in place of cells: what a table of such people could look like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.domain.attributes import Attribute, DateTime, Integer, Numeric
from sfumato.domain.domain import Domain
from sfumato.domain.values import Fractional
from sfumato.random import WordSource, integers_below
from sfumato.refine.synthesize import Synthetic
from sfumato.release.labels import Labels, cell_labels, has_whole_days, lower_ends, upper_ends
from sfumato.types import Integers

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "record_frame",
]


FRACTION_BITS = 53


def record_frame(domain: Domain, synthetic: Synthetic, random: WordSource) -> pd.DataFrame:
    """Listed values as they are, bins by a uniform draw inside, missing values as nulls.

    The notes of the draw are in ``frame.attrs["notes"]``.
    """
    import pandas as pd

    declared = [a for a in domain if not isinstance(a, Fractional)]
    columns = {a.name: _column(a, synthetic.codes[a.name], random) for a in declared}
    frame = pd.DataFrame(columns)
    frame.attrs["notes"] = list(synthetic.notes)
    return frame


def _column(attribute: Attribute, codes: Integers, random: WordSource) -> pd.Series[Any]:
    import pandas as pd

    is_listed = not isinstance(attribute, Integer | Numeric | DateTime)
    if is_listed:
        drawn: pd.Series[Any] = pd.Series(cell_labels(attribute)[codes])
        is_null = (codes == attribute.missing_code) | (codes == attribute.unparsed_code)
    else:
        declared = np.minimum(codes, attribute.value_count - 1)
        drawn = pd.Series(_inside(attribute, declared, random))
        # A value outside the declared ones is not known, so it is left open as well.
        is_null = codes >= attribute.value_count
    if attribute.missing_code is None and not is_null.any():
        return drawn
    if drawn.dtype.kind == "i":
        drawn = drawn.astype("Int64")
    return drawn.mask(pd.Series(is_null))


def _inside(attribute: Attribute, codes: Integers, random: WordSource) -> Labels:
    """A uniform point of every bin."""
    low, high = lower_ends(attribute)[codes], upper_ends(attribute)[codes]
    if isinstance(attribute, Integer) and attribute.width == 1:
        return low
    part = integers_below(1 << FRACTION_BITS, codes.size, random) * 2.0**-FRACTION_BITS
    if isinstance(attribute, Integer):
        steps = np.floor((high - low + 1).astype(np.float64) * part).astype(np.int64)
        return np.asarray(low + steps)
    if isinstance(attribute, DateTime):
        if has_whole_days(attribute):
            days = (high - low).astype("timedelta64[D]").astype(np.int64) + 1
            return np.asarray(low + np.floor(days * part).astype("timedelta64[D]"))
        span = (high - low).astype("timedelta64[s]").astype(np.int64)
        return np.asarray(low + np.floor(span * part).astype("timedelta64[s]"))
    return np.asarray(low + (high - low) * part, dtype=np.float64)
