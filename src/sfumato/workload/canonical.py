# SPDX-License-Identifier: Apache-2.0
"""Groups of queries as bytes, in the order in which they were written.

Searches are taken up again under the hash of these bytes, and requests were stored under it before
`normal_form.py` made one form of all writings. Labels and names do not enter, only what is asked,
in which order, and how much it matters. A condition enters as the truth table over the cells it
tells apart, so that ``a AND b`` is ``NOT (NOT b OR NOT a)``; only conditions that tell more than
2^16 cells apart enter as they are written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from sfumato.domain.domain import Domain
from sfumato.types import Integers, Mask
from sfumato.workload.predicates import And, Classes, Condition, Everything, In, Not, Or
from sfumato.workload.queries import (
    Groups,
    Identity,
    Matrix,
    Prefix,
    QuerySet,
    Ranges,
    Total,
    Windows,
)
from sfumato.workload.terms import Explicit, Predicates, Product, Term

__all__ = [
    "canonical_bytes",
    "written_condition",
    "written_term",
]


Json = str | int | float | list["Json"]

TABULATED = 2**16  # cells of a condition's truth table that are hashed


def canonical_bytes(terms: Iterable[Term]) -> bytes:
    """The terms in order, as canonical JSON."""
    known: dict[int, list[Json]] = {}
    listed = list(terms)  # held, so that no number in ``known`` is used twice
    return json.dumps([written_term(t, known) for t in listed], separators=(",", ":")).encode()


def written_term(term: Term, known: dict[int, list[Json]]) -> Json:
    """The form of a term; ``known`` has those of query sets, by the number of the object."""
    if isinstance(term, Product):
        for _, queries in term.factors:
            if id(queries) not in known:
                known[id(queries)] = _queries(queries)
        factors = [(name, known[id(queries)]) for name, queries in term.factors]
        body: Json = ["product", [[name, form] for name, form in factors if form]]
    elif isinstance(term, Explicit):
        m = term.entries.tocsr().copy()
        m.sum_duplicates()
        m.eliminate_zeros()
        data, bits = _least_bits(m.data, term.bits)
        body = ["explicit", list(term.over), bits, *[_hash(p) for p in (m.indptr, m.indices, data)]]
    elif isinstance(term, Predicates):
        body = ["predicates", [_condition(c, term.domain) for c in term.conditions]]
    else:
        raise TypeError(f"no canonical form for {type(term).__name__}")
    return [body, float(term.weight)]


def _queries(queries: QuerySet) -> list[Json]:
    """The form of a query set; nothing for the total, which is what an unnamed attribute has."""
    if isinstance(queries, Matrix):
        entries, bits = _least_bits(queries.entries, queries.bits)
        return ["matrix", bits, list(entries.shape), _hash(entries)]
    if isinstance(queries, Groups):
        return ["groups", queries.rows, _hash(np.array(queries.group_of))]
    if isinstance(queries, Identity | Prefix | Ranges | Total | Windows):
        size = queries.size
        width = queries.width if isinstance(queries, Windows) else 0
        if isinstance(queries, Total) or size == 1 or width == size:
            return []
        return [Identity(size).name if width == 1 else queries.name, size]
    return [type(queries).__name__, queries.name, queries.size]  # those that strategies add


def _least_bits(entries: Integers, bits: int) -> tuple[Integers, int]:
    while bits and not (entries & 1).any():
        entries, bits = entries >> 1, bits - 1
    return entries, bits


def _condition(condition: Condition, domain: Domain) -> Json:
    """The truth table over the coarsest classes of cells that it tells apart."""
    classes = Classes.of([condition], domain, domain.in_order(condition.attributes))
    if classes.cells > TABULATED:
        return written_condition(condition)
    truth = classes.truth(condition)
    axes: list[Json] = []
    for axis, (name, class_of) in enumerate(zip(classes.names, classes.class_of, strict=True)):
        slices = np.moveaxis(truth, axis, 0)
        _, first, merged = np.unique(
            slices.reshape(len(slices), -1), axis=0, return_index=True, return_inverse=True
        )
        # Classes are numbered by their first cell, and so are the merged ones.
        rank = np.argsort(np.argsort(first))[merged.reshape(-1)]
        truth = np.moveaxis(slices[np.sort(first)], 0, axis)
        if len(first) > 1:
            axes.append([name, _hash(rank[class_of])])
    return ["cells", axes, _bits(truth)]


def _bits(truth: Mask) -> str:
    """The truth values in row-major order; axes along which nothing varies have length 1."""
    return np.packbits(truth.reshape(-1)).tobytes().hex() + f"/{truth.size}"


def written_condition(condition: Condition) -> Json:
    """And, Or: parts sorted by their text, each once, nested ones opened."""
    if isinstance(condition, In):
        return ["in", condition.attribute, _hash(np.unique(condition.codes))]
    if isinstance(condition, Not):
        return ["not", written_condition(condition.part)]
    if isinstance(condition, And | Or):
        word = "and" if isinstance(condition, And) else "or"
        parts: dict[str, Json] = {}
        for part in condition.parts:
            form = written_condition(part)
            nested = isinstance(form, list) and form[0] == word
            for each in form[1] if nested else [form]:  # type: ignore[index,union-attr]
                parts[json.dumps(each)] = each
        return [word, [parts[key] for key in sorted(parts)]]
    if isinstance(condition, Everything):
        return ["everything"]
    raise TypeError(f"no canonical form for {type(condition).__name__}")


def _hash(values: npt.NDArray[np.generic]) -> str:
    return hashlib.sha256(np.ascontiguousarray(values.astype(np.int64)).tobytes()).hexdigest()
