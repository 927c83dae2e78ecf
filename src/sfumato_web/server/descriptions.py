# SPDX-License-Identifier: Apache-2.0
"""Descriptions and discoveries of a served table: what its columns hold beyond the schema.

An analyst may describe the columns of the schema, and those that the curator opens for it with
``describe`` in the configuration; the names of others are not told. Forecasts read names and types
of columns only. What is paid for is debited and stored as any release is, so that the same request
gets the same bytes for ever, whoever sends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

from sfumato.cli.output import budget_document
from sfumato.digest import json_digest
from sfumato.domain.discovery import OpenDomain
from sfumato.domain.draft import Kind
from sfumato.domain.schema import declared_members
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.run.describe import Description, DescriptionPlan, plan_description
from sfumato.run.discover import Discovery, DiscoveryPlan, plan_discovery
from sfumato.text import STORED, did_you_mean, listing
from sfumato.toml import TomlFile
from sfumato_web.server.models import DescriptionAsked, DiscoveryAsked, frame_columns
from sfumato_web.server.problems import not_valid

if TYPE_CHECKING:
    from sfumato.ledger.entries import Entry
    from sfumato.ledger.ledger import Ledger
    from sfumato.types import Progress
    from sfumato_web.server.config import Analyst, DatasetConfig
    from sfumato_web.server.responses import ResponseStore

__all__ = ["TableDescriber"]

Checked = Callable[[str, Cost, Budget, "Analyst"], None]
"""Refuses a cost that does not fit what is left: (key, cost, budget, who)."""


Body: TypeAlias = dict[str, object]
"""What is sent, and stored under its key."""


@dataclass(frozen=True, eq=False)
class TableDescriber:
    """Descriptions and discoveries of one dataset of the server.

    Attributes:
        about: the digest of the table, its schema, neighbours and unit.
        config: the dataset.
        ledger: what is debited.
        store: the bodies that were sent.
        check_left: refuses before the table is read.
        pay_once: makes a body, or finds the stored one: `GuardedDataset.pay_once`.
    """

    about: str
    config: DatasetConfig
    ledger: Ledger
    store: ResponseStore
    check_left: Checked
    pay_once: Callable[..., bytes]

    def columns(self) -> tuple[str, ...]:
        """The columns that may be described: those of the schema, and those opened for it."""
        from sfumato.vault.tables import open_table

        config = self.config
        unit = None if config.unit is None else config.unit.column
        declared = [a.column for a in config.domain]
        more = config.describe
        opened = list(open_table(config.source).types) if more == "all" else list(more)
        return tuple(name for name in dict.fromkeys([*declared, *opened]) if name != unit)

    def plan(self, request: DescriptionAsked) -> DescriptionPlan:
        """The plan of a description; reads the types of columns, and no row."""
        allowed = self.columns()
        columns = list(allowed) if request.columns is None else request.columns
        self._check_columns([*columns, *request.kinds], allowed, "columns")
        config = self.config
        declared = {a.column: a.kind for a in config.domain if a.column in columns}
        return plan_description(
            config.source,
            Budget(**request.budget.model_dump()),
            config.neighbours,
            columns=columns,
            kinds=cast(dict[str, Kind], declared) | request.kinds,
            unit=config.unit,
        )

    def forecast(self, request: DescriptionAsked, who: Analyst) -> dict[str, object]:
        """What would be described, how well, and what it takes; costs nothing."""
        plan = self.plan(request)
        costs = _costs(plan)
        is_stored = self.store.body(self.config.name, self._description_key(plan)) is not None
        prices = [self.ledger.price(c, who.name, delta=plan.budget.delta) for c in costs]
        fits = is_stored or all(price.fits for price in prices)
        words = STORED if is_stored else prices[-1].describe()
        return {**plan.as_json(), "fits": fits, "ledger": words}

    def describe(
        self,
        request: DescriptionAsked,
        who: Analyst,
        name: str | None,
        progress: Progress | None = None,
    ) -> bytes:
        """Discover, release and keep the body; or the body that was kept for an equal request.

        Privacy: that of ``DescriptionPlan.release``; the body depends on its result and on public
        numbers. Whether all parts fit is checked before the first is debited.
        """
        plan = self.plan(request)
        key = self._description_key(plan)

        def check() -> None:
            for cost in _costs(plan):
                self.check_left(key, cost, plan.budget, who)

        shown = partial(self._description, key)
        return self.pay_once("describe", key, who, name, check, plan.release, shown, progress)

    def plan_search(self, request: DiscoveryAsked) -> DiscoveryPlan:
        """The plan of a discovery; touches no data."""
        file = TomlFile("request", "", {"domain": dict(request.domain)})
        domain = OpenDomain(declared_members(file))
        names = [column for each in domain.open for column in each.columns]
        self._check_columns(names, self.columns(), "domain")
        config = self.config
        return plan_discovery(
            OpenDomain(list(domain.open)),
            Budget(**request.budget.model_dump()),
            config.neighbours,
            unit=config.unit,
            confidence=request.confidence,
        )

    def forecast_search(self, request: DiscoveryAsked, who: Analyst) -> dict[str, object]:
        """How many people a value needs to be found, and what it takes; costs nothing."""
        plan = self.plan_search(request)
        price = self.ledger.price(plan.cost, who.name, delta=plan.budget.delta)
        is_stored = plan.stored_key(self.ledger) is not None
        words = STORED if is_stored else price.describe()
        return {
            **plan.as_json(),
            "guarantee": plan.guarantee,
            "fits": is_stored or price.fits,
            "ledger": words,
        }

    def discover(
        self,
        request: DiscoveryAsked,
        who: Analyst,
        name: str | None,
        progress: Progress | None = None,
    ) -> bytes:
        """Find values and ranges and keep the body; or that of an equal request.

        Privacy: that of ``DiscoveryPlan.release``; the body depends on its result and on public
        numbers.
        """
        plan = self.plan_search(request)
        paid = plan.digest()
        key = json_digest({"about": self.about, "discovery": paid, "confidence": plan.confidence})

        def check() -> None:
            if plan.stored_key(self.ledger) is None:
                self.check_left(paid, plan.cost, plan.budget, who)

        shown = partial(self._discovery, key)
        return self.pay_once("discover", key, who, name, check, plan.release, shown, progress)

    def _check_columns(self, names: list[str], allowed: tuple[str, ...], where: str) -> None:
        """Refuse what may not be described, in the same words whether the table has it or not."""
        unknown = [name for name in names if name not in allowed]
        if unknown:
            message = (
                f"{unknown[0][:80]!r} is no column that may be described here; these are "
                f"{listing(list(allowed), most=40)}{did_you_mean(unknown[0], allowed)}; the "
                "curator opens others"
            )
            raise not_valid([{"loc": ("body", where), "msg": message}])

    def _description_key(self, plan: DescriptionPlan) -> str:
        about = {"kinds": dict(plan.kinds), "budget": plan.budget.as_json()}
        return json_digest({"about": self.about, "description": about})

    def _description(self, key: str, result: Description) -> tuple[list[Entry], Body]:
        plan, domain = result.plan, result.domain
        names = [] if domain is None else domain.names
        every = (result.votes, result.discovery, result.release)
        entries = _entries(p.entry for p in every if p is not None)
        numbers = None
        if result.release is not None:
            numbers = dict(zip(("value", "low", "high"), map(float, result.records), strict=True))
        return entries, {
            "key": key,
            "dataset": self.config.name,
            "budget": budget_document(plan.budget),
            "neighbours": plan.neighbours,
            "promise": result.promise,
            "entries": [entry.sequence for entry in entries],
            "records": numbers,
            "answers": frame_columns(result.frame),
            "histograms": {name: frame_columns(result.histogram(name)) for name in names},
            "toml": None if domain is None else result.to_toml(),
        }

    def _discovery(self, key: str, result: Discovery) -> tuple[list[Entry], Body]:
        entries = _entries([result.entry])
        return entries, {
            "key": key,
            "dataset": self.config.name,
            **result.plan.as_json(),
            "guarantee": result.plan.guarantee,
            "entries": [entry.sequence for entry in entries],
            "answers": frame_columns(result.counts),
            "toml": result.to_toml() if result.attributes else None,
        }


def _entries(entries: Iterable[Entry | None]) -> list[Entry]:
    return [entry for entry in entries if entry is not None]


def _costs(plan: DescriptionPlan) -> list[Cost]:
    """What the whole may cost: by either kind of noise that its release may have."""
    first = sum((p.cost for p in (plan.vote, plan.discovery) if p is not None), start=Cost(()))
    rest = plan.rest
    costs = [first + Cost.pure(rest.pure_epsilon)]
    if not rest.is_pure:
        costs.append(first + Cost.gaussian(Fraction(rest.gaussian_mu or 0.0) ** 2))
    return costs
