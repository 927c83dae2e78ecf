# SPDX-License-Identifier: Apache-2.0
"""Whether a configuration can be served: what it names is opened, and obeyed or refused.

`faults` opens the address, the state, and of every dataset its ledger, its table, the columns and
the session, and returns in words all that would stop or surprise the server; it writes nothing.
`open_book` opens the ledger of a dataset when the server starts, and brings its total and its
allowances to what the configuration says, or refuses.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.budget.ledger import Ledger
from sfumato.budget.opening import Terms, check_total, obey_total
from sfumato.domain.unit import unit_of
from sfumato.errors import LedgerError, SfumatoError

if TYPE_CHECKING:
    from sfumato.app.server.config import Config, DatasetConfig
    from sfumato.budget import Budget

__all__ = ["check_address", "faults", "open_book"]


def open_book(dataset: DatasetConfig, config: Config) -> Ledger:
    """Return the ledger of a dataset, as the configuration wants it.

    A missing one is created only where the configuration says so. A lowered total takes effect and
    is recorded, one that is not lower is refused with the command that sets it. Allowances are
    given, changed and withdrawn as they stand in the file.

    Raises:
        LedgerError: If it is missing, damaged, of another table, unit or neighbour relation, or has
            a total that is not at least the configuration's.
    """
    terms = _terms(dataset)
    if dataset.create and not Ledger.exists(dataset.ledger):
        book = terms.open_or_create(dataset.ledger, keep_open=True)
    else:
        book = terms.open(dataset.ledger, keep_open=True, advice=_advice(dataset))
        book.check_unit(terms.unit)
        if dataset.is_total_told:
            obey_total(book, dataset.total or terms.total, dataset.told_by)
    _set_allowances(book, config, dataset.name)
    return book


def _terms(dataset: DatasetConfig) -> Terms:
    from sfumato.vault.tables import name_of, public_name

    total = dataset.total
    if total is None and Ledger.exists(dataset.ledger):
        total = Ledger.open(dataset.ledger).budget
    if total is None:
        raise LedgerError(
            f"dataset {dataset.name!r}: its spec asks for an error, not for a budget, so the total "
            "of its ledger is not known; add epsilon and delta to its table [ledger]"
        )
    if dataset.session is not None:  # so that its first paid answer leaves the rest to pure noise
        total = total.reserving(dataset.session.budget)
    own = public_name(dataset.source)
    name = name_of(dataset.source) if dataset.table_id == own else dataset.table_id
    return Terms(name or own, dataset.neighbours, unit_of(dataset.unit), total)


def _advice(dataset: DatasetConfig) -> str:
    return f"\nor say create = true for dataset {dataset.name!r} in {dataset.told_by}"


def _set_allowances(book: Ledger, config: Config, name: str) -> None:
    """Write the allowances of the configuration into the ledger, where they are not so already."""
    held = {a.analyst: a.budget for a in book.allowances()}
    for analyst in config.analysts:
        wanted = analyst.allowances.get(name)
        if wanted == held.get(analyst.name):
            continue
        if wanted is None:
            book.withdraw(analyst.name)
        else:
            book.allow(analyst.name, wanted)


def faults(config: Config) -> list[str]:
    """Return all that would stop or surprise a server of this configuration; writes nothing."""
    listed = [*_told(partial(check_address, config.host, config.port)), *_state(config.state)]
    for dataset in config.datasets.values():
        for check in (partial(_check_ledger, config=config), _check_table, _check_session):
            words = _told(partial(check, dataset))
            listed += [f"dataset {dataset.name!r}: {each}" for each in words]
    return listed


def _told(check: Callable[[], None]) -> Iterator[str]:
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
    from sfumato.app.server.shelf import Shelf

    advice = "name another file in [server] state, or make it usable"
    if not path.parent.is_dir():
        yield f"the folder of the server's state {path} does not exist; create it, or {advice}"
    elif not path.exists():
        if not os.access(path.parent, os.W_OK):
            yield f"the folder of the server's state {path} cannot be written; {advice}"
    elif not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
        yield f"the server's state {path} is no file that can be written; {advice}"
    else:
        yield from _told(lambda: Shelf(path, 0).close())


def _check_ledger(dataset: DatasetConfig, config: Config) -> None:
    terms = _terms(dataset)
    if dataset.create and not Ledger.exists(dataset.ledger):
        folder = Path(dataset.ledger).parent
        if "://" not in dataset.ledger and not _can_be_made(folder):
            raise LedgerError(
                f"the ledger {dataset.ledger} cannot be created in {folder}; make the folder "
                "writable, or name another place"
            )
        return
    book = terms.open(dataset.ledger, advice=_advice(dataset))
    try:
        book.check_unit(terms.unit)
        if dataset.is_total_told:
            check_total(book, dataset.total or terms.total, dataset.told_by)
        else:
            _check_parts(dataset, config, book.budget)
        book.check()
    finally:
        book.close()


def _check_parts(dataset: DatasetConfig, config: Config, total: Budget) -> None:
    """Refuse a session or an allowance that is larger than what the ledger has in all."""
    from sfumato.app.server.config import is_larger, larger_in_words

    parts = {repr(a.name): a.allowances.get(dataset.name) for a in config.analysts}
    parts["the session"] = None if dataset.session is None else dataset.session.budget
    for whose, part in parts.items():
        if part is not None and is_larger(part, total):
            raise LedgerError(larger_in_words(whose, part, total))


def _can_be_made(folder: Path) -> bool:
    """Whether files can be made in a folder, or the folder itself."""
    there = next((part for part in (folder, *folder.parents) if part.exists()), Path())
    return there.is_dir() and os.access(there, os.W_OK)


def _check_table(dataset: DatasetConfig) -> None:
    """Open the table and look at the names and types of its columns; reads no row."""
    from sfumato.vault.fit import check_columns
    from sfumato.vault.tables import open_table

    check_columns(open_table(dataset.source), dataset.domain, dataset.unit)


def _check_session(dataset: DatasetConfig) -> None:
    from sfumato.online.parameters import plan_session
    from sfumato.vault.fit import check_columns
    from sfumato.vault.tables import open_table

    wanted = dataset.session
    if wanted is None:
        return
    asked = wanted.asked
    plan_session(
        dataset.domain,
        wanted.budget,
        dataset.neighbours,
        unit=dataset.unit,
        questions=asked.questions,
        updates=asked.updates,
        records=asked.records,
        level=asked.level,
        learning=asked.learning,
    )
    if wanted.public is not None:
        check_columns(open_table(wanted.public), dataset.domain, None)
