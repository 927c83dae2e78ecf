# SPDX-License-Identifier: Apache-2.0
"""The configuration of the server: what is served, to whom, and how much of it.

    [server]             host, port, state, grid_milliseconds, page
    [limits]             how much and how often (``server_limits.LimitsTable``)
    [datasets.NAME]      a spec, or source, domain, ledger and budget; and a session; with
                         ``period`` a series of tables, each with a ledger and a budget of its own
    [analysts.NAME]      token (its hash), role, datasets, allowance

``read_config`` returns a ``Config`` and touches no data; every fault is a ``SchemaError`` with the
file and the line. The keys are described in docs/server.md. ``open_ledger`` opens the ledger of a
dataset when the server starts, and brings its total and its allowances to what the configuration
says, or refuses. ``faults`` opens all that the server would open, and returns in words all that
would stop or surprise it; it writes nothing.

A token is 256 random bits, and only its SHA-256 is stored. Passwords need a slow hash because
people choose them; a token cannot be guessed, so one SHA-256 is enough, and a refusal costs no more
than an answer.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Generic, Literal, TypeVar

from pydantic import Field

from sfumato.cli.spec import (
    DataTable,
    FileTable,
    LedgerSpec,
    PlannedTable,
    SessionTable,
    TotalTable,
    budget_from,
    ledger_place,
    named_domain,
    read_spec,
    source_from,
    table_from,
    total_from,
    unit_from,
)
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import LedgerError, SchemaError, SfumatoError
from sfumato.ledger.ledger import Ledger, Terms, check_total, obey_total
from sfumato.privacy.budget import Budget
from sfumato.text import did_you_mean, listing
from sfumato.toml import KeyPath, TomlFile, read_toml, validated
from sfumato.types import Neighbours
from sfumato.vault.sources import CsvSource, DerivedSource, SqlSource
from sfumato_web.server.request_log import LogFormat
from sfumato_web.server.server_limits import LimitsTable

if TYPE_CHECKING:
    from sfumato.domain.domain import Domain
    from sfumato.workload.constraints import Constraints

__all__ = [
    "HASH",
    "Analyst",
    "Config",
    "DatasetConfig",
    "Rights",
    "Role",
    "SessionConfig",
    "Tokens",
    "check_address",
    "check_apart",
    "check_table",
    "faults",
    "hash_of",
    "is_larger",
    "larger_in_words",
    "new_token",
    "open_ledger",
    "read_config",
    "terms_of",
]


HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")
"""How a token is written in the configuration."""

_NOBODY: Final = 64 * "0"

Who = TypeVar("Who")


def new_token() -> str:
    """A token that nobody has yet, from the randomness of the operating system."""
    return f"sfu_{secrets.token_urlsafe(32)}"


def hash_of(token: str) -> str:
    """What the configuration keeps of a token.

    >>> hash_of("sfu_example")[:23]
    'sha256:eab61584a2fd8c3b'
    """
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


class Tokens(Generic[Who]):
    """Who holds which token.

    Args:
        find: who holds the token of a hash now, as it is written in the configuration.
    """

    def __init__(self, find: Callable[[str], Who | None]) -> None:
        self._find = find

    def holder(self, authorization: str | None) -> Who | None:
        """The holder of the token in an ``Authorization: Bearer`` header, or None.

        Only hashes of secrets are looked up and compared, so time tells nothing of a token.
        """
        kind, _, token = (authorization or "").partition(" ")
        digest = hashlib.sha256(token.strip().encode("utf-8", "replace")).hexdigest()
        who = self._find(f"sha256:{digest}")
        expected = digest if who is not None else _NOBODY
        is_known = hmac.compare_digest(expected, digest) and kind.lower() == "bearer"
        return who if is_known else None


Role = Literal["analyst", "curator", "auditor", "scraper"]
Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


PERIOD: Final = "{period}"
"""What stands for the name of the period in a source, a ledger or a name."""

_APART: Final = "@"  # of a series and its period; no dataset of the configuration has it


class Rights(frozenset[str]):
    """Names of datasets and of series; a period of a series is among them if the series is.

    >>> "people@2026-04" in Rights({"people"}), "people@2026-04" in Rights({"others"})
    (True, False)
    """

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        """Whether a dataset, or the series of a period, is among them."""
        return isinstance(name, str) and super().__contains__(name.partition(_APART)[0])


class _Server(FileTable):
    host: Text = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8321
    state: Text = "server.state"
    grid_milliseconds: Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)] = 10.0
    page: bool = True
    log: LogFormat = "json"


class _Session(SessionTable, PlannedTable):
    pass


class _Dataset(DataTable):
    about: str = ""
    spec: Text | None = None
    ledger: Text | None = None
    head: Text | None = None
    create: bool = False
    period: Name | None = None
    budget: TotalTable | None = None
    session: _Session | None = None
    describe: list[Text] | Literal["all"] = Field(default_factory=list)


class _Analyst(FileTable):
    token: Text
    role: Role = "analyst"
    datasets: list[str] | Literal["all"] = Field(default_factory=list)
    allowance: dict[str, TotalTable] = Field(default_factory=dict)


class _File(FileTable):
    server: _Server = _Server()
    limits: LimitsTable = LimitsTable()
    datasets: dict[Name, _Dataset] = Field(default_factory=dict)
    analysts: dict[Name, _Analyst] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """What single questions may spend, and how they are answered (``sf.open_session``)."""

    budget: Budget
    public: str | None
    settings: SessionTable


@dataclass(frozen=True, slots=True)
class DatasetConfig:
    """A table that is served: where it is, what its records may look like, what it may spend.

    ``declared_in`` is the file that describes it. ``total`` is that of its ledger; with
    ``declares_total`` the file gives it as such, so that a ledger with another one is brought to it
    or refused. ``create`` allows the server to create the ledger. ``describe`` are columns that
    are not in the schema and may be described all the same.
    """

    name: str
    about: str
    source: str | SqlSource | CsvSource | DerivedSource
    table_id: str
    domain: Domain
    neighbours: Neighbours
    unit: PrivacyUnit | None
    ledger: str
    total: Budget | None
    session: SessionConfig | None
    constraints: Constraints | None = None
    create: bool = False
    declares_total: bool = False
    declared_in: str = "the configuration"
    describe: tuple[str, ...] | Literal["all"] = ()
    series: str | None = None
    period: str | None = None
    head: Path | None = None

    @property
    def right(self) -> str:
        """What people must be given to use it: its name, or that of its series."""
        return self.name if self.series is None else self.series


@dataclass(frozen=True, slots=True)
class Analyst:
    """Somebody who holds a token: which datasets are theirs, and how much of each."""

    name: str
    token: str
    role: Role
    datasets: frozenset[str]
    allowances: Mapping[str, Budget]

    def __post_init__(self) -> None:
        """Let the rights to a series hold for its periods."""
        object.__setattr__(self, "datasets", Rights(self.datasets))

    @property
    def is_curator(self) -> bool:
        """Whether this person may see all of a ledger and freeze a dataset."""
        return self.role == "curator"

    @property
    def may_ask(self) -> bool:
        """Whether this person may plan, ask and spend."""
        return self.role in ("analyst", "curator")

    @property
    def sees_all(self) -> bool:
        """Whether this person may read all of a ledger, whoever spent it."""
        return self.role in ("curator", "auditor")

    @property
    def may_scrape(self) -> bool:
        """Whether this token reads the metrics."""
        return self.role in ("curator", "scraper")


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that ``sfumato serve`` needs to know; ``series`` make what a period is."""

    host: str
    port: int
    state: Path
    grid: float
    limits: LimitsTable
    datasets: Mapping[str, DatasetConfig]
    analysts: tuple[Analyst, ...]
    page: bool = True
    log: LogFormat | None = None
    series: Mapping[str, Callable[[str], DatasetConfig]] = field(default_factory=dict)

    @property
    def rights(self) -> frozenset[str]:
        """The names of all datasets that are no periods, and of all series."""
        return frozenset(dataset.right for dataset in self.datasets.values())


