# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments get an error of sfumato's own that says what is allowed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import SfumatoError, WorkloadError

DOMAIN = sf.Domain({"age": 10, "sex": 2, "race": 3})
WORK = sf.marginals(DOMAIN, 1)
BUDGET = sf.Budget(epsilon=1)
TABLE = pd.DataFrame({name: np.arange(50) % DOMAIN[name].size for name in DOMAIN.names})

CALLS = {
    "unit as a text": lambda: sf.plan(WORK, BUDGET, unit="id"),
    "unit as a pair": lambda: sf.plan(WORK, BUDGET, unit=("id", 3)),
    "unit of an adaptive plan": lambda: sf.plan_adaptive(WORK, BUDGET, unit="id"),
    "unit of a session": lambda: sf.plan_session(DOMAIN, BUDGET, unit="id"),
    "unit of an opened session": lambda: sf.open_session(TABLE, DOMAIN, BUDGET, unit="id"),
    "column of a unit": lambda: PrivacyUnit(3, 1),
    "mechanism as a list": lambda: sf.plan(WORK, BUDGET, mechanism=["laplace"]),
    "budget as a number": lambda: sf.plan(WORK, 1.0),
    "table as the workload": lambda: sf.plan(TABLE, BUDGET),
    "table as the domain": lambda: sf.marginals(TABLE, 1),
    "path as the domain": lambda: sf.marginals("adult.toml", 1),
    "table as the domain of prefixes": lambda: sf.prefixes(TABLE, "age"),
    "table as the domain of means": lambda: sf.means(TABLE, "age"),
    "table as the domain of predicates": lambda: sf.predicates(TABLE, ["age < 3"]),
    "table as the domain of a product": lambda: sf.product(TABLE, {"age": "prefix"}),
    "table as the domain of a session": lambda: sf.plan_session(TABLE, BUDGET),
    "by as a number": lambda: sf.prefixes(DOMAIN, "age", by=3),
    "by of means as a number": lambda: sf.means(DOMAIN, "age", by=3),
    "by with a number in it": lambda: sf.prefixes(DOMAIN, "age", by=[3]),
    "values that are texts": lambda: sf.means(DOMAIN, "age", values=["a"]),
    "attributes of conjunctions": lambda: sf.conjunctions(DOMAIN, 2, 5),
    "conditions as a number": lambda: sf.predicates(DOMAIN, 3),
    "conditions that are nothing": lambda: sf.predicates(DOMAIN, None),
    "labels as a number": lambda: sf.predicates(DOMAIN, ["age < 3"], labels=3),
    "attributes of a matrix": lambda: sf.explicit(DOMAIN, 3, [[1] * 10]),
    "attributes as a number": lambda: sf.Domain(3),
    "a domain from a path": lambda: sf.Domain("adult.toml"),
    "a schema from a number": lambda: sf.Domain.from_toml(3),
    "name of a table as a number": lambda: sf.plan(WORK, BUDGET).release(TABLE, name=3),
    "key as a number": lambda: sf.plan(WORK, BUDGET).release(TABLE, key=3),
    "analyst as a number": lambda: sf.plan(WORK, BUDGET).release(TABLE, analyst=3),
    "ledger as a number": lambda: sf.plan(WORK, BUDGET).release(TABLE, ledger=3, name="t"),
    "workload of advice": lambda: sf.recommend(3, BUDGET, 100),
    "arguments of project in turn": lambda: sf.project(WORK, [1.0], 10),
    "a direction of texts": lambda: sf.support(WORK, "x"),
    "constraints without a domain": lambda: sf.Constraints(3),
    "impossible as a number": lambda: sf.Constraints(DOMAIN, impossible=3),
    "published as a number": lambda: sf.Constraints(DOMAIN, published=3),
    "query as a number": lambda: sf.SqlSource("people.parquet", 3),
}

RESULT_CALLS = {
    "answers of a number": lambda r: r.answers(3),
    "answers by a number": lambda r: r.answers("age", by=3),
    "a quantile in words": lambda r: r.quantiles("age", "half"),
    "no quantile": lambda r: r.quantiles("age", [None]),
    "ranges as a number": lambda r: r.ranges("age", 3),
    "a file as a number": lambda r: r.to_parquet(3),
    "no file": lambda r: r.to_csv(None),
    "a folder as a number": lambda r: r.save(3),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_wrong_argument_gets_a_clear_error(call, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SfumatoError):
        call()
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def release():
    return sf.plan(WORK, BUDGET).release(TABLE)


@pytest.mark.parametrize("call", RESULT_CALLS.values(), ids=RESULT_CALLS.keys())
def test_a_wrong_argument_of_a_release_gets_a_clear_error(call, release):
    with pytest.raises(SfumatoError):
        call(release)


def test_names_that_could_mean_one_table_or_two_are_refused():
    for names in (("age", "sex"), ["age", "sex"]):
        with pytest.raises(WorkloadError, match=r"one table or 2.*\[\('age', 'sex'\)\]"):
            sf.marginals(DOMAIN, names)
    assert len(sf.marginals(DOMAIN, [("age", "sex")]).terms) == 1
    assert len(sf.marginals(DOMAIN, [("age",), ("sex",)]).terms) == 2
    assert len(sf.marginals(DOMAIN, ["age"]).terms) == 1


def test_completion_lists_the_public_names():
    assert set(sf.__all__) < set(dir(sf))
    assert not [n for n in dir(sf) if n.startswith("_") and n != "__version__"]
