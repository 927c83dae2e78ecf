# SPDX-License-Identifier: Apache-2.0
"""Open a session: on a guarded table, or on made-up records to try questions out."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sfumato.budget import Budget, Neighbours
from sfumato.domain import Domain
from sfumato.domain.unit import PrivacyUnit, unit_of
from sfumato.errors import PlanError, WorkloadError
from sfumato.online.book import Book, MemoryBook
from sfumato.online.desk import Desk
from sfumato.online.estimate import Learning
from sfumato.online.parameters import BETA, GUESSED_RECORDS, LEVEL, QUESTIONS, plan_session
from sfumato.online.session import Session
from sfumato.online.support import Start
from sfumato.randomness import WordSource, system_words
from sfumato.refine.draws import Draws
from sfumato.refine.synthetic.synthesize import Synthetic
from sfumato.release import Release
from sfumato.release.adaptive import AdaptiveRelease
from sfumato.release.records import record_frame
from sfumato.vault.fit import check_columns
from sfumato.vault.public import check_public
from sfumato.vault.questions import ExactQuestions, public_cells
from sfumato.vault.tables import Table, name_of, open_table
from sfumato.wording import shown

if TYPE_CHECKING:
    from sfumato.budget.ledger import Ledger

__all__ = ["MOST_DUMMY", "begin_session", "open_session", "start_of"]

MOST_DUMMY = 10**6  # made-up records


def open_session(
    table: object,
    domain: Domain,
    budget: Budget,
    *,
    ledger: Ledger | str | Path | None = None,
    neighbours: Neighbours = "add-remove",
    unit: PrivacyUnit | None = None,
    start: Release | AdaptiveRelease | Start | None = None,
    public: object = None,
    questions: int = QUESTIONS,
    updates: int | None = None,
    records: int | None = None,
    level: float = LEVEL,
    beta: float = BETA,
    learning: Learning = "fit",
    name: str | None = None,
    label: str = "",
    dummy: bool = False,
    take_over: bool = False,
) -> Session:
    """A session on a table: ask, and pay only where what is known so far is wrong.

    ``ledger`` is debited epoch by epoch, up to ``budget`` in all, and remembers everything: opened
    again with the same arguments, the session goes on where it was. Without a ledger nothing
    remembers what was spent: that is the caller's promise. The estimate starts from an earlier
    release (``start``), from a table that is declared to be ``public``, or even. ``questions``,
    ``records``, ``updates``, ``learning``: see `plan_session`. ``name`` is the table's in the
    ledger; ``label`` tells sessions with equal arguments apart. With ``dummy`` the records are made
    up, ``table`` is not opened and nothing is spent.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 10, "sex": 2})
    >>> with sf.open_session(None, domain, sf.Budget(epsilon=1), dummy=True) as session:
    ...     answer = session.ask("SELECT COUNT(*) FROM t WHERE age < 3")
    >>> answer.is_dummy, answer.low <= answer.value <= answer.high
    (True, True)
    """
    return begin_session(
        table,
        domain,
        budget,
        system_words(),
        ledger=ledger,
        neighbours=neighbours,
        unit=unit,
        start=start,
        public=public,
        questions=questions,
        updates=updates,
        records=records,
        level=level,
        beta=beta,
        learning=learning,
        name=name,
        label=label,
        dummy=dummy,
        take_over=take_over,
    )


def begin_session(
    table: object,
    domain: Domain,
    budget: Budget,
    words: WordSource,
    *,
    ledger: Ledger | str | Path | None = None,
    neighbours: Neighbours = "add-remove",
    unit: PrivacyUnit | None = None,
    start: Release | AdaptiveRelease | Start | None = None,
    public: object = None,
    name: str | None = None,
    label: str = "",
    dummy: bool = False,
    take_over: bool = False,
    **chosen: object,
) -> Session:
    """`open_session` with a source of random words of one's own; for tests and the audit."""
    from sfumato.budget.opening import ledger_of

    planned = partial(plan_session, domain, budget, neighbours, unit=unit, **chosen)  # type: ignore[arg-type]
    plan = planned()
    if start is not None and public is not None:
        raise PlanError("a session starts from a release or from a public table, not from both")
    check_public(public, table)
    guarded = None if dummy else open_table(table)
    if guarded is not None and guarded.may_drop_records and plan.records_noise is None:
        plan = planned(may_drop_records=True)
    begun = start_of(start, domain) if public is None else _public_start(public, domain)
    marks = (plan.digest(), "even" if begun is None else begun.digest(), label)
    title = f"session {hashlib.sha256('|'.join(marks).encode()).hexdigest()[:16]}"
    if guarded is None:
        made_up = _made_up(domain, unit, chosen.get("records"))
        exact = ExactQuestions(made_up, domain, plan.neighbours, unit)
        desk = Desk(exact, plan, MemoryBook(), begun, words, title, is_dummy=True, take_over=False)
        return Session(desk, desk.forget)
    check_columns(guarded, domain, unit)
    whose = (plan.neighbours, budget, unit_of(unit))
    book = ledger_of(ledger, name_of(table, name), *whose, keep_open=True)
    is_ours = book is not None and book is not ledger
    kept: Book = MemoryBook() if book is None else book
    exact = ExactQuestions(guarded, domain, plan.neighbours, unit)
    with ExitStack() as opened:  # an error may be kept for long, and a connection with it
        if book is not None and is_ours:
            opened.callback(book.close)
        if book is not None and not _has_begun(book, title):
            book.check_unit(unit_of(unit))
        desk = Desk(exact, plan, kept, begun, words, title, is_dummy=False, take_over=take_over)
        opened.callback(desk.forget)
        closing = opened.pop_all()
    return Session(desk, closing.close)


