# SPDX-License-Identifier: Apache-2.0
"""What the public is told about a release: a fact sheet, and a record for a registry.

Both are written from the provenance record alone, so they hold public facts only, and they say
what the record says: nothing about the data, the people or the machine.

* The fact sheet goes through the questions of NIST SP 800-226, "Guidelines for evaluating
  differential privacy guarantees" (Near, Darais, Lefkovitz, Howarth 2025): parameters, unit of
  privacy, algorithms, accuracy, other releases, trust, and what is left to the publisher.
* The registry record is a YAML file of tier 3 for the registry of deployments that the OpenDP
  project keeps (github.com/opendp/deployments-registry-data), in the words of its schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from sfumato.errors import SfumatoError
from sfumato.privacy.budget import number_text
from sfumato.text import listing

__all__ = ["PRODUCTS", "SECTORS", "fact_sheet", "registry_record"]

PRODUCTS: Final = ("Summary statistics", "Synthetic data", "Interactive API", "SQL queries")
SECTORS: Final = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")

_COMPOSITION = (
    "All measurements of this release are composed exactly by their privacy loss (Gaussian noise: "
    "the squares of mu add; pure mechanisms: their losses are convolved). {ledger}"
)
_NOISE = (
    "Counts are exact integers; noise is drawn exactly on a public grid of powers of two, so no "
    "floating-point number stands between data and noise. Random words come from the operating "
    "system's generator, expanded with AES-CTR."
)


def fact_sheet(provenance: Mapping[str, object]) -> str:
    """Return a page of facts about a release in Markdown.

    Args:
        provenance: The record of the release.

    Returns:
        The page, after NIST SP 800-226: what is promised, to whom, how, and how accurate it is.
    """
    facts = _Facts.of(provenance)
    sections = (
        ("The promise", facts.promise),
        ("Privacy parameters", facts.parameters),
        ("Whose privacy", facts.unit),
        ("Algorithms", f"{facts.mechanism} {_NOISE}"),
        ("Accuracy", facts.accuracy),
        ("What was done afterwards", facts.post_processing),
        ("Other releases", _COMPOSITION.format(ledger=facts.ledger)),
        ("What is known without noise", facts.invariants),
        (
            "Trust",
            "Central model: whoever runs the release sees the table; readers see noisy answers "
            "only, alone or together.",
        ),
        (
            "What this page cannot say",
            "How the table was collected, who may read it, how it is kept and when it is deleted; "
            "whether ranges, lists of values and the budget were fixed without looking at the "
            "data. The publisher answers for these.",
        ),
    )
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in sections)
    made = f"Made by sfumato {provenance['sfumato']} on {facts.date}."
    return f"# Facts about a differentially private release\n\n{made}\n\n{body}\n"


def registry_record(
    provenance: Mapping[str, object],
    *,
    name: str,
    curators: Sequence[str],
    description: str,
    intended_use: str,
    region: str,
    authors: Sequence[str],
    product: str = "Summary statistics",
    sector: str | None = None,
    sources: str = "",
) -> str:
    """Return the release as a record of tier 3 for the registry of deployments, in YAML.

    Args:
        provenance: The record of the release.
        name: What the published data are called.
        curators: Who publishes them.
        description: What they are, in a sentence.
        intended_use: What they are for.
        region: Which region they describe.
        authors: Who answers for this record.
        product: One of ``PRODUCTS``.
        sector: One of ``SECTORS``, if one of them fits.
        sources: Where more can be read.

    Returns:
        The text of a file, status "Draft".

    Raises:
        SfumatoError: A text is empty, or the product or sector is none of the registry's.
    """
    _check(name=name, description=description, intended_use=intended_use, region=region)
    _check_lists(curators=curators, authors=authors)
    if product not in PRODUCTS or (sector is not None and sector not in SECTORS):
        raise SfumatoError(
            f"the registry has the products {listing(PRODUCTS)} and the sectors "
            f"{listing(SECTORS)}; got {product!r} and {sector!r}"
        )
    facts = _Facts.of(provenance)
    record = {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "release",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": name,
                "data_curators": list(curators),
                "intended_use": intended_use,
                "data_product_type": product,
                "data_product_region": region,
                "description": description,
                "publication_date": facts.date,
                "data_product_sector": sector,
            },
            "dp_variant": {
                "variant_name": facts.variant,
                "data_domain": f"Tables over a fixed, public domain of attributes and values "
                f"(SHA-256 of its description: {provenance['domain_sha256']}).",
                "unprotected_quantities": facts.invariants,
            },
            "privacy_loss": {
                "privacy_unit": facts.who,
                "privacy_unit_details": facts.unit,
                "privacy_parameters": facts.numbers,
                "privacy_parameters_details": facts.promise,
            },
            "deployment_model": {
                "model_name": "Central",
                "actors": "The curator sees the table; readers see what is released, and may know "
                "everything else.",
                "release_type": "One release",
                "data_source_type": "Static",
                "access_type": "Non-interactive",
            },
            "accounting": {
                "post_processing": facts.post_processing,
                "composition": _COMPOSITION.format(ledger=facts.ledger),
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": facts.planning,
                "mechanisms": f"{facts.mechanism} {_NOISE} "
                f"Library: sfumato {provenance['sfumato']}.",
                "justification": facts.accuracy,
            },
            "administrative": {"sources": sources, "registry_authors": list(authors)},
        },
    }
    return "\n".join(_yaml(record)) + "\n"


@dataclass(frozen=True, slots=True)
class _Facts:
    """A provenance record in sentences."""

    date: str
    promise: str
    parameters: str
    numbers: Mapping[str, float]
    variant: str
    who: str
    unit: str
    mechanism: str
    planning: str
    accuracy: str
    post_processing: str
    ledger: str
    invariants: str

    @classmethod
    def of(cls, provenance: Mapping[str, object]) -> _Facts:
        budget = provenance["budget"]
        if not isinstance(budget, Mapping):
            raise SfumatoError("this is no provenance record of a release: it has no budget")
        numbers = {
            name: float(Fraction(str(budget[name])))
            for name in ("epsilon", "delta", "rho")
            if budget.get(name) is not None
        }
        who, unit = _unit(provenance)
        return cls(
            date=str(provenance["created"])[:10],
            promise=str(provenance["guarantee"]),
            parameters=f"Allowed: {_amounts(budget)}. Spent: {provenance['cost_in_words']}.",
            numbers=numbers,
            variant=_variant(numbers),
            who=who,
            unit=unit,
            mechanism=_mechanism(provenance),
            planning=_planning(provenance),
            accuracy=_accuracy(provenance),
            post_processing=_post_processing(provenance),
            ledger=_ledger(provenance),
            invariants=_invariants(provenance),
        )


def _amounts(budget: Mapping[str, object]) -> str:
    return ", ".join(
        f"{name} = {number_text(Fraction(str(amount)))}"
        for name, amount in budget.items()
        if amount is not None
    )


def _variant(numbers: Mapping[str, float]) -> str:
    if "rho" in numbers:
        return "Zero-concentrated DP"
    if "epsilon" not in numbers:
        return "Custom"
    return "Approximate DP" if numbers.get("delta") else "Pure DP"


def _unit(provenance: Mapping[str, object]) -> tuple[str, str]:
    """The unit of privacy in a word, and what neighbouring tables are."""
    unit = provenance["privacy_unit"]
    is_adding = provenance["neighbours"] == "add-remove"
    if not isinstance(unit, Mapping):
        change = "one row more or less" if is_adding else "one row replaced by another"
        return "One row of the table", f"Neighbouring tables differ by {change}."
    change = "the rows of one more or one less" if is_adding else "all rows of one"
    bound = f"at most {unit['rows']} rows of each are counted"
    if unit.get("groups") is not None:
        by = " x ".join(str(name) for name in unit["by"])
        bound += f", in at most {unit['groups']} groups of {by}, {unit['rows_per_group']} in each"
    return (
        f"One {unit['column']}: all rows that share it",
        f"Neighbouring tables differ in {change} {unit['column']}; {bound}.",
    )


def _mechanism(provenance: Mapping[str, object]) -> str:
    noise = provenance["noise"]
    laws = sorted({str(n["law"]) for n in noise}) if isinstance(noise, list) else []
    drawn = f"discrete {' and '.join(law.capitalize() for law in laws)} noise" if laws else "noise"
    return f"Mechanism {provenance['mechanism']}: {drawn} on linear measurements of the table."


def _planning(provenance: Mapping[str, object]) -> str:
    if isinstance(provenance["strategy"], str):
        return (
            f"What is measured was {provenance['strategy']}; these choices are private and part "
            "of the cost. All else was fixed from the queries, the domain and the budget."
        )
    return (
        "The mechanism and its parameters were planned from the queries, the domain and the "
        "budget, without the data."
    )


def _accuracy(provenance: Mapping[str, object]) -> str:
    forecast, certificate = provenance["forecast"], provenance["certificate"]
    said = []
    if isinstance(forecast, Mapping):
        said.append(
            f"{forecast['queries']:,} answers, with a typical error (root mean square) of "
            f"{forecast['rmse']:.4g} and a largest one of {forecast['largest']:.4g} before any "
            "post-processing, known before the budget was spent."
        )
    if isinstance(certificate, float | int):
        said.append(
            f"Its error is at most {certificate:.4g} times a proved lower bound on the error of "
            "unbiased mechanisms at this budget (the certificate)."
        )
    return " ".join([*said, f"Intervals: {provenance['intervals']}."])


def _post_processing(provenance: Mapping[str, object]) -> str:
    said = str(provenance["projection"])
    return "Nothing." if said == "none" else f"{said[0].upper()}{said[1:]}. It costs no privacy."


def _ledger(provenance: Mapping[str, object]) -> str:
    entry = provenance["ledger"]
    if not isinstance(entry, Mapping):
        return "No ledger was kept: the losses of other releases of the same people add to this."
    return (
        f"The cost is entry {entry.get('sequence')} of a hash-chained ledger of the table, debited "
        "before noise was drawn; its total bounds the loss of all releases that it holds."
    )


def _invariants(provenance: Mapping[str, object]) -> str:
    said = []
    if provenance.get("public_rows") is not None:
        said.append(f"the number of records, {provenance['public_rows']:,}")
    record = provenance.get("constraints")
    if isinstance(record, Mapping):
        tables = [" x ".join(t["attributes"]) or "total" for t in record["published"]]
        said += [f"published before: {listing(tables)}"] if tables else []
        said += [f"no record where {condition}" for condition in record["impossible"]]
    return f"Public: {'; '.join(said)}." if said else "Nothing but the domain."


def _check(**texts: str) -> None:
    for name, text in texts.items():
        if not isinstance(text, str) or not text.strip():
            raise SfumatoError(f"{name} of a registry record is a text, got {text!r}; say it")


def _check_lists(**lists: Sequence[str]) -> None:
    for name, texts in lists.items():
        if isinstance(texts, str) or not texts or not all(str(t).strip() for t in texts):
            raise SfumatoError(f"{name} of a registry record is a list of names, got {texts!r}")


def _yaml(value: Mapping[str, object], indent: str = "") -> list[str]:
    """Lines of YAML; texts in double quotes are those of JSON, and what is None is left out."""
    lines = []
    for key, item in value.items():
        if isinstance(item, Mapping):
            lines += [f"{indent}{key}:", *_yaml(item, indent + "  ")] if item else []
        elif isinstance(item, list):
            lines += [f"{indent}{key}:", *(f"{indent}  - {_quoted(each)}" for each in item)]
        elif item is not None and item != "":
            lines.append(f"{indent}{key}: {_quoted(item)}")
    return lines


def _quoted(value: object) -> str:
    """A text as JSON writes it; a number with the point that YAML needs to take it for one."""
    text = json.dumps(value, ensure_ascii=False)
    has_point = not isinstance(value, float) or "." in text or "e" not in text
    return text if has_point else text.replace("e", ".0e", 1)
