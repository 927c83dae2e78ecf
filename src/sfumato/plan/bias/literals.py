# SPDX-License-Identifier: Apache-2.0
"""Workloads read as conjunctions and disjunctions of yes/no literals.

A table of yes/no attributes is all conjunctions of them and their negations at once. A disjunction
is one minus the conjunction of the negated literals, and negations move inwards (De Morgan).
"""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.domain import Domain
from sfumato.errors import PlanError
from sfumato.workload.predicates import And, Condition, Everything, In, Not, Or
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload

__all__ = ["Clause", "Cube", "Read", "clauses_of", "is_conjunctive"]


@dataclass(frozen=True, slots=True)
class Cube:
    """All ``2^w`` conjunctions of these attributes and their negations, in the order of a table."""

    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Clause:
    """The records whose attributes have exactly these codes, or (``is_complement``) all others."""

    attributes: tuple[str, ...]
    codes: tuple[int, ...]
    is_complement: bool


Read = Cube | tuple[Clause, ...]


def clauses_of(term: Term) -> Read:
    """The term as a cube or a list of clauses; PlanError where it is neither."""
    product = term.as_product()
    if product is not None:
        for name, queries in product.factors:
            if not queries.is_identity or queries.size != 2:
                raise PlanError(
                    f"group {term.name!r} asks for {queries.name} of {name!r}; conjunctions are "
                    "tables of yes/no attributes"
                )
        return Cube(term.attributes)
    if conditions := term.as_conditions():
        return tuple(_clause(c, term.domain) for c in conditions)
    raise PlanError(f"group {term.name!r} is given by coefficients, not by conditions")


def is_conjunctive(workload: Workload) -> bool:
    """Whether all queries are conjunctions or disjunctions of yes/no literals."""
    try:
        for term in workload.terms:
            clauses_of(term)
    except PlanError:
        return False
    return True


def _clause(condition: Condition, domain: Domain) -> Clause:
    codes: dict[str, int] = {}
    is_complement = not _collected(condition, domain, codes, is_or=_is_or(condition, False))
    return Clause(tuple(codes), tuple(codes.values()), is_complement)


def _is_or(condition: Condition, is_negated: bool) -> bool:
    if isinstance(condition, Not):
        return _is_or(condition.part, not is_negated)
    return isinstance(condition, And if is_negated else Or)


def _collected(condition: Condition, domain: Domain, codes: dict[str, int], is_or: bool) -> bool:
    """Gather the literals of a conjunction, or those of the negation of a disjunction."""
    waiting = [(condition, is_or)]  # a disjunction is gathered negated
    while waiting:
        part, is_negated = waiting.pop()
        if isinstance(part, Not):
            waiting.append((part.part, not is_negated))
        elif isinstance(part, Or if is_negated else And):
            waiting.extend((p, is_negated) for p in reversed(part.parts))
        elif isinstance(part, In):
            _add(part, is_negated, domain, codes)
        elif not (isinstance(part, Everything) and not is_negated):
            raise PlanError(
                f"{str(condition)[:80]!r} is neither a conjunction nor a disjunction of conditions "
                "on single yes/no attributes"
            )
    return not is_or


def _add(leaf: In, is_negated: bool, domain: Domain, codes: dict[str, int]) -> None:
    found = set(leaf.codes)
    if domain[leaf.attribute].size != 2 or len(found) != 1:
        raise PlanError(
            f"{str(leaf)[:80]!r} is not a literal: it needs an attribute of two cells and one of "
            "them"
        )
    code = found.pop() ^ is_negated
    if codes.setdefault(leaf.attribute, code) != code:
        raise PlanError(f"a conjunction asks for both cells of {leaf.attribute!r}: it is empty")
