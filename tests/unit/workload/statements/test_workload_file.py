# SPDX-License-Identifier: Apache-2.0
"""The [[workload]] tables: each against the call that it stands for, and faults by line."""

from __future__ import annotations

import pytest

import sfumato as sf
from sfumato.domain.attributes import Boolean, Category, Integer, Level
from sfumato.domain.domain import Domain
from sfumato.errors import SchemaError, SfumatoError, SqlError, TooLarge, WorkloadError
from sfumato.toml import parse_toml
from sfumato.workload.build import windows
from sfumato.workload.statements.workload_file import workload_from
from sfumato.workload.workload import Ratio

HALF = Level("half", ("young", "old"), (0, 0, 1, 1))
DOMAIN = Domain(
    [
        Integer("age", 0, 3, levels=(HALF,)),
        Category("sex", ("F", "M")),
        Boolean("smokes"),
        Boolean("drinks"),
    ]
)


def read(text: str) -> sf.Workload:
    return workload_from(parse_toml(text, "release.toml"), DOMAIN)


EQUAL = {
    "marginals = 2": sf.marginals(DOMAIN, 2),
    "marginals = 2\nbalanced = true": sf.marginals(DOMAIN, 2).balanced(),
    "marginals = 0": sf.marginals(DOMAIN, 0),
    'marginals = [["sex", "age"], ["smokes"], []]': sf.marginals(
        DOMAIN, [["age", "sex"], ["smokes"], []]
    ),
    'marginals = [["age.half", "sex"]]': sf.product(
        DOMAIN, {"age": "groups(half)", "sex": "identity"}
    ),
    'marginals = 2\nattributes = ["sex", "age", "smokes"]': sf.marginals(
        DOMAIN, [["age", "sex"], ["age", "smokes"], ["sex", "smokes"]]
    ),
    'prefix = "age"': sf.prefixes(DOMAIN, "age"),
    'prefix = "age"\nby = ["sex", "smokes"]': sf.prefixes(DOMAIN, "age", ["sex", "smokes"]),
    'ranges = "age"\nby = ["sex"]': sf.ranges(DOMAIN, "age", ["sex"]),
    'circular_ranges = "age"\nby = ["sex"]': sf.circular_ranges(DOMAIN, "age", ["sex"]),
    'windows = "age"\nwidth = 3': windows(DOMAIN, "age", 3),
    'windows = "age"\nwidth = 2\nby = ["sex"]': windows(DOMAIN, "age", 2, ["sex"]),
    'product = {age = "prefix", sex = "identity"}': sf.product(
        DOMAIN, {"age": "prefix", "sex": "identity"}
    ),
    'product = {sex = [[1, 0], [0.5, -1]], age = "windows(2)"}': sf.product(
        DOMAIN, {"sex": [[1, 0], [0.5, -1]], "age": "windows(2)"}
    ),
    "product = {}": sf.marginals(DOMAIN, 0),
    "conjunctions = 2": sf.conjunctions(DOMAIN, 2),
    'conjunctions = 1\nattributes = ["sex", "smokes"]': sf.conjunctions(
        DOMAIN, 1, ["sex", "smokes"]
    ),
    'means = "age"\nby = ["sex"]': sf.means(DOMAIN, "age", ["sex"]),
    'means = "sex"\nvalues = [0, 0.25]': sf.means(DOMAIN, "sex", values=[0, 0.25]),
    "predicates = [\"age >= 2 AND sex = 'M'\", 'smokes']": sf.predicates(
        DOMAIN, ["age >= 2 AND sex = 'M'", "smokes"]
    ),
    'sql = "SELECT sex, COUNT(*) FROM data WHERE age < 2 GROUP BY sex"': sf.sql(
        DOMAIN, "SELECT sex, COUNT(*) FROM data WHERE age < 2 GROUP BY sex"
    ),
    "marginals = 1\nweight = 2": 2 * sf.marginals(DOMAIN, 1),
    "marginals = 1\nweight = 0.5": 0.5 * sf.marginals(DOMAIN, 1),
}


@pytest.mark.parametrize(("text", "work"), EQUAL.items(), ids=EQUAL.keys())
def test_a_table_is_the_call_that_it_stands_for(text: str, work: sf.Workload) -> None:
    found = read("[[workload]]\n" + text)
    assert found.digest() == work.digest()
    assert found.ratios == work.ratios


def test_tables_are_joined_in_order() -> None:
    text = (
        "[[workload]]\nmarginals = 1\n[[workload]]\nmeans = 'age'\n[[workload]]\nmeans = 'smokes'"
    )
    found = read(text)
    expected = sf.marginals(DOMAIN, 1) | sf.means(DOMAIN, "age") | sf.means(DOMAIN, "smokes")
    assert found.digest() == expected.digest()
    assert found.ratios == (Ratio("mean age", 4, 5), Ratio("mean smokes", 6, 7))


def test_names_are_given_to_one_group_and_put_before_several() -> None:
    assert [t.name for t in read('[[workload]]\nprefix = "age"\nname = "CDF"').terms] == ["CDF"]
    found = read('[[workload]]\nmarginals = [["age"], ["sex"]]\nname = "tables"')
    assert [t.name for t in found.terms] == ["tables: age", "tables: sex"]
    found = read('[[workload]]\nmeans = "age"\nname = "years"')
    assert [r.name for r in found.ratios] == ["years"]
    assert [t.name for t in found.terms] == ["years: sum of age", "years: number of age"]
    found = read('[[workload]]\nsql = "SELECT COUNT(*) FROM t WHERE smokes"\nname = "smokers"')
    assert [t.name for t in found.terms] == ["smokers"]


