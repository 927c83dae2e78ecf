# SPDX-License-Identifier: Apache-2.0
"""Fact sheets and registry records say what the provenance record says."""

from __future__ import annotations

import json

import pandas as pd
import pytest
import yaml

import sfumato as sf
from sfumato.release.provenance import fact_sheet, registry_record

DOMAIN = sf.Domain([sf.Integer("age", 0, 9), sf.Category("sex", ["F", "M"])])
PEOPLE = pd.DataFrame({"age": [1, 2, 3] * 50, "sex": ["F", "M", "F"] * 50, "id": range(150)})
SAID = {
    "name": "Ages: 2026",
    "curators": ["Office of Examples"],
    "description": 'Counts by age and sex, "as asked"',
    "intended_use": "Teaching",
    "region": "Nowhere",
    "authors": ["The office"],
}
# The fields of the registry's schema (deployments-schema.yaml, July 2026) that a record may have.
FIELDS = {
    "basic": "name data_curators intended_use data_product_type data_product_region description "
    "publication_date data_product_sector",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details privacy_parameters "
    "privacy_parameters_details",
    "deployment_model": "model_name model_name_details actors release_type release_type_details "
    "data_source_type data_source_type_details access_type access_type_details",
    "accounting": "post_processing composition",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms justification",
    "administrative": "sources notes registry_authors",
}


def released(budget: sf.Budget = sf.Budget(epsilon=1), **options: object) -> sf.Release:  # noqa: B008
    return sf.plan(sf.marginals(DOMAIN, 2), budget, **options).release(PEOPLE)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("budget", "variant", "numbers"),
    [
        (sf.Budget(epsilon=1), "Pure DP", {"epsilon": 1}),
        (sf.Budget("0.3", "1e-9"), "Approximate DP", {"epsilon": 0.3, "delta": 1e-9}),
        (sf.Budget(rho="1/8"), "Zero-concentrated DP", {"rho": 0.125}),
        (sf.Budget(mu=1), "Custom", None),
    ],
)
def test_a_record_has_the_fields_of_the_registry_and_the_numbers_of_the_release(
    budget: sf.Budget, variant: str, numbers: dict[str, float] | None
) -> None:
    release = released(budget)
    record = yaml.safe_load(release.registry_record(**SAID, sector="Government"))
    assert (record["url_slug"], record["status"], record["tier"]) == ("ages-2026", "Draft", 3)
    parts = record["deployment"]
    assert set(parts) == set(FIELDS)
    for name, fields in FIELDS.items():
        assert set(parts[name]) <= set(fields.split()), name
    assert parts["basic"]["description"] == SAID["description"]
    assert parts["basic"]["publication_date"] == str(release.provenance["created"])[:10]
    assert parts["dp_variant"]["variant_name"] == variant
    assert parts["privacy_loss"].get("privacy_parameters") == numbers
    assert parts["privacy_loss"]["privacy_parameters_details"] == release.provenance["guarantee"]


def test_facts_name_the_unit_the_noise_the_error_and_the_ledger(tmp_path) -> None:
    bare = released().fact_sheet()
    assert "one row more or less" in bare
    assert "discrete Laplace noise" in bare
    assert "No ledger was kept" in bare
    unit = sf.PrivacyUnit("id", 2)
    plan = sf.plan(sf.marginals(DOMAIN, 1), sf.Budget(1, "1e-6"), unit=unit)
    ledger = tmp_path / "people.ledger"
    sf.Ledger.create(ledger, sf.Budget(2, "1e-6"), "people", "add-remove", unit=unit)
    text = plan.release(PEOPLE, ledger=ledger, name="people").fact_sheet()
    assert "at most 2 rows of each are counted" in text
    assert f"{plan.rmse:.4g}" in text
    assert "of a hash-chained ledger" in text
    assert "Allowed: epsilon = 1, delta = 0.000001." in text


def test_a_stored_record_tells_the_same_and_an_adaptive_release_too() -> None:
    release = released()
    again = json.loads(json.dumps(dict(release.provenance)))
    assert fact_sheet(again) == release.fact_sheet()
    adaptive = sf.plan_adaptive(sf.marginals(DOMAIN, 2), sf.Budget(rho=1)).release(PEOPLE)
    assert "Mechanism adaptive-tables" in adaptive.fact_sheet()
    assert yaml.safe_load(adaptive.registry_record(**SAID))["tier"] == 3


def test_what_is_public_is_said() -> None:
    domain = sf.Domain({"age": 4}, records="all-inside")
    table = pd.DataFrame({"age": [0, 1, 2, 3] * 5})
    plan = sf.plan(sf.marginals(domain, 1), sf.Budget(epsilon=1), neighbours="replace-one")
    assert "the number of records, 20" in plan.release(table).fact_sheet()
    assert "Nothing but the domain" in released().fact_sheet()


@pytest.mark.parametrize(
    "wrong",
    [{"name": " "}, {"curators": "Office"}, {"authors": []}, {"product": "Map"}, {"sector": "Art"}],
)
def test_what_the_registry_does_not_know_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(sf.SfumatoError, match=r"registry"):
        registry_record(released().provenance, **{**SAID, **wrong})
