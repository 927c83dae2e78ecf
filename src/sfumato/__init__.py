# SPDX-License-Identifier: Apache-2.0
"""Private answers to linear queries, as sharp as mathematics allows.

    import sfumato as sf
    domain = sf.Domain.from_toml("adult.toml")
    work = sf.marginals(domain, 2) | sf.prefixes(domain, "age", by=["sex"])
    plan = sf.plan(work, sf.Budget(epsilon=1, delta=1e-9))
    sf.Ledger.create("adult.ledger", sf.Budget(epsilon=3, delta=1e-9), "adult.parquet")  # once
    result = plan.release("adult.parquet", ledger="adult.ledger")

Only the vault sees exact data; everything before and after it is arithmetic on public numbers.
Nothing has to be imported from inside: all of it is here, and in `sf.study` the mathematics of the
lecture notes (docs/map.md).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sfumato import errors as errors
    from sfumato import study as study
    from sfumato.cli.spec import json_schema as json_schema
    from sfumato.domain.attributes import Boolean as Boolean
    from sfumato.domain.attributes import Category as Category
    from sfumato.domain.attributes import DateTime as DateTime
    from sfumato.domain.attributes import Integer as Integer
    from sfumato.domain.attributes import Level as Level
    from sfumato.domain.attributes import Numeric as Numeric
    from sfumato.domain.discovery import OpenDomain as OpenDomain
    from sfumato.domain.discovery import top as top
    from sfumato.domain.domain import Domain as Domain
    from sfumato.domain.domain import example as example
    from sfumato.domain.privacy_unit import PrivacyUnit as PrivacyUnit
    from sfumato.errors import BudgetError as BudgetError
    from sfumato.errors import BudgetExhausted as BudgetExhausted
    from sfumato.errors import KeyHeld as KeyHeld
    from sfumato.errors import LedgerError as LedgerError
    from sfumato.errors import LedgerFrozen as LedgerFrozen
    from sfumato.errors import PlanError as PlanError
    from sfumato.errors import SchemaError as SchemaError
    from sfumato.errors import ServerError as ServerError
    from sfumato.errors import SfumatoError as SfumatoError
    from sfumato.errors import SqlError as SqlError
    from sfumato.errors import StateChanged as StateChanged
    from sfumato.errors import TableError as TableError
    from sfumato.errors import TooLarge as TooLarge
    from sfumato.errors import WorkloadError as WorkloadError
    from sfumato.ledger.ledger import Ledger as Ledger
    from sfumato.ledger.periods import begin_period as begin_period
    from sfumato.ledger.periods import promise_over_periods as promise_over_periods
    from sfumato.privacy.budget import Budget as Budget
    from sfumato.privacy.cost import Cost as Cost
    from sfumato.refine.project import project as project
    from sfumato.release.charts import synthetic_quality as synthetic_quality
    from sfumato.release.charts import (
        synthetic_quality_chart as synthetic_quality_chart,
    )
    from sfumato.release.pooled import combine as combine
    from sfumato.release.regress import Regression as Regression
    from sfumato.release.regress import regress as regress
    from sfumato.release.release import Release as Release
    from sfumato.release.saved import read_release as read_release
    from sfumato.run.adaptive import AdaptivePlan as AdaptivePlan
    from sfumato.run.adaptive import plan_adaptive as plan_adaptive
    from sfumato.run.advice import recommend as recommend
    from sfumato.run.choose import Selection as Selection
    from sfumato.run.choose import SelectionPlan as SelectionPlan
    from sfumato.run.choose import plan_selection as plan_selection
    from sfumato.run.correct import Correction as Correction
    from sfumato.run.correct import correct as correct
    from sfumato.run.describe import Description as Description
    from sfumato.run.describe import DescriptionPlan as DescriptionPlan
    from sfumato.run.describe import describe as describe
    from sfumato.run.describe import plan_description as plan_description
    from sfumato.run.discover import Discovery as Discovery
    from sfumato.run.discover import DiscoveryPlan as DiscoveryPlan
    from sfumato.run.discover import plan_discovery as plan_discovery
    from sfumato.run.linear import Plan as Plan
    from sfumato.run.linear import plan as plan
    from sfumato.run.stream import Stream as Stream
    from sfumato.run.stream import StreamPlan as StreamPlan
    from sfumato.run.stream import plan_stream as plan_stream
    from sfumato.run.watch import Watch as Watch
    from sfumato.run.watch import watch as watch
    from sfumato.session.client import Client as Client
    from sfumato.session.session import Session as Session
    from sfumato.session.session import SessionPlan as SessionPlan
    from sfumato.session.session import open_session as open_session
    from sfumato.session.session import plan_session as plan_session
    from sfumato.study.matrix_norms import factorize as factorize
    from sfumato.study.projection_forecast import forecast_projection as forecast_projection
    from sfumato.study.widths import gaussian_width as gaussian_width
    from sfumato.study.widths import mean_width as mean_width
    from sfumato.study.widths import support as support
    from sfumato.vault.derived import Feature as Feature
    from sfumato.vault.derived import FeatureSource as FeatureSource
    from sfumato.vault.derived import JoinSource as JoinSource
    from sfumato.vault.sources import CsvSource as CsvSource
    from sfumato.vault.sources import SqlSource as SqlSource
    from sfumato.workload.build import circular_ranges as circular_ranges
    from sfumato.workload.build import conjunctions as conjunctions
    from sfumato.workload.build import covariances as covariances
    from sfumato.workload.build import explicit as explicit
    from sfumato.workload.build import marginals as marginals
    from sfumato.workload.build import means as means
    from sfumato.workload.build import moments as moments
    from sfumato.workload.build import persons as persons
    from sfumato.workload.build import predicates as predicates
    from sfumato.workload.build import predictions as predictions
    from sfumato.workload.build import prefixes as prefixes
    from sfumato.workload.build import product as product
    from sfumato.workload.build import ranges as ranges
    from sfumato.workload.build import standard_deviations as standard_deviations
    from sfumato.workload.build import sums as sums
    from sfumato.workload.build import unparsed as unparsed
    from sfumato.workload.build import variances as variances
    from sfumato.workload.build import windows as windows
    from sfumato.workload.constraints import Constraints as Constraints
    from sfumato.workload.predicates import attribute as attribute
    from sfumato.workload.statements.sql import sql as sql
    from sfumato.workload.workload import Workload as Workload


# Every public name and the module it is imported from.
_HOMES = {
    # Nouns: what is declared, planned, run and published.
    "AdaptivePlan": "sfumato.run.adaptive",
    "Boolean": "sfumato.domain.attributes",
    "Budget": "sfumato.privacy.budget",
    "Category": "sfumato.domain.attributes",
    "Client": "sfumato.session.client",
    "Constraints": "sfumato.workload.constraints",
    "Correction": "sfumato.run.correct",
    "Cost": "sfumato.privacy.cost",
    "CsvSource": "sfumato.vault.sources",
    "DateTime": "sfumato.domain.attributes",
    "Description": "sfumato.run.describe",
    "DescriptionPlan": "sfumato.run.describe",
    "Discovery": "sfumato.run.discover",
    "DiscoveryPlan": "sfumato.run.discover",
    "Domain": "sfumato.domain.domain",
    "Integer": "sfumato.domain.attributes",
    "Ledger": "sfumato.ledger.ledger",
    "begin_period": "sfumato.ledger.periods",
    "promise_over_periods": "sfumato.ledger.periods",
    "Level": "sfumato.domain.attributes",
    "Numeric": "sfumato.domain.attributes",
    "OpenDomain": "sfumato.domain.discovery",
    "Plan": "sfumato.run.linear",
    "PrivacyUnit": "sfumato.domain.privacy_unit",
    "Regression": "sfumato.release.regress",
    "Release": "sfumato.release.release",
    "Selection": "sfumato.run.choose",
    "SelectionPlan": "sfumato.run.choose",
    "Session": "sfumato.session.session",
    "SessionPlan": "sfumato.session.session",
    "Feature": "sfumato.vault.derived",
    "FeatureSource": "sfumato.vault.derived",
    "JoinSource": "sfumato.vault.derived",
    "SqlSource": "sfumato.vault.sources",
    "Stream": "sfumato.run.stream",
    "StreamPlan": "sfumato.run.stream",
    "Watch": "sfumato.run.watch",
    "Workload": "sfumato.workload.workload",
    # Builders of workloads.
    "attribute": "sfumato.workload.predicates",
    "circular_ranges": "sfumato.workload.build",
    "conjunctions": "sfumato.workload.build",
    "covariances": "sfumato.workload.build",
    "explicit": "sfumato.workload.build",
    "marginals": "sfumato.workload.build",
    "means": "sfumato.workload.build",
    "moments": "sfumato.workload.build",
    "persons": "sfumato.workload.build",
    "predicates": "sfumato.workload.build",
    "predictions": "sfumato.workload.build",
    "prefixes": "sfumato.workload.build",
    "product": "sfumato.workload.build",
    "ranges": "sfumato.workload.build",
    "sql": "sfumato.workload.statements.sql",
    "standard_deviations": "sfumato.workload.build",
    "sums": "sfumato.workload.build",
    "top": "sfumato.domain.discovery",
    "unparsed": "sfumato.workload.build",
    "variances": "sfumato.workload.build",
    "windows": "sfumato.workload.build",
    # Verbs.
    "combine": "sfumato.release.pooled",
    "correct": "sfumato.run.correct",
    "describe": "sfumato.run.describe",
    "example": "sfumato.domain.domain",
    "json_schema": "sfumato.cli.spec",
    "open_session": "sfumato.session.session",
    "plan": "sfumato.run.linear",
    "plan_adaptive": "sfumato.run.adaptive",
    "plan_description": "sfumato.run.describe",
    "plan_discovery": "sfumato.run.discover",
    "plan_selection": "sfumato.run.choose",
    "plan_session": "sfumato.session.session",
    "plan_stream": "sfumato.run.stream",
    "project": "sfumato.refine.project",
    "read_release": "sfumato.release.saved",
    "recommend": "sfumato.run.advice",
    "regress": "sfumato.release.regress",
    "synthetic_quality": "sfumato.release.charts",
    "synthetic_quality_chart": "sfumato.release.charts",
    "watch": "sfumato.run.watch",
    # Mathematics, also in `sfumato.study`.
    "factorize": "sfumato.study.matrix_norms",
    "forecast_projection": "sfumato.study.projection_forecast",
    "gaussian_width": "sfumato.study.widths",
    "mean_width": "sfumato.study.widths",
    "support": "sfumato.study.widths",
    # Errors.
    "BudgetError": "sfumato.errors",
    "BudgetExhausted": "sfumato.errors",
    "LedgerError": "sfumato.errors",
    "KeyHeld": "sfumato.errors",
    "LedgerFrozen": "sfumato.errors",
    "PlanError": "sfumato.errors",
    "SchemaError": "sfumato.errors",
    "ServerError": "sfumato.errors",
    "SfumatoError": "sfumato.errors",
    "SqlError": "sfumato.errors",
    "StateChanged": "sfumato.errors",
    "TableError": "sfumato.errors",
    "TooLarge": "sfumato.errors",
    "WorkloadError": "sfumato.errors",
}

_RENAMED = {"Counter": "Stream"}  # names of before, which still work

__all__ = sorted([*_HOMES, "study"])


def __dir__() -> list[str]:
    """The public names and the version: what ``sf.<Tab>`` lists."""
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> object:
    """Public names are imported on first use, to keep ``import sfumato`` fast."""
    if name == "__version__":
        from sfumato.version import VERSION

        return VERSION
    if name in ("errors", "study"):
        return import_module(f"sfumato.{name}")
    if name in _RENAMED:
        import warnings

        new = _RENAMED[name]
        warnings.warn(f"sfumato.{name} is now sfumato.{new}", DeprecationWarning, stacklevel=2)
        return __getattr__(new)
    if name not in _HOMES:
        raise AttributeError(f"module 'sfumato' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