def read_config(path: str | Path) -> Config:
    """The server that a configuration file describes."""
    file = read_toml(path)
    tables = validated(_File, file.data, file, ())
    if not tables.datasets:
        raise file.error("there is nothing to serve; add a table [datasets.NAME] with a spec in it")
    if not tables.analysts:
        raise file.error(
            "nobody may ask; add a table [analysts.NAME] with token = the hash that "
            "`sfumato token` prints"
        )
    firsts = {
        name: _dataset(file, name, table, tables.limits) for name, table in tables.datasets.items()
    }
    series = {
        name: partial(_period, file, name, table, tables.limits)
        for name, table in tables.datasets.items()
        if table.period is not None
    }
    _check_ledgers(file, firsts)
    analysts = tuple(_analyst(file, n, t, firsts) for n, t in tables.analysts.items())
    datasets = {dataset.name: dataset for dataset in firsts.values()}
    _check_tokens(file, analysts)
    return Config(
        host=tables.server.host,
        port=tables.server.port,
        state=_beside(file, tables.server.state),
        grid=tables.server.grid_milliseconds / 1000,
        limits=tables.limits,
        datasets=datasets,
        analysts=analysts,
        page=tables.server.page,
        log=tables.server.log,
        series=series,
    )


def _beside(file: TomlFile, path: str) -> Path:
    return (file.folder or Path()) / path


