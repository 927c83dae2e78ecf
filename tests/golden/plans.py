# SPDX-License-Identifier: Apache-2.0
"""Some 70 plans, as different from each other as plans get, each made in well below a second.

Public names alone, so that the list outlives every move inside the package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

import sfumato as sf

PEOPLE = sf.Domain.from_toml(Path(__file__).with_name("people.toml"))
CUBE = sf.Domain({"a": 5, "b": 3, "c": 2})
LINE = sf.Domain({"x": 8})
LONG = sf.Domain({"x": 600, "y": 2})
BITS = sf.Domain(dict.fromkeys("pqrstu", 2))
WIDE = sf.Domain({f"w{i}": 8 for i in range(12)})  # 2^36 cells, which nobody lists

PURE = sf.Budget(epsilon=1)
APPROXIMATE = sf.Budget(epsilon=1, delta="1e-9")
RHO = sf.Budget(rho="1/8")
MU = sf.Budget(mu=1)

MECHANISMS = [
    *(
        f"{noise}{kind}"
        for kind in ("", "-table", "-tree", "-groups", "-wavelet", "-weighted-tree", "-fourier")
        for noise in ("laplace", "gaussian")
    ),
    "factorization",
    "laplace-optimum",
]


class Asked(NamedTuple):
    """One plan: what is asked, and how."""

    work: Callable[[], sf.Workload]
    budget: sf.Budget | None = MU
    options: Mapping[str, object] = {}

    def plan(self) -> sf.Plan:
        """The plan, from nothing that was remembered."""
        return sf.plan(self.work(), self.budget, cache=False, **self.options)  # type: ignore[arg-type]


def _mixed() -> sf.Workload:
    a, b = sf.attribute(CUBE, "a"), sf.attribute(CUBE, "b")
    some = sf.predicates(CUBE, [(a < 3) | (b == 1), (a >= 2) & ~(b == 0), a == 1])
    return sf.prefixes(CUBE, "a", by=["b"]) | sf.marginals(CUBE, 2) | some


def _given() -> sf.Workload:
    rows = [[1, 0, -2, 0.5, 0, 1], [0, 0, 0.25, 3, 0, 0], [0.75, 1, 1, 1, 1, 1]]
    return sf.explicit(sf.Domain({"p": 3, "q": 2}), ["p", "q"], rows)


def _sparse() -> sf.Workload:
    rows = np.zeros((4, 30))
    rows[[0, 1, 2, 3, 3], [2, 5, 7, 11, 29]] = [1, -1, 0.5, 2, 1]
    return sf.explicit(CUBE, ["a", "b", "c"], rows, labels=["one", "two", "three", "four"])


SQL = """
SELECT sex, COUNT(*) AS n FROM data WHERE age BETWEEN 5 AND 14 AND NOT member GROUP BY sex
"""


def _by_mechanism() -> dict[str, Asked]:
    """Every mechanism on queries along a line beside tables, by its own noise."""

    def work() -> sf.Workload:
        return sf.prefixes(CUBE, "a", by=["b"]) | sf.marginals(CUBE, 1)

    out = {}
    for name in MECHANISMS:
        budget = PURE if name.startswith("laplace") else APPROXIMATE
        asked = (lambda: sf.conjunctions(BITS, 2)) if name.endswith("fourier") else work
        out[name] = Asked(asked, budget, {"mechanism": name})
    return out


def _by_workload() -> dict[str, Asked]:
    """Every kind of query, with the best mechanism."""
    return {
        "marginals": Asked(lambda: sf.marginals(CUBE, 2), APPROXIMATE),
        "marginals, pure": Asked(lambda: sf.marginals(CUBE, 2), PURE),
        "marginals, rho": Asked(lambda: sf.marginals(CUBE, 2), RHO),
        "marginals with a total": Asked(lambda: sf.marginals(CUBE, [("a", "c"), ("b",), ()])),
        "weighted marginals": Asked(lambda: 5 * sf.marginals(CUBE, 1) | sf.marginals(CUBE, 3)),
        "all tables of 2 of 12": Asked(lambda: sf.marginals(WIDE, 2), APPROXIMATE),
        "tables and a chain, implicit": Asked(
            lambda: sf.marginals(WIDE, 1) | sf.prefixes(WIDE, "w3", by=["w5"]), APPROXIMATE
        ),
        "prefixes": Asked(lambda: sf.prefixes(LINE, "x")),
        "prefixes, pure": Asked(lambda: sf.prefixes(LINE, "x"), PURE),
        "prefixes by": Asked(lambda: sf.prefixes(PEOPLE, "age", by=["sex"]), APPROXIMATE),
        "prefixes of a long line": Asked(lambda: sf.prefixes(LONG, "x")),
        "prefixes of a long line by": Asked(lambda: sf.prefixes(LONG, "x", by=["y"])),
        "ranges": Asked(lambda: sf.ranges(LINE, "x")),
        "ranges beside tables": Asked(
            lambda: sf.ranges(CUBE, "a") | sf.marginals(CUBE, [("b", "c")])
        ),
        "windows": Asked(lambda: sf.windows(LINE, "x", 3), RHO),
        "windows of a long line": Asked(lambda: sf.windows(sf.Domain({"x": 260}), "x", 7)),
        "windows by": Asked(lambda: sf.windows(PEOPLE, "age", 4, by=["sex", "member"]), PURE),
        "products": Asked(
            lambda: sf.product(CUBE, {"a": "prefix", "b": "ranges", "c": "identity"}), APPROXIMATE
        ),
        "product with a matrix": Asked(
            lambda: sf.product(CUBE, {"a": [[1, -2, 0, 3, 0.5]], "b": "prefix"})
        ),
        "levels": Asked(
            lambda: (
                sf.product(PEOPLE, {"age": "groups(stage)", "sex": "identity"})
                | sf.marginals(PEOPLE, [("age.stage", "member")])
            )
        ),
        "predicates": Asked(
            lambda: sf.predicates(
                PEOPLE, ["age < 12 or member", "age >= 6 and not sex = 'Male'", "income >= 500"]
            ),
            APPROXIMATE,
        ),
        "predicates of a wide domain": Asked(
            lambda: sf.predicates(WIDE, [f"w{i} < 4 and w{i + 1} = 2" for i in range(6)]), RHO
        ),
        "conjunctions": Asked(lambda: sf.conjunctions(BITS, 3), APPROXIMATE),
        "conjunctions, pure": Asked(lambda: sf.conjunctions(BITS, 2), PURE),
        "conjunctions of some": Asked(lambda: sf.conjunctions(BITS, 2, ["p", "r", "t", "u"])),
        "sql": Asked(lambda: sf.sql(PEOPLE, SQL), APPROXIMATE),
        "sql of sums": Asked(
            lambda: sf.sql(PEOPLE, "SELECT member, SUM(income), COUNT(*) FROM t GROUP BY member")
        ),
        "sums": Asked(lambda: sf.sums(PEOPLE, "income", by=["sex"])),
        "sums of squares": Asked(lambda: sf.sums(PEOPLE, "age", power=2), APPROXIMATE),
        "means": Asked(lambda: sf.means(PEOPLE, "income", by=["sex"]), APPROXIMATE),
        "means of given values": Asked(
            lambda: sf.means(CUBE, "b", by=["c"], values=[0, 0.5, 1]), PURE
        ),
        "explicit": Asked(_given),
        "explicit, pure": Asked(_given, PURE),
        "explicit, sparse": Asked(_sparse, APPROXIMATE),
        "mixed": Asked(_mixed, APPROXIMATE),
        "mixed, pure": Asked(_mixed, PURE),
        "dates": Asked(lambda: sf.prefixes(PEOPLE, "day") | sf.marginals(PEOPLE, [("day",)]), RHO),
    }


def _by_option() -> dict[str, Asked]:
    """Neighbours, objectives, units, biases, effort, and budgets found for an error."""

    def tables() -> sf.Workload:
        return sf.marginals(CUBE, 2)

    def whole() -> sf.Workload:
        return sf.marginals(PEOPLE, [("sex", "age"), ("sex",), ()])

    replace = {"neighbours": "replace-one"}
    largest = {"objective": "max"}
    person = {"unit": sf.PrivacyUnit("id", 3)}
    return {
        "replace-one": Asked(tables, APPROXIMATE, replace),
        "replace-one, pure": Asked(tables, PURE, replace),
        "replace-one, public total": Asked(whole, APPROXIMATE, replace),
        "replace-one, pure, public total": Asked(whole, PURE, replace),
        "replace-one, may drop": Asked(whole, MU, {**replace, "may_drop_records": True}),
        "replace-one, prefixes": Asked(lambda: sf.prefixes(LINE, "x"), MU, replace),
        "replace-one, largest": Asked(whole, MU, {**replace, **largest}),
        "largest, tables": Asked(tables, APPROXIMATE, largest),
        "largest, pure": Asked(tables, PURE, largest),
        "largest, prefixes": Asked(lambda: sf.prefixes(LINE, "x"), MU, largest),
        "largest, mixed": Asked(_mixed, MU, largest),
        "largest, predicates": Asked(
            lambda: sf.predicates(CUBE, ["a < 2", "a < 3 and b = 1", "c = 0 or a = 4"]), MU, largest
        ),
        "unit": Asked(tables, APPROXIMATE, person),
        "unit, pure": Asked(tables, PURE, person),
        "unit, replace-one": Asked(whole, MU, {**person, **replace}),
        "bias": Asked(
            lambda: sf.conjunctions(BITS, 3),
            sf.Budget(mu="1/10"),
            {"allow_bias": True, "records": 50},
        ),
        "bias, few records": Asked(
            _given, sf.Budget(mu="1/20"), {"allow_bias": True, "records": 10}
        ),
        "bias, largest": Asked(
            tables, sf.Budget(mu="1/20"), {"allow_bias": True, "records": 20, **largest}
        ),
        "laplace noise": Asked(tables, APPROXIMATE, {"noise": "laplace"}),
        "gaussian noise": Asked(_mixed, APPROXIMATE, {"noise": "gaussian"}),
        "few steps": Asked(_mixed, MU, {"steps": 1e6}),
        "for an error": Asked(tables, None, {"error": 4.0}),
        "for an error, pure": Asked(tables, None, {"error": 4.0, "mechanism": "laplace"}),
    }


PLANS = {**_by_mechanism(), **_by_workload(), **_by_option()}
