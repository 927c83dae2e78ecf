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

from sfumato.run.linear import plan as plan

if TYPE_CHECKING:
    from sfumato.domain.domain import Domain as Domain
    from sfumato.domain.privacy_unit import PrivacyUnit as PrivacyUnit
    from sfumato.ledger.ledger import Ledger as Ledger
    from sfumato.privacy.budget import Budget as Budget
    from sfumato.refine.project import project as project
    from sfumato.release.release import Release as Release
    from sfumato.run.adaptive import AdaptivePlan as AdaptivePlan
    from sfumato.run.adaptive import plan_adaptive as plan_adaptive
    from sfumato.run.advice import recommend as recommend
    from sfumato.run.correct import Correction as Correction
    from sfumato.run.correct import correct as correct
    from sfumato.run.linear import Plan as Plan
    from sfumato.run.stream import Counter as Counter
    from sfumato.run.stream import plan_stream as plan_stream
    from sfumato.run.watch import Watch as Watch
    from sfumato.run.watch import watch as watch
    from sfumato.session.session import Session as Session
    from sfumato.session.session import open_session as open_session
    from sfumato.session.session import plan_session as plan_session
    from sfumato.study.factorize import factorize as factorize
    from sfumato.study.projection_forecast import forecast_projection as forecast_projection
    from sfumato.study.widths import gaussian_width as gaussian_width
    from sfumato.study.widths import mean_width as mean_width
    from sfumato.study.widths import support as support
    from sfumato.vault.warehouse import CsvSource as CsvSource
    from sfumato.vault.warehouse import SqlSource as SqlSource
    from sfumato.workload.build import conjunctions as conjunctions
    from sfumato.workload.build import explicit as explicit
    from sfumato.workload.build import marginals as marginals
    from sfumato.workload.build import means as means
    from sfumato.workload.build import predicates as predicates
    from sfumato.workload.build import prefixes as prefixes
    from sfumato.workload.build import product as product
    from sfumato.workload.build import ranges as ranges
    from sfumato.workload.build import sums as sums
    from sfumato.workload.build import windows as windows
    from sfumato.workload.constraints import Constraints as Constraints
    from sfumato.workload.predicates import attribute as attribute
    from sfumato.workload.sql.statements import sql as sql
    from sfumato.workload.workload import Workload as Workload


_HOMES = {
    "AdaptivePlan": "sfumato.run.adaptive",
    "Budget": "sfumato.privacy.budget",
    "Constraints": "sfumato.workload.constraints",
    "Correction": "sfumato.run.correct",
    "Counter": "sfumato.run.stream",
    "CsvSource": "sfumato.vault.warehouse",
    "Domain": "sfumato.domain.domain",
    "Ledger": "sfumato.ledger.ledger",
    "Plan": "sfumato.run.linear",
    "PrivacyUnit": "sfumato.domain.privacy_unit",
    "Release": "sfumato.release.release",
    "Session": "sfumato.session.session",
    "SqlSource": "sfumato.vault.warehouse",
    "Watch": "sfumato.run.watch",
    "Workload": "sfumato.workload.workload",
    "attribute": "sfumato.workload.predicates",
    "conjunctions": "sfumato.workload.build",
    "correct": "sfumato.run.correct",
    "explicit": "sfumato.workload.build",
    "factorize": "sfumato.study.factorize",
    "forecast_projection": "sfumato.study.projection_forecast",
    "gaussian_width": "sfumato.study.widths",
    "marginals": "sfumato.workload.build",
    "mean_width": "sfumato.study.widths",
    "means": "sfumato.workload.build",
    "open_session": "sfumato.session.session",
    "plan_adaptive": "sfumato.run.adaptive",
    "plan_session": "sfumato.session.session",
    "plan_stream": "sfumato.run.stream",
    "predicates": "sfumato.workload.build",
    "prefixes": "sfumato.workload.build",
    "product": "sfumato.workload.build",
    "project": "sfumato.refine.project",
    "ranges": "sfumato.workload.build",
    "recommend": "sfumato.run.advice",
    "sql": "sfumato.workload.sql.statements",
    "sums": "sfumato.workload.build",
    "support": "sfumato.study.widths",
    "watch": "sfumato.run.watch",
    "windows": "sfumato.workload.build",
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