def _dataset(file: TomlFile, name: str, table: _Dataset, limits: LimitsTable) -> DatasetConfig:
    at: KeyPath = ("datasets", name)
    if table.period is not None:
        return _first_period(file, name, table, limits, at)
    dataset = (
        _from_keys(file, name, table, at)
        if table.spec is None
        else _from_spec(file, name, table, table.spec, at)
    )
    if dataset.domain.size > limits.cells:
        raise file.error(
            f"its domain has {dataset.domain.size:,} cells, limits.cells allows {limits.cells:,}; "
            "raise the limit, or serve fewer attributes",
            at,
        )
    more, head = table.describe, None if table.head is None else _beside(file, table.head)
    return replace(dataset, describe="all" if more == "all" else tuple(more), head=head)


def _first_period(
    file: TomlFile, name: str, table: _Dataset, limits: LimitsTable, at: KeyPath
) -> DatasetConfig:
    """The first period of a series, which the configuration begins."""
    assert table.period is not None  # noqa: S101
    if table.spec is not None:
        raise file.error(
            "a series of periods is described here, not by a spec; give source, domain, ledger and "
            "budget",
            (*at, "spec"),
        )
    for key in ("source", "ledger", "head"):
        if PERIOD not in (getattr(table, key) or PERIOD):
            raise file.error(
                f"each period has a table and a ledger of its own; write {PERIOD} where its name "
                f'stands, as in {key} = "{name}-{PERIOD}.{key}"',
                (*at, key),
            )
    first, other = (_period(file, name, table, limits, p) for p in (table.period, "another"))
    if first.table_id == other.table_id:
        raise file.error(
            f"every period would be called {first.table_id!r} in its ledger; add "
            f'name = "{name} {PERIOD}"',
            (*at, "source"),
        )
    return first


def _period(
    file: TomlFile, name: str, table: _Dataset, limits: LimitsTable, period: str
) -> DatasetConfig:
    """A period of a series: its table and its ledger, named by it."""
    parts = {key: getattr(table, key) for key in ("source", "query", "ledger", "head", "name")}
    own = {k: v.replace(PERIOD, period) for k, v in parts.items() if v is not None}
    create = table.create and period == table.period  # all others are begun by a record
    plain = table.model_copy(update={**own, "period": None, "create": create})
    whole = f"{name}{_APART}{period}"
    made = _dataset(file, name, plain, limits)
    return replace(made, name=whole, series=name, period=period)


def _from_spec(
    file: TomlFile, name: str, table: _Dataset, named: str, at: KeyPath
) -> DatasetConfig:
    for key in sorted(table.model_fields_set - {"spec", "about", "session", "describe", "head"}):
        raise file.error(f"the spec says this already; leave {key} out", (*at, key))
    try:
        spec = read_spec(_beside(file, named), needs_workload=False)
        source = spec.table()
    except SchemaError as error:
        raise file.error(str(error), (*at, "spec")) from None
    if spec.ledger is None:
        raise file.error(
            f"{named} names no ledger, and a server must remember what it spends; add a table "
            '[ledger] with path = "NAME.ledger" to it',
            (*at, "spec"),
        )
    table_id = spec.name or _public_name(source)
    whose = (spec.domain, spec.neighbours, spec.unit)
    ledger: LedgerSpec = spec.ledger
    total = ledger.total or spec.budget
    session = _session(file, table.session, at, ledger.total)
    return DatasetConfig(
        name,
        table.about,
        source,
        table_id,
        *whose,
        ledger.path,
        total,
        session,
        spec.constraints,
        ledger.create,
        ledger.total is not None,
        str(spec.path),
    )


