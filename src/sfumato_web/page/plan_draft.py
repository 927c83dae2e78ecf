# SPDX-License-Identifier: Apache-2.0
"""The draft of a plan on the page: a table, questions, a budget, and its forecast; holds no data.

`Preview` is the plan at another budget, which the page shows while a slider moves. The
error of a strategy with Gaussian noise is its error at unit noise times the scale of its noise, and
that scale is ``1/mu`` times the strategy's sensitivity. So the forecast of the same strategy at
another budget is a multiple of the forecast at hand, up to the rounding of the scale to its grid
(at most 2^-16 of it). Laplace noise is drawn in whole steps of the measured values, and errs less
than by ``1/epsilon`` where epsilon is large: the same strategy is forecast anew, and of other
mechanisms the parts of their error are added up. Another mechanism may be better there: what is
shown while the slider moves is never better than what planning then finds, but for that rounding.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sfumato.planning.forecast import allowed_loss
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.privacy.budget import Budget
from sfumato.release.charts import chart_of, chart_rank, chosen_groups
from sfumato.release.linear_estimates import LinearEstimates
from sfumato_web.page.page_limits import LIMITS
from sfumato_web.server.models import PlanAsked
from sfumato_web.server.scheduler import plan_of, workload_of

if TYPE_CHECKING:
    from sfumato.domain.attributes import Attribute
    from sfumato.domain.domain import Domain
    from sfumato.planning.forecast import Forecast
    from sfumato.release.charts import Chart
    from sfumato.run.linear import Plan
    from sfumato.types import Array
    from sfumato_web.page.layout import Visitor
    from sfumato_web.server.config import Analyst
    from sfumato_web.server.dataset import GuardedDataset
    from sfumato_web.server.server_limits import LimitsTable

__all__ = [
    "DELTAS",
    "EPSILONS",
    "Draft",
    "MadeUp",
    "Preview",
    "Rescaled",
    "Subject",
    "draft_of",
    "in_words",
    "rescaled",
]

LEVEL = 0.95


_loss = lru_cache(maxsize=512)(allowed_loss)


@dataclass(frozen=True, eq=False)
class Rescaled:
    """The strategy of a plan at another budget, by its forecast there.

    Its typical error is ``ratio`` times that of the plan.
    """

    plan: Plan
    forecast: Forecast

    @property
    def budget(self) -> Budget:
        """The other budget."""
        return self.forecast.budget

    @cached_property
    def ratio(self) -> float:
        """The error at this budget over that of the plan."""
        noise = self.plan.strategy.noise
        if noise == "laplace":
            return self.forecast.rmse / self.plan.rmse
        return (_loss(self.plan.budget, noise) or 0.0) / (_loss(self.budget, noise) or 1.0)

    @property
    def rmse(self) -> float:
        """The root mean square error over all queries, in counts."""
        return self.plan.rmse * self.ratio

    @property
    def largest(self) -> float:
        """The largest root mean square error of any query, in counts."""
        return max(largest for _, _, _, largest in self.groups)

    @property
    def groups(self) -> list[tuple[str, int, float, float]]:
        """Name, queries, typical and largest error of every group."""
        is_anew = self.plan.strategy.noise == "laplace"
        groups, scale = (self.forecast.groups, 1.0) if is_anew else (self.plan.groups, self.ratio)
        return [(g.name, g.queries, g.rmse * scale, g.largest * scale) for g in groups]

    @property
    def certificate(self) -> float | None:
        """Error over a lower bound at this budget; of Gaussian noise it is that of the plan."""
        is_anew = self.plan.strategy.noise == "laplace"
        return self.forecast.certificate if is_anew else self.plan.certificate

    @property
    def candidates(self) -> list[tuple[str, float | None, str, bool]]:
        """Mechanism, typical error, note, and whether it is the chosen one; the best first."""
        rows = []
        for c in self.plan.candidates:
            noise = MECHANISMS[c.mechanism].noise if c.mechanism in MECHANISMS else "gaussian"
            before, loss = (_loss(b, noise) for b in (self.plan.budget, self.budget))
            error = None if before is None or loss is None else c.rmse_at(loss, before)
            if c.is_chosen:  # exact, of however many parts
                error = self.rmse
            rows.append((c.name, error, c.note, c.is_chosen))
        return sorted(rows, key=lambda each: (each[1] is None, each[1] or 0.0))


def rescaled(plan: Plan, budget: Budget) -> Rescaled | None:
    """The same strategy at another budget; None where it needs delta and there is none."""
    forecast = plan.forecast.at(budget)
    return None if forecast is None else Rescaled(plan, forecast)


@dataclass(frozen=True, eq=False)
class MadeUp:
    """Expected counts of ``records`` people whom nobody has met: smooth shares, independent."""

    domain: Domain
    records: int

    def table(self, names: tuple[str, ...]) -> Array:
        """The counts over some attributes."""
        counts = np.array(float(self.records))
        for name in names:
            counts = np.multiply.outer(counts, _shares(self.domain[name]))
        return counts


def _shares(attribute: Attribute) -> Array:
    """Two humps along an order, or shares that fall from the first value to the last."""
    place = (np.arange(attribute.size) + 0.5) / attribute.size
    if attribute.is_ordered and attribute.size > 2:
        low, high = np.exp(-(((place - 0.38) / 0.17) ** 2)), np.exp(-(((place - 0.75) / 0.1) ** 2))
        shares = low + high / 2 + 0.03
    else:
        shares = 1 / (1.5 + np.arange(attribute.size))
    return np.asarray(shares / shares.sum())


@dataclass(frozen=True, eq=False)
class Preview:
    """Answers on made-up people with the error bars of a plan."""

    plan: Plan
    records: int
    _drawn: dict[int, _Drawn] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def groups(self) -> dict[int, str]:
        """The groups that have a chart, by number."""
        terms = self.plan.workload.terms
        most = LIMITS.preview_cells
        fits = [t for t, term in enumerate(terms) if self._cells(term.attributes) <= most]
        pictured = [t for t in chosen_groups(self.plan.workload, [*fits]) if isinstance(t, int)]
        # Charts that show bands come first.
        pictured.sort(key=lambda t: chart_rank(self.plan.workload, t) or 0)
        return {t: terms[t].name for t in pictured}

    def _cells(self, names: tuple[str, ...]) -> int:
        return self.plan.workload.domain.cells(names)

    def spec(self, group: int, ratio: float) -> dict[str, Any]:
        """The chart of a group with bands ``ratio`` times as wide as those of the plan.

        The chart is made once; then only its numbers are written anew.
        """
        if group not in self._drawn:
            self._drawn[group] = _Drawn.of(self._chart(group))
        return self._drawn[group].at(ratio)

    def _chart(self, group: int) -> Chart:
        terms = self.plan.workload.terms
        made_up = MadeUp(self.plan.workload.domain, self.records)
        answers = [np.zeros(0)] * len(terms)
        term = terms[group]
        answers[group] = np.asarray(term.answer(made_up.table(term.attributes)))
        estimates = LinearEstimates(self.plan.forecast, answers, None, False)
        chart = chart_of(estimates, group, LEVEL, "container")
        assert chart is not None  # noqa: S101  only pictured groups are asked for
        return chart


@dataclass(frozen=True, eq=False)
class _Drawn:
    """A chart whose data are the columns v, l and h (value, low, high) among others."""

    spec: dict[str, Any]
    columns: list[str]
    rows: list[list[str]]
    value: Array
    half: Array

    @classmethod
    def of(cls, chart: Chart) -> _Drawn:
        spec = chart.to_dict()
        columns, *rows = csv.reader(StringIO(spec["datasets"][spec["data"]["name"]]))
        value, low, high = (np.array([float(r[columns.index(c)]) for r in rows]) for c in "vlh")
        return cls(spec, columns, rows, value, (high - low) / 2)

    def at(self, ratio: float) -> dict[str, Any]:
        """The chart with its bands so many times as wide."""
        low, high = self.value - ratio * self.half, self.value + ratio * self.half
        numbers = {"l": low.tolist(), "h": high.tolist()}
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        before = list(zip(*self.rows, strict=True))
        columns = [
            [f"{v:.6g}" for v in numbers[c]] if c in numbers else before[i]
            for i, c in enumerate(self.columns)
        ]
        writer.writerows(zip(*columns, strict=True))
        return {**self.spec, "datasets": {self.spec["data"]["name"]: text.getvalue()}}


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
