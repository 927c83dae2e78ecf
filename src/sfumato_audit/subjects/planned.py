# SPDX-License-Identifier: Apache-2.0
"""Every planned mechanism as a subject: all names that a person can ask for, and their variants.

Domains are small, so that a run is a few numbers; which code plans, counts and measures does not
depend on the size, except where a variant is built by its own name below.
"""

from __future__ import annotations

from collections.abc import Iterator

from sfumato.domain.domain import Domain
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.planning.planner import BIASED
from sfumato.planning.views import Viewed
from sfumato.privacy.budget import Budget
from sfumato.strategy.base import Strategy
from sfumato.strategy.biased import approximate
from sfumato.strategy.matrix import dense
from sfumato.strategy.ordered import ordered
from sfumato.strategy.pieces import pieces
from sfumato.strategy.windows import windows as sliding
from sfumato.types import Neighbours
from sfumato.workload.build import explicit, marginals, predicates, prefixes, windows
from sfumato.workload.predicates import attribute
from sfumato.workload.workload import Workload
from sfumato_audit.examine import Subject, Table
from sfumato_audit.subjects.measured import measured_subject

__all__ = [
    "planned_subjects",
]


BUDGETS = {"gaussian": Budget(mu=1), "laplace": Budget(epsilon=1)}
SLOW_INTEGERS = 4  # coefficients of so many bits are measured in Python integers
PERSONS = 10  # records for which a bias is weighed against noise


def planned_subjects() -> Iterator[Subject[Table]]:
    """All named mechanisms with both kinds of neighbours, then the variants of the optimum."""
    both: tuple[Neighbours, ...] = ("add-remove", "replace-one")
    for name, strategy in _named():
        covers = frozenset({f"mechanism:{name}"})
        slow = SLOW_INTEGERS if name == "factorization" else 1
        for neighbours in both:
            yield measured_subject(
                name, strategy, BUDGETS[strategy.noise], neighbours, covers, slow
            )
    for name, strategy in _variants():
        covers = frozenset({f"mechanism:{BIASED}"}) if name == BIASED else frozenset()
        yield measured_subject(name, strategy, BUDGETS["gaussian"], covers=covers)


def _named() -> Iterator[tuple[str, Strategy]]:
    people = Domain({"age": 4, "sex": 2})
    totals = prefixes(people, "age", by=["sex"]) | marginals(people, 1)
    bits = marginals(Domain({"one": 2, "two": 2, "three": 2}), 2)
    for name, (build, noise) in MECHANISMS.items():
        work = bits if name.endswith("-fourier") else totals
        yield name, build(work, noise, "rmse")


def _variants() -> Iterator[tuple[str, Strategy]]:
    line = Domain({"age": 6})
    plane = Domain({"age": 3, "sex": 2})
    total = prefixes(line, "age")
    yield "factorization, marginals", _factorization(marginals(plane, 2) | marginals(plane, 1))
    yield "factorization, implicit root", ordered(total)
    yield "factorization, windows", sliding(windows(line, "age", 2))
    cut = pieces(prefixes(plane, "age") | marginals(plane, 2))
    assert cut is not None  # noqa: S101 - products can always be cut in pieces
    yield "factorization, pieces", cut
    coefficients = [[1, 2, 0, -1, 0, 3], [0, 1, 1, 1, 0, 0]]
    yield "factorization, matrix", dense(explicit(line, ["age"], coefficients))
    age, sex = attribute(plane, "age"), attribute(plane, "sex")
    conditions = predicates(plane, [age >= 1, (age >= 2) & (sex == 1)])
    yield "factorization, conditions", _factorization(conditions)
    yield "factorization, as it was asked", _viewed(conditions | marginals(plane, 1) | conditions)
    yield BIASED, approximate(total, 1.0, PERSONS, "rmse")


def _viewed(work: Workload) -> Strategy:
    """Planned for the normal form, and seen through groups in another order, some of them twice."""
    return Viewed.of(_factorization(work.normal.workload), work)


def _factorization(work: Workload) -> Strategy:
    return MECHANISMS["factorization"].build(work, "gaussian", "rmse")
