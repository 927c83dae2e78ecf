# SPDX-License-Identifier: Apache-2.0
"""Sums and means asked of bins: every record counts as the middle of its bin.

Numeric attributes, and integers in bins, are summed by their values as a rule (`build.py`). What
learns from tables of cells has no place for values: `in_bins` returns the same queries over the
cells, and `hidden_by_bins` and `hidden_in_sums` bound how far they can be from those of the values.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import comb

import numpy as np

from sfumato.domain.attributes import Attribute, Integer, Numeric
from sfumato.domain.domain import Domain, base_of, valued
from sfumato.domain.values import Values
from sfumato.errors import WorkloadError
from sfumato.types import Array
from sfumato.workload.build import MeanOfValues, explicit
from sfumato.workload.queries import ENTRY_BITS, Matrix, check_entries, value_entries
from sfumato.workload.terms import Explicit, Product, StructuredLabel, Term
from sfumato.workload.workload import Ratio, Workload

__all__ = [
    "hidden_by_bins",
    "hidden_in_sums",
    "in_bins",
]


def hidden_by_bins(attribute: Attribute) -> float:
    """How far a number can be from the middle of its bin: half the widest."""
    if isinstance(attribute, Integer):
        low, high = attribute.bounds(0)
        return (high - low) / 2
    if isinstance(attribute, Numeric):
        return max(b / 2 - a / 2 for a, b in pairwise(attribute.edges))
    return 0.0


def hidden_in_sums(attribute: Attribute) -> tuple[float, float]:
    """How many times as large as the sum of the middles the sum can be: minimum and maximum.

    For any records, as long as no number is negative: each is between the ends of its bin. Else
    nothing is known without the number of records.
    """
    middles = attribute.numbers()[: attribute.value_count]
    if isinstance(attribute, Numeric):
        edges = np.array(attribute.edges)
        low, high = edges[:-1], edges[1:]
    else:
        assert isinstance(attribute, Integer)  # noqa: S101  has_spread_values
        low = attribute.min + attribute.width * np.arange(attribute.value_count, dtype=np.float64)
        high = np.minimum(low + attribute.width - 1, attribute.max)
    if low[0] < 0:
        return -np.inf, np.inf
    counted = middles > 0
    return (
        float(np.min(low[counted] / middles[counted], initial=1.0)),
        float(np.max(high[counted] / middles[counted], initial=1.0)),
    )


def in_bins(work: Workload) -> Workload:
    """The same queries with every record in the middle of its bin, over the attributes alone.

    For what learns from tables of cells and has no place for values: sums say so in their names,
    and means say how much bins can hide (``Ratio.hidden``).
    """
    base = base_of(work.domain)
    if base is work.domain:
        return work
    _refuse_moments(work)
    terms = list(work.terms)
    ratios = [ratio for ratio in work.ratios if isinstance(ratio, Ratio)]
    for i, ratio in enumerate(ratios):
        summed = terms[ratio.numerator]
        values = _values(summed)
        if values:
            terms[ratio.numerator] = _uncentred(summed, terms[ratio.denominator], ratio, values[0])
            hidden = max(hidden_by_bins(each.of) for each in values)
            ratios[i] = replace(ratio, scale=1.0, offset=0.0, hidden=hidden)
    binned = tuple(_in_bins(term, base) for term in terms)
    return Workload(base, binned, tuple(ratios), work.statements)


def _refuse_moments(work: Workload) -> None:
    """Refuse variances and products of columns: the middles of bins say too little about them."""
    names = [r.name for r in work.ratios if not isinstance(r, Ratio)]
    names += [t.name for t in work.terms if not _is_of_values(t)]
    if names:
        raise WorkloadError(
            f"{names[0]!r} needs the values themselves, and bins hide too much of them: variances, "
            "covariances and products of columns are released with sf.plan only"
        )


def _is_of_values(term: Term) -> bool:
    return len(_values(term)) == len(valued(term.domain, term.attributes))


def _values(term: Term) -> list[Values]:
    chosen = valued(term.domain, term.attributes)
    return [each for each in chosen if isinstance(each, Values)]


def _uncentred(summed: Term, number: Term, ratio: Ratio, values: Values) -> Term:
    """The sum of the values themselves: the centred one scaled, and the number times the middle."""
    name = summed.name.replace(MeanOfValues(summed.domain, values).text, values.of.name)
    product = summed.as_product()
    if product is not None:
        row = Matrix.of_values(values.powers(1), (), "sum")
        factors = tuple((n, row if n == values.name else q) for n, q in product.factors)
        out: Term = replace(product, name=name, factors=factors)
    elif isinstance(summed, Explicit) and isinstance(number, Explicit):
        matrix = ratio.scale * summed.matrix + ratio.offset * number.matrix
        data, bits = value_entries(matrix.data)
        entries = type(matrix)((data, matrix.indices, matrix.indptr), shape=matrix.shape)
        out = replace(summed, name=name, entries=entries, bits=bits)
    else:
        return summed
    return out.in_its_own_unit()


def _in_bins(term: Term, base: Domain) -> Term:
    """One term over the attributes alone, records in the middles of their bins."""
    values = _values(term)
    if not values:
        return replace(term, domain=base)
    text = f"{term.name} (middles of bins)"
    name: str = StructuredLabel(text, text, binned=values[0].of.name)
    if isinstance(term.name, StructuredLabel):
        aggregate = f"{term.name.aggregate} (middles of bins)"
        name = StructuredLabel(
            name, aggregate, term.name.condition, term.name.groups, values[0].of.name
        )
    product = term.as_product()
    if product is not None:
        factors = dict(product.factors)
        rows = [factors[each.name].dense() for each in values]
        if all((r == each.powers(0)).all() for r, each in zip(rows, values, strict=True)):
            name = term.name  # a number of records, which bins tell exactly
        for each in values:
            row = factors.pop(each.name).dense() @ _middles(each).T
            own = factors.get(each.of.name)
            labels = (name,) if own is None else ()
            coefficients = row if own is None else own.dense() * row
            if len(row) > 1:
                raise WorkloadError(f"{term.name!r} asks for the cells of {each.name!r} one by one")
            factors[each.of.name] = Matrix.of(_rounded(coefficients), labels, "middles of bins of")
        order = base.in_order(factors)
        return Product(base, name, term.weight, tuple((n, factors[n]) for n in order))
    if not isinstance(term, Explicit):
        raise WorkloadError(f"{term.name!r} cannot be asked in bins")
    over, dense = term.over, term.matrix.toarray().reshape(-1, *term.shape)
    check_entries(dense.size * max(v.of.size for v in values), f"{term.name!r} in bins")
    for each in values:
        axis = 1 + over.index(each.name)
        weights = _middles(each)
        if each.of.name in over:
            along = 1 + over.index(each.of.name)
            moved = np.moveaxis(dense, (along, axis), (-2, -1))
            dense = np.moveaxis((moved * weights).sum(axis=-1), -1, along)
            over = tuple(n for n in over if n != each.name)
        else:
            dense = np.moveaxis(np.moveaxis(dense, axis, -1) @ weights.T, -1, axis)
            over = tuple(each.of.name if n == each.name else n for n in over)
    axes = [1 + over.index(n) for n in base.in_order(over)]
    flat = dense.transpose([0, *axes]).reshape(len(dense), -1)
    binned = explicit(base, base.in_order(over), _rounded(flat), term.labels).terms[0]
    return replace(binned, name=name, weight=term.weight)


def _rounded(coefficients: Array) -> Array:
    """Coefficients rounded to the multiples of 2^-20 that are stored: middles have few bits."""
    return np.asarray(np.ldexp(np.rint(np.ldexp(coefficients, ENTRY_BITS)), -ENTRY_BITS))


def _middles(values: Values) -> Array:
    """How the middle of every bin is spread over the cells of the values: bins by cells."""
    of, degree = values.of, values.degree
    low, high = values.ends
    t = np.clip((of.numbers()[: of.value_count] - low) / (high - low), 0.0, 1.0)
    out = np.zeros((of.size, values.size))
    for k in range(degree + 1):
        out[: of.value_count, k] = comb(degree, k) * (1 - t) ** (degree - k) * t**k
    for cell in range(of.value_count, of.size):
        out[cell, values.value_count + cell - of.value_count] = 1.0
    return out