def _from_keys(file: TomlFile, name: str, table: _Dataset, at: KeyPath) -> DatasetConfig:
    for key in ("source", "domain", "ledger", "budget"):
        if getattr(table, key) is None:
            raise file.error(
                f"the key '{key}' is missing; a dataset is a spec, or source, domain, ledger and "
                "budget",
                at,
            )
    source = table_from(file, table, at)
    assert source is not None  # noqa: S101  the loop above
    assert table.domain is not None  # noqa: S101
    assert table.ledger is not None  # noqa: S101
    assert table.budget is not None  # noqa: S101
    ledger = ledger_place(file, table.ledger, file.folder or Path(), (*at, "ledger"))
    total = total_from(file, table.budget, (*at, "budget"))
    return DatasetConfig(
        name=name,
        about=table.about,
        source=source,
        table_id=table.name or _public_name(source),
        domain=named_domain(file, table.domain, (*at, "domain")),
        neighbours=table.neighbours,
        unit=unit_from(file, table, at),
        ledger=ledger,
        total=total,
        session=_session(file, table.session, at, total),
        create=table.create,
        declares_total=True,
        declared_in=file.name,
    )


def _session(
    file: TomlFile, table: _Session | None, at: KeyPath, total: Budget | None
) -> SessionConfig | None:
    if table is None:
        return None
    where = (*at, "session")
    public = source_from(file, table.public, (*where, "public"))
    budget = budget_from(file, table, where)
    _check_within(file, budget, total, "the session", where)
    return SessionConfig(budget, public, table)


def _check_within(
    file: TomlFile, part: Budget, total: Budget | None, whose: str, at: KeyPath
) -> None:
    """Refuse a part that is larger than the whole: it could never be spent, and promises more."""
    if total is not None and is_larger(part, total):
        raise file.error(larger_in_words(whose, part, total), at)


def is_larger(part: Budget, total: Budget) -> bool:
    """Whether a part may spend more than the whole, in a parameter that both have."""
    names = ("epsilon", "delta", "rho", "mu")
    pairs = [(getattr(part, name), getattr(total, name)) for name in names]
    return any(a is not None and b is not None and a > b for a, b in pairs)


def larger_in_words(whose: str, part: Budget, total: Budget) -> str:
    """The refusal of a part that may spend more than the whole, with what to do about it."""
    return (
        f"{whose} may spend {part.describe()}, the whole table only {total.describe()}; lower it, "
        "or give the table more"
    )


def _public_name(source: str | SqlSource | CsvSource | DerivedSource) -> str:
    from sfumato.vault.tables import public_name

    return public_name(source)


def _analyst(
    file: TomlFile, name: str, table: _Analyst, datasets: Mapping[str, DatasetConfig]
) -> Analyst:
    at: KeyPath = ("analysts", name)
    if not HASH.fullmatch(table.token):
        raise file.error(
            "expected the hash of a token, written sha256: and 64 digits, never the token itself; "
            "`sfumato token` makes both",
            (*at, "token"),
        )
    theirs = list(datasets) if table.datasets == "all" else list(table.datasets)
    for place, dataset in enumerate(theirs):
        if dataset not in datasets:
            raise file.error(
                f"there is no dataset {dataset!r}{did_you_mean(dataset, datasets)}; there are: "
                f"{listing(list(datasets))}",
                (*at, "datasets", place),
            )
    if table.allowance and table.role in ("auditor", "scraper"):
        raise file.error(
            f"an allowance for somebody with the role {table.role!r}, who cannot spend; leave it "
            "out, or make the role analyst or curator",
            (*at, "allowance"),
        )
    for dataset in table.allowance:
        if dataset not in theirs:
            raise file.error(
                f"an allowance for {dataset!r}, which is none of their datasets; add it to "
                "datasets, or leave the allowance out",
                (*at, "allowance", dataset),
            )
    allowances = {
        dataset: total_from(file, amounts, (*at, "allowance", dataset))
        for dataset, amounts in table.allowance.items()
    }
    for dataset, budget in allowances.items():
        whole = datasets[dataset].total if datasets[dataset].declares_total else None
        _check_within(file, budget, whole, f"{name!r}", (*at, "allowance", dataset))
    return Analyst(name, table.token, table.role, frozenset(theirs), allowances)


def _check_tokens(file: TomlFile, analysts: tuple[Analyst, ...]) -> None:
    seen: dict[str, str] = {}
    for analyst in analysts:
        if analyst.token in seen:
            raise file.error(
                f"this token is also that of {seen[analyst.token]!r}; make one for each person "
                "with `sfumato token`",
                ("analysts", analyst.name, "token"),
            )
        seen[analyst.token] = analyst.name


