# SPDX-License-Identifier: Apache-2.0
"""The provenance record: how the answers were made, and what is promised about them.

One JSON object beside the answers. It holds public facts only: the budget, the noise, hashes of
the domain and of the workload, the ledger entry. It holds no counts, no paths and no names of
users or machines.

How it may evolve: a key is never removed and never changes its meaning; anything else raises
``SCHEMA``.

Two texts are written from the record alone, so they hold public facts only:

* the fact sheet goes through the questions of NIST SP 800-226, "Guidelines for evaluating
  differential privacy guarantees" (Near, Darais, Lefkovitz, Howarth 2025): parameters, unit of
  privacy, algorithms, accuracy, other releases, trust, and what is left to the publisher;
* the registry record is a YAML file of tier 3 for the registry of deployments that the OpenDP
  project keeps (github.com/opendp/deployments-registry-data), in the words of its schema.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from math import isfinite
from typing import TYPE_CHECKING, Final, Protocol

from sfumato.domain.privacy_unit import PrivacyUnit, counted_rows
from sfumato.errors import SfumatoError
from sfumato.planning.forecast import Forecast
from sfumato.privacy.budget import Budget, number_text
from sfumato.privacy.cost import Cost, composed_epsilon, mu_squared_of, rho_of
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.refine.consistency import Refined
from sfumato.release.release_limits import LIMITS
from sfumato.text import listing
from sfumato.types import Neighbours
from sfumato.version import VERSION
from sfumato.workload.constraints import Constraints
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    from sfumato.ledger.entries import Entry

__all__ = [
    "BLOCKS_FILE",
    "CUT_SCHEMA",
    "FIRST_SCHEMA",
    "GROUPS_FILE",
    "NOISE_INTERVALS",
    "PRODUCTS",
    "SCHEMA",
    "SECTORS",
    "Block",
    "Payable",
    "Promised",
    "adaptive_provenance",
    "constraints_in_words",
    "constraints_record",
    "cost_in_words",
    "fact_sheet",
    "facts_of",
    "first_numbers_in_words",
    "full_lists",
    "guarantee",
    "projection_in_words",
    "provenance_json",
    "provenance_of",
    "registry_record",
]


SCHEMA: Final = "sfumato provenance 1"
CUT_SCHEMA: Final = "sfumato provenance 2"
"""As the first, with lists of which only the first entries are here: see ``cut``."""
BLOCKS_FILE: Final = "blocks.parquet"
FIRST_SCHEMA: Final = "sfumato provenance 3"
"""As the others, with ``measured_first``: numbers that the budget was divided for."""
GROUPS_FILE: Final = "groups.parquet"
NOISE_INTERVALS: Final = "from the law of the noise: they hold with the stated probability or more"

Block = tuple[str, tuple[str, ...], int, BlockNoise]  # name, attributes, values, noise


class Payable(Protocol):
    """What a plan of any kind costs, and whom it protects."""

    @property
    def budget(self) -> Budget:
        """What may be spent."""
        ...

    @property
    def cost(self) -> Cost:
        """What is debited."""
        ...

    @property
    def neighbours(self) -> Neighbours:
        """Which tables must look alike."""
        ...

    @property
    def unit(self) -> PrivacyUnit | None:
        """Whose rows are protected together."""
        ...


class Promised(Payable, Protocol):
    """What a plan of queries promises."""

    @property
    def workload(self) -> Workload:
        """What is asked."""
        ...


def provenance_of(
    forecast: Forecast,
    *,
    rows: int | None,
    projection: str,
    constraints: Mapping[str, object] | None = None,
    intervals: str = NOISE_INTERVALS,
    entry: Entry | None = None,
    facts: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Everything public about a release, ready for JSON.

    ``facts`` adds what the caller knows, such as ``created``; it cannot restate what is decided
    here.
    """
    facts = {} if facts is None else facts
    blocks = _blocks(forecast)
    record: dict[str, object] = {
        **_promised(forecast, facts.get("created")),
        "mechanism": forecast.mechanism,
        "objective": forecast.objective,
        "strategy": forecast.strategy.describe(),
        "noise": _noise(blocks[: LIMITS.record_entries]),
        "forecast": _forecast(forecast),
        "certificate": _number(forecast.certificate),
        "projection": projection,
        "constraints": constraints,
        "intervals": intervals,
        **_settled(forecast, rows, entry),
        **_cut(blocks, forecast),
        **_measured_first(forecast),
    }
    return {**record, **{k: v for k, v in facts.items() if record.get(k) is None}}


