# SPDX-License-Identifier: Apache-2.0
"""The plan of a request, on any domain: sizes are checked before anything is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.app.server.limits import Limits, check_entries, check_workload
from sfumato.budget import Budget, Neighbours
from sfumato.tomlfile import TomlFile
from sfumato.workload.toml import workload_from

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sfumato.app.server.models import PlanAsked
    from sfumato.domain import Domain
    from sfumato.domain.unit import PrivacyUnit
    from sfumato.flow import Plan, Progress
    from sfumato.plan.planner import Strategies
    from sfumato.privacy.noise_laws import Noise
    from sfumato.workload.workload import Workload

__all__ = ["plan_of", "workload_of"]


def workload_of(
    entries: Sequence[Mapping[str, object]], domain: Domain, limits: Limits
) -> Workload:
    """The queries that a request asks; refused if they are too many or cannot be asked."""
    check_entries(entries, domain, limits)
    workload = workload_from(TomlFile("request", "", {"workload": list(entries)}), domain)
    check_workload(workload, limits)
    return workload


def plan_of(
    asked: PlanAsked,
    workload: Workload,
    neighbours: Neighbours,
    unit: PrivacyUnit | None,
    limits: Limits,
    progress: Progress | None = None,
    known: Callable[[Strategies], Strategies] | None = None,
    *,
    may_drop_records: bool = False,
    noise: Noise | None = None,
) -> Plan:
    """The best plan within a number of steps, whatever else the machine does; costs nothing.

    ``limits.planning_seconds`` are those of one undisturbed core, counted in multiplications: a
    clock would give one request two plans, and two keys. ``known`` gives back the strategies that
    were built for this workload at another budget.
    """
    from sfumato.flow import plan
    from sfumato.plan.effort import STEPS_PER_SECOND

    return plan(
        workload,
        Budget(**asked.budget.model_dump()),
        neighbours,
        asked.objective,
        asked.mechanism,
        unit=unit,
        may_drop_records=may_drop_records,
        steps=limits.planning_seconds * STEPS_PER_SECOND,
        progress=progress,
        known=known,
        noise=noise,
    )
