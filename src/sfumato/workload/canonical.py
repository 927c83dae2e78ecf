# SPDX-License-Identifier: Apache-2.0
"""Groups of queries as canonical bytes, in the order in which they were written.

`Workload.digest` is their hash: searches are taken up again under it. The key of a request is that
of `normal_form.py`, which makes one form of all writings of the same queries. Labels and names do
not enter, only what is asked, in which order, and how much it matters. A condition enters as the
truth table over the cells it tells apart, so that ``a AND b`` is ``NOT (NOT b OR NOT a)``; only
conditions that tell more than 2^16 cells apart enter as they are written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.types import Mask
from sfumato.workload.predicates import And, Classes, Condition, Everything, In, Not, Or, coarsest
from sfumato.workload.queries import Json, hashed
from sfumato.workload.workload_limits import LIMITS

if TYPE_CHECKING:
    from sfumato.workload.terms import Term

__all__ = ["Json", "canonical_bytes", "condition_form", "written_condition", "written_term"]


def canonical_bytes(terms: Iterable[Term]) -> bytes:
    """The terms in order, as canonical JSON."""
    forms: dict[int, list[Json]] = {}
    listed = list(terms)  # held, so that no number in ``forms`` is used twice
    return json.dumps([written_term(t, forms) for t in listed], separators=(",", ":")).encode()


def written_term(term: Term, forms: dict[int, list[Json]]) -> Json:
    """The form of a term; ``forms`` collects those of query sets, by the number of the object."""
    return [term.canonical(forms), float(term.weight)]


def condition_form(condition: Condition, domain: Domain) -> Json:
    """A condition as its truth table over the coarsest classes of cells that it tells apart."""
    classes = Classes.of([condition], domain, domain.in_order(condition.attributes))
    if classes.cells > LIMITS.truth_cells:
        return written_condition(condition)
    names, class_of, truth = coarsest(classes.names, classes.class_of, classes.truth(condition))
    axes: list[Json] = [[name, hashed(of)] for name, of in zip(names, class_of, strict=True)]
    return ["cells", axes, _bits(truth.astype(np.bool_))]


def _bits(truth: Mask) -> str:
    """The truth values in row-major order, and how many they are."""
    return np.packbits(truth.reshape(-1)).tobytes().hex() + f"/{truth.size}"


def written_condition(condition: Condition) -> Json:
    """A condition as it is written; parts of And and Or sorted, each once, nested ones opened."""
    if isinstance(condition, In):
        return ["in", condition.attribute, hashed(np.unique(condition.codes))]
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
