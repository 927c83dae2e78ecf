# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest
from jsonschema import Draft202012Validator

import sfumato as sf
from sfumato.cli.spec import read_spec
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import SchemaError
from sfumato.privacy.budget import Budget
from sfumato.vault.derived import Feature, FeatureSource, JoinSource
from tests.unit.cli.conftest import Ran

Rewrite = Callable[[str, str], Path]


def test_a_spec_says_everything_that_a_release_needs(folder: Path) -> None:
    spec = read_spec(folder / "release.toml")
    assert spec.source == str(folder / "people.csv")
    assert spec.name == "people"
    assert spec.neighbours == "add-remove"
    assert spec.unit is None
    assert spec.domain.shape == (20, 2)
    assert len(spec.workload) == 20 + 2 + 40
    assert spec.budget == Budget(epsilon=1, delta="1e-9")
    assert spec.ledger is not None
    assert spec.ledger.path == str(folder / "people.ledger")
    assert spec.ledger.total == Budget(epsilon=3, delta="1e-9")
    assert spec.out == folder / "release-out"
    assert spec.level == 0.95
    assert spec.project is True


def test_numbers_of_the_budget_are_the_decimals_as_written(rewrite: Rewrite) -> None:
    spec = read_spec(rewrite("epsilon = 1\n", "epsilon = 0.1\n"))
    assert spec.budget is not None
    assert spec.budget.epsilon == Fraction(1, 10)
    assert spec.budget.delta == Fraction(1, 10**9)


def test_exact_fractions_may_be_given_as_text(rewrite: Rewrite) -> None:
    spec = read_spec(rewrite("epsilon = 1\n", 'epsilon = "1/3"\n'))
    assert spec.budget is not None
    assert spec.budget.epsilon == Fraction(1, 3)


@pytest.mark.parametrize("key", ["rho", "mu"])
def test_rho_and_mu_are_budgets_too(rewrite: Rewrite, key: str) -> None:
    spec = read_spec(rewrite("epsilon = 1\ndelta = 1e-9\n", f"{key} = 0.5\n"))
    assert spec.budget == Budget(**{key: "1/2"})


def test_an_error_to_reach_stands_for_the_budget(rewrite: Rewrite) -> None:
    spec = read_spec(rewrite("epsilon = 1\ndelta = 1e-9\n", "error = 5\n"))
    assert spec.budget is None
    plan = spec.plan()
    assert plan.rmse <= 5
    assert plan.budget.delta in (0, Fraction(1, 10**9))


def test_the_delta_beside_an_error_is_used(rewrite: Rewrite) -> None:
    spec = read_spec(rewrite("epsilon = 1\ndelta = 1e-9\n", "error = 5\ndelta = 1e-4\n"))
    assert Fraction(spec.delta) == Fraction(1, 10**4)


def test_the_domain_may_stand_in_a_file_beside_the_spec(folder: Path) -> None:
    path = folder / "release.toml"
    text = path.read_text()
    start, end = text.index("[domain.age]"), text.index("[[workload]]")
    (folder / "schema.toml").write_text(text[start:end])
    spec = text[:start] + text[end:]
    path.write_text(spec.replace('name = "people"', 'domain = "schema.toml"'))
    assert read_spec(path).domain.shape == (20, 2)


def test_shipped_tables_have_a_name(folder: Path) -> None:
    path = folder / "shipped.toml"
    path.write_text(
        '[data]\nsource = "demo:adult"\ndomain = "demo:adult"\n'
        "[[workload]]\nmarginals = 2\n[budget]\nepsilon = 1\n"
    )
    spec = read_spec(path)
    assert Path(spec.table()).name == "adult.parquet"
    assert len(spec.workload.terms) == 91