def adaptive_provenance(
    plan: Promised,
    mechanism: str,
    rounds: int,
    blocks: Sequence[Block],
    *,
    rows: int | None,
    constraints: Mapping[str, object] | None = None,
    entry: Entry | None = None,
) -> dict[str, object]:
    """The record of an adaptive release: the same keys, null where nothing can be forecast.

    ``noise`` lists what was measured, in the order in which it was chosen.
    """
    return {
        **_promised(plan),
        "mechanism": mechanism,
        "objective": None,
        "strategy": f"chosen while measuring, in at most {rounds} rounds",
        "noise": _noise(blocks),
        "forecast": None,
        "certificate": None,
        "projection": "all answers come from one estimate",
        "constraints": constraints,
        "intervals": "from the noise of the steps that tell an answer or enclose it; else none",
        **_settled(plan, rows, entry),
        "rounds": rounds,
    }


def _cut(blocks: Sequence[Block], forecast: Forecast) -> dict[str, object]:
    """For lists that are not whole: how long they are, where the rest is, and the laws of noise.

    Empty where everything is listed.
    """
    groups = len(forecast.groups)
    if max(len(blocks), groups) <= LIMITS.record_entries:
        return {}
    laws: dict[BlockNoise, list[int]] = {}
    for _, _, values, law in blocks:
        counted = laws.setdefault(law, [0, 0])
        counted[0] += 1
        counted[1] += values
    common = sorted(laws.items(), key=lambda pair: -pair[1][0])[: LIMITS.record_entries]
    cut = {
        "listed": LIMITS.record_entries,
        "groups": groups,
        "groups_file": GROUPS_FILE,
        "blocks": len(blocks),
        "blocks_file": BLOCKS_FILE,
        "laws": [
            {**_law(law), "blocks": number, "values": values} for law, (number, values) in common
        ],
    }
    return {"schema": CUT_SCHEMA, "cut": cut}


def _measured_first(forecast: Forecast) -> dict[str, object]:
    """What was measured before the budget was divided, with its value; empty where nothing was.

    The number of records is rounded down, and at least the standard error of its noise.
    """
    if not forecast.first_numbers:
        return {}
    numbers = [
        {"block": n.name, "attributes": [], "values": 1, **_law(n.law), "value": n.value}
        for n in forecast.first_numbers
    ]
    return {"schema": FIRST_SCHEMA, "measured_first": numbers}


def first_numbers_in_words(provenance: Mapping[str, object]) -> str:
    """The noisy numbers for which the budget was divided, in one line; empty where none were."""
    numbers = provenance.get("measured_first")
    if not isinstance(numbers, list):
        return ""
    return "; ".join(
        f"{n['block']} {n['value']:,.4g} (standard error {n['scale']:,.3g})" for n in numbers
    )


def full_lists(forecast: Forecast) -> dict[str, list[dict[str, object]]]:
    """The lists that the record has not whole, by the name of the file that holds them."""
    blocks = _blocks(forecast)
    if max(len(blocks), len(forecast.groups)) <= LIMITS.record_entries:
        return {}
    return {BLOCKS_FILE: _noise(blocks), GROUPS_FILE: _groups(forecast, len(forecast.groups))}


def _promised(plan: Promised, created: object = None) -> dict[str, object]:
    """How the record of any release begins: version, guarantee, budget, cost."""
    unit = plan.unit
    return {
        "schema": SCHEMA,
        "sfumato": VERSION,
        "created": created or datetime.now(UTC).isoformat(timespec="seconds"),
        "guarantee": guarantee(plan),
        "budget": plan.budget.as_json(),
        "neighbours": plan.neighbours,
        "privacy_unit": unit and unit.as_json(),
        "cost": plan.cost.as_json(),
        "cost_in_words": cost_in_words(plan.cost, plan.budget),
    }