def _check_ledgers(file: TomlFile, datasets: Mapping[str, DatasetConfig]) -> None:
    """Two names for one table would be two budgets for the same people.

    Compared are the files and the tables of databases that rows come from, whatever the path, the
    link, the glob, the address, the view or the query by which they are read.
    """
    for one, other in combinations(datasets.values(), 2):
        fault = check_apart(one, other)
        if fault:
            raise file.error(fault, ("datasets", other.right))


def check_apart(one: DatasetConfig, other: DatasetConfig) -> str:
    """Return why two datasets cannot be served side by side; nothing if they can."""
    key = ""
    if _is_same_place(one.ledger, other.ledger):
        key = "ledger"
    elif (
        one.head is not None
        and other.head is not None
        and _is_same_place(str(one.head), str(other.head))
    ):
        key = "head file"
    elif _share_data(one, other):
        key = "source"
    if not key:
        return ""
    return (
        f"has the same {key} as {one.name!r}, or reads some of the same data; one table is "
        "served under one name, with one ledger, whatever the query"
    )


def _is_same_place(one: str, other: str) -> bool:
    """Whether two ledgers are one: the same address, or paths of one file."""
    if "://" in one or "://" in other:
        return one == other
    places = [_file_places(path) for path in (one, other)]
    return bool(places[0] & places[1])


def _file_places(path: str) -> set[str]:
    """A file by the path that all links end at, and by its device and inode."""
    places = {os.path.realpath(path)}
    with suppress(OSError):
        about = Path(path).stat()
        places.add(f"inode {about.st_dev}:{about.st_ino}")
    return places


def _share_data(one: DatasetConfig, other: DatasetConfig) -> bool:
    """Whether two sources read the same files or tables; a server is asked only if both do."""
    from sfumato.vault.identity import data_identity, shares_data

    sources = (one.source, other.source)
    identities = [data_identity(source, connect=False) for source in sources]
    if shares_data(*identities):
        return True
    servers = [{d.place for d in each if d.kind == "postgres"} for each in identities]
    if not servers[0] & servers[1]:
        return False
    return shares_data(*(data_identity(source) for source in sources))


# Whether a configuration can be served: what it names is opened, and obeyed or refused


def open_ledger(dataset: DatasetConfig, config: Config) -> Ledger:
    """Return the ledger of a dataset, brought to what the configuration says.

    A missing one is created only where the configuration says so. A lowered total takes effect and
    is recorded, one that is not lower is refused with the command that sets it. Allowances are
    given, changed and withdrawn as they stand in the file.

    Raises:
        LedgerError: If it is missing, damaged, of another table, unit or neighbour relation, or has
            a total that is not at least the configuration's.
    """
    terms = terms_of(dataset)
    if dataset.create and not Ledger.exists(dataset.ledger):
        ledger = terms.open_or_create(dataset.ledger, keep_open=True)
    else:
        ledger = terms.open(dataset.ledger, keep_open=True, advice=_advice(dataset))
        ledger.check_unit(terms.unit)
        if dataset.declares_total:
            obey_total(ledger, dataset.total or terms.total, dataset.declared_in)
    _set_allowances(ledger, config, dataset.right)
    return ledger


def terms_of(dataset: DatasetConfig) -> Terms:
    """Return whose budget the ledger of a dataset is, and how much; reads no table."""
    from sfumato.vault.tables import name_of, public_name

    total = dataset.total
    if total is None and Ledger.exists(dataset.ledger):
        total = Ledger.open(dataset.ledger, head=dataset.head).budget
    if total is None:
        raise LedgerError(
            f"dataset {dataset.name!r}: its spec asks for an error, not for a budget, so the total "
            "of its ledger is not known; add epsilon and delta to its table [ledger]"
        )
    if dataset.session is not None:  # so that its first paid answer leaves the rest to pure noise
        total = total.reserving(dataset.session.budget)
    own = public_name(dataset.source)
    name = name_of(dataset.source) if dataset.table_id == own else dataset.table_id
    return Terms(name or own, dataset.neighbours, dataset.unit or "row", total, dataset.head)


def _advice(dataset: DatasetConfig) -> str:
    return f"\nor say create = true for dataset {dataset.name!r} in {dataset.declared_in}"


def _set_allowances(ledger: Ledger, config: Config, name: str) -> None:
    """Write the allowances of the configuration into the ledger, where they are not so already."""
    held = {a.analyst: a.budget for a in ledger.allowances()}
    for analyst in config.analysts:
        allowance = analyst.allowances.get(name)
        if allowance == held.get(analyst.name):
            continue
        if allowance is None:
            ledger.withdraw(analyst.name)
        else:
            ledger.allow(analyst.name, allowance)


