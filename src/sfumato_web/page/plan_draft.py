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
import json
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from io import StringIO
from math import floor
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sfumato.errors import BudgetError, WorkloadError
from sfumato.planning.forecast import allowed_loss
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.privacy.budget import Budget, number_text
from sfumato.release.charts import chart_of, chart_rank, chosen_groups
from sfumato.release.linear_estimates import LinearEstimates
from sfumato_web.page.page_limits import LIMITS
from sfumato_web.server.models import PlanAsked, ReleaseAsked, canonical
from sfumato_web.server.problems import Problem
from sfumato_web.server.scheduler import plan_of, workload_of
from sfumato_web.server.server_limits import is_too_deep

if TYPE_CHECKING:
    from sfumato.domain.attributes import Attribute
    from sfumato.domain.domain import Domain
    from sfumato.ledger.account import Remaining
    from sfumato.planning.forecast import Forecast
    from sfumato.release.charts import Chart
    from sfumato.run.linear import Plan
    from sfumato.types import Array, Noise
    from sfumato_web.page.layout import Visitor
    from sfumato_web.server.config import Analyst
    from sfumato_web.server.dataset import GuardedDataset
    from sfumato_web.server.server_limits import LimitsTable

__all__ = [
    "BEST",
    "DELTAS",
    "EPSILONS",
    "LEVELS",
    "PROJECTIONS",
    "Draft",
    "KeptDraft",
    "MadeUp",
    "Preview",
    "Rescaled",
    "Subject",
    "code_of",
    "draft_of",
    "draft_of_code",
    "forget_draft",
    "in_words",
    "keep_draft",
    "kept_drafts",
    "most_of",
    "place_of_epsilon",
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
    level: float = LEVEL
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
        chart = chart_of(estimates, group, self.level, "container")
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


LEVELS: Final = {"0.9": "90%", "0.95": "95%", "0.99": "99%"}
"""Confidence of intervals, as it is chosen and as it is shown."""

PROJECTIONS: Final = {
    "true": "agree with each other, as near the truth as can be",
    "nearest": "the nearest table to what was measured",
    "bounds": "never below zero, each by itself",
    "false": "as they were measured, also below zero",
}
"""What is published for what was measured; keys as in JSON."""

BEST: Final = ""


@dataclass(eq=False)
class Draft:
    """A plan in the making; ``table`` is the name of a dataset, or empty for a schema at hand.

    ``exactly`` is an epsilon between two values of the slider, until it is moved; ``mechanism`` is
    empty for the best one; ``level`` and ``project`` are keys of `LEVELS` and `PROJECTIONS`.
    """

    table: str = ""
    entries: list[dict[str, Any]] = field(default_factory=list)
    epsilon: int = EPSILONS.index("1")
    delta: int = DELTAS.index("1e-9")
    records: int = 10_000
    schema: str = ""
    domain: Domain | None = None
    exactly: str = ""
    mechanism: str = BEST
    objective: str = "rmse"
    level: str = "0.95"
    project: str = "true"

    @property
    def spends(self) -> str:
        """The epsilon that it would spend."""
        return self.exactly or EPSILONS[self.epsilon]

    @property
    def budget(self) -> Budget:
        """The budget that the sliders say."""
        return Budget(epsilon=self.spends, delta=DELTAS[self.delta])

    def spend(self, epsilon: str) -> None:
        """Spend exactly so much; the slider stands at the last value that is not larger."""
        self.exactly = "" if epsilon in EPSILONS else epsilon
        self.epsilon = max(0, floor(place_of_epsilon(float(epsilon))))

    def forecast_request(self) -> dict[str, object]:
        """What is forecast: the body of ``POST /datasets/NAME/plan``."""
        delta = {} if DELTAS[self.delta] == "0" else {"delta": DELTAS[self.delta]}
        request: dict[str, object] = {
            "workload": self.entries,
            "budget": {"epsilon": self.spends, **delta},
        }
        # Only what differs is said: requests of before keep their keys.
        if self.objective != "rmse":
            request["objective"] = self.objective
        if self.mechanism != BEST:
            request["mechanism"] = self.mechanism
        return request

    def request(self) -> dict[str, object]:
        """The request for the server: the body of ``POST /datasets/NAME/release``."""
        request = self.forecast_request()
        if self.level != "0.95":
            request["level"] = float(self.level)
        if self.project != "true":
            request["project"] = False if self.project == "false" else self.project
        return request


def place_of_epsilon(epsilon: float) -> float:
    """Where an epsilon stands on the slider: between two values, in proportion.

    >>> place_of_epsilon(0.01), place_of_epsilon(99.0), place_of_epsilon(0.005)
    (0.0, 30.0, -1.0)
    """
    values = [float(each) for each in EPSILONS]
    above = bisect_right(values, epsilon)
    if above in (0, len(values)):
        return above - 1.0
    low, high = values[above - 1], values[above]
    return above - 1 + (epsilon - low) / (high - low)


def most_of(remaining: Remaining, delta: str, noise: Noise | None = None) -> tuple[str, list[str]]:
    """The largest epsilon that is left for one release, and in words by which noise.

    At delta 0 only pure noise can be had. An empty text: nothing is left.
    """
    pure = remaining.epsilon("pure")
    kinds = [(pure, f"pure noise up to epsilon {number_text(pure)}")]
    if noise == "gaussian":
        kinds = [(Fraction(0), "")]
    if Fraction(delta) and noise != "laplace":
        gaussian = remaining.epsilon("gaussian", Fraction(delta))
        kinds.insert(0, (gaussian, f"Gaussian noise up to epsilon {number_text(gaussian)}"))
    most = max(each for each, _ in kinds)
    return (number_text(most) if most else ""), [words for each, words in kinds if each]


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


# Drafts as texts: in an address, and in the state of the server.


def code_of(draft: Draft) -> str:
    """A draft as a part of an address; of tables of this server only.

    Raises:
        WorkloadError: it is for a schema of one's own, empty, or too long for an address.
    """
    if not draft.table or not draft.entries:
        raise WorkloadError("choose a table and add a question first; then there is a draft")
    document = {"table": draft.table, "people": draft.records, **draft.request()}
    packed = zlib.compress(canonical(document), 9)
    code = urlsafe_b64encode(packed).decode().rstrip("=")
    if len(code) > LIMITS.draft_characters:
        raise WorkloadError("this draft is too long for an address; ask fewer questions at once")
    return code


def draft_of_code(visitor: Visitor, code: str) -> Draft:
    """The draft of an address, for who looks at it; refused in words if it is none.

    Raises:
        Problem: it is no draft, or its table is not open to them.
    """
    try:
        packed = urlsafe_b64decode(code + "=" * (-len(code) % 4))
        text = zlib.decompressobj().decompress(packed, LIMITS.schema_characters)
        document = (
            {} if is_too_deep(text, visitor.server.config.limits.json_depth) else json.loads(text)
        )
        table, people = str(document.pop("table")), int(document.pop("people"))
        request = ReleaseAsked.model_validate(document)
        budget = request.budget
        draft = Draft(table, list(request.workload), records=min(max(people, 1), 10**9))
        draft.delta = DELTAS.index(str(budget.delta or "0"))
        draft.spend(number_text(Fraction(str(budget.epsilon))))
        draft.mechanism, draft.objective = request.mechanism or BEST, request.objective
        draft.level = next(k for k in LEVELS if float(k) == request.level)
        draft.project = str(request.project).lower()
        is_known = draft.mechanism in (BEST, *MECHANISMS) and draft.project in PROJECTIONS
        is_known = is_known and draft.budget.epsilon is not None
    except (ValueError, TypeError, LookupError, AttributeError, StopIteration, ArithmeticError):
        is_known = False
    except (BudgetError, zlib.error):
        is_known = False
    if not is_known:
        raise Problem(404, "not-found", "this address holds no draft; ask for its link again")
    dataset = visitor.dataset(draft.table)
    workload_of(draft.entries, dataset.config.domain, dataset.limits)
    return draft


@dataclass(frozen=True, slots=True)
class KeptDraft:
    """A draft that somebody kept: of which table, under which name, and its code."""

    table: str
    name: str
    code: str


def _place_of_drafts(who: str) -> str:
    return f"draft {who} "


def kept_drafts(visitor: Visitor) -> list[KeptDraft]:
    """The drafts that they kept of their tables, by name."""
    place = _place_of_drafts(visitor.who.name)
    drafts = [
        KeptDraft(dataset.name, key.removeprefix(place), data.decode())
        for dataset in visitor.datasets
        for key, data in visitor.server.store.beginning(dataset.name, place)
    ]
    return sorted(drafts, key=lambda each: (each.name, each.table))


def keep_draft(visitor: Visitor, draft: Draft, name: str) -> None:
    """Keep a draft under a name of its own.

    Raises:
        WorkloadError: it has no name, there are too many, or one has this name.
    """
    code, name = code_of(draft), name.strip()
    if not 0 < len(name) <= LIMITS.draft_name or not name.isprintable():
        raise WorkloadError(f"name the draft, with 1 to {LIMITS.draft_name} printable characters")
    drafts = kept_drafts(visitor)
    if len(drafts) >= LIMITS.drafts_kept:
        raise WorkloadError(f"{LIMITS.drafts_kept} drafts are kept already; remove one first")
    place = _place_of_drafts(visitor.who.name) + name
    (stored,) = visitor.server.store.keep([(draft.table, place, code.encode())])
    if stored != code.encode():
        raise WorkloadError(f"another draft is called {name!r}; remove it, or choose another name")


def forget_draft(visitor: Visitor, one: KeptDraft) -> None:
    """Keep a draft no longer."""
    visitor.server.store.forget(one.table, _place_of_drafts(visitor.who.name) + one.name)


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