def _settled(plan: Promised, rows: int | None, entry: Entry | None) -> dict[str, object]:
    """How the record of any release ends: records, digests of what was asked, the debit."""
    return {
        "public_rows": rows,
        "domain_sha256": plan.workload.domain.digest(),
        "workload_sha256": plan.workload.digest(),
        "ledger": None if entry is None else _entry(entry),
    }


def facts_of(forecast: Forecast, rows: int | None) -> dict[str, object]:
    """What a record says that follows from a forecast alone, whatever words it is said in."""
    return {
        **_measured_first(forecast),
        "budget": forecast.budget.as_json(),
        "neighbours": forecast.neighbours,
        "privacy_unit": forecast.unit and forecast.unit.as_json(),
        "cost": forecast.cost.as_json(),
        "mechanism": forecast.mechanism,
        "objective": forecast.objective,
        "noise": _noise(_blocks(forecast)[: LIMITS.record_entries]),
        "public_rows": rows,
        "domain_sha256": forecast.workload.domain.digest(),
        "workload_sha256": forecast.workload.digest(),
    }


def projection_in_words(is_projected: bool, refined: Refined | None) -> str:
    """What was done to the unbiased answers."""
    if not is_projected:
        return "none"
    return "cut to the feasible range" if refined is None else refined.describe()


def constraints_record(
    constraints: Constraints | None, are_met_together: bool
) -> dict[str, object] | None:
    """What everybody knew, and how the answers keep it."""
    if constraints is None:
        return None
    return {
        "impossible": [str(condition) for condition in constraints.impossible],
        "published": [
            {
                "attributes": list(table.names),
                "records": table.total,
                "sha256": hashlib.sha256(table.values.astype("<f8").tobytes()).hexdigest(),
            }
            for table in constraints.published
        ],
        "met": "by all answers together" if are_met_together else "by each answer by itself",
    }


def constraints_in_words(provenance: Mapping[str, object]) -> str:
    """What everybody knew, and how the answers keep it, in one line; empty if nothing."""
    record = provenance.get("constraints")
    if not isinstance(record, Mapping):
        return ""
    tables = [" x ".join(t["attributes"]) or "total" for t in record["published"]]
    parts = [f"no record where {c}" for c in record["impossible"]]
    parts += [f"published: {listing(tables)}"] if tables else []
    return f"{'; '.join(parts) or 'none'}; met {record['met']}"


