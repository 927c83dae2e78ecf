# SPDX-License-Identifier: Apache-2.0
"""Describe a table of which nothing is declared: every column summarised, for a budget.

    description = sf.describe("people.parquet", epsilon=1, delta=1e-6, ledger="people.ledger")
    description.frame                  # a row per column: counts, nulls, range, mean, quartiles
    description.histogram("age")       # the released table of a column, with intervals
    description.domain                 # the completed schema, for further plans
    description.save("out")            # report.html, schema.toml, answers.parquet, ...

What each column is comes from its type, which is public, or is said. In a file without types its
name is a first guess, and a vote of the records decides. The budget is divided in public parts:

    vote        of each column without a type, how many of its texts are numbers, dates, yes or no
    discovery   the values that many people share, of columns of texts, and the ranges of numbers
                and dates (`sf.plan_discovery`)
    release     one plan on the domain that this completes (`sf.plan`): the table of every column,
                running totals and means of those with an order

All are run by the spine: debited, stored, and free when the same description is made again. What a
plan is made on was published by the one before, so that they add up (basic composition,
docs/proofs/accounting.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from sfumato.domain.attributes import MISSING, Attribute, Boolean, Category, DateTime
from sfumato.domain.column_kinds import OpenKind
from sfumato.domain.discovery import (
    OpenAttribute,
    OpenCategory,
    OpenDateTime,
    OpenDomain,
    OpenInteger,
    OpenNumeric,
    OpenRange,
)
from sfumato.domain.domain import Domain
from sfumato.domain.draft import Kind, guessed
from sfumato.domain.privacy_unit import PrivacyUnit, check_privacy_unit
from sfumato.domain.range_grids import NumberGrid
from sfumato.errors import BudgetExhausted, PlanError, SchemaError, TableError, TooLarge
from sfumato.planning.discovery_plans import bins_for
from sfumato.privacy.budget import Budget, Guarantee, Number, check_neighbours, exact, number_text
from sfumato.privacy.cost import Cost
from sfumato.release.answers import named_groups
from sfumato.release.charts import chart_of
from sfumato.release.export import checked_path, write_table_csv
from sfumato.release.release import Release, saved_together, write_record, write_saved
from sfumato.release.report import report_html, short_frame, summary_html
from sfumato.run.discover import (
    Discovery,
    DiscoveryPlan,
    KindSearch,
    RangeSearch,
    Search,
    plan_discovery,
)
from sfumato.run.linear import LinearRun
from sfumato.run.linear import plan as plan_linear
from sfumato.run.run_limits import LIMITS
from sfumato.run.spine import Access, opened, run
from sfumato.text import STORED, did_you_mean, listing, shown
from sfumato.types import Neighbours, Progress
from sfumato.workload.build import marginals, means, prefixes
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

    from sfumato.ledger.ledger import Ledger, LedgerToCreate
    from sfumato.vault.tables import Table

__all__ = ["Description", "DescriptionPlan", "describe", "plan_description"]

_KINDS: Final = get_args(Kind)
_BY_FAMILY: Final[dict[str, Kind]] = {
    "integer": "integer",
    "float": "numeric",
    "decimal": "numeric",
    "text": "category",
    "boolean": "boolean",
    "date": "datetime",
    "timestamp": "datetime",
}
_NO_SEARCH: Final = "nothing has to be discovered"
_NO_DELTA: Final = "left out, for to discover texts takes a delta"
_NUMBERING: Final = (
    "there are about as many numbers as records, evenly spread: if these are identifiers, leave "
    "the column out (columns=[...])"
)
_QUARTILES: Final = {"q25": 0.25, "median": 0.5, "q75": 0.75}


@dataclass(frozen=True, eq=False, repr=False)
class DescriptionPlan:
    """What a description looks for, and for how much: public, known before it is spent.

    Args:
        kinds: The kind of every column that is described; of those with a vote, by their names.
        left_out: The columns that are not, each with the reason.
        budget: What the whole description may spend.
        neighbours: Which two tables must be hard to tell apart.
        unit: Whose presence is protected; one row if None.
        share: The part that discovery takes of what the vote leaves.
        tails: The share of the records that is to lie beyond either end of a range, about.
        vote: The plan of the vote on columns without types; None if there are none.
    """

    kinds: Mapping[str, Kind]
    left_out: Mapping[str, str]
    budget: Budget
    neighbours: Neighbours
    unit: PrivacyUnit | None
    share: Fraction
    tails: Fraction
    vote: DiscoveryPlan | None = None

    @cached_property
    def _parts(self) -> tuple[DiscoveryPlan | None, Budget]:
        """The plan of the discovery, and the budget of the release; with the vote they add up."""
        members = [_open(name, kind, self.tails) for name, kind in self.kinds.items()]
        searched = [m for m in members if m is not None]
        if not self.budget.delta:  # columns that the vote may still call texts are left out then
            searched = [m for m in searched if not isinstance(m, OpenCategory)]
        first, rest = _parts(self._unvoted, self.share, searched)
        if first is None:
            return None, rest
        whose = (first, self.neighbours)
        return plan_discovery(OpenDomain(searched), *whose, unit=self.unit), rest

    @property
    def _unvoted(self) -> Budget:
        """What the vote leaves of the budget."""
        if self.vote is None:
            return self.budget
        assert self.budget.epsilon is not None  # noqa: S101  plan_description
        epsilon = self.budget.epsilon - (self.vote.budget.epsilon or 0)
        if not self.budget.delta:
            return Budget(epsilon=epsilon)
        return Budget(epsilon=epsilon, delta=self.budget.delta)

    @property
    def discovery(self) -> DiscoveryPlan | None:
        """The plan of values and ranges, for these kinds; None if no column needs it."""
        return self._parts[0]

    @property
    def rest(self) -> Budget:
        """The budget of the release that follows."""
        return self._parts[1]

    @property
    def for_answers(self) -> Budget:
        """The budget of the release, in mu where discovery has Gaussian noise.

        Pure noise after Gaussian noise is counted as the Gaussian that dominates it, so that an
        epsilon for it would not fit what is left of the whole (docs/proofs/accounting.md).
        """
        if self.discovery is None or not self.discovery.cost.mu_squared or self.rest.is_pure:
            return self.rest
        return Budget(mu=self.rest.gaussian_mu)

    def __repr__(self) -> str:
        lines = [f"DescriptionPlan of {len(self.kinds):,} columns at {self.budget.describe()}"]
        if self.vote is not None:
            lines.append(f"  vote       {self.vote.budget.describe()}: {self.vote_in_words()}")
        if self.discovery is not None:
            lines.append(f"  discovery  {self.discovery.budget.describe()}")
        lines += [f"    {name}: {text}" for name, text in self.searches_in_words().items()]
        lines.append(f"  release    {self.rest.describe()}: {self.error_in_words()}")
        lines += [f"  left out   {name}: {why}" for name, why in self.left_out.items()]
        return "\n".join(lines)

    @property
    def noise(self) -> float:
        """About the standard error of a count in the release, by a public rule.

        As if the table of every column were measured for itself with an equal part of the budget;
        the plan of the release does better, and says by how much.
        """
        tables = len(self.kinds)
        if self.rest.is_pure:
            return sqrt(2) * tables / float(self.rest.pure_epsilon) * self._rows
        return sqrt(tables) / (self.rest.gaussian_mu or 1.0) * self._rows

    @property
    def _rows(self) -> int:
        return 1 if self.unit is None else self.unit.rows

    def error_in_words(self) -> str:
        """The forecast of the release: of counts, before anything is known of the columns.

        Returns:
            A sentence; with the least and the largest error if they depend on a vote.
        """
        least, most = (f"{error:,.3g}" for error in self.noise_range)
        many = least if least == most else f"{least} to {most}"
        return f"counts with a standard error of about {many} records"

    @property
    def noise_range(self) -> tuple[float, float]:
        """The least and the largest `noise` of the kinds that a vote can end in."""
        errors = [plan.noise for plan in self._outcomes.values()]
        return min(errors), max(errors)

    @property
    def _voted(self) -> list[str]:
        """The columns with a vote."""
        return [] if self.vote is None else [s.attribute.name for s in self.vote.searches]

    @cached_property
    def _outcomes(self) -> dict[str, DescriptionPlan]:
        """The plan for each kind that a vote can end in for its first column; without one itself.

        Whole numbers, others and dates are searched alike. Texts are searched with noise that
        depends on how many columns are texts: the plan with the largest for them.
        """
        voted = self._voted
        if not voted:
            return {"": self}

        def ended(texts: int, kind: Kind) -> DescriptionPlan:
            kinds = dict.fromkeys(voted, kind) | dict.fromkeys(voted[:texts], "category")
            return replace(self, kinds={**self.kinds, **kinds})

        def people(plan: DescriptionPlan) -> int:
            first = plan._search(voted[0])
            return 0 if first is None else int(str(first.forecast()["people_for_half"]))

        few = range(1, min(len(voted), 8) + 1)  # the largest noise is with few texts
        sizes = sorted({*few, len(voted), *(2**i for i in range(len(voted).bit_length()))})
        return {
            "texts": max((ended(texts, "numeric") for texts in sizes), key=people),
            "numbers or dates": ended(0, "numeric"),
            "yes or no": ended(0, "boolean"),
        }

    def _search(self, name: str) -> Search | None:
        """The search of a column; None if it has none."""
        searches = () if self.discovery is None else self.discovery.searches
        return next((search for search in searches if search.attribute.name == name), None)

    def _by_outcome(self, about: Callable[[Search], str]) -> dict[str, str]:
        """What is to be said of the search of every column, by what a vote on it can end in."""
        voted, parts = self._voted, []
        for words, plan in self._outcomes.items() if voted else ():
            search = plan._search(voted[0])
            without = _NO_SEARCH if plan.kinds[voted[0]] == "boolean" else _NO_DELTA
            parts.append(f"if {words}: {without if search is None else about(search)}")
        said = dict.fromkeys(voted, "; ".join(parts))
        first = next(iter(self._outcomes.values()))
        others = ((name, first._search(name)) for name in self.kinds if name not in said)
        said |= {name: about(search) for name, search in others if search is not None}
        return {name: said[name] for name in self.kinds if name in said}

    def searches_in_words(self) -> dict[str, str]:
        """What is searched in every column, and how much that takes.

        Returns:
            A sentence by column; of one with a vote a sentence for each kind it can end in.
        """
        return self._by_outcome(
            lambda search: search.in_words().removeprefix(f"{search.attribute.name}: ")
        )

    def vote_in_words(self) -> str:
        """Which columns have a vote, and how many records it needs; empty if none has.

        Returns:
            A sentence.
        """
        if self.vote is None:
            return ""
        names = [search.attribute.name for search in self.vote.searches]
        sure = max(int(str(search.forecast()["records_for_97"])) for search in self.vote.searches)
        return (
            f"what the texts of {listing(names)} are, numbers, dates, yes or no, or words; right "
            f"in 97% of runs with {sure:,} values of a kind. What follows is for each kind that it "
            "can end in, at the worst that the kinds of the others make of it"
        )

    def simulated(
        self, records: int, shape: str = "lognormal", progress: Progress | None = None
    ) -> dict[str, str]:
        """What discovery may find in so many records of a declared shape; no table is read.

        Args:
            records: How many records the table may have.
            shape: That of numbers: ``"normal"``, ``"lognormal"``, ``"pareto"``, ``"uniform"``; keys
                are taken to follow Zipf's law.
            progress: Called with how many searches are simulated.

        Returns:
            For every column that is to be discovered, what may come out, in words; of one with a
            vote, for each kind that it can end in.

        Raises:
            PlanError: The shape is none of these.
        """
        searches = len(self.kinds) - len(self._voted) + len(self._outcomes)
        done = 0

        def outlook(search: Search) -> str:
            nonlocal done
            search.in_words()  # is simulated as well, and held
            if isinstance(search, RangeSearch):
                text = search.simulated(records, shape).describe()  # type: ignore[arg-type]
            else:
                text = _zipf_in_words(records, int(str(search.forecast()["people_for_half"])))
            done += 1
            if progress is not None:
                progress(done, searches, "forecasting")
            return text

        return self._by_outcome(outlook)

    def as_json(self) -> dict[str, object]:
        """The plan for programs: what `sfumato describe --estimate --json` says.

        Returns:
            JSON.
        """
        budget = {n: float(Fraction(v)) for n, v in self.budget.as_json().items()}
        searches = [] if self.discovery is None else self.discovery.as_json()["searches"]
        return {
            "columns": dict(self.kinds),
            "left_out": dict(self.left_out),
            "budget": budget,
            "neighbours": self.neighbours,
            "vote": [] if self.vote is None else self.vote.as_json()["searches"],
            "discovery": searches,
            "standard_error": self.noise,
        }

    def release(
        self,
        table: object,
        ledger: Ledger | LedgerToCreate | str | Path | None = None,
        *,
        name: str | None = None,
        analyst: str | None = None,
        progress: Progress | None = None,
    ) -> Description:
        """Describe a table: vote, discover, plan on what was published, release.

        Args:
            table: As in `Plan.release`.
            ledger: The ledger of the table, opened or its path. Without one nothing remembers
                what was spent: that is the caller's promise.
            name: The table's in the ledger; needed for a table in memory.
            analyst: Whose allowance is debited as well.
            progress: Called with what is done and how much of it.

        Returns:
            The description.

        Raises:
            TableError: The table cannot be opened, or has other columns.
            BudgetExhausted: The cost does not fit what is left.
            LedgerError: There is no ledger, or it is of another table, neighbour relation or unit.
        """
        access = Access(table, ledger, name, analyst=analyst, progress=progress)
        votes, plan = None, self
        if self.vote is not None:
            self._check_left(access, self.vote)
            votes = run(self.vote.runnable(), access)
            plan = self.with_votes(votes)
        discovery = None
        if plan.discovery is not None:
            plan._check_left(access, plan.discovery)
            discovery = run(plan.discovery.runnable(), access)
        domain = plan.completed(discovery)
        released = None
        if domain is not None:
            whose = (plan.for_answers, plan.neighbours)
            answers = plan_linear(workload_of(domain), *whose, unit=plan.unit)
            released = run(LinearRun(answers), access)
        return Description(plan, discovery, domain, released, votes)

    def costs(self, first: DiscoveryPlan | None = None) -> tuple[list[Cost], list[Cost]]:
        """What is debited one after the other from a part on, and last for the release.

        The release costs one of the latter, by the kind of noise that its plan takes. A vote can
        make a column one of texts, whose discovery takes half of delta.

        Args:
            first: The vote or the discovery; None for all of it.

        Returns:
            The costs of vote and discovery in order, and those that the release may have.
        """
        parts = [p for p in (self.vote, self.discovery) if p is not None]
        if first is not None and first is not self.vote:
            parts = [first]
        costs = [part.cost for part in parts]
        delta = self.budget.delta
        if first in (None, self.vote) and self.vote is not None and delta and len(parts) > 1:
            missing = delta / 2 - costs[-1].delta
            costs[-1] += Cost.approximate(missing) if missing > 0 else Cost(())
        last = [] if self.for_answers.mu else [Cost.pure(self.rest.pure_epsilon)]
        if not self.rest.is_pure:
            last.append(Cost.gaussian(Fraction(self.rest.gaussian_mu or 0.0) ** 2))
        return costs, last

    def _check_left(self, access: Access, first: DiscoveryPlan) -> None:
        """Refuse before a part is debited if the parts after it would not fit the ledger.

        Raises:
            BudgetExhausted: They would not; nothing was spent.
        """
        if access.ledger is None:
            return
        _, ledger = opened(
            access, None, Guarantee(self.budget, self.neighbours, self.unit or "row")
        )
        if ledger is None or first.stored_key(ledger) is not None:
            return
        costs, last = self.costs(first)
        for cost in last:
            price = ledger.price(cost, access.analyst, delta=self.rest.delta, after=costs)
            if not price.fits:
                left = ledger.remaining(access.analyst).describe()
                raise BudgetExhausted(
                    f"budget refused: this description takes {self.budget.describe()} in "
                    f"{len(costs) + 1} debits that do not all fit {ledger.place} (total "
                    f"{ledger.budget.describe()}; {left}), so none was made: it "
                    f"{price.describe()}; describe for less, or ask the curator to raise the total"
                )

    def with_votes(self, votes: Discovery) -> DescriptionPlan:
        """The plan with the kinds that the vote decided: arithmetic on what was published.

        Args:
            votes: What the vote published.

        Returns:
            The plan of discovery and release.
        """
        kinds, left_out = dict(self.kinds), dict(self.left_out)
        for search, findings in zip(votes.plan.searches, votes.findings, strict=True):
            if isinstance(search, KindSearch):
                kinds[search.attribute.name] = search.kind(findings)
        if not self.budget.delta:
            for name in [name for name, kind in kinds.items() if kind == "category"]:
                del kinds[name]
                left_out[name] = "texts, by the vote, whose values take a delta to be discovered"
        return replace(self, kinds=kinds, left_out=left_out)

    def completed(self, discovery: Discovery | None) -> Domain | None:
        """The domain of all columns, with what was published; None if nothing is left.

        Ranges have as many bins as their noisy number of records is enough for.

        Args:
            discovery: What was published; None if no column needed it.

        Returns:
            The domain, or None.
        """
        published: dict[str, Attribute] = {}
        if discovery is not None:
            for search, findings in zip(discovery.plan.searches, discovery.findings, strict=True):
                opened = search.attribute
                if isinstance(opened, OpenRange):
                    bins = bins_for(float(str(findings["records"])), self.noise)
                    opened = replace(opened, bins=bins)
                published |= {a.name: a for a in opened.closed(findings)}
        attributes: list[Attribute] = []
        for name, kind in self.kinds.items():
            if kind == "boolean":
                attributes.append(Boolean(name, outside="other", nulls="missing"))
            elif name in published:
                attributes.append(published[name])
        return Domain(attributes) if attributes else None


def workload_of(domain: Domain) -> Workload:
    """What a description asks of a completed domain.

    The table of every column; of ordered ones the running totals as well, and of numbers the means.
    """
    work = marginals(domain, 1)
    for attribute in domain:
        if attribute.is_ordered:
            work = work | prefixes(domain, attribute.name)
        if attribute.is_ordered and not isinstance(attribute, DateTime) and _has_width(attribute):
            work = work | means(domain, attribute.name)
    return work


def _has_width(attribute: Attribute) -> bool:
    """Whether its values are not all one number, which is then their mean."""
    return getattr(attribute, "min", 0) < getattr(attribute, "max", 1)


def _zipf_in_words(records: int, threshold: int) -> str:
    """How many keys of Zipf's law (exponent 1, a tenth of the records as many keys) come out."""
    keys = max(records // 10, 1)
    scale = sum(1 / k for k in range(1, keys + 1)) if keys < 10**5 else None
    if scale is None:
        from math import log

        scale = log(keys) + 0.5772
    many = int(records / scale / threshold)
    share = sum(1 / k for k in range(1, min(many, keys) + 1)) / scale if many < 10**6 else 1.0
    return (
        f"of {keys:,} keys by Zipf's law about {min(many, keys):,}, those of {threshold:,} people "
        f"or more, with {min(share, 1):.0%} of the records"
    )


@dataclass(frozen=True, eq=False, repr=False)
class Description:
    """Every column of a table, summarised; all of it is public.

    Args:
        plan: What was looked for, and for how much.
        discovery: What was discovered; None if no column needed it.
        domain: The completed schema: plan on it. None if nothing could be published.
        release: The answers; None without a domain.
        votes: What the vote on columns without types published; None if there are none.
    """

    plan: DescriptionPlan
    discovery: Discovery | None
    domain: Domain | None
    release: Release | None
    votes: Discovery | None = None

    @property
    def is_stored(self) -> bool:
        """Whether all of it was in the ledger already, and nothing was spent now."""
        every = (self.votes, self.discovery, self.release)
        parts = [part for part in every if part is not None]
        return all(part.is_stored for part in parts)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row per column; intervals hold with 95% each. Nothing is said where a cell is empty.

        ``records`` have a value and ``nulls`` have none, ``keys`` were published, ``top`` is the
        key with the largest count in the discovery and ``top_count`` its count in the release (of a
        yes or no column: of true), ``low`` to ``high`` the range, ``mean``, ``q25``, ``median`` and
        ``q75`` those of the values clamped to it. ``x_low`` to ``x_high`` is the interval of x.
        """
        import pandas as pd

        rows = [self._row(name) for name in (*self.plan.kinds, *self.plan.left_out)]
        frame = pd.DataFrame(rows, columns=_columns(rows))
        for name in ("keys", "top_count"):
            if name in frame:
                frame[name] = frame[name].astype("float64")
        return frame

    def _row(self, name: str) -> dict[str, object]:
        row: dict[str, object] = {"column": name}
        if name in self.plan.left_out:
            return {**row, "kind": "", "note": self.plan.left_out[name]}
        row |= {"kind": self.plan.kinds[name], "note": self._note(name)}
        if self.domain is None or name not in self.domain or self.release is None:
            return row
        attribute = self.domain[name]
        row |= self._counts(name)
        if isinstance(attribute, Category):
            row |= self._top(name, attribute.values[0], attribute.value_count)
        elif isinstance(attribute, Boolean):
            row |= self._top(name, True, 2)
        else:
            low, high = ends_of(attribute)
            row |= {"low": low, "high": high}
            if self._values_seen(name) != "none":
                row |= {**self._quartiles(name), **self._mean(name)}
                if self.plan.kinds[name] == "integer" and self._is_numbering(row):
                    notes = (str(row["note"]), _NUMBERING)
                    row["note"] = "; ".join(note for note in notes if note)
        return row

    def _is_numbering(self, row: Mapping[str, object]) -> bool:
        """Whether quartiles lie as those of a numbering of the records: a number for each.

        Post-processing of what was published.
        """
        first, middle, last = (float(str(row[key])) for key in _QUARTILES)
        quarter = max(self.records[0], 1.0) / 4
        return all(
            abs(width - quarter) <= LIMITS.uneven * quarter
            for width in (middle - first, last - middle)
        )

    def _note(self, name: str) -> str:
        """What a reader must know of the column."""
        notes = [
            self._note_of_values(name),
            self._note_of_findings(name),
            self._note_of_ends(name),
            self._note_of_delta(name),
            self._note_of_texts(name),
        ]
        return "; ".join(note for note in notes if note)

    def _values_seen(self, name: str) -> Literal["none", "few", "enough"]:
        """How many records have a value: none that noise does not hide, less than half, or more."""
        if self.release is None or self.domain is None or name not in self.domain:
            return "enough"
        counts = self._counts(name)
        least, most = (float(str(counts[f"nulls_{end}"])) for end in ("low", "high"))
        _, low, high = self.records
        if most >= low:
            return "none"
        return "few" if least > high / 2 else "enough"

    def _note_of_values(self, name: str) -> str:
        """Whether most records have no value, or all that can be told from noise."""
        return {
            "none": "no values, or fewer than the noise hides, so nothing is said of them",
            "few": "more than half of the records have no value here",
            "enough": "",
        }[self._values_seen(name)]

    @property
    def remark(self) -> str:
        """What points to a file that was read otherwise than it was written; empty if nothing does.

        Costs nothing: it follows from what was published.
        """
        voted = () if self.votes is None else self.votes.plan.searches
        names = [search.attribute.name for search in voted]
        described = [name for name in names if self.domain is not None and name in self.domain]
        if len(described) < 2 or any(self._values_seen(n) == "enough" for n in described):
            return ""
        return (
            "in every column more than half of the records have no value, as where a file is in "
            "another encoding than declared, or its lines have more values than the first one: "
            "see encoding, delimiter and quote (--csv encoding=cp1252)"
        )

    def _note_of_ends(self, name: str) -> str:
        """Whether a range reaches the end of all that is searched, as infinite values make it."""
        kind = self.plan.kinds[name]
        if self.domain is None or name not in self.domain or kind not in ("integer", "numeric"):
            return ""
        edges = NumberGrid(name, is_whole=kind == "integer").edges
        low, high = ends_of(self.domain[name])
        if edges[0] < float(str(low)) and float(str(high)) < edges[-1] - 1:
            return ""
        return (
            "the range ends where the search ends: infinite values, or markers such as 1e30, are "
            "clamped there and spoil means and quartiles; make them nulls at the source"
        )

    def _note_of_delta(self, name: str) -> str:
        """How many values of one person each may be among the published, where that is not few."""
        if self.plan.kinds[name] != "category" or self.discovery is None or self.release is None:
            return ""
        delta = self.discovery.plan.cost.delta
        many = float(delta) * max(self.records[0], 0.0)
        if many < LIMITS.single_keys:
            return ""
        return (
            f"with a delta of {number_text(delta)} for discovery, up to about {many:,.2g} values "
            "that one person alone has may be among the published ones: lower delta below 1 over "
            "the number of records"
        )

    def _note_of_texts(self, name: str) -> str:
        """How many values are none of the kind, where the vote is sure that some are."""
        pairs = (
            ()
            if self.votes is None
            else zip(self.votes.plan.searches, self.votes.findings, strict=True)
        )
        for search, findings in pairs:
            if search.attribute.name == name and isinstance(search, KindSearch):
                many = search.odd_values(findings)
                if many:
                    return f"about {many:,} values are none of this kind and count as missing"
        return ""

    def _note_of_findings(self, name: str) -> str:
        if self.domain is None or name not in self.domain:
            is_voted = self.votes is not None and any(
                search.attribute.name == name for search in self.votes.plan.searches
            )
            written = (
                "numbers or dates that are written otherwise than declared (decimal, thousands, "
                "date_format), "
                if is_voted
                else ""
            )
            return (
                "no value is shared by enough people to be published; a column of identifiers or "
                f"free text, {written}or too small a budget"
            )
        for search, findings in self._searches():
            if search == name and findings.get("default"):
                many = int(str(findings["records"]))
                return f"default range: too few records to find one{self._enough(name, many)}"
            if search == name and findings.get("records") is not None:
                return self._note_of_range(name, int(str(findings["records"])))
        return ""

    def _note_of_range(self, name: str, records: int) -> str:
        """Whether a range was found on fewer records than it needs, by their noisy number."""
        search = self._range_search(name)
        near = 1.0 if search is None else search.simulated(max(records, 0)).octave
        if near >= LIMITS.sure_range:
            return ""
        return (
            "few records for this budget: the range may be too wide or too narrow (in "
            f"simulations {near:.0%} of such searches come within an octave of it)"
            f"{self._enough(name, records)}"
        )

    def _range_search(self, name: str) -> RangeSearch | None:
        searches = () if self.discovery is None else self.discovery.plan.searches
        ranges = (s for s in searches if isinstance(s, RangeSearch) and s.attribute.name == name)
        return next(ranges, None)

    def _enough(self, name: str, records: int) -> str:
        """How much more budget would find a range on so many records: what counts is the product.

        Empty where that is out of reach, or the column has nearly no values.
        """
        search = self._range_search(name)
        if search is None or self._values_seen(name) == "none" or records <= 0:
            return ""
        times = search.sure_records / records
        if not 1 < times <= LIMITS.times_more:
            return "; say the range in a schema if it is public"
        return (
            f"; {times:.2g} times this epsilon would do, or fewer columns, or a schema that says it"
        )

    def _searches(self) -> list[tuple[str, Mapping[str, object]]]:
        if self.discovery is None:
            return []
        pairs = zip(self.discovery.plan.searches, self.discovery.findings, strict=True)
        return [(search.attribute.name, findings) for search, findings in pairs]

    def histogram(self, name: str, level: float = 0.95) -> pd.DataFrame:
        """The table of a column, with intervals.

        Args:
            name: The name of a column.
            level: The probability with which an interval holds the truth.

        Returns:
            A row per value or bin, and for other and missing ones.

        Raises:
            SchemaError: Nothing was released of the column.
        """
        return self._released(name).answers(group=name, level=level)

    def chart(self, name: str) -> Any:
        """A chart of the table of a column (Altair).

        Args:
            name: The name of a column.

        Returns:
            Bars with intervals.

        Raises:
            SchemaError: Nothing was released of the column.
        """
        release = self._released(name)
        places = {text: group for group, text in named_groups(release.workload).items()}
        return chart_of(release.estimates, places[name], 0.95, 500)

    def _released(self, name: str) -> Release:
        if self.release is None or self.domain is None or name not in self.domain:
            names = [] if self.domain is None else self.domain.names
            raise SchemaError(
                f"nothing was released of {shown(name)}; described were {listing(names) or 'none'}"
                f"{did_you_mean(name, names)}"
            )
        return self.release

    def _counts(self, name: str) -> dict[str, object]:
        """How many records have a value, and how many have none."""
        table = self.histogram(name)
        missing = table[table[name].astype(str) == MISSING].iloc[0]
        whole = self._total
        return {
            "records": whole["value"] - missing["value"],
            "nulls": missing["value"],
            "nulls_low": missing["low"],
            "nulls_high": missing["high"],
        }

    @cached_property
    def _total(self) -> pd.Series:
        assert self.release is not None  # noqa: S101
        return self.release.answers([]).iloc[0]

    @property
    def records(self) -> tuple[float, float, float]:
        """The number of records of the table, and its interval.

        Raises:
            SchemaError: Nothing was released.
        """
        if self.release is None:
            raise SchemaError("nothing was released, so the number of records is not known")
        return (self._total["value"], self._total["low"], self._total["high"])

    def _top(self, name: str, value: object, keys: int) -> dict[str, object]:
        """The key that discovery counted most often, with its count in the release.

        Which key is first was decided by other noise than that of its count, so that the interval
        holds as that of any key chosen beforehand.
        """
        table = self.histogram(name)
        row = table[table[name] == value].iloc[0]
        counted = {"top_count": row["value"], "top_low": row["low"], "top_high": row["high"]}
        return {"keys": keys, "top": value, **counted}

    def _quartiles(self, name: str) -> dict[str, object]:
        assert self.release is not None  # noqa: S101
        table = self.release.quantiles(name, list(_QUARTILES.values()))
        out: dict[str, object] = {}
        for (key, _), (_, row) in zip(_QUARTILES.items(), table.iterrows(), strict=True):
            out |= {key: row["value"], f"{key}_low": row["low"], f"{key}_high": row["high"]}
        return out

    def _mean(self, name: str) -> dict[str, object]:
        assert self.release is not None  # noqa: S101
        group = f"mean {name}"
        if group not in self.release.groups:
            return {}
        row = self.release.answers(group=group).iloc[0]
        return {"mean": row["mean"], "mean_low": row["low"], "mean_high": row["high"]}

    def to_toml(self) -> str:
        """The completed schema as TOML: what further plans are made on.

        Returns:
            A text that `sf.Domain.from_toml` reads.

        Raises:
            SchemaError: Nothing could be published, so that there is none.
        """
        if self.domain is None:
            raise SchemaError("nothing could be published of any column, so there is no schema")
        return self.domain.to_toml()

    def report(self) -> str:
        """The report of the release as one HTML page, with the summary of all columns first.

        Returns:
            HTML.

        Raises:
            SchemaError: Nothing was released.
        """
        if self.release is None:
            raise SchemaError("nothing was released, so there is no report")
        return report_html(
            self.release, 0.95, lead=summary_html(self.frame, self._head(), self._lead())
        )

    def _lead(self) -> str:
        """What the page says below the summary."""
        remark = self.remark
        return f"{remark[0].upper()}{remark[1:]}. {self.promise}" if remark else self.promise

    @property
    def promise(self) -> str:
        """What the whole description spends, in words: discovery and release."""
        plan = self.plan
        if plan.discovery is None and plan.vote is None:
            return f"All of this together is within {plan.budget.describe()}."
        parts = []
        if plan.vote is not None:
            parts.append(f"a vote on kinds of columns within {plan.vote.budget.describe()}")
        if plan.discovery is not None:
            within = plan.discovery.budget.describe()
            parts.append(f"discovery of values and ranges within {within}")
        return (
            f"All of this together is within {plan.budget.describe()}: {', '.join(parts)}, and the "
            f"release of the numbers within {plan.rest.describe()}, which is what the other parts "
            "of this page speak of."
        )

    def save(self, directory: str | Path) -> dict[str, Path]:
        """Write report.html, description.csv, schema.toml, answers.parquet and provenance.json.

        With release.zip, from which ``sf.read_release(directory)`` and ``sfumato show`` read the
        release of the numbers again. Either all files are written or none.

        Args:
            directory: Where the files are written; it is made if it is not there.

        Returns:
            Paths by the names of the files.

        Raises:
            SchemaError: Nothing was released.
        """
        import pyarrow as pa

        release, report, schema = self.release, self.report(), self.to_toml()
        assert release is not None  # noqa: S101  report
        texts = self.frame.astype(object).where(self.frame.notna(), None)
        table = pa.table({n: pa.array([_text(v) for v in texts[n]], pa.string()) for n in texts})

        def write(folder: Path) -> dict[str, Path]:
            names = ("report.html", "schema.toml", "description.csv", "answers.parquet")
            paths = {n: folder / n for n in names}
            paths["report.html"].write_text(report, encoding="utf-8")
            paths["schema.toml"].write_text(schema, encoding="utf-8")
            write_table_csv(table, paths["description.csv"])
            release.to_parquet(paths["answers.parquet"])
            paths["provenance.json"] = write_record(release.provenance, folder)
            saved = write_saved(release, folder, paths).values()
            return paths | {path.name: path for path in saved}

        return saved_together(checked_path(directory), write)

    def __repr__(self) -> str:
        remark = f"{self.remark}\n" if self.remark else ""
        return f"{self._head()}\n{remark}{short_frame(self.frame).to_string(index=False)}"

    def _repr_html_(self) -> str:
        return f"<div>{summary_html(self.frame, self._head())}</div>"

    def _head(self) -> str:
        """How many columns, how many records, and what was spent."""
        spent = STORED if self.is_stored else self.plan.budget.describe()
        many = ""
        if self.release is not None:
            total, low, high = self.records
            many = f" of about {total:,.0f} records ({low:,.0f} to {high:,.0f})"
        return f"{len(self.plan.kinds):,} columns{many}, {spent}"


def ends_of(attribute: Attribute) -> tuple[object, object]:
    """The first and the last value of a range; of dates, the end that is excluded."""
    held: Any = attribute
    if hasattr(held, "edges"):
        return held.edges[0], held.edges[-1]
    if hasattr(held, "min"):
        return held.min, held.max
    return held.start, held.end


def _text(value: object) -> str | None:
    return None if value is None else str(value)


_ORDER: Final = (
    "column",
    "kind",
    "records",
    "nulls",
    "nulls_low",
    "nulls_high",
    "keys",
    "top",
    "top_count",
    "top_low",
    "top_high",
    "low",
    "high",
    "mean",
    "mean_low",
    "mean_high",
    *(f"{key}{end}" for key in _QUARTILES for end in ("", "_low", "_high")),
    "note",
)


def _columns(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """The columns of the frame that some row has, in their order."""
    return [name for name in _ORDER if any(name in row for row in rows)]


def plan_description(
    table: object,
    budget: Budget,
    neighbours: Neighbours = "add-remove",
    *,
    columns: Iterable[str] | None = None,
    kinds: Mapping[str, Kind] | None = None,
    unit: PrivacyUnit | None = None,
    share: Number = Fraction(3, 10),
    tails: Number = Fraction(1, 200),
) -> DescriptionPlan:
    """Plan the description of a table from the names and types of its columns; reads no row.

    Columns without a type (of a CSV file) have a vote: a hundredth of epsilon each, 15% for all at
    most, counts how many of their texts are numbers, dates, yes or no. What is shown of them before
    the vote is what their names say.

    Args:
        table: As in `Plan.release`.
        budget: What the whole description may spend: epsilon, and a delta where texts are
            discovered.
        neighbours: Which two tables must be hard to tell apart.
        columns: The columns to describe; all that can be if None.
        kinds: What columns are, where their type does not say it or says something else; they have
            no vote.
        unit: Whose presence is protected; one row if None.
        share: The part of the budget that discovery takes; the release takes the rest.
        tails: The share of the records that is to lie beyond either end of a range, about.

    Returns:
        The plan; ``release`` runs it.

    Raises:
        PlanError: An argument is wrong, or the budget does not fit.
        TableError: The table cannot be opened, or has no such column.
        TooLarge: There are too many columns.
    """
    from sfumato.vault.tables import open_table

    if not isinstance(budget, Budget) or budget.epsilon is None:
        raise PlanError(
            f"a description needs sf.Budget(epsilon=..., delta=...), got {shown(budget)}"
        )
    unit, neighbours = check_privacy_unit(unit), check_neighbours(neighbours)
    part = exact(share, "share")
    if not 0 < part < 1:
        raise PlanError(f"share must lie between 0 and 1, got {shown(share)}")
    opened = open_table(table)
    said = dict(kinds or {})
    chosen, left_out = _chosen(opened, columns, said, unit)
    voting = [name for name in chosen if name in opened.untyped and name not in said]
    texts = [n for n, kind in chosen.items() if kind == "category" and n not in voting]
    if texts and not budget.delta:
        raise PlanError(
            f"to discover the values of {listing(texts)} takes a delta: a value of one person may "
            f"come out with that probability; got {budget.describe()}. Give delta=1e-6, or leave "
            "these columns out with columns=[...]"
        )
    vote = None
    if voting:
        part_of_all = min(LIMITS.vote_epsilon * len(voting), LIMITS.votes_epsilon)
        columns_voted = OpenDomain([OpenKind((name,)) for name in voting])
        paid = Budget(epsilon=part_of_all * budget.epsilon)
        vote = plan_discovery(columns_voted, paid, neighbours, unit=unit)
    widest = exact(tails, "tails")
    return DescriptionPlan(chosen, left_out, budget, neighbours, unit, part, widest, vote)


def _parts(
    budget: Budget, share: Fraction, searched: Sequence[OpenAttribute]
) -> tuple[Budget | None, Budget]:
    """The budgets of discovery and release; they add up to the whole."""
    if not searched:
        return None, budget
    assert budget.epsilon is not None  # noqa: S101  plan_description
    first, rest = share * budget.epsilon, (1 - share) * budget.epsilon
    if not budget.delta:
        return Budget(epsilon=first), Budget(epsilon=rest)
    if not any(isinstance(m, OpenCategory) for m in searched):
        return Budget(epsilon=first), Budget(epsilon=rest, delta=budget.delta)
    half = budget.delta / 2
    return Budget(epsilon=first, delta=half), Budget(epsilon=rest, delta=half)


def _open(name: str, kind: Kind, tails: Fraction) -> OpenAttribute | None:
    """What is to be discovered of a column; None for yes or no, which is public."""
    if kind == "boolean":
        return None
    if kind == "category":
        return OpenCategory((name,))
    if kind == "datetime":
        return OpenDateTime((name,), tails=tails)
    return (OpenInteger if kind == "integer" else OpenNumeric)((name,), tails=tails)


def _chosen(
    table: Table, columns: Iterable[str] | None, kinds: Mapping[str, Kind], unit: PrivacyUnit | None
) -> tuple[dict[str, Kind], dict[str, str]]:
    """The kind of every column that is described, and why others are not: by names and types."""
    if isinstance(columns, str):
        raise PlanError(f"columns must be a list of names, got {shown(columns)}")
    names = list(table.types) if columns is None else list(dict.fromkeys(columns))
    from sfumato.vault.sources import TABLE_MARK, may_have_a_title

    if columns is None and may_have_a_title(table.source, len(names)):
        mark = "" if TABLE_MARK in table.name else TABLE_MARK
        begins = f"{table.name}{mark}!A3"
        raise TableError(
            f"the first row of {table.name} names one column alone, {shown(names[0])}, as a title "
            f"would; say the cell in which the names begin: {shown(begins, 300)} (!A1 if this is "
            "it)"
        )
    if not names and "" not in table.types:  # else whatever a record may hold is a column
        raise TableError(f"the table {table.name} has no column that can be described")
    if not names:
        raise TableError(
            f"{table.name}: the names of its fields stand in its records, which are private; name "
            "those that are to be described: columns=['age', 'address.city'], on the command line "
            "--columns age --columns address.city"
        )
    unknown = [n for n in (*names, *kinds) if n not in table.types]
    if unknown:
        raise TableError(
            f"the table {table.name} has no column {shown(unknown[0])}; its columns are "
            f"{listing(list(table.types), most=40)}{did_you_mean(unknown[0], table.types)}"
        )
    wrong = {n: k for n, k in kinds.items() if k not in _KINDS}
    if wrong:
        name, word = next(iter(wrong.items()))
        raise PlanError(
            f"kinds: {name!r} is said to be {shown(word)}; kinds are "
            f"{', '.join(map(repr, _KINDS))}{did_you_mean(word, _KINDS)}"
        )
    chosen: dict[str, Kind] = {}
    left_out: dict[str, str] = {}
    kind: Kind | None
    for name in names:
        kind = kinds[name] if name in kinds else _kind_of(table, name)
        why = _left_out(table, name, kind, name in kinds, unit)
        if why:
            left_out[name] = why
        elif kind is not None:
            chosen[name] = kind
    if not chosen:
        raise TableError(
            f"the table {table.name} has no column that can be described"
            + "".join(f"; {name!r}: {why}" for name, why in list(left_out.items())[:5])
        )
    if len(chosen) > LIMITS.described_columns:
        raise TooLarge(
            f"{len(chosen):,} columns are to be described, at most {LIMITS.described_columns} can "
            "be at a time, for they share one budget; choose with columns=[...]"
        )
    return chosen, left_out


def _left_out(
    table: Table, name: str, kind: Kind | None, is_said: bool, unit: PrivacyUnit | None
) -> str:
    """Why a column is not described, by its name, type and constraints; empty if it is."""
    if unit is not None and name == unit.column:
        return "the privacy unit: each of its values belongs to one person"
    if is_said:
        return ""
    of_type: Any = table.types[name]
    is_number = kind == "integer" and name not in table.untyped
    is_named_so = is_number and guessed(name).is_number_of_record
    if name in table.unique or of_type.is_uuid():
        why = "it has a constraint PRIMARY KEY or UNIQUE" if name in table.unique else "UUIDs"
        return (
            f"identifiers ({why}), of which nothing can be published; if it is wanted all the "
            f"same, say what it holds: kinds={{{name!r}: {kind or 'category'!r}}}"
        )
    if is_named_so or (kind == "category" and guessed(name).is_identifier):
        return (
            "its name says that it holds identifiers, of which nothing can be published; if it "
            f"does not, say what it holds: kinds={{{name!r}: 'category'}}"
        )
    if kind is not None:
        return ""
    if "null" in re.findall("[a-z]+", str(of_type).lower())[-1:]:
        return "of a type without values: all of it is missing"
    if of_type.is_interval():
        return (
            'durations, which a schema counts in a unit: kind = "numeric" with duration = '
            '"hour", min and max, for example'
        )
    if of_type.is_struct():
        fields = [f"{name}.{field}" for field in of_type.fields]
        return f"records of named fields, which are columns of their own: {listing(fields)}"
    if of_type.is_unknown():
        return (
            "of a type of the database that is not read (records, lists and JSON are such); a view "
            "or a query can have its parts as columns"
        )
    return f"of type {of_type}, which has neither keys nor a range"


def _kind_of(table: Table, name: str) -> Kind | None:
    """The kind of a column by its type, or without one by its name; both are public."""
    from sfumato.vault.encode import family

    if name in table.untyped:
        return guessed(name).kind
    kind: Any = table.types[name]
    if kind.is_decimal() and kind.scale == 0:
        return "integer"
    return _BY_FAMILY.get(family(kind))


def describe(
    table: object,
    epsilon: Number = 1,
    delta: Number = Fraction(1, 10**6),
    *,
    columns: Iterable[str] | None = None,
    kinds: Mapping[str, Kind] | None = None,
    unit: PrivacyUnit | None = None,
    neighbours: Neighbours = "add-remove",
    ledger: Ledger | str | Path | None = None,
    name: str | None = None,
    analyst: str | None = None,
    progress: Progress | None = None,
) -> Description:
    """Describe every column of a table, from nothing but the table and a budget.

    Of columns without a type a vote decides what they are, for 15% of epsilon at most. Of what
    is left three tenths discover the values of texts and the ranges of numbers and dates; the rest
    releases counts, nulls, quartiles and means on the domain that this completes.

    Privacy: the whole is (epsilon, delta)-differentially private: releases within parts that add up
    to it, each debited before its noise is drawn (docs/proofs/kinds.md, docs/proofs/keys.md,
    docs/proofs/ranges.md and docs/proofs/measuring.md; composition: docs/proofs/accounting.md).
    Neighbours: as given.

    Args:
        table: A path, an address of a database, a dataframe or an expression, as in `Plan.release`.
        epsilon: The epsilon of the whole description.
        delta: Its delta; 0 for pure epsilon, which columns of texts do not allow.
        columns: The columns to describe; all that can be if None.
        kinds: What columns are, ``"category"``, ``"integer"``, ``"numeric"``, ``"datetime"`` or
            ``"boolean"``, where their type does not say it, or says something else, as of numbers
            that are codes; in a file without types in place of the vote.
        unit: Whose presence is protected; one row if None.
        neighbours: Which two tables must be hard to tell apart.
        ledger: The ledger of the table, opened or its path. Without one nothing remembers what was
            spent: that is the caller's promise.
        name: The table's in the ledger; needed for a table in memory.
        analyst: Whose allowance is debited as well.
        progress: Called with what is done and how much of it.

    Returns:
        The description: a frame, histograms, a report and a completed schema.

    Raises:
        PlanError: An argument is wrong.
        TableError: The table cannot be opened, or has no column that can be described.
        TooLarge: There are too many columns.
        BudgetExhausted: The cost does not fit what is left.
        LedgerError: There is no ledger, or it is of another table, neighbour relation or unit.
    """
    small = exact(delta, "delta")
    budget = Budget(epsilon=epsilon, delta=small) if small else Budget(epsilon=epsilon)
    plan = plan_description(table, budget, neighbours, columns=columns, kinds=kinds, unit=unit)
    return plan.release(table, ledger, name=name, analyst=analyst, progress=progress)
