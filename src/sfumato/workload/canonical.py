# SPDX-License-Identifier: Apache-2.0
"""One byte string per meaning: equal groups of queries, equal bytes.

Plans are cached and answers are found again under the hash of these bytes, so labels and names
do not enter, only what is asked and how much it matters.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import numpy as np

from sfumato.workload.coefficients import Groups, Matrix
from sfumato.workload.predicates import And, Condition, Everything, In, Not, Or
from sfumato.workload.queries import QuerySet
from sfumato.workload.terms import Explicit, Predicates, Product, Term

__all__ = ["canonical_bytes"]

Json = str | int | float | list["Json"]


def canonical_bytes(terms: Iterable[Term]) -> bytes:
    """The terms in order, as canonical JSON."""
    return json.dumps([_term(t) for t in terms], separators=(",", ":")).encode()


def _term(term: Term) -> Json:
    if isinstance(term, Product):
        body: Json = ["product", [[name, _queries(q)] for name, q in term.factors]]
    elif isinstance(term, Explicit):
        m = term.entries.tocsr().copy()
        m.sum_duplicates()
        m.eliminate_zeros()
        parts = [m.indptr, m.indices, m.data]
        body = ["explicit", list(term.over), term.bits, *[_hash(p) for p in parts]]
    elif isinstance(term, Predicates):
        body = ["predicates", [_condition(c) for c in term.conditions]]
    else:
        raise TypeError(f"no canonical form for {type(term).__name__}")
    return [body, term.weight]


def _queries(queries: QuerySet) -> Json:
    if isinstance(queries, Matrix):
        return ["matrix", queries.bits, list(queries.entries.shape), _hash(queries.entries)]
    if isinstance(queries, Groups):
        return ["groups", queries.rows, _hash(np.array(queries.group_of))]
    return [queries.name, queries.size]


def _condition(condition: Condition) -> Json:
    """And, Or: parts sorted by their text, each once, nested ones opened."""
    if isinstance(condition, In):
        return ["in", condition.attribute, sorted(set(condition.codes))]
    if isinstance(condition, Not):
        return ["not", _condition(condition.part)]
    if isinstance(condition, And | Or):
        word = "and" if isinstance(condition, And) else "or"
        parts: dict[str, Json] = {}
        for part in condition.parts:
            form = _condition(part)
            nested = isinstance(form, list) and form[0] == word
            for each in form[1] if nested else [form]:  # type: ignore[index,union-attr]
                parts[json.dumps(each)] = each
        return [word, [parts[key] for key in sorted(parts)]]
    if isinstance(condition, Everything):
        return ["everything"]
    raise TypeError(f"no canonical form for {type(condition).__name__}")


def _hash(values: np.typing.NDArray[np.generic]) -> str:
    return hashlib.sha256(np.ascontiguousarray(values.astype(np.int64)).tobytes()).hexdigest()