def _has_begun(book: Ledger, title: str) -> bool:
    """Whether the ledger has debits of this session; their answers stay, whatever its unit."""
    return any(book.entry(f"{title} {first}") is not None for first in ("records 1", "epoch 1"))


def start_of(start: object, domain: Domain) -> Start | None:
    """The weighted cells behind an earlier release, or none."""
    if start is None or isinstance(start, Start):
        return start
    if isinstance(start, AdaptiveRelease):
        names, codes = start.estimate.domain.names, start.cells
        found = Start(names, np.asarray(codes, np.int64), np.asarray(start.weights, np.float64))
    elif isinstance(start, Release):
        behind = start.estimates.refined
        if behind is None:
            raise PlanError(
                "the release was not projected, so no table is behind its answers; release it with "
                "project=True, or start from a public table"
            )
        found = Start(behind.attributes, behind.codes, behind.weights, behind.alike)
    else:
        raise PlanError(f"a session starts from a release, got {shown(type(start).__name__)}")
    for name in found.names:
        if name not in domain:
            raise WorkloadError(f"the release is about {name!r}, which the domain does not have")
    return found


def _public_start(public: object, domain: Domain) -> Start:
    """The records of a table that its owner declares public."""
    table = open_table(public)
    check_columns(table, domain, None)
    codes, counts = public_cells(table, domain)
    if not counts.size:
        raise PlanError("the public table has no record to start from; leave it out")
    return Start(domain.names, codes, counts.astype(np.float64))


def _made_up(domain: Domain, unit: PrivacyUnit | None, records: object) -> Table:
    """A table of made-up records: every attribute by itself, its first cells the likeliest."""
    rows = records if isinstance(records, int) else GUESSED_RECORDS
    rows = min(rows, MOST_DUMMY)
    draws = Draws("made-up records of a dummy session")
    codes = {}
    for attribute in domain:
        shares = 1.0 / np.arange(1, attribute.size + 1)
        edges = np.cumsum(shares / shares.sum())
        at = np.searchsorted(edges, draws.uniforms(rows), side="right")
        codes[attribute.name] = np.minimum(at, attribute.size - 1).astype(np.int64)
    frame = record_frame(domain, Synthetic(codes, ("made up",)), system_words())
    if unit is not None:
        frame[unit.column] = np.arange(rows)
    return open_table(frame)
