# SPDX-License-Identifier: Apache-2.0
"""Records drawn from the weighted cells behind published answers.

Systematic sampling (Madow, Madow 1944, "On the theory of systematic sampling"): one uniform number
u, and record i is the cell at ``(i + u) / rows`` of the running weights. Every cell comes up as
often as its weight says, rounded down or up, so the records answer the workload as the weights do,
but for less than one record per cell. Cells that no query tells apart share their weight evenly.

Post-processing only: a random function of released answers (Dwork, Roth 2014, Proposition 2.1).
"""

from __future__ import annotations

from functools import partial
from math import prod, sqrt

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge, WorkloadError
from sfumato.random import WordSource, integers_below
from sfumato.refine.consistency import Refined
from sfumato.refine.refine_limits import LIMITS
from sfumato.refine.row_problem import make_possible
from sfumato.refine.synthesize import Synthetic, draw_given, uniforms
from sfumato.types import Array, Integers
from sfumato.workload.constraints import Constraints, Published
from sfumato.workload.workload import Workload

__all__ = [
    "check_records",
    "draw_records",
]


FRACTION_BITS = 53


def check_records(domain: Domain, rows: object) -> int:
    """A number of records that can be drawn at once."""
    if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 0:
        raise WorkloadError(f"the number of synthetic records must be 0 or more, got {rows!r}")
    if rows * len(domain) > LIMITS.synthetic_values:
        raise TooLarge(
            f"{rows:,} records of {len(domain)} attributes are {rows * len(domain):,} values, the "
            f"limit is {LIMITS.synthetic_values:,}; draw them in parts"
        )
    return int(rows)


def draw_records(
    workload: Workload,
    found: Refined,
    rows: int,
    words: WordSource,
    constraints: Constraints | None = None,
) -> Synthetic | None:
    """So many records in random order; None if no cell carries weight.

    With ``constraints``, which the cells meet, no record is impossible, and the counts of the first
    published table, scaled, are met to one record.
    """
    rows = check_records(workload.domain, rows)
    if not found.total > 0:
        return None
    order = _order(found, constraints)
    chosen = order[_systematic(found.weights[order], rows, words)]
    chosen = chosen[np.argsort(words.words(rows), kind="stable")]
    codes: dict[str, Integers] = {}
    for i, name in enumerate(found.attributes):
        codes[name] = _among_alike(found.codes[chosen, i], found.alike.get(name), words)
    codes = _completed(workload.domain, codes, rows, words, constraints)
    return Synthetic(codes, _notes_of_cells(workload, found, codes, rows, constraints))


def _order(found: Refined, constraints: Constraints | None) -> Integers:
    """Equal cells side by side, those of the first published table together."""
    first: tuple[str, ...] = ()
    if constraints is not None:
        first = next((t.names for t in constraints.published if t.names), ())
    names = [*(n for n in first if n in found.attributes), *found.attributes]
    keys = [found.codes[:, found.attributes.index(n)] for n in dict.fromkeys(names)]
    if not keys:
        return np.arange(len(found.weights))
    return np.asarray(np.lexsort(keys[::-1]), dtype=np.int64)


def _completed(
    domain: Domain,
    codes: dict[str, Integers],
    rows: int,
    words: WordSource,
    constraints: Constraints | None,
) -> dict[str, Integers]:
    """Attributes that no answer looks at: as published tables and conditions have them, or even."""
    known = set(codes)
    for table in () if constraints is None else constraints.published:
        new = [n for n in table.names if n not in codes]
        old = [n for n in table.names if n in codes]
        if not new:
            continue
        turned = table.values.transpose([table.names.index(n) for n in (*old, *new)])
        shape, sizes = turned.shape[: len(old)], turned.shape[len(old) :]
        given = np.zeros(rows, dtype=np.int64)
        if old:
            given = np.ravel_multi_index(tuple(codes[n] for n in old), shape).astype(np.int64)
        drawn = draw_given(turned.reshape(prod(shape), prod(sizes)), given, words)
        codes |= dict(zip(new, np.unravel_index(drawn, sizes), strict=True))
    full = {
        n: codes[n] if n in codes else integers_below(domain[n].size, rows, words)
        for n in domain.names
    }
    if constraints is None or not rows:
        return full
    even = [np.ones(domain[n].size) for n in domain.names]
    stacked = np.stack([full[n] for n in domain.names])
    drawn = make_possible(constraints, stacked, even, partial(uniforms, words), kept=known)
    return dict(zip(domain.names, drawn, strict=True))


