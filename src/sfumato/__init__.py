# SPDX-License-Identifier: Apache-2.0
"""Private answers to linear queries, as sharp as mathematics allows.

    import sfumato as sf
    domain = sf.Domain.from_toml("adult.toml")
    work = sf.marginals(domain, 2) | sf.prefixes(domain, "age", by=["sex"])
    plan = sf.plan(work, sf.Budget(epsilon=1, delta=1e-9))
    sf.Ledger.create("adult.ledger", sf.Budget(epsilon=3, delta=1e-9), "adult.parquet")  # once
    result = plan.release("adult.parquet", ledger="adult.ledger")

Only the vault sees exact data; everything before and after it is arithmetic on public numbers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import sfumato.plan  # noqa: F401  loaded first: the name `plan` below stays the function
from sfumato.flow import plan as plan

if TYPE_CHECKING:
    from sfumato.adaptive import AdaptivePlan as AdaptivePlan
    from sfumato.adaptive import plan_adaptive as plan_adaptive
    from sfumato.advice import recommend as recommend
    from sfumato.alerts import Watch as Watch
    from sfumato.alerts import watch as watch
    from sfumato.budget import Budget as Budget
    from sfumato.budget import Ledger as Ledger
    from sfumato.corrections import Correction as Correction
    from sfumato.corrections import correct as correct
    from sfumato.domain import Domain as Domain
    from sfumato.domain.unit import PrivacyUnit as PrivacyUnit
    from sfumato.flow import Plan as Plan
    from sfumato.online.opening import open_session as open_session
    from sfumato.online.parameters import plan_session as plan_session
    from sfumato.online.session import Session as Session
    from sfumato.plan.matrix import factorize as factorize
    from sfumato.refine.project import project as project
    from sfumato.refine.widths.geometry import support as support
    from sfumato.refine.widths.projected_forecast import forecast_projection as forecast_projection
    from sfumato.refine.widths.width import gaussian_width as gaussian_width
    from sfumato.refine.widths.width import mean_width as mean_width
    from sfumato.release import Release as Release
    from sfumato.stream import Counter as Counter
    from sfumato.vault.addresses import CsvSource as CsvSource
    from sfumato.vault.addresses import SqlSource as SqlSource
    from sfumato.workload import Constraints as Constraints
    from sfumato.workload import Workload as Workload
    from sfumato.workload import attribute as attribute
    from sfumato.workload import conjunctions as conjunctions
    from sfumato.workload import explicit as explicit
    from sfumato.workload import marginals as marginals
    from sfumato.workload import means as means
    from sfumato.workload import predicates as predicates
    from sfumato.workload import prefixes as prefixes
    from sfumato.workload import product as product
    from sfumato.workload import ranges as ranges
    from sfumato.workload import sql as sql
    from sfumato.workload import sums as sums
    from sfumato.workload import windows as windows


_HOMES = {
    "AdaptivePlan": "sfumato.adaptive",
    "Budget": "sfumato.budget",
    "Constraints": "sfumato.workload",
    "Correction": "sfumato.corrections",
    "Counter": "sfumato.stream",
    "CsvSource": "sfumato.vault.addresses",
    "Domain": "sfumato.domain",
    "Ledger": "sfumato.budget",
    "Plan": "sfumato.flow",
    "PrivacyUnit": "sfumato.domain.unit",
    "Release": "sfumato.release",
    "Session": "sfumato.online.session",
    "SqlSource": "sfumato.vault.addresses",
    "Watch": "sfumato.alerts",
    "Workload": "sfumato.workload",
    "attribute": "sfumato.workload",
    "conjunctions": "sfumato.workload",
    "correct": "sfumato.corrections",
    "explicit": "sfumato.workload",
    "factorize": "sfumato.plan.matrix",
    "forecast_projection": "sfumato.refine.widths.projected_forecast",
    "gaussian_width": "sfumato.refine.widths.width",
    "marginals": "sfumato.workload",
    "mean_width": "sfumato.refine.widths.width",
    "means": "sfumato.workload",
    "open_session": "sfumato.online.opening",
    "plan_adaptive": "sfumato.adaptive",
    "plan_session": "sfumato.online.parameters",
    "predicates": "sfumato.workload",
    "prefixes": "sfumato.workload",
    "product": "sfumato.workload",
    "project": "sfumato.refine.project",
    "ranges": "sfumato.workload",
    "recommend": "sfumato.advice",
    "sql": "sfumato.workload",
    "sums": "sfumato.workload",
    "support": "sfumato.refine.widths.geometry",
    "watch": "sfumato.alerts",
    "windows": "sfumato.workload",
}

__all__ = [*sorted(_HOMES), "plan"]


def __dir__() -> list[str]:
    """The public names and the version: what ``sf.<Tab>`` lists."""
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> object:
    """Public names are imported on first use, to keep ``import sfumato`` fast."""
    if name == "__version__":
        from sfumato.version import VERSION

        return VERSION
    if name not in _HOMES:
        raise AttributeError(f"module 'sfumato' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