def faults(config: Config) -> list[str]:
    """Return all that would stop or surprise a server of this configuration; writes nothing."""
    listed = [*_faults_of(partial(check_address, config.host, config.port)), *_state(config.state)]
    for dataset in [*config.datasets.values(), *_later(config)]:
        for check in (partial(_check_ledger, config=config), check_table, _check_session):
            messages = _faults_of(partial(check, dataset))
            listed += [f"dataset {dataset.name!r}: {each}" for each in messages]
    return listed


def _later(config: Config) -> Iterator[DatasetConfig]:
    """The periods that were begun after those of the file, as far as their ledgers can be read."""
    for name, make in config.series.items():
        period = next(d for d in config.datasets.values() if d.series == name)
        with suppress(SfumatoError):
            while Ledger.exists(period.ledger):
                with closing(Ledger.open(period.ledger, head=period.head)) as ledger:
                    held = ledger.renewal()
                if held is None:
                    break
                period = make(held[0].period)
                yield period


def _faults_of(check: Callable[[], None]) -> Iterator[str]:
    try:
        check()
    except SfumatoError as error:
        yield str(error)


def check_address(host: str, port: int) -> None:
    """Refuse an address that nobody could be answered at, before anything is opened."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        socket.create_server(address, family=family).close()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise SfumatoError(
            f"{host}, port {port} cannot be served ({reason}); stop the server that is there, give "
            "another --port, or change [server] of the configuration"
        ) from None


def _state(path: Path) -> Iterator[str]:
    """What is wrong with the state file; one that is not there yet is made by the server."""
    from sfumato_web.server.responses import ResponseStore

    advice = "name another file in [server] state, or make it usable"
    if not path.parent.is_dir():
        yield f"the folder of the server's state {path} does not exist; create it, or {advice}"
    elif not path.exists():
        if not os.access(path.parent, os.W_OK):
            yield f"the folder of the server's state {path} cannot be written; {advice}"
    elif not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
        yield f"the server's state {path} is no file that can be written; {advice}"
    else:
        yield from _faults_of(lambda: ResponseStore(path, 0).close())


def _check_ledger(dataset: DatasetConfig, config: Config) -> None:
    terms = terms_of(dataset)
    if dataset.create and not Ledger.exists(dataset.ledger):
        folder = Path(dataset.ledger).parent
        if "://" not in dataset.ledger and not _can_be_made(folder):
            raise LedgerError(
                f"the ledger {dataset.ledger} cannot be created in {folder}; make the folder "
                "writable, or name another place"
            )
        return
    ledger = terms.open(dataset.ledger, advice=_advice(dataset))
    try:
        ledger.check_unit(terms.unit)
        if dataset.declares_total:
            check_total(ledger, dataset.total or terms.total, dataset.declared_in)
        else:
            _check_parts(dataset, config, ledger.budget)
        ledger.check()
    finally:
        ledger.close()


def _check_parts(dataset: DatasetConfig, config: Config, total: Budget) -> None:
    """Refuse a session or an allowance that is larger than what the ledger has in all."""

    parts = {repr(a.name): a.allowances.get(dataset.right) for a in config.analysts}
    parts["the session"] = None if dataset.session is None else dataset.session.budget
    for whose, part in parts.items():
        if part is not None and is_larger(part, total):
            raise LedgerError(larger_in_words(whose, part, total))


def _can_be_made(folder: Path) -> bool:
    """Whether files can be made in a folder, or the folder itself."""
    there = next((part for part in (folder, *folder.parents) if part.exists()), Path())
    return there.is_dir() and os.access(there, os.W_OK)


def check_table(dataset: DatasetConfig) -> None:
    """Open the table and look at the names and types of its columns; reads no row."""
    from sfumato.vault.encode import check_columns
    from sfumato.vault.tables import open_table

    check_columns(open_table(dataset.source), dataset.domain, dataset.unit)


def _check_session(dataset: DatasetConfig) -> None:
    from sfumato.vault.encode import check_columns
    from sfumato.vault.tables import open_table

    session = dataset.session
    if session is None:
        return
    session.settings.plan(dataset.domain, session.budget, dataset.neighbours, dataset.unit)
    if session.public is not None:
        check_columns(open_table(session.public), dataset.domain, None)