def test_conditions_can_have_labels() -> None:
    text = '[[workload]]\npredicates = ["smokes", "drinks"]\nlabels = ["smokers", "drinkers"]'
    assert read(text).terms[0].labels == ("smokers", "drinkers")  # type: ignore[attr-defined]


FAULTS = {
    "": (SchemaError, "release.toml: no queries are asked"),
    "[workload]\nmarginals = 2": (SchemaError, "line 1: workload: .*double brackets"),
    "workload = []": (SchemaError, "line 1: workload: .*empty"),
    "workload = [1]": (SchemaError, "line 1: workload #1: expected a table, got the integer 1"),
    "[[workload]]\nby = ['sex']": (SchemaError, "line 1: workload #1: says not what is asked"),
    "[[workload]]\nmarginal = 2": (SchemaError, "did you mean 'marginals'"),
    "[[workload]]\nprefix = 'age'\nranges = 'age'": (
        SchemaError,
        "line 3: .*asks for prefix and ranges at once",
    ),
    "[[workload]]\nmarginals = 1\n[[workload]]\nmarginals = '2'": (
        SchemaError,
        "line 4: workload #2.marginals",
    ),
    "[[workload]]\nmarginals = true": (SchemaError, "line 2"),
    "[[workload]]\nmarginals = 2.0": (SchemaError, "line 2"),
    "[[workload]]\nmarginals = ['age']": (SchemaError, "line 2"),
    "[[workload]]\nmarginals = 9": (WorkloadError, "line 2: .*9-way marginals cannot be asked"),
    "[[workload]]\nmarginals = []": (WorkloadError, "line 2: .*list of sets"),
    "[[workload]]\nmarginals = [['agee']]": (WorkloadError, "line 2: .*did you mean 'age'"),
    "[[workload]]\nmarginals = [['age']]\nattributes = ['age']": (WorkloadError, "leave it out"),
    "[[workload]]\nmarginals = 1\nattributes = ['agee']": (WorkloadError, "unknown attribute"),
    "[[workload]]\nmarginals = 1\nby = ['sex']": (SchemaError, "line 3: .*by"),
    "[[workload]]\nprefix = 'sex'": (WorkloadError, "line 2: .*no order"),
    "[[workload]]\nprefix = 'age'\nby = 'sex'": (SchemaError, "line 3: .*expected a list"),
    "[[workload]]\nwindows = 'age'": (SchemaError, "width"),
    "[[workload]]\nwindows = 'age'\nwidth = 9": (WorkloadError, "allowed are 1 to 4"),
    "[[workload]]\nproduct = {age = 'prefixes'}": (WorkloadError, "not a query set"),
    "[[workload]]\nproduct = {age = 3}": (SchemaError, "line 2"),
    "[[workload]]\nconjunctions = 9": (WorkloadError, "9-way conjunctions"),
    "[[workload]]\nmeans = 'sex'": (WorkloadError, "is a category"),
    "[[workload]]\npredicates = []": (WorkloadError, "at least one"),
    "[[workload]]\npredicates = ['age >']": (SqlError, "line 2: .*cannot be read"),
    "[[workload]]\nsql = 'SELECT MAX(age) FROM t'": (SqlError, "line 2: .*MAX"),
    "[[workload]]\nmarginals = 1\nweight = 0": (SchemaError, "line 3: .*greater than 0"),
    "[[workload]]\nmarginals = 1\nweight = inf": (SchemaError, "line 3: .*finite"),
    "[[workload]]\nmarginals = 1\nname = ''": (SchemaError, "line 3"),
    "[[workload]]\nmarginals = 1\nnames = 'x'": (SchemaError, "line 3: .*did you mean 'name'"),
}


@pytest.mark.parametrize(("text", "fault"), FAULTS.items(), ids=FAULTS.keys())
def test_faults_name_the_line(text: str, fault: tuple[type[SfumatoError], str]) -> None:
    kind, says = fault
    with pytest.raises(kind, match=says):
        read(text)


def test_what_is_too_large_stays_so() -> None:
    domain = Domain({f"x{i}": 2 for i in range(100)})
    file = parse_toml("[[workload]]\nmarginals = 50", "release.toml")
    with pytest.raises(TooLarge, match=r"release.toml, line 2: workload #1.marginals: 100 attr"):
        workload_from(file, domain)


def test_second_moments_are_asked_in_a_file():
    domain = sf.Domain(
        [sf.Numeric("x", (0, 9)), sf.Numeric("y", (0, 1)), sf.Category("c", ("a", "b"))]
    )
    text = """
        [[workload]]
        variances = "x"
        by = ["c"]
        [[workload]]
        standard_deviations = "x"
        name = "spread"
        [[workload]]
        covariances = ["x", "y"]
        [[workload]]
        moments = ["x", "y"]
    """
    work = workload_from(parse_toml(text), domain)
    assert [r.name for r in work.ratios] == [
        "variance x by c",
        "spread",
        "covariance x, y",
        *("variance x", "variance y", "covariance x, y", "correlation x, y"),
    ]
    with pytest.raises(sf.SfumatoError, match="covariances"):
        workload_from(parse_toml('[[workload]]\ncovariances = ["x"]'), domain)
