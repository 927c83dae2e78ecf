# SPDX-License-Identifier: Apache-2.0
"""The provenance record: how the answers were made, and what is promised about them.

One JSON object beside the answers. It holds public facts only: the budget, the noise, hashes of
the domain and of the workload, the ledger entry. It holds no counts, no paths and no names of
users or machines.

How it may evolve: a key is never removed and never changes its meaning; anything else raises
``SCHEMA``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
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
    "GROUPS_FILE",
    "NOISE_INTERVALS",
    "SCHEMA",
    "Block",
    "Payable",
    "Promised",
    "adaptive_provenance",
    "constraints_in_words",
    "constraints_record",
    "cost_in_words",
    "facts_of",
    "full_lists",
    "guarantee",
    "projection_in_words",
    "provenance_json",
    "provenance_of",
]


SCHEMA: Final = "sfumato provenance 1"
CUT_SCHEMA: Final = "sfumato provenance 2"
"""As the first, with lists of which only the first entries are here: see ``cut``."""
BLOCKS_FILE: Final = "blocks.parquet"
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


def full_lists(forecast: Forecast) -> dict[str, list[dict[str, object]]]:
    """The lists that the record has not whole, by the name of the file that holds them."""
    blocks = _blocks(forecast)
    if max(len(blocks), len(forecast.groups)) <= LIMITS.record_entries:
        return {}
    return {
        BLOCKS_FILE: _noise(blocks),
        GROUPS_FILE: _groups(forecast, len(forecast.groups)),
    }


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
    if budget.delta and cost.mu_squared:
        epsilon = composed_epsilon([cost], budget.delta)
        return f"epsilon = {epsilon:.6g} at delta = {number_text(budget.delta)}"
    if cost.delta:
        epsilon = composed_epsilon([cost], cost.delta)
        return f"epsilon = {epsilon:.6g} at delta = {number_text(cost.delta)}"
    return f"epsilon = {composed_epsilon([cost], 0):.6g}"


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
        {
            "block": name,
            "attributes": list(attributes),
            "values": values,
            **_law(law),
        }
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
