# SPDX-License-Identifier: Apache-2.0
"""What somebody is planning on the page: a table, questions, a budget. It holds no data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sfumato.privacy.budget import Budget
from sfumato_web.server.models import PlanAsked
from sfumato_web.server.scheduler import plan_of, workload_of

if TYPE_CHECKING:
    from sfumato.domain.domain import Domain
    from sfumato.run.linear import Plan
    from sfumato_web.page.layout import Visitor
    from sfumato_web.server.config import Analyst
    from sfumato_web.server.dataset import GuardedDataset
    from sfumato_web.server.server_limits import LimitsTable

__all__ = [
    "DELTAS",
    "EPSILONS",
    "Draft",
    "Subject",
    "draft_of",
    "in_words",
]


_STEPS: Final = ("1", "1.2", "1.5", "2", "2.5", "3", "4", "5", "6", "8")
EPSILONS: Final = (
    *(f"{float(step) * 10**power:.4g}" for power in (-2, -1, 0) for step in _STEPS),
    "10",
)
"""Values of epsilon on the slider."""

DELTAS: Final = ("0", *(f"1e-{power}" for power in range(15, 3, -1)))
"""Values of delta on the slider; 0 is pure differential privacy."""


@dataclass(eq=False)
class Draft:
    """A plan in the making; ``table`` is the name of a dataset, or empty for a schema at hand."""

    table: str = ""
    entries: list[dict[str, Any]] = field(default_factory=list)
    epsilon: int = EPSILONS.index("1")
    delta: int = DELTAS.index("1e-9")
    records: int = 10_000
    schema: str = ""
    domain: Domain | None = None

    @property
    def budget(self) -> Budget:
        """The budget that the sliders say."""
        return Budget(epsilon=EPSILONS[self.epsilon], delta=DELTAS[self.delta])

    def request(self) -> dict[str, object]:
        """The request for the server: the body of ``POST /datasets/NAME/release``."""
        delta = {} if DELTAS[self.delta] == "0" else {"delta": DELTAS[self.delta]}
        return {"workload": self.entries, "budget": {"epsilon": EPSILONS[self.epsilon], **delta}}


@dataclass(frozen=True, eq=False)
class Subject:
    """What is planned for: a dataset of the server, or a domain that has no table here."""

    domain: Domain
    limits: LimitsTable
    dataset: GuardedDataset | None

    def plan(self, document: Mapping[str, object], who: Analyst) -> Plan:
        """The plan of a request that fits what is left for them; touches no data, costs nothing."""
        request = PlanAsked.model_validate(document)
        if self.dataset is not None:
            return self.dataset.planned_for(request, who)
        workload = workload_of(request.workload, self.domain, self.limits)
        return plan_of(request, workload, "add-remove", None, self.limits)


def draft_of(visitor: Visitor) -> Draft:
    """What this browser was planning, or a new draft on the first of their datasets."""
    draft = visitor.login.drafts.get("plan")
    if isinstance(draft, Draft):
        return draft
    names = [d.name for d in visitor.datasets]
    draft = Draft(names[0] if names else "")
    visitor.login.drafts["plan"] = draft
    return draft


def in_words(entry: Mapping[str, Any]) -> str:
    """A question of the workload for people.

    >>> in_words({"marginals": [["age", "sex"]]}), in_words({"prefix": "age", "by": ["sex"]})
    ('Table of age x sex', 'Running totals of age, by sex')
    """
    by = f", by {' x '.join(entry['by'])}" if entry.get("by") else ""
    if "marginals" in entry:
        ways = entry["marginals"]
        if isinstance(ways, int):
            return "The total" if ways == 0 else f"All {ways}-way tables"
        return "; ".join(f"Table of {' x '.join(names)}" for names in ways)
    if "prefix" in entry:
        return f"Running totals of {entry['prefix']}{by}"
    if "ranges" in entry:
        return f"All ranges of {entry['ranges']}{by}"
    return str(entry.get("sql", entry))