def test_a_privacy_unit_needs_its_column_and_its_bound(rewrite: Rewrite) -> None:
    with pytest.raises(SchemaError, match=r"line 5: data\.unit: a privacy unit needs both"):
        read_spec(rewrite("[domain.age]", 'unit = "id"\n[domain.age]'))
    spec = read_spec(rewrite('unit = "id"\n', 'unit = "id"\nrows_per_unit = 4\n'))
    assert spec.unit == PrivacyUnit("id", 4)


def test_a_privacy_unit_can_have_groups(rewrite: Rewrite) -> None:
    groups = 'unit = "id"\ngroups_per_unit = 3\nrows_per_group = 2\ngroups_by = ["age"]\n'
    spec = read_spec(rewrite("[domain.age]", groups + "[domain.age]"))
    assert spec.unit == PrivacyUnit("id", groups=3, rows_per_group=2, by="age")
    with pytest.raises(SchemaError, match=r"data\.groups_per_unit: groups of a privacy unit need"):
        read_spec(rewrite('groups_by = ["age"]\n', ""))
    with pytest.raises(SchemaError, match=r"data\.groups_per_unit: a privacy unit needs both"):
        read_spec(rewrite('unit = "id"\n', ""))


def test_features_and_joins_are_made_from_the_source(rewrite: Rewrite) -> None:
    more = """
unit = "id"
[data.join.regions]
file = "regions.csv"
key = "region"
columns = ["zone"]
[data.features.visits]
of = "count"
[data.features.zone]
of = "last"
column = "zone"
order = "day"
"""
    spec = read_spec(rewrite("[domain.age]", more + "[domain.age]"))
    assert spec.unit == PrivacyUnit("id", 1)
    persons = spec.source
    assert isinstance(persons, FeatureSource)
    assert persons.features["zone"] == Feature("last", "zone", "day")
    assert isinstance(persons.source, JoinSource)
    assert persons.source.columns == ("zone",)
    assert str(persons.source.table).endswith("regions.csv")
    assert spec.is_query
    assert str(spec.place).endswith("people.csv")
    for old, new, words in (
        ('of = "count"', 'of = "mean"', r"data\.features\.visits: a feature is count"),
        ('unit = "id"\n', 'unit = "id"\nrows_per_unit = 3\n', "a person has one row"),
        ('unit = "id"\n', "", "name the column in unit"),
    ):
        with pytest.raises(SchemaError, match=words):
            read_spec(rewrite(old, new))
        if new:
            rewrite(new, old)


def test_sources_that_are_urls_are_left_alone(rewrite: Rewrite) -> None:
    spec = read_spec(rewrite('"people.csv"', '"postgres://host/people"'))
    assert spec.source == "postgres://host/people"


def test_a_plan_needs_no_source_but_a_release_does(rewrite: Rewrite) -> None:
    spec = read_spec(rewrite('source = "people.csv"\n', ""))
    assert spec.plan().workload.queries == 62
    with pytest.raises(SchemaError, match="the key 'source' is missing"):
        spec.table()