def _systematic(weights: Array, rows: int, words: WordSource) -> Integers:
    edges = np.cumsum(weights)
    start = float(integers_below(2**FRACTION_BITS, 1, words)[0]) * 2.0**-FRACTION_BITS
    at = (np.arange(rows) + start) * (edges[-1] / max(rows, 1))
    found = np.searchsorted(edges, at, side="right")
    last = int(np.flatnonzero(weights > 0)[-1])  # rounding may reach the end
    return np.asarray(np.minimum(found, last), dtype=np.int64)


def _among_alike(column: Integers, alike: Integers | None, words: WordSource) -> Integers:
    """A uniform choice among the cells of the same class; ``alike`` numbers the class of a cell."""
    if alike is None:
        return column
    order = np.argsort(alike, kind="stable")
    sizes = np.bincount(alike)
    first = np.cumsum(sizes) - sizes
    out = column.copy()
    for label in np.flatnonzero(sizes > 1).tolist():
        here = np.flatnonzero(alike[column] == label)
        picked = integers_below(int(sizes[label]), len(here), words)
        out[here] = order[first[label] + picked]
    return out


def _notes_of_cells(
    workload: Workload,
    found: Refined,
    codes: dict[str, Integers],
    rows: int,
    constraints: Constraints | None,
) -> tuple[str, ...]:
    notes = [f"drawn from published answers: {found.describe()}"]
    if rows:
        error, spread = _difference(workload, found, codes, rows)
        notes.append(
            f"scaled to {found.total:,.0f} records, their answers differ from the published ones "
            f"by {error:.3g} (root mean square; the published answers are {spread:.3g})"
        )
    told = set(found.attributes)
    if constraints is not None:
        told.update(*(t.names for t in constraints.published))
        notes.append("no record is one that the constraints call impossible")
        notes += [_published_note(t, codes, rows) for t in constraints.published if rows]
    unknown = [n for n in workload.domain.names if n not in told]
    if unknown:
        notes.append(
            f"no released answer looks at {', '.join(unknown)}: drawn uniformly, which says nothing"
        )
    return tuple(notes)


def _published_note(table: Published, codes: dict[str, Integers], rows: int) -> str:
    own = np.zeros(table.values.shape)
    np.add.at(own, tuple(codes[n] for n in table.names), 1.0)
    off = float(np.abs(own * (table.total / rows) - table.values).max())
    name = " x ".join(table.names) or "total"
    return f"scaled to {table.total:,.0f} records, they meet the published {name} within {off:.3g}"


def _difference(
    workload: Workload, found: Refined, codes: dict[str, Integers], rows: int
) -> tuple[float, float]:
    """Root mean squares of records against published answers, and of these; all public."""
    squares, size, count = 0.0, 0.0, 0
    for term, published in zip(workload.terms, found.answers, strict=True):
        if term.is_wide:
            continue
        places = np.zeros(rows, dtype=np.int64)
        for name in term.attributes:
            places = places * workload.domain[name].size + codes[name]
        table = np.bincount(places, minlength=term.cells).reshape(term.shape)
        own = term.answer(table * (found.total / rows))
        squares += float(((own - published) ** 2).sum())
        size += float((published**2).sum())
        count += term.rows
    return sqrt(squares / max(count, 1)), sqrt(size / max(count, 1))
