# SPDX-License-Identifier: Apache-2.0
"""The provenance record: how the answers were made, and what is promised about them.

One JSON object beside the answers. It holds public facts only: the budget, the noise, hashes of
the domain and of the workload, the ledger entry. It holds no counts, no paths and no names of
users or machines.

How it may evolve: a key is never removed and never changes its meaning; anything else raises
``SCHEMA``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING, Final

from sfumato.budget import Budget
from sfumato.budget.accounting import Cost, composed_epsilon
from sfumato.budget.budget import number_text
from sfumato.errors import SfumatoError
from sfumato.plan.forecast import Forecast
from sfumato.refine.refined import Refined
from sfumato.version import VERSION

if TYPE_CHECKING:
    from sfumato.budget.entries import Entry

__all__ = ["SCHEMA", "guarantee", "projection_in_words", "provenance_json", "provenance_of"]

SCHEMA: Final = "sfumato provenance 1"


def provenance_of(
    forecast: Forecast,
    *,
    rows: int | None,
    projection: str,
    entry: Entry | None = None,
    given: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Everything public about a release, ready for JSON.

    ``given`` adds facts that the caller knows, such as ``created``; it cannot restate what is
    known here.
    """
    given = {} if given is None else given
    unit = forecast.unit
    known: dict[str, object] = {
        "schema": SCHEMA,
        "sfumato": VERSION,
        "created": given.get("created", datetime.now(UTC).isoformat(timespec="seconds")),
        "guarantee": guarantee(forecast),
        "budget": forecast.budget.as_json(),
        "neighbours": forecast.neighbours,
        "privacy_unit": None if unit is None else {"column": unit.column, "rows": unit.rows},
        "cost": forecast.cost.as_json(),
        "cost_in_words": cost_in_words(forecast.cost, forecast.budget),
        "mechanism": forecast.mechanism,
        "objective": forecast.objective,
        "strategy": forecast.strategy.describe(),
        "noise": _noise(forecast),
        "forecast": _forecast(forecast),
        "certificate": _number(forecast.certificate),
        "projection": projection,
        "public_rows": rows,
        "domain_sha256": forecast.workload.domain.digest(),
        "workload_sha256": forecast.workload.digest(),
        "ledger": None if entry is None else _entry(entry),
    }
    return {**known, **{k: v for k, v in given.items() if k not in known or known[k] is None}}


def projection_in_words(is_projected: bool, found: Refined | None) -> str:
    """What was done to the unbiased answers."""
    if not is_projected:
        return "none"
    return "cut to the feasible range" if found is None else found.describe()


def provenance_json(provenance: Mapping[str, object]) -> str:
    """The record as text; refused when it holds what JSON cannot."""
    try:
        return json.dumps(provenance, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SfumatoError(
            f"the provenance record cannot be written as JSON ({error}); give texts, finite "
            "numbers, lists and tables only"
        ) from None


def guarantee(forecast: Forecast) -> str:
    """The promise in one sentence."""
    unit = forecast.unit
    is_adding = forecast.neighbours == "add-remove"
    if unit is None:
        what = f"one row is {'added or removed' if is_adding else 'replaced by another'}"
    else:
        change = "added or removed" if is_adding else "replaced by others"
        what = f"all rows of one {unit.column!r} are {change} (at most {unit.rows} are counted)"
    return (
        f"If {what}, the probabilities of what is released here change by no more than "
        f"{_promise(forecast.budget)} allows."
    )


def cost_in_words(cost: Cost, budget: Budget) -> str:
    """What was spent, in the currency of the budget."""
    if budget.epsilon is None:
        return cost.describe()
    if budget.delta and cost.mu_squared:
        epsilon = composed_epsilon([cost], budget.delta)
        return f"epsilon = {epsilon:.6g} at delta = {number_text(budget.delta)}"
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


def _noise(forecast: Forecast) -> list[dict[str, object]]:
    """Law, scale and grid of every measured block; scale is sigma, or the b of Laplace."""
    return [
        {
            "block": block.term.name,
            "attributes": list(block.term.attributes),
            "values": block.term.rows,
            "law": law.noise,
            "scale": law.scale,
            "scale_in_grid_steps": law.units,
            "grid": f"2^{-law.grid_bits}",
        }
        for block, law in zip(forecast.strategy.blocks, forecast.noise, strict=True)
    ]


def _forecast(forecast: Forecast) -> dict[str, object]:
    """Errors in counts; where answers are biased also the bias, and for how many records."""
    records = forecast.strategy.records
    groups: list[dict[str, object]] = [
        {"name": g.name, "queries": g.queries, "rmse": g.rmse, "largest": g.largest}
        for g in forecast.groups
    ]
    if records is not None:
        for listed, group in zip(groups, forecast.groups, strict=True):
            listed["bias"] = group.bias
    return {
        **({} if records is None else {"biased_for_records": records}),
        "rmse": forecast.rmse,
        "largest": forecast.largest_error,
        "gamma": _number(forecast.gamma),
        "queries": forecast.workload.queries,
        "groups": groups,
    }


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
