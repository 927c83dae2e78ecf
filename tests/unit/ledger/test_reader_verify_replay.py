# SPDX-License-Identifier: Apache-2.0
"""Every rule of the chain, broken alone: the replay names it, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from sfumato.ledger.account import Account
from sfumato.ledger.entries import (
    GENESIS,
    Allowed,
    Answered,
    Burnt,
    Commitment,
    Debited,
    Fact,
    Frozen,
    Kept,
    Opened,
    Record,
    Unfrozen,
    Vouched,
)
from sfumato.ledger.reader import Replay
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost

BUDGET = Budget(epsilon=1, delta="1/1000000")
OPENED = Opened(BUDGET, "t", "add-remove")
TENTH = Cost.pure(Fraction(1, 10))


def debit(key: str, cost: Cost = TENTH, analyst: str | None = None, *states: Commitment) -> Debited:
    return Debited(key, "{}", cost, "owner", analyst, states)


def kept(key: str, paid: int, *states: Commitment) -> Kept:
    return Kept(key, "{}", paid, "0" * 64, None, states)


def state(version: int, name: str = "s") -> Commitment:
    return Commitment(name, version, "0" * 64)


def chain(*facts: Fact) -> list[Record]:
    """Records that keep the rules as far as balances, marks and hashes go."""
    records: list[Record] = []
    account, previous, is_frozen = Account(BUDGET), GENESIS, False
    for sequence, fact in enumerate((OPENED, *facts)):
        if isinstance(fact, Debited):
            account = account.plus(fact.cost)
        if isinstance(fact, Frozen | Unfrozen):
            is_frozen = isinstance(fact, Frozen)
        spent = (account.spent, account.pure_spent)
        records.append(Record(sequence, "now", previous, *spent, fact, is_frozen))
        previous = Record.hash_of(records[-1].text())
    return records


def replayed(records: list[Record]) -> Replay:
    rows = [(r.sequence, Record.hash_of(r.text()), r.text()) for r in records]
    return Replay.of(rows, BUDGET)


def problems(*facts: Fact) -> list[str]:
    return replayed(chain(*facts)).problems


def test_a_chain_that_keeps_the_rules_has_no_problem_and_says_what_follows():
    found = replayed(
        chain(
            debit("a", TENTH, "ann", state(1)),
            Answered(1, "0" * 64, (state(2), state(1, "t"))),
            Allowed("ann", Budget(epsilon="1/2")),
            debit("b", TENTH, "ann"),
            Burnt(4),
            debit("b", TENTH, "bob"),
            kept("c", 1, state(3)),
            kept("d", 6),
            Frozen("why"),
            Unfrozen("why"),
            Vouched(),
        )
    )
    assert found.problems == []
    assert len(found.hashes) == 12
    assert [r.sequence for r, _ in found.chain] == [0, 1, 2, 3, 4, 5, 6, 9, 10, 11]
    assert found.free == {"c": (7, "0" * 64), "d": (8, "0" * 64)}
    assert found.states == {"s": (7, state(3)), "t": (2, state(1, "t"))}
    assert found.allowances == {"ann": Account(Budget(epsilon="1/2")).plus_all([TENTH, TENTH])}
    assert found.account == Account(BUDGET).plus_all([TENTH] * 3)
    assert not found.is_frozen
    assert replayed(chain(Frozen("why"))).is_frozen


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ([debit("a"), Vouched(), debit("a")], "record 3: its key was used before and not burnt"),
        ([debit("a"), kept("a", 1)], "record 2: its key was used before and not burnt"),
        ([debit("a"), kept("b", 1), kept("b", 1)], "record 3: its key was used before and"),
        ([debit("a"), kept("b", 1), debit("b")], "record 3: its key was used before and"),
        ([Answered(1, "")], "record 1: it closes debit 1, which is not open"),
        ([debit("a"), Answered(1, ""), Burnt(1)], "record 3: it closes debit 1, which is not"),
        ([debit("a"), Burnt(1), Answered(1, "")], "record 3: it closes debit 1, which is not"),
        ([kept("a", 0)], "record 1: debit 0 does not pay for it"),
        ([debit("a"), Burnt(1), kept("a", 1)], "record 3: debit 1 does not pay for it"),
        ([Frozen("a"), Vouched(), Frozen("b")], "record 3: it freezes or unfreezes a ledger that"),
        ([Unfrozen("a")], "record 1: it freezes or unfreezes a ledger that is so already"),
        ([Frozen(""), debit("a")], "record 2: it came while the ledger was frozen"),
        ([debit("a"), Frozen(""), kept("b", 1)], "record 3: it came while the ledger was frozen"),
        ([debit("a", TENTH, None, state(2))], "record 1: it writes state 's' out of order"),
        ([debit("a", TENTH, None, state(1), state(1))], "record 1: it writes state 's' out of"),
        (
            [debit("a"), Answered(1, "", (state(1),)), kept("b", 1, state(3))],
            "record 3: it writes state 's' out of order",
        ),
        ([OPENED], "record 1: a ledger is opened by its first record only"),
        (
            [Allowed("ann", Budget(epsilon="0.1")), debit("a", TENTH, "ann"), debit("b", TENTH,
             "ann")],
            "record 3: more than the allowance of its analyst is spent",
        ),
        ([debit("a", Cost.pure(Fraction(11, 10)))], "record 1: more than the budget is spent"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_named_with_its_record(facts, problem):
    (found,) = problems(*facts)
    assert found.startswith(problem)


def test_an_allowance_counts_the_debits_before_it_and_those_of_its_analyst_only():
    allowed = Allowed("ann", Budget(epsilon="0.1"))
    assert problems(debit("a", TENTH, "bob"), debit("b"), allowed, debit("c", TENTH, "ann")) == []
    late = problems(debit("a", TENTH, "ann"), allowed, debit("b", TENTH, "ann"))
    assert late == ["record 3: more than the allowance of its analyst is spent"]


CHANGES = {
    "number": {"sequence": 5},
    "previous hash": {"previous": "1" * 64},
    "balance": {"spent": 0},
    "pure balance": {"pure_spent": 0},
    "frozen mark": {"frozen": True},
}


@pytest.mark.parametrize("word", CHANGES)
def test_a_field_that_does_not_follow_is_named(word):
    records = chain(debit("a"))
    changed = replace(records[-1], **CHANGES[word])
    rows = [(i, Record.hash_of(r.text()), r.text()) for i, r in enumerate([records[0], changed])]
    assert Replay.of(rows, BUDGET).problems == [f"record 1: its {word} is wrong"]


def test_places_hashes_and_texts_that_are_wrong_are_named():
    first, second = ((r.sequence, Record.hash_of(r.text()), r.text()) for r in chain(Vouched()))
    assert Replay.of([first, (7, *second[1:])], BUDGET).problems == ["record 7: its place is wrong"]
    assert Replay.of([first, (1, "0" * 64, second[2])], BUDGET).problems == [
        "record 1: its hash is wrong"
    ]
    lost = Replay.of([first, (1, "0" * 64, "no record"), (2, *second[1:])], BUDGET)
    assert lost.problems[0].startswith("record 1: ")
    assert lost.problems[1:] == [
        "record 2: its number is wrong",
        "record 2: its previous hash is wrong",
    ]
    assert Replay.of([second], BUDGET).problems == [
        "record 1: its place is wrong",
        "record 1: its number is wrong",
        "record 1: its previous hash is wrong",
        "record 1: a ledger is opened by its first record only",
    ]


def test_a_wrong_balance_is_named_once_and_the_next_record_follows_from_what_is_written():
    records = chain(debit("a"), debit("b"))
    lower = replace(records[1], spent=records[1].spent - 1)
    after = Account(BUDGET, lower.spent, lower.pure_spent).plus(TENTH)
    following = Record.hash_of(lower.text())
    last = replace(records[2], previous=following, spent=after.spent, pure_spent=after.pure_spent)
    assert replayed([records[0], lower, last]).problems == ["record 1: its balance is wrong"]


def test_a_cost_that_the_budget_cannot_hold_is_a_problem_and_no_error():
    pure = Budget(epsilon=1)
    opened = Record(0, "now", GENESIS, 0, 0, Opened(pure, "t", "add-remove"))
    digest = Record.hash_of(opened.text())
    noisy = Record(1, "now", digest, 0, 0, debit("a", Cost.gaussian(1)))
    rows = [(r.sequence, Record.hash_of(r.text()), r.text()) for r in (opened, noisy)]
    (problem,) = [p for p in Replay.of(rows, pure).problems if "balance" not in p]
    assert problem.startswith("record 1: ")
    assert "pure" in problem
