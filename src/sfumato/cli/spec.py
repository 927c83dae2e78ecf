# SPDX-License-Identifier: Apache-2.0
"""The spec file: everything a release needs, in one TOML file that people can review.

    records       "all-inside": every record lies in the domain, so their number may be public
    [data]        source, query, csv, name, domain, neighbours, unit, rows_per_unit,
                  groups_per_unit, rows_per_group, groups_by; join.*, features.*; of CSV files
                  encoding, delimiter, quote, header, decimal, thousands, date_format, null_values
    [domain.*]    the attributes (unless data.domain names a file that declares them)
    [[workload]]  what is asked
    [constraints] impossible combinations, published tables    (optional)
    [budget]      epsilon and delta, rho, mu, or the error to reach
    [plan]        mechanism, objective, seconds, allow_bias, records    (optional)
                  or adaptive, rounds
    [ledger]      path, the total budget of the table, its lanes    (optional)
    [release]     out, level, intervals, project, shares     (optional)
    [selection]   top, which, counts, ...: for `sfumato select`  (optional)
    [discovery]   epsilon, delta: for columns that are to be discovered  (optional)
    [session]     questions, updates, ...: for `sfumato ask`  (optional)

Reading it touches no data: the source need not exist. Every fault is a ``SchemaError`` with the
file and the line. The keys are described in docs/spec.md. What a file says of a table (its source,
domain, privacy unit and budget) is read by the functions at the end, which the configuration of the
server shares; ``at`` is the place of the table in its file, for the line in a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, ConfigDict, Field

from sfumato.domain.attributes import DISCOVER
from sfumato.domain.discovery import OPEN_BOUND
from sfumato.domain.domain import Domain, domain_from
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.domain.shipped_tables import is_shipped, shipped_domain, shipped_table
from sfumato.errors import BudgetError, LedgerError, PlanError, SchemaError, TableError, TooLarge
from sfumato.planning.selection_plans import SelectionMechanism
from sfumato.privacy.budget import Budget, total_is_public
from sfumato.toml import STRICT, KeyPath, TomlFile, read_toml, validated
from sfumato.types import Neighbours
from sfumato.vault.sources import (
    CsvRule,
    CsvSource,
    DerivedSource,
    SqlSource,
    engine_source,
    innermost,
    may_be_filtered,
    placed,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sfumato.domain.discovery import OpenAttribute, OpenDomain
    from sfumato.run.adaptive import AdaptivePlan
    from sfumato.run.choose import SelectionPlan
    from sfumato.run.discover import Discovery, DiscoveryPlan
    from sfumato.run.linear import Plan, PlanLedger
    from sfumato.session.session import SessionPlan
    from sfumato.types import Noise, Objective, Progress
    from sfumato.workload.constraints import Constraints
    from sfumato.workload.workload import Workload

__all__ = [
    "DEFAULT_DELTA",
    "DataTable",
    "DiscoveryTable",
    "FileTable",
    "LedgerSpec",
    "OpenSpec",
    "PlannedTable",
    "SelectionTable",
    "SessionTable",
    "Spec",
    "SpecTables",
    "TotalTable",
    "budget_from",
    "domain_of",
    "json_schema",
    "ledger_from",
    "ledger_place",
    "ledger_to_debit",
    "named_domain",
    "open_spec",
    "read_spec",
    "source_from",
    "table_from",
    "total_from",
    "unit_from",
]


DEFAULT_DELTA = "1e-9"

Amount = int | float | str
Text = Annotated[str, Field(min_length=1)]
Adaptive = Literal["tables", "mwem", "boosting"]


class FileTable(BaseModel):
    """A table of a TOML file, which refuses keys that it does not know."""

    model_config = ConfigDict(**STRICT)


class JoinTable(FileTable):
    """Columns of a public table that stand beside those of the records."""

    file: Text
    key: Text
    columns: list[Text]


class FeatureTable(FileTable):
    """A column of the table of persons."""

    of: Text
    column: Text | None = None
    order: Text | None = None


class DataTable(FileTable):
    """What a file says of a table of records."""

    source: Text | None = None
    query: Text | None = None
    csv: CsvRule | None = None
    encoding: Text | None = None
    delimiter: Text | None = None
    quote: str | None = None
    header: list[str] | None = None
    decimal: Text | None = None
    thousands: Text | None = None
    date_format: str | list[str] | None = None
    null_values: list[str] | None = None
    name: Text | None = None
    domain: Text | None = None
    neighbours: Literal["add-remove", "replace-one"] = "add-remove"
    unit: Text | None = None
    rows_per_unit: Annotated[int, Field(ge=1)] | Literal["discover"] | None = None
    groups_per_unit: Annotated[int, Field(ge=1)] | None = None
    rows_per_group: Annotated[int, Field(ge=1)] | None = None
    groups_by: list[Text] | None = None
    join: dict[str, JoinTable] | None = None
    features: dict[str, FeatureTable] | None = None


class PlannedTable(FileTable):
    """A release that is planned from a ledger: ``epsilon`` and ``delta``, or ``epsilon`` alone."""

    epsilon: Amount | None = None
    delta: Amount | None = None
    rho: Amount | None = None
    mu: Amount | None = None


class _Budget(PlannedTable):
    error: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class _Plan(FileTable):
    mechanism: Text | None = None
    objective: Literal["rmse", "max"] = "rmse"
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    allow_bias: bool = False
    records: Annotated[int, Field(ge=1)] | None = None
    adaptive: Adaptive | None = None
    rounds: Annotated[int, Field(ge=1)] | None = None


class TotalTable(PlannedTable):
    """The total of a ledger, and perhaps its lanes and its reserve for events."""

    pure: Amount | None = None
    event_delta: Amount | None = None
    planned: list[PlannedTable] | None = None


class _Ledger(TotalTable):
    path: Text
    create: bool = False


class _Release(FileTable):
    out: Text | None = None
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    intervals: Literal["noise", "calibrated", "bootstrap"] = "noise"
    project: bool | Literal["nearest", "bounds"] = True
    public: Text | None = None
    shares: bool = False


class SessionTable(FileTable):
    """``[session]``: how questions are answered one at a time (``sfumato ask``)."""

    questions: Annotated[int, Field(ge=1)] = 10_000
    updates: Annotated[int, Field(ge=1)] | None = None
    records: Annotated[int, Field(ge=1)] | None = None
    level: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    learning: Literal["fit", "hedge"] = "fit"
    public: Text | None = None
    label: str = ""
    scope: Annotated[int, Field(ge=1)] | Literal["auto"] | None = None
    scope_share: Annotated[float, Field(gt=0, lt=1)] = 0.95
    releases: bool = True

    def plan(
        self, domain: Domain, budget: Budget, neighbours: Neighbours, unit: PrivacyUnit | None
    ) -> SessionPlan:
        """The plan of this session on a table."""
        from sfumato.session.session import plan_session

        return plan_session(
            domain,
            budget,
            neighbours,
            unit=unit,
            questions=self.questions,
            updates=self.updates,
            records=self.records,
            level=self.level,
            learning=self.learning,
            scope=self.scope,
            scope_share=Fraction(str(self.scope_share)),
        )


class SelectionTable(FileTable):
    """``[selection]``: which of the queries are chosen (``sfumato select``)."""

    top: Annotated[int, Field(ge=1)] = 1
    which: Literal["largest", "smallest"] | None = None
    nearest: Amount | None = None
    counts: bool = False
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    mechanism: SelectionMechanism | None = None


class DiscoveryTable(FileTable):
    """``[discovery]``: what of the budget is spent on what the schema leaves open."""

    epsilon: Amount | None = None
    delta: Amount | None = None
    bound_epsilon: Amount | None = None
    persons: Annotated[int, Field(ge=1)] | None = None


class SpecTables(FileTable):
    """All tables of a spec file, each by itself."""

    records: Literal["all-inside"] | None = None
    data: DataTable = DataTable()
    domain: dict[str, object] | None = None
    workload: object = None  # read by workload_from, which says more
    constraints: dict[str, object] | None = None
    budget: _Budget | None = None
    plan: _Plan = _Plan()
    ledger: _Ledger | None = None
    release: _Release = _Release()
    selection: SelectionTable = SelectionTable()
    session: SessionTable | None = None
    discovery: DiscoveryTable | None = None


def json_schema(kind: Literal["spec", "schema"] = "spec") -> dict[str, object]:
    """Return the JSON Schema of a file, with which editors complete and check it while one types.

    What the schema allows may still be refused: conditions, SQL, names of attributes and how keys
    go together are read by the commands alone. What it refuses is always refused.

    Args:
        kind: "spec" for the file of `sfumato plan` and `sfumato release`, "schema" for one that
            only declares a domain.

    Returns:
        The schema (JSON Schema 2020-12).

    Raises:
        SchemaError: There is no such kind.

    >>> import sfumato as sf
    >>> sorted(sf.json_schema("schema")["properties"])
    ['domain', 'records']
    """
    if kind not in ("spec", "schema"):
        raise SchemaError(f"JSON Schemas are there for 'spec' and 'schema', got {kind!r}")
    from sfumato.domain.schema import domain_json_schema
    from sfumato.workload.statements.workload_file import (
        constraints_json_schema,
        workload_json_schema,
    )

    model = SpecTables.model_json_schema()
    definitions = model.pop("$defs")
    parts = {"domain": domain_json_schema()}
    if kind == "spec":
        parts["workload"] = workload_json_schema()
        parts["constraints"] = constraints_json_schema()
    for name, part in parts.items():
        definitions |= part.pop("$defs")
        model["properties"][name] = part
    if kind == "schema":
        model["properties"] = {name: model["properties"][name] for name in ("records", "domain")}
        model["required"] = ["domain"]
    model["title"] = {"spec": "A release of sfumato", "schema": "A domain of sfumato"}[kind]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {**head, **model, "$defs": definitions}


@dataclass(frozen=True, slots=True)
class LedgerSpec:
    """Where the ledger is kept, its total if the file gives one, and whether it may be created.

    ``total_if_new`` is the total of a new ledger if ``total`` is not given.
    """

    path: str
    total: Budget | None
    create: bool = False
    total_if_new: Budget | None = None


@dataclass(frozen=True, slots=True)
class Spec:
    """What to release: the table, its domain, the queries, the budget, where the results go.

    ``budget`` is None when an ``error`` to reach is given instead. ``adaptive`` is the method of an
    adaptive release, None for one that is planned with a forecast.
    """

    path: Path
    source: str | SqlSource | CsvSource | DerivedSource | None
    name: str | None
    domain: Domain
    workload: Workload
    neighbours: Neighbours
    unit: PrivacyUnit | None
    budget: Budget | None
    error: float | None
    delta: str
    mechanism: str | None
    objective: Objective
    seconds: float | None
    allow_bias: bool
    records: int | None
    ledger: LedgerSpec | None
    out: Path
    level: float
    intervals: Literal["noise", "calibrated", "bootstrap"]
    project: bool | Literal["nearest", "bounds"]
    public: str | None
    adaptive: Adaptive | None
    rounds: int | None
    constraints: Constraints | None = None
    selection: SelectionTable = field(default_factory=SelectionTable)
    shares: bool = False

    def plan(
        self,
        progress: Progress | None = None,
        *,
        ledger: PlanLedger | None = None,
        key: str | None = None,
    ) -> Plan:
        """The plan of this release, one that fits the ledger; touches no data and costs nothing.

        ``key`` is that under which the answer would be stored, if not the plan's own.
        """
        best = self._plan(progress, None)
        if ledger is None:
            return best
        from sfumato.run.linear import fitting

        other = (lambda noise: self._plan(progress, noise)) if self.mechanism is None else None
        return fitting(best, ledger, other, key=key)

    def _plan(self, progress: Progress | None, noise: Noise | None) -> Plan:
        if self.adaptive is not None:
            raise PlanError(
                f"{self.path} asks for an adaptive release, which has no forecast; use "
                "plan_adaptive(), or take adaptive out of [plan]"
            )
        from fractions import Fraction

        from sfumato.run.linear import plan

        try:
            return plan(
                self.workload,
                self.budget,
                self.neighbours,
                self.objective,
                self.mechanism,
                error=self.error,
                delta=Fraction(self.delta),
                unit=self.unit,
                allow_bias=self.allow_bias,
                records=self.records,
                may_drop_records=self.is_query,
                seconds=self.seconds,
                progress=progress,
                noise=noise,
            )
        except BudgetError as why:
            if self.error is None:
                raise
            raise PlanError(
                f"no budget in the allowed range gives an error of {self.error:g} counts ({why}); "
                "ask for an error between 1 count and the number of records"
            ) from None

    def plan_adaptive(self) -> AdaptivePlan:
        """The plan of an adaptive release; touches no data and costs nothing."""
        from sfumato.run.adaptive import plan_adaptive
        from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

        if self.adaptive is None or self.budget is None:
            raise PlanError(
                f'{self.path} asks for no adaptive release; say adaptive = "tables" in [plan]'
            )
        plan = plan_adaptive(
            self.workload,
            self.budget,
            self.neighbours,
            method=self.adaptive,
            unit=self.unit,
            rounds=self.rounds,
        )
        term = max(self.workload.terms, key=lambda each: each.rows)
        if term.rows > WORKLOAD_LIMITS.array_entries:
            raise TooLarge(
                f"group {term.name!r} has {term.rows:,} answers, an adaptive release lists "
                f"at most {WORKLOAD_LIMITS.array_entries:,} of a group; for ranges ask for "
                "prefixes, whose differences they are, else for fewer attributes"
            )
        return plan

    def plan_selection(self, sql: str | None = None) -> SelectionPlan:
        """The plan of a selection among the queries, or of a SELECT; touches no data."""
        from sfumato.run.choose import plan_selection

        if self.budget is None:
            raise PlanError(
                f"{self.path} gives an error to reach, a selection needs a budget; write epsilon, "
                "rho or mu into [budget]"
            )
        chosen = self.selection
        is_sql = sql is not None
        return plan_selection(
            self.workload if sql is None else sql,
            self.budget,
            self.neighbours,
            top=None if is_sql else chosen.top,
            which=None if is_sql else chosen.which,
            nearest=None if is_sql else chosen.nearest,
            counts=None if is_sql else chosen.counts,
            domain=self.domain if is_sql else None,
            unit=self.unit,
            mechanism=chosen.mechanism,
            confidence=chosen.confidence,
        )

    def table(self) -> str | SqlSource | CsvSource | DerivedSource:
        """The source of the records, for ``Plan.release``."""
        if self.source is None:
            raise SchemaError(
                f"{self.path}: data: the key 'source' is missing, so there is nothing to release; "
                'name the table, for example source = "people.parquet" (sfumato plan works without)'
            )
        return self.source

    @property
    def is_query(self) -> bool:
        """Whether the records are what a query gives: it may drop some."""
        return may_be_filtered(self.source)

    @property
    def place(self) -> str | None:
        """Where the records are, with or without a query."""
        source = innermost(self.source)
        if isinstance(source, SqlSource | CsvSource):
            return str(source.source)
        return None if source is None else str(source)

    def with_options(
        self, mechanism: str | None = None, error: float | None = None, seconds: float | None = None
    ) -> Spec:
        """The same with another mechanism, an error to reach as its budget, or another time."""
        if self.adaptive is not None:
            for name, value in (("mechanism", mechanism), ("error", error), ("seconds", seconds)):
                if value is not None:
                    raise PlanError(
                        f"{self.path} asks for an adaptive release (adaptive = "
                        f'"{self.adaptive}"), which knows no {name}; leave --{name} out, or take '
                        "adaptive out of [plan]"
                    )
        spec = self if mechanism is None else replace(self, mechanism=mechanism)
        spec = spec if seconds is None else replace(spec, seconds=seconds)
        if error is None:
            return spec
        if not 0 < error < float("inf"):
            raise PlanError(
                f"the error to reach must be a finite number above 0, in counts; got {error!r}"
            )
        return replace(spec, budget=None, error=error)

    def with_shares(self) -> Spec:
        """The same with shares of the public number of records beside the answers."""
        if not total_is_public(self.neighbours, self.domain, self.unit, self.is_query):
            raise PlanError(f"{PRIVATE_TOTAL}, or leave --shares out")
        return replace(self, shares=True)


@dataclass(frozen=True, slots=True)
class OpenSpec:
    """A spec that says "discover": what is discovered, and what is left for the answers.

    A bound on the rows of a unit comes first, by itself; what its schema leaves open comes `after`.
    """

    path: Path
    source: str | SqlSource | CsvSource | DerivedSource | None
    name: str | None
    domain: OpenDomain
    neighbours: Neighbours
    unit: PrivacyUnit | None
    total: Budget
    budget: Budget
    rest: Budget | None
    ledger: LedgerSpec | None

    def plan(self) -> DiscoveryPlan:
        """The plan of the discovery; touches no data and costs nothing."""
        from sfumato.run.discover import plan_discovery

        return plan_discovery(self.domain, self.budget, self.neighbours, unit=self.unit)

    @property
    def is_of_bound(self) -> bool:
        """Whether it is how many rows of one unit are counted."""
        return any(each.mechanism == OPEN_BOUND for each in self.domain.open)

    def after(self, discovery: Discovery) -> OpenSpec | None:
        """What is left to be discovered when this was; None if nothing is."""
        if not self.is_of_bound or self.rest is None:
            return None
        return open_spec(self.path, unit=discovery.unit, budget=self.rest)

    def closed(self, discovery: Discovery) -> Spec:
        """The release that the spec describes, with what was discovered, and what that left."""
        if self.is_of_bound:
            return read_spec(self.path, unit=discovery.unit, budget=self.rest)
        return read_spec(self.path, domain=discovery.domain, unit=self.unit, budget=self.rest)


def open_spec(
    path: str | Path, *, unit: PrivacyUnit | None = None, budget: Budget | None = None
) -> OpenSpec | None:
    """What a spec file leaves to be discovered; None if nothing is.

    ``unit`` and ``budget`` stand in place of the file's: the bound that was discovered, and what
    that left.
    """
    from sfumato.domain.discovery import OpenAttribute, OpenDomain
    from sfumato.domain.schema import declared_members

    file = read_toml(path)
    tables = validated(SpecTables, file.data, file, ())
    if tables.data.rows_per_unit == DISCOVER and unit is None:
        return _open_bound(file, tables, Path(path))
    named = tables.data.domain
    if named is not None and (is_shipped(named) or tables.domain is not None):
        return None  # a domain that is given twice is refused where it is read
    schema = file if named is None else read_toml((file.folder or Path()) / named)
    members = declared_members(schema)
    opened = [member for member in members if isinstance(member, OpenAttribute)]
    if not opened:
        if tables.discovery is not None and unit is None:
            raise file.error(
                'nothing is to be discovered; write values = "discover" for a column, or take '
                "[discovery] out",
                ("discovery",),
            )
        return None
    if tables.records is not None:
        raise file.error(
            "records that are all inside need values that are public beforehand, and here some "
            "are to be discovered; leave records out",
            ("records",),
        )
    total = _total_to_discover(file, tables)
    taken, rest = _discovery_budget(file, tables, budget or total, opened)
    if unit is None:
        unit = unit_from(file, tables.data, ("data",))
    return _opened(file, tables, Path(path), OpenDomain(members), unit, (total, taken, rest))


def _total_to_discover(file: TomlFile, tables: SpecTables) -> Budget:
    total, _, _ = _budget_or_error(file, tables.budget)
    if total is None:
        raise file.error(
            "an error to reach cannot be planned for before all is discovered; give epsilon and "
            "delta",
            ("budget", "error"),
        )
    return total


def _opened(
    file: TomlFile,
    tables: SpecTables,
    path: Path,
    domain: OpenDomain,
    unit: PrivacyUnit | None,
    budgets: tuple[Budget, Budget, Budget],
) -> OpenSpec:
    """An open spec with its total, what is taken of it, and the rest."""
    total, budget, rest = budgets
    return OpenSpec(
        path=path,
        source=table_from(file, tables.data, ("data",)),
        name=tables.data.name,
        domain=domain,
        neighbours=tables.data.neighbours,
        unit=unit,
        total=total,
        budget=budget,
        rest=rest,
        ledger=ledger_from(file, tables.ledger, file.folder or Path()),
    )


def _open_bound(file: TomlFile, tables: SpecTables, path: Path) -> OpenSpec:
    """The discovery of how many rows of one unit are counted, for the answers of the file.

    How many units may have more is said by the file, or balances noise and loss: then the answers
    are planned with one row of a unit, for all of the budget.
    """
    from sfumato.domain.discovery import OpenDomain
    from sfumato.planning.discovery_plans import bound_share, persons_in_balance, taken_of

    data, table = tables.data, tables.discovery or DiscoveryTable()
    if data.unit is None or data.features is not None or data.groups_per_unit is not None:
        raise file.error(
            'rows_per_unit = "discover" finds how many rows of a unit are counted; it needs the '
            "column of the unit, and neither features nor groups",
            ("data", "rows_per_unit"),
        )
    total, one = _total_to_discover(file, tables), PrivacyUnit(data.unit, 1)
    persons = table.persons
    try:
        if persons is None:
            spec = read_spec(path, unit=one)
            plan = spec.plan()
            column = spec.workload.sensitivity(1)
            persons = persons_in_balance(spec.workload.queries, plan.rmse, column)
        wanted = PrivacyUnit.discover(data.unit, persons)
        taken, rest = bound_share(total, persons, len(wanted.grid))
        if table.bound_epsilon is not None:
            taken, rest = taken_of(total, Budget(table.bound_epsilon))
        if table.persons is None and total.epsilon and rest.epsilon:  # with less, they err more
            persons = round(persons * total.epsilon / rest.epsilon)
            wanted = PrivacyUnit.discover(data.unit, persons)
    except SchemaError as error:
        if table.persons is not None:
            raise
        raise file.error(
            f"how many units may have more rows than are counted follows from the answers, and "
            f"these cannot be planned yet ({error}); say it: persons = 100 in [discovery]",
            ("data", "rows_per_unit"),
        ) from None
    except (PlanError, BudgetError) as error:
        raise file.error(str(error), ("discovery",) if tables.discovery else ("budget",)) from None
    return _opened(file, tables, path, OpenDomain([wanted]), one, (total, taken, rest))


def _discovery_budget(
    file: TomlFile, tables: SpecTables, total: Budget, opened: Sequence[OpenAttribute]
) -> tuple[Budget, Budget]:
    """What the discovery takes of the budget, as [discovery] says or by the rule; and the rest."""
    from sfumato.planning.discovery_plans import discovery_share, taken_of
    from sfumato.run.discover import FINDERS

    columns = sum(len(each.columns) for each in opened)
    needs_delta = any(FINDERS[each.mechanism].needs_delta for each in opened)
    table = tables.discovery or DiscoveryTable()
    try:
        by_rule, rest = discovery_share(total, columns, needs_delta)
        if table.epsilon is None and table.delta is None:
            return by_rule, rest
        epsilon = by_rule.epsilon if table.epsilon is None else table.epsilon
        delta = by_rule.delta if table.delta is None else table.delta
        return taken_of(total, Budget(epsilon, delta))
    except (PlanError, BudgetError) as error:
        raise file.error(str(error), ("discovery",) if tables.discovery else ("budget",)) from None


def read_spec(
    path: str | Path,
    *,
    needs_workload: bool = True,
    domain: Domain | None = None,
    unit: PrivacyUnit | None = None,
    budget: Budget | None = None,
) -> Spec:
    """The release that a spec file describes.

    ``domain``, ``unit`` and ``budget`` stand in place of the file's: what was discovered, and what
    that left.

    With ``needs_workload=False`` others bring the queries, as they do to a server: a file without
    [[workload]] is read too, and its workload is the number of records.
    """
    from sfumato.workload.build import marginals
    from sfumato.workload.statements.workload_file import constraints_from, workload_from

    file = read_toml(path)
    tables = validated(SpecTables, file.data, file, ())
    folder = file.folder or Path()
    _check_adaptive(file, tables)
    domain = domain_of(file, tables) if domain is None else domain
    written, error, delta = _budget_or_error(file, tables.budget)
    budget = written if budget is None else budget
    has_workload = needs_workload or tables.workload is not None
    unit = unit_from(file, tables.data, ("data",)) if unit is None else unit
    spec = Spec(
        path=Path(path),
        source=table_from(file, tables.data, ("data",)),
        name=tables.data.name,
        domain=domain,
        workload=workload_from(file, domain, unit) if has_workload else marginals(domain, 0),
        neighbours=tables.data.neighbours,
        unit=unit,
        budget=budget,
        error=error,
        delta=delta,
        mechanism=tables.plan.mechanism,
        objective=tables.plan.objective,
        seconds=tables.plan.seconds,
        allow_bias=tables.plan.allow_bias,
        records=tables.plan.records,
        ledger=ledger_from(file, tables.ledger, folder),
        out=folder / (tables.release.out or f"{Path(path).stem}-out"),
        level=tables.release.level,
        intervals=tables.release.intervals,
        project=tables.release.project,
        public=source_from(file, tables.release.public, ("release", "public")),
        adaptive=tables.plan.adaptive,
        rounds=tables.plan.rounds,
        constraints=constraints_from(file, domain),
        selection=tables.selection,
        shares=tables.release.shares,
    )
    if spec.shares and not total_is_public(spec.neighbours, domain, spec.unit, spec.is_query):
        raise file.error(f"{PRIVATE_TOTAL}, or leave shares out", ("release", "shares"))
    return spec


PRIVATE_TOTAL = (
    "shares are parts of a public number of records, and here it is private; say neighbours = "
    '"replace-one" in [data], for single rows of a stored table, and records = "all-inside" before '
    "the first table, so that none is dropped"
)

_NOT_ADAPTIVE = {
    ("plan", "mechanism"): "it chooses what to measure by itself",
    ("plan", "objective"): "its error depends on the data, so nothing is optimized beforehand",
    ("plan", "seconds"): "its plan takes no time",
    ("plan", "allow_bias"): "its answers are estimates, whose bias cannot be bounded",
    ("plan", "records"): "it forecasts no error for a number of records",
    ("budget", "error"): "its error depends on the data, so no budget can be found for it",
    ("release", "intervals"): "those of what was measured come from its noise",
    ("release", "project"): "its answers always agree with each other",
    ("release", "public"): "its answers are drawn towards nothing",
}


def _check_adaptive(file: TomlFile, tables: SpecTables) -> None:
    """Refuse keys that would have no effect."""
    if tables.plan.adaptive is None:
        if tables.plan.rounds is not None:
            raise file.error(
                'only an adaptive release has rounds; add adaptive = "tables", or leave rounds out',
                ("plan", "rounds"),
            )
        return
    for (name, key), why in _NOT_ADAPTIVE.items():
        table = getattr(tables, name)
        if table is not None and key in table.model_fields_set:
            raise file.error(
                f"an adaptive release knows no {key}: {why}; leave {key} out, or take adaptive out "
                "of [plan]",
                (name, key),
            )


def domain_of(file: TomlFile, tables: SpecTables) -> Domain:
    """The domain that the file declares or names."""
    named = tables.data.domain
    if named is None:
        return domain_from(file)
    if tables.domain is not None:
        raise file.error(
            "the domain is given twice, here and by data.domain; keep one of them", ("domain",)
        )
    domain = named_domain(file, named, ("data", "domain"))
    return domain if tables.records is None else Domain(domain, records=tables.records)


def _budget_or_error(
    file: TomlFile, table: _Budget | None
) -> tuple[Budget | None, float | None, str]:
    """The budget, or the error to reach; and the delta that goes with the error."""
    if table is None:
        raise file.error(
            "there is no table [budget]; add one, with epsilon = 1 and delta = 1e-9 for example"
        )
    if table.error is None:
        return budget_from(file, table, ("budget",)), None, DEFAULT_DELTA
    for key in ("epsilon", "rho", "mu"):
        if getattr(table, key) is not None:
            raise file.error(
                f"an error to reach and {key} are both given; keep error to solve for the smallest "
                f"budget, or {key} to spend exactly that",
                ("budget", key),
            )
    delta = DEFAULT_DELTA if table.delta is None else table.delta
    # Any epsilon will do: this asks whether delta is legal.
    checked = budget_from(file, _Budget(epsilon=1, delta=delta), ("budget",))
    return None, table.error, str(checked.delta)


def ledger_place(file: TomlFile, place: str, folder: Path, at: KeyPath) -> str:
    """Where a ledger is: a path starts at the folder of the file, an address is as it stands.

    An address with a password is refused: it would stand in messages and reports.
    """
    if "://" not in place:
        return str(folder / place)
    parts = urlsplit(place)
    if parts.password is not None or any(name == "password" for name, _ in parse_qsl(parts.query)):
        raise file.error(
            "the address of the ledger holds a password, which would be shown wherever the ledger "
            "is named; take it out, and give it in PGPASSFILE or ~/.pgpass",
            at,
        )
    return place


def ledger_from(file: TomlFile, table: _Ledger | None, folder: Path) -> LedgerSpec | None:
    """The ledger of the file; its path starts at the folder of the file."""
    if table is None:
        return None
    keys = ("epsilon", "delta", "rho", "mu", "pure", "event_delta", "planned")
    has_total = any(getattr(table, key) is not None for key in keys)
    path = ledger_place(file, table.path, folder, ("ledger", "path"))
    total = total_from(file, table, ("ledger",)) if has_total else None
    return LedgerSpec(path, total, table.create)


def ledger_to_debit(
    spec: Path, ledger: LedgerSpec | None, path: str | None, no_ledger: bool, why: str
) -> LedgerSpec | None:
    """The ledger of the options of a command, or that of the spec; None only with --no-ledger.

    ``why`` is what would be wrong without one.
    """
    if no_ledger and path is not None:
        raise LedgerError("--ledger and --no-ledger are both given; keep one of them")
    if no_ledger:
        return None
    if path is not None:
        return LedgerSpec(path, None, total_if_new=None if ledger is None else ledger.total)
    if ledger is None:
        raise LedgerError(
            f"{spec} names no ledger, so {why}; add a table [ledger] with path = "
            '"NAME.ledger", or give --ledger PATH, or give --no-ledger if you keep track of the '
            "budget yourself"
        )
    return ledger


def named_domain(file: TomlFile, named: str, at: KeyPath) -> Domain:
    """The domain in another file, whose path starts at the folder of this one, or a shipped one."""
    if is_shipped(named):
        return domain_from(read_toml(_shipped(file, at, shipped_domain, named)))
    return domain_from(read_toml((file.folder or Path()) / named))


def source_from(file: TomlFile, named: str | None, at: KeyPath) -> str | None:
    """The source as ``open_table`` takes it; a relative path starts at the folder of the file."""
    if named is None:
        return None
    if is_shipped(named):
        return str(_shipped(file, at, shipped_table, named))
    try:
        engine_source(named)
    except TableError as error:
        raise file.error(str(error), at) from None
    return placed(named, file.folder or Path())


_DECLARATIONS: Final = (
    *("encoding", "delimiter", "quote", "header", "decimal", "thousands", "date_format"),
    "null_values",
)
"""What a file may say of a CSV file besides ``csv``, by the names that `CsvSource` has for it."""


def table_from(
    file: TomlFile, table: DataTable, at: KeyPath
) -> str | SqlSource | CsvSource | DerivedSource | None:
    """The source of the records with what is made of it: joins first, then features of persons."""
    from sfumato.vault.derived import Feature, FeatureSource, JoinSource

    source: str | SqlSource | CsvSource | DerivedSource | None = _stored(file, table, at)
    for name, join in (table.join or {}).items():
        place = placed(join.file, file.folder or Path())
        with _located(file, (*at, "join", name)):
            source = None if source is None else JoinSource(source, place, join.key, join.columns)
    if table.features is not None:
        features = {}
        for name, each in table.features.items():
            with _located(file, (*at, "features", name)):
                features[name] = Feature(each.of, each.column, each.order)
        with _located(file, (*at, "features")):
            if table.unit is None:
                raise TableError("features are of all rows of a person; name the column in unit")
            source = None if source is None else FeatureSource(source, table.unit, features)
    return source


@contextmanager
def _located(file: TomlFile, at: KeyPath) -> Iterator[None]:
    """Refusals of a source with the line of the key they are about."""
    try:
        yield
    except TableError as error:
        raise file.error(str(error), at) from None


def _stored(file: TomlFile, table: DataTable, at: KeyPath) -> str | SqlSource | CsvSource | None:
    """The source of the records as it is stored, with what its file says about it.

    That is the query that says what to read of it, or how a CSV file was written.
    """
    source = source_from(file, table.source, (*at, "source"))
    entries = {key: getattr(table, key) for key in _DECLARATIONS}
    declared = {key: value for key, value in entries.items() if value is not None}
    keys = [*(["csv"] if table.csv is not None else []), *declared]
    if table.query is None and not keys:
        return source
    if source is None:
        key, what = ("query", "a query") if not keys else (keys[0], "what is said of a CSV file")
        raise file.error(f"{what} needs a source that it is about", (*at, key))
    if not keys:
        return SqlSource(source, str(table.query))
    if table.query is not None:
        raise file.error("a CSV file has no types, so no query runs on it", (*at, "query"))
    try:
        return CsvSource(source, table.csv, **declared)
    except TableError as error:
        key = str(error).split(maxsplit=1)[0]
        raise file.error(str(error), (*at, key if key in keys else keys[0])) from None


def unit_from(file: TomlFile, table: DataTable, at: KeyPath) -> PrivacyUnit | None:
    """The privacy unit of a table of the file, from its column and its bounds."""
    groups = (table.groups_per_unit, table.rows_per_group, table.groups_by)
    if table.features is not None and table.unit is not None:
        if table.rows_per_unit not in (None, 1) or any(each is not None for each in groups):
            raise file.error(
                "with features a person has one row, and no other bound", (*at, _bound_key(table))
            )
        return PrivacyUnit(table.unit, 1)
    if table.rows_per_unit == DISCOVER:
        raise file.error(
            "how many rows of a unit are counted is not public before it is discovered; discover "
            "it (sfumato discover), and write what was discovered",
            (*at, "rows_per_unit"),
        )
    is_bounded = table.rows_per_unit is not None or any(each is not None for each in groups)
    if (table.unit is None) == is_bounded:
        raise file.error(
            "a privacy unit needs both its column (unit) and a bound on the rows of one unit "
            '(rows_per_unit), for example unit = "person_id" and rows_per_unit = 5',
            (*at, "unit" if table.unit is not None else _bound_key(table)),
        )
    try:
        if table.unit is None:
            return None
        most, each, by = groups
        return PrivacyUnit(table.unit, table.rows_per_unit, most, each, by or ())
    except SchemaError as error:
        raise file.error(str(error), (*at, _bound_key(table))) from None


def _bound_key(table: DataTable) -> str:
    """The first bound on a privacy unit that a file names."""
    keys = ("rows_per_unit", "groups_per_unit", "rows_per_group", "groups_by")
    return next(key for key in keys if getattr(table, key) is not None)


def budget_from(file: TomlFile, table: PlannedTable, at: KeyPath) -> Budget:
    """The budget of a table of the file; its faults get the line of the key they are about."""
    try:
        budget = Budget(epsilon=table.epsilon, delta=table.delta, rho=table.rho, mu=table.mu)
        if table.delta is not None and not budget.delta:
            raise BudgetError("delta must lie in (0, 1), got 0; for a pure budget leave it out")
        return budget
    except BudgetError as error:
        message = str(error)
        first = message.split(maxsplit=1)[0]
        is_key = first in ("epsilon", "delta", "rho", "mu")
        raise file.error(message, (*at, first) if is_key else at) from None


def total_from(file: TomlFile, table: TotalTable, at: KeyPath) -> Budget:
    """The total of a ledger: a budget whose lanes are declared by ``pure`` or ``planned``."""
    total = budget_from(file, table, at)
    planned = [
        budget_from(file, each, (*at, "planned", i)) for i, each in enumerate(table.planned or [])
    ]
    if table.event_delta is not None:
        try:
            total = Budget(total.epsilon, total.delta, total.rho, total.mu, None, table.event_delta)
        except BudgetError as error:
            raise file.error(str(error), (*at, "event_delta")) from None
    if table.pure is None and not planned:
        return total
    if table.pure is not None and planned:
        raise file.error(
            "pure and planned both declare lanes; keep pure, or the list of what is planned",
            (*at, "pure"),
        )
    try:
        if planned:
            return total.with_lanes_for(planned)
        return Budget(epsilon=total.epsilon, delta=total.delta, rho=total.rho, mu=total.mu,
                      pure=table.pure, event_delta=total.event_delta)  # fmt: skip
    except BudgetError as error:
        raise file.error(str(error), (*at, "planned" if planned else "pure")) from None


def _shipped(file: TomlFile, at: KeyPath, find: Callable[[str], Path], name: str) -> Path:
    try:
        return find(name)
    except SchemaError as error:
        raise file.error(str(error), at) from None