FAULTS = {
    "unknown key": ("marginals = 1", "marginal = 1", "did you mean 'marginals'"),
    "unknown table": ("[budget]", "[budgets]", "did you mean 'budget'"),
    "unknown key of data": ('name = "people"', 'nmae = "people"', "did you mean 'name'"),
    "unknown neighbours": (
        'name = "people"',
        'neighbours = "add"',
        "'add-remove' or 'replace-one'",
    ),
    "epsilon zero": ("epsilon = 1\n", "epsilon = 0\n", "line 22: budget.epsilon: epsilon"),
    "epsilon negative": ("epsilon = 1\n", "epsilon = -2\n", "epsilon must be greater than 0"),
    "epsilon not finite": ("epsilon = 1\n", "epsilon = inf\n", "must be a finite number"),
    "epsilon a text": ("epsilon = 1\n", 'epsilon = "one"\n', "must be a finite number"),
    "epsilon true": ("epsilon = 1\n", "epsilon = true\n", "budget.epsilon"),
    "delta one": (
        "delta = 1e-9\n",
        "delta = 1\n",
        "line 23: budget.delta: delta must lie in",
    ),
    "delta zero": ("delta = 1e-9\n", "delta = 0\n", "for a pure budget leave it out"),
    "delta zero as text": ("delta = 1e-9\n", 'delta = "0"\n', "for a pure budget leave it out"),
    "two budgets": ("delta = 1e-9\n", "rho = 1\n", "exactly one of epsilon"),
    "error and budget": ("delta = 1e-9\n", "error = 5\n", "both given"),
    "error zero": ("epsilon = 1\ndelta = 1e-9\n", "error = 0\n", "greater than 0"),
    "ledger without path": ('path = "people.ledger"\n', "", "ledger"),
    "ledger delta": ("epsilon = 3\ndelta = 1e-9", "epsilon = 3\ndelta = 2", "ledger.delta"),
    "ledger budget twice": ("epsilon = 3\n", "epsilon = 3\nrho = 1\n", "exactly one of epsilon"),
    "two domains": ('name = "people"', 'domain = "schema.toml"', "given twice"),
    "unknown shipped table": ('"people.csv"', '"demo:adlut"', "did you mean 'demo:adult'"),
    "level": ("[ledger]", "[release]\nlevel = 1\n[ledger]", "release.level"),
    "shares": (
        "[ledger]",
        "[release]\nshares = true\n[ledger]",
        "release.shares: shares are",
    ),
    "objective": ("[ledger]", '[plan]\nobjective = "mean"\n[ledger]', "'rmse' or 'max'"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_name_the_file_and_the_line(rewrite: Rewrite, name: str) -> None:
    old, new, message = FAULTS[name]
    path = rewrite(old, new)
    with pytest.raises(SchemaError) as caught:
        read_spec(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}, line ")


def test_constraints_are_read_with_the_spec(rewrite: Rewrite) -> None:
    table = "[constraints]\nimpossible = [\"age < 2 and sex = 'Male'\"]\n\n[budget]\n"
    spec = read_spec(rewrite("[budget]\n", table))
    assert spec.constraints is not None
    assert spec.constraints.possible(("age", "sex")).sum() == 38
    with pytest.raises(SchemaError, match=r"line \d+: constraints.impossibel"):
        read_spec(rewrite("impossible =", "impossibel ="))


def test_a_release_keeps_constraints(
    rewrite: Rewrite, run: Callable[..., Ran], folder: Path
) -> None:
    path = rewrite("[budget]\n", '[constraints]\nimpossible = ["age < 2"]\n\n[budget]\n')
    ran = run("release", path, "--yes", "--out", folder / "out")
    assert ran.code == 0, ran.err
    assert "no record where age < 2; met by all answers together" in " ".join(ran.out.split())
    answers = pd.read_parquet(folder / "out" / "answers.parquet")
    young = answers[(answers["group"] == "age") & (answers["age"] < 2)]
    assert (young[["value", "low", "high"]] == 0).all().all()


@pytest.mark.parametrize(
    "lanes",
    [
        "pure = 2",
        "planned = [{epsilon = 1, delta = 1e-9}, {epsilon = 1.5}, {epsilon = 0.5}]",
        "[[ledger.planned]]\nepsilon = 1\ndelta = 1e-9\n[[ledger.planned]]\nepsilon = 2",
    ],
)
def test_a_ledger_declares_lanes_or_what_is_planned(rewrite: Rewrite, lanes: str) -> None:
    spec = read_spec(rewrite("epsilon = 3\ndelta = 1e-9", f"epsilon = 3\ndelta = 1e-9\n{lanes}"))
    assert spec.ledger is not None
    assert spec.ledger.total == Budget(epsilon=3, delta="1e-9", pure=2)


@pytest.mark.parametrize(
    ("lanes", "words"),
    [
        ("pure = 3", "below epsilon = 3"),
        ("planned = [{epsilon = 3, delta = 1e-9}, {epsilon = 1}]", "do not fit"),
        ("pure = 1\nplanned = [{epsilon = 1}]", "both declare lanes"),
        ("planned = [{epsilon = 1, sigma = 2}]", "sigma"),
    ],
)
def test_lanes_that_cannot_be_are_refused_with_their_line(
    rewrite: Rewrite, lanes: str, words: str
) -> None:
    with pytest.raises(SchemaError, match=words):
        read_spec(rewrite("epsilon = 3\ndelta = 1e-9", f"epsilon = 3\ndelta = 1e-9\n{lanes}"))


def test_a_spec_says_how_a_csv_file_was_written(tmp_path):
    from sfumato.vault.sources import CsvSource

    data = (
        'source = "people.csv"\ncsv = "lines"\nencoding = "latin1"\ndelimiter = ";"\nquote = ""\n'
        'decimal = ","\nthousands = "."\ndate_format = "%d.%m.%Y"\nnull_values = ["NA"]\n'
        'header = ["age", "sex"]\n'
    )
    rest = '[domain.age]\nkind = "integer"\nmin = 0\nmax = 9\n[budget]\nepsilon = 1\n'
    rest += "[[workload]]\nmarginals = 1\n"
    path = tmp_path / "spec.toml"
    path.write_text(f"[data]\n{data}{rest}")
    source = read_spec(path).source
    assert source == CsvSource(
        str(tmp_path / "people.csv"),
        "lines",
        encoding="latin-1",
        delimiter=";",
        quote="",
        decimal=",",
        thousands=".",
        date_format=["%d.%m.%Y"],
        null_values=["NA"],
        header=["age", "sex"],
    )
    path.write_text(f'[data]\nsource = "people.csv"\nquote = ""\ndecimal = "x"\n{rest}')
    with pytest.raises(SchemaError, match=r"line 4: data.decimal: decimal is"):
        read_spec(path)
    path.write_text(f'[data]\nencoding = "cp1252"\n{rest}')
    with pytest.raises(SchemaError, match=r"line 2: data.encoding: .*needs a source"):
        read_spec(path)


ROOT = Path(__file__).parents[3]


def _faults(kind: str, text: str) -> list[str]:
    """What the JSON Schema of a kind says against a file."""
    document = json.loads(json.dumps(tomllib.loads(text), default=str))
    schema = sf.json_schema(kind)  # type: ignore[arg-type]
    Draft202012Validator.check_schema(schema)
    return [error.message for error in Draft202012Validator(schema).iter_errors(document)]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.toml")), ids=lambda p: p.name)
def test_json_schemas_know_the_files_of_the_examples(path: Path) -> None:
    kind = "schema" if path.name == "adult.toml" else "spec"
    assert _faults(kind, path.read_text()) == []


def test_json_schemas_know_what_is_discovered_and_calendars() -> None:
    text = (
        '[domain.city]\nkind = "category"\nvalues = "discover"\n[domain.day]\nkind = "datetime"\n'
    )
    assert (
        _faults("schema", text + 'start = 2024-01-01\nend = 2025-01-01\nlevels = "calendar"') == []
    )


@pytest.mark.parametrize(
    "text",
    [
        "[budgets]\nepsilon = 1",
        '[data]\nneighbours = "both"',
        "[[workload]]\nmarginal = 2",
        "[[workload]]\nwindows = 'age'",
        '[domain.age]\nkind = "integer"\nmin = "low"',
        '[domain.age]\nkind = "number"\nmin = 0\nmax = 9',
        "[release]\nlevel = 95",
        "[constraints]\nforbidden = ['age < 15']",
    ],
)
def test_json_schemas_refuse_what_is_refused(text: str) -> None:
    assert _faults("spec", text)


def test_there_are_json_schemas_of_two_kinds() -> None:
    with pytest.raises(SchemaError, match="'spec' and 'schema', got 'server'"):
        sf.json_schema("server")  # type: ignore[arg-type]