def provenance_json(provenance: Mapping[str, object]) -> str:
    """The record as text; refused when it holds what JSON cannot."""
    try:
        return json.dumps(provenance, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SfumatoError(
            f"the provenance record cannot be written as JSON ({error}); give texts, finite "
            "numbers, lists and tables only"
        ) from None


def guarantee(plan: Promised) -> str:
    """The promise in one sentence."""
    unit = plan.unit
    is_adding = plan.neighbours == "add-remove"
    if unit is None:
        what = f"one row is {'added or removed' if is_adding else 'replaced by another'}"
    else:
        change = "added or removed" if is_adding else "replaced by others"
        what = f"all rows of one {unit.column!r} are {change} ({_counted(unit)} are counted)"
    return (
        f"If {what}, the probabilities of what is released here change by no more than "
        f"{_promise(plan.budget)} allows."
    )


def _counted(unit: PrivacyUnit) -> str:
    """How many rows of one unit are counted, in words."""
    return f"at most {unit.rows if unit.groups is None else counted_rows(unit)}"


def cost_in_words(cost: Cost, budget: Budget) -> str:
    """What was spent, in the terms in which the budget was written.

    >>> cost_in_words(Cost.gaussian(1), Budget(rho=1))
    'rho = 0.5'
    """
    if budget.rho is not None:
        return f"rho = {float(rho_of(cost)):.6g}"
    if budget.mu is not None:
        return f"mu = {float(mu_squared_of(cost)) ** 0.5:.6g}"
    if cost.mu_squared or cost.delta:
        delta = budget.delta if budget.delta and cost.mu_squared else cost.delta
        return f"epsilon = {composed_epsilon([cost], delta):.6g} at delta = {number_text(delta)}"
    return f"epsilon = {float(cost.pure_epsilon):.6g}"


def _promise(budget: Budget) -> str:
    if budget.rho is not None:
        return f"{number_text(budget.rho)}-zero-concentrated differential privacy"
    if budget.mu is not None:
        return f"{number_text(budget.mu)}-Gaussian differential privacy"
    epsilon = number_text(budget.epsilon) if budget.epsilon else "0"
    if not budget.delta:
        return f"{epsilon}-differential privacy"
    return f"({epsilon}, {number_text(budget.delta)})-differential privacy"


def _blocks(forecast: Forecast) -> list[Block]:
    laws = zip(forecast.strategy.blocks, forecast.noise, strict=True)
    return [(b.term.name, tuple(b.term.attributes), b.term.rows, law) for b, law in laws]


def _noise(blocks: Sequence[Block]) -> list[dict[str, object]]:
    """Law, scale and grid of every measured block; scale is sigma, or the b of Laplace."""
    return [
        {"block": name, "attributes": list(attributes), "values": values, **_law(law)}
        for name, attributes, values, law in blocks
    ]


def _law(law: BlockNoise) -> dict[str, object]:
    return {
        "law": law.noise,
        "scale": law.scale,
        "scale_in_grid_steps": law.units if law.scale_bits == 0 else float(law.steps),
        "grid": f"2^{-law.grid_bits}",
    }


def _forecast(forecast: Forecast) -> dict[str, object]:
    """Errors in counts; where answers are biased also the bias, and for how many records."""
    records, divided_for = forecast.strategy.records, forecast.divided_for
    return {
        **({} if records is None else {"biased_for_records": records}),
        **({} if divided_for is None else {"divided_for_records": divided_for}),
        "rmse": forecast.rmse,
        "largest": forecast.largest_error,
        "gamma": _number(forecast.gamma),
        "queries": forecast.workload.queries,
        "groups": _groups(forecast, LIMITS.record_entries),
    }


def _groups(forecast: Forecast, most: int) -> list[dict[str, object]]:
    """The forecast of the first so many groups."""
    is_biased = forecast.strategy.records is not None
    return [
        {"name": g.name, "queries": g.queries, "rmse": g.rmse, "largest": g.largest}
        | ({"bias": g.bias} if is_biased else {})
        for g in forecast.groups[:most]
    ]


def _entry(entry: Entry) -> dict[str, object]:
    """The debit; the process that made it is left out, since it names a machine."""
    return {
        "sequence": entry.sequence,
        "time": entry.time,
        "key": entry.key,
        "cost": entry.cost.as_json(),
        "hash": entry.hash,
        "state": entry.state,
        "answer_sha256": entry.answer_sha256,
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


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
    said = f"Mechanism {provenance['mechanism']}: {drawn} on linear measurements of the table."
    first = first_numbers_in_words(provenance)
    if not first:
        return said
    return f"{said} Measured before them, with noise and as part of the cost: {first}."


def _planning(provenance: Mapping[str, object]) -> str:
    if isinstance(provenance["strategy"], str):
        return (
            f"What is measured was {provenance['strategy']}; these choices are private and part "
            "of the cost. All else was fixed from the queries, the domain and the budget."
        )
    planned = (
        "The mechanism and its parameters were planned from the queries, the domain and the "
        "budget, without the data."
    )
    if not first_numbers_in_words(provenance):
        return planned
    return (
        f"{planned} The budget was divided between tables by what was measured first, with noise."
    )


def _accuracy(provenance: Mapping[str, object]) -> str:
    forecast, certificate = provenance["forecast"], provenance["certificate"]
    said = []
    is_divided = "measured_first" in provenance
    when = "the tables were measured" if is_divided else "the budget was spent"
    if isinstance(forecast, Mapping):
        said.append(
            f"{forecast['queries']:,} answers, with a typical error (root mean square) of "
            f"{forecast['rmse']:.4g} and a largest one of {forecast['largest']:.4g} before any "
            f"post-processing, known before {when}."
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
