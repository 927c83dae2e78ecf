# SPDX-License-Identifier: Apache-2.0
"""How far synthetic records can be trusted, from public numbers alone.

A table that was asked for is compared with its published answers: the distance of both
distributions, the largest difference, and how many answers of the records lie inside of the
published intervals. Of a pair of attributes that no released table holds, nothing is known; how
strongly it is associated in the records is what the model left there, and is listed so that nobody
takes it for a finding. Distances to the true table are not among the measures: they would read the
data, and cost budget. Ask for a table to know it.

Distances are total variation, so that ``1000 (1 - mean distance)`` is the k-marginal score of Task,
Bhagat, Howarth 2023, "SDNist: benchmark data and evaluation tools for data synthesizers", with the
published tables in place of the true ones. Associations are Cramer's V without its bias (Bergsma
2013, "A bias-correction for Cramer's V and Tschuprow's T"): 0 in the mean for independent columns.

Privacy: functions of what was released (post-processing: Dwork, Roth 2014, Proposition 2.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from math import prod, sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

from sfumato.errors import WorkloadError
from sfumato.release.release_limits import LIMITS
from sfumato.types import Array, Integers
from sfumato.workload.terms import Term

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

    from sfumato.refine.synthesize import Synthetic
    from sfumato.release.estimates import Estimates

__all__ = ["QUALITY", "quality_rows", "synthetic_quality", "synthetic_quality_chart"]

QUALITY: Final = "quality"
"""The key of the measures in ``attrs`` of a frame of synthetic records."""

COLUMNS: Final = (
    "table",
    "asked",
    "answers",
    "distance",
    "largest",
    "inside",
    "association",
    "published_association",
)

Measures = dict[str, str | bool | int | float | None]


def synthetic_quality(records: pd.DataFrame) -> pd.DataFrame:
    """How well synthetic records answer what was asked, and what they say without evidence.

    Privacy: a function of what was released; it costs nothing, and no data is read.

    Args:
        records: What ``release.synthetic`` returned. The measures were taken when it was drawn:
            they do not follow changes of the frame.

    Returns:
        One row per released group, then one per pair of attributes that no released table holds.
        ``distance`` is the total variation distance from the published table, between 0 and 1;
        ``largest`` the largest difference of an answer, in records of the released total;
        ``inside`` the part of the answers that lies inside of the published 95% intervals;
        ``association`` Cramer's V of a pair, ``published_association`` that of its published
        table. What is not defined, or not known, is empty.

    Raises:
        WorkloadError: if the frame carries no measures, because it is none of ``synthetic``.

    >>> import sfumato as sf
    >>> import pandas as pd
    >>> domain = sf.Domain({"age": 3, "sex": 2})
    >>> plan = sf.plan(sf.marginals(domain, 1), sf.Budget(epsilon=1))
    >>> table = pd.DataFrame({"age": [0, 1, 2] * 100, "sex": [0, 1, 0] * 100})
    >>> records = plan.release(table).synthetic(500)
    >>> sf.synthetic_quality(records)[["table", "asked"]].values.tolist()
    [['age', True], ['sex', True], ['age x sex', False]]
    """
    import pandas as pd

    frame = pd.DataFrame(_measures(records), columns=list(COLUMNS))
    numbers = ["distance", "largest", "inside", "association", "published_association"]
    return frame.astype(dict.fromkeys(numbers, float))


def synthetic_quality_chart(records: pd.DataFrame) -> alt.VConcatChart:
    """Distances of the tables that were asked for, and associations of all pairs, as one picture.

    Args:
        records: What ``release.synthetic`` returned.

    Returns:
        An Altair chart: bars of the distances from the published tables, the farthest first, above
        the associations in the records of pairs, asked ones and others by colour.

    Raises:
        WorkloadError: if the frame carries no measures, because it is none of ``synthetic``.
    """
    from sfumato.release.charts import quality_bars

    return quality_bars(synthetic_quality(records), LIMITS.quality_bars)


def _measures(records: pd.DataFrame) -> list[Measures]:
    rows = getattr(records, "attrs", {}).get(QUALITY)
    if rows is None:
        raise WorkloadError(
            "these records carry no measures of their quality; give the frame that "
            "release.synthetic() returned, as it came"
        )
    return list(rows)


def quality_rows(estimates: Estimates, synthetic: Synthetic) -> list[Measures]:
    """The measures of every released group, then of the pairs that no released table holds."""
    count = len(next(iter(synthetic.codes.values()), ()))
    if not count:
        return []
    terms = estimates.workload.terms
    out = [
        _of_group(estimates, number, synthetic.codes, count)
        for number, term in enumerate(terms)
        if not term.is_wide and term.cells <= LIMITS.quality_cells
    ]
    names = estimates.workload.domain.names
    held = {pair for t in terms for pair in combinations(sorted(t.attributes, key=names.index), 2)}
    others = [pair for pair in combinations(names, 2) if pair not in held]
    sizes = {name: estimates.workload.domain[name].size for name in names}
    listed = [p for p in others if prod(sizes[n] for n in p) <= LIMITS.quality_cells]
    for pair in listed[: LIMITS.quality_pairs]:
        table = _table(synthetic.codes, pair, tuple(sizes[n] for n in pair))
        out.append(_row(" x ".join(pair), False, int(table.size), association=association(table)))
    return out


def _row(table: str, is_asked: bool, answers: int, **numbers: float | None) -> Measures:
    row: Measures = dict.fromkeys(COLUMNS)
    return row | {"table": table, "asked": is_asked, "answers": answers} | numbers


def _of_group(
    estimates: Estimates, number: int, codes: Mapping[str, Integers], count: int
) -> Measures:
    term = estimates.workload.terms[number]
    answers = estimates.group(number)
    published = answers.value()
    low, high = answers.interval(LIMITS.level)
    table = _table(codes, term.attributes, term.shape) * (estimates.total / count)
    own = term.answer(table)
    has_ends = np.isfinite(low) & np.isfinite(high)
    inside = (own >= low) & (own <= high)
    numbers = {
        "largest": float(np.abs(own - published).max(initial=0.0)),
        "inside": float(inside[has_ends].mean()) if has_ends.any() else None,
    }
    numbers |= _of_table(term, own, published) if term.is_table else {}
    return _row(term.name, True, term.rows, **numbers)


def _of_table(term: Term, own: Array, published: Array) -> dict[str, float | None]:
    """Measures that a table of all cells of its attributes has, and other groups have not."""
    mine, theirs = own.reshape(term.shape), np.maximum(published, 0.0).reshape(term.shape)
    if not mine.sum() > 0 or not theirs.sum() > 0:
        return {}
    distance = 0.5 * float(np.abs(mine / mine.sum() - theirs / theirs.sum()).sum())
    if len(term.shape) != 2:
        return {"distance": distance}
    both = {"association": association(mine), "published_association": association(theirs)}
    return {"distance": distance} | both


def _table(codes: Mapping[str, Integers], names: tuple[str, ...], shape: tuple[int, ...]) -> Array:
    places = np.zeros(len(next(iter(codes.values()))), dtype=np.int64)
    for name, size in zip(names, shape, strict=True):
        places = places * size + codes[name]
    counted = np.bincount(places, minlength=prod(shape)).reshape(shape)
    return np.asarray(counted, dtype=np.float64)


def association(table: Array) -> float | None:
    """Cramer's V of a table of counts without its bias; None where one attribute is constant."""
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    count, (rows, columns) = float(table.sum()), table.shape
    if count <= 1 or min(rows, columns) < 2:
        return None
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / count
    square = float(((table - expected) ** 2 / expected).sum()) / count
    excess = max(0.0, square - (rows - 1) * (columns - 1) / (count - 1))
    height = rows - (rows - 1) ** 2 / (count - 1)
    width = columns - (columns - 1) ** 2 / (count - 1)
    least = min(height, width) - 1
    return sqrt(min(1.0, excess / least)) if least > 0 else 0.0
