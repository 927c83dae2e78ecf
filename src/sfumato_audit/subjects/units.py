# SPDX-License-Identifier: Apache-2.0
"""Subjects of the audit: tables in which a person has several rows, of which the vault keeps a few.

A table is a tuple of rows (person, cell); neighbours have one person more or less, or one whose
rows are others. The vault chooses the rows to keep by a secret key. The claim holds for every key,
so some keys stand for all, the same ones on both tables of a pair: a table is counted once per key
and measured many times.

A ledger is audited with it: requests per person and per row are put to a real one, and what it
grants is measured. Its total is a promise for people (docs/proofs/ledger.md, claim 14).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import pandas as pd

from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import SfumatoError
from sfumato.ledger.ledger import Ledger
from sfumato.planning.calibrate import calibrate, privacy_loss
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.random import WordSource, integers_below
from sfumato.strategy.base import Block
from sfumato.types import Array, Neighbours
from sfumato.vault.derived import Feature, FeatureSource, JoinSource
from sfumato.vault.encode import read_records
from sfumato.vault.mechanisms.measure import Exact, count
from sfumato.vault.tables import open_table
from sfumato.workload.build import marginals
from sfumato_audit.examine import Claim, Pair, Sampler, Subject
from sfumato_audit.subjects.measured import COUNTING_AND_MEASURING, VAULT, Measuring

__all__ = [
    "IN_GROUPS",
    "ONE_ROW",
    "UNIT",
    "Counted",
    "People",
    "count_rows",
    "counted_in_the_vault",
    "granted",
    "ledger_subject",
    "unit_subject",
    "unit_subjects",
]


People = tuple[tuple[int, int], ...]
Counted = Callable[[People, int, Sequence[Block]], Exact]
"""What is measured of a table, with the key of this number."""

KEYS = 4
DOMAIN = Domain({"cell": 4})
UNIT = PrivacyUnit("person", 2)
IN_GROUPS = PrivacyUnit("person", groups=2, rows_per_group=1, by="cell")
SHARE = Fraction(1, 2)  # of the total of a ledger, for each request
ASKED_FOR = (UNIT, None, UNIT)  # per person, per row, per person
COVERED = frozenset({"unit:rows"}) | COUNTING_AND_MEASURING
ONE_ROW = PrivacyUnit("person", 1)
FEATURES_COVERED = COUNTING_AND_MEASURING | {
    *("unit:features", f"{VAULT}.derived.open_features", f"{VAULT}.derived.open_join")
}
GROUPS_COVERED = frozenset({"unit:groups"}) | COUNTING_AND_MEASURING


class _Key:
    """The words of a key: known ones, so that both tables of a pair can have the same."""

    def __init__(self, number: int) -> None:
        self._number = number

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """As many different words as are asked for."""
        return np.arange(1, count + 1, dtype=np.uint64) * np.uint64(
            0x9E3779B97F4A7C15 + self._number
        )


def unit_subjects() -> tuple[Subject[People], ...]:
    """Added and removed people, and people whose rows change."""
    each: tuple[Neighbours, ...] = ("add-remove", "replace-one")
    alone = (unit_subject(f"privacy unit ({n})", n, counted_in_the_vault(n), COVERED) for n in each)
    grouped = (
        unit_subject(
            f"privacy unit with groups ({n})",
            n,
            counted_in_the_vault(n, IN_GROUPS),
            GROUPS_COVERED,
            unit=IN_GROUPS,
        )
        for n in each
    )
    featured = (
        unit_subject(
            f"features of persons ({n})", n, counted_persons(n), FEATURES_COVERED, unit=ONE_ROW
        )
        for n in each
    )
    return (
        *alone,
        *grouped,
        *featured,
        ledger_subject("ledger of people, asked per person and per row", granted(True)),
    )


def granted(compares: bool) -> tuple[bool, ...]:
    """Which requests a ledger of people grants; without ``compares`` it is not told their unit."""
    cost = Cost.pure(SHARE)
    answers = []
    with TemporaryDirectory() as folder:
        ledger = Ledger.create(Path(folder) / "people.ledger", Budget(epsilon=1), "people")
        for number, unit in enumerate(ASKED_FOR):
            try:
                ledger.debit(cost, {}, f"{number}", unit=(unit or "row") if compares else None)
                answers.append(True)
            except SfumatoError:
                answers.append(False)
        ledger.close()
    return tuple(answers)


def ledger_subject(
    name: str, are_granted: Sequence[bool], is_broken: bool = False
) -> Subject[People]:
    """The releases that a ledger granted, all of them seen together, against its total."""
    strategy = MECHANISMS["laplace-table"].build(marginals(DOMAIN, 1), "laplace", "rmse")
    blocks = strategy.blocks
    of_person, of_row = (
        Measuring(DOMAIN, blocks, calibrate(strategy, float(SHARE), "add-remove", u), "add-remove")
        for u in (UNIT, None)
    )
    counted = counted_in_the_vault("add-remove")

    def sampler(people: People) -> Sampler:
        releases = [
            (of_row, count_rows(people, blocks))
            if unit is None
            else (of_person, counted(people, 0, blocks))
            for unit, is_granted in zip(ASKED_FOR, are_granted, strict=True)
            if is_granted
        ]
        return lambda runs, source: np.hstack(
            [run.measured(exact, runs, source) for run, exact in releases]
        )

    claim, pairs = Claim.of(Cost.pure(Fraction(1))), unit_pairs("add-remove")
    return Subject(name, claim, pairs, sampler, COVERED, is_broken=is_broken)


def counted_in_the_vault(neighbours: Neighbours, unit: PrivacyUnit = UNIT) -> Counted:
    """The counted rows of every person, as a release counts them."""

    def counted(people: People, key: int, blocks: Sequence[Block]) -> Exact:
        table = open_table(_frame(people))
        read_records(table, DOMAIN, DOMAIN.names, unit, _Key(key))
        return count(table, DOMAIN, blocks, neighbours, unit)

    return counted


def counted_persons(neighbours: Neighbours) -> Counted:
    """The greatest zone of every person, in the table of persons; a public table has the zones."""
    zones = pd.DataFrame({DOMAIN.names[0]: range(4), "zone": range(3, -1, -1)})

    def counted(people: People, key: int, blocks: Sequence[Block]) -> Exact:
        name = DOMAIN.names[0]
        joined = JoinSource(_frame(people), zones, name, ["zone"])
        table = open_table(FeatureSource(joined, UNIT.column, {name: Feature("max", "zone")}))
        read_records(table, DOMAIN, DOMAIN.names, ONE_ROW, _Key(key))
        return count(table, DOMAIN, blocks, neighbours, ONE_ROW)

    return counted


def unit_subject(
    name: str,
    neighbours: Neighbours,
    counted: Counted,
    covers: frozenset[str] = frozenset(),
    is_broken: bool = False,
    unit: PrivacyUnit = UNIT,
) -> Subject[People]:
    """A table of counts for people of a unit: Laplace noise, or Gaussian where it has groups."""
    mechanism = "laplace-table" if unit.groups is None else "gaussian"
    strategy = MECHANISMS[mechanism].build(
        marginals(DOMAIN, 1), MECHANISMS[mechanism].noise, "rmse"
    )
    noise = calibrate(strategy, 1.0, neighbours, unit)
    paid = privacy_loss(strategy, noise, neighbours, unit)
    cost = Cost.pure(paid) if unit.groups is None else Cost.gaussian(paid)
    run = Measuring(DOMAIN, strategy.blocks, noise, neighbours)

    def sampler(people: People) -> Sampler:
        exact = [counted(people, key, strategy.blocks) for key in range(KEYS)]

        def measured(runs: int, source: WordSource) -> Array:
            numbers = [len(range(k, runs, KEYS)) for k in range(KEYS)]
            parts = [run.measured(e, n, source) for e, n in zip(exact, numbers, strict=True)]
            out = np.empty((runs, parts[0].shape[1]))
            for k, part in enumerate(parts):
                out[k::KEYS] = part
            return out

        return measured

    return Subject(
        name,
        Claim.of(cost),
        unit_pairs(neighbours),
        sampler,
        covers,
        _random if neighbours == "add-remove" else None,
        is_broken=is_broken,
    )


def unit_pairs(neighbours: Neighbours) -> tuple[Pair[People], ...]:
    """Few and many rows of one person, alone and among others."""
    one, many = ((1, 0),) * 5, ((1, 0), (1, 1), (1, 2), (1, 3), (1, 3))
    others = tuple((person, 3) for person in (2, 3, 4) for _ in range(2))
    if neighbours == "replace-one":
        return (
            Pair("all rows move to the last cell", one, ((1, 3),) * 5),
            Pair("rows in all cells move to the first", (*many, *others), (*one, *others)),
            Pair("rows in two cells move to the others", ((1, 0), (1, 1)), ((1, 2), (1, 3))),
        )
    return (
        Pair("nobody, or a person with five rows", (), one),
        Pair("three people, or one more in front of them", others, (*one[:2], *others)),
        Pair("three people, or one more in all cells", others, (*others, *many)),
    )


def _random(source: WordSource) -> Pair[People]:
    """People with up to five rows each, and one of them left out."""
    people = 3
    rows = integers_below(5, people, source) + 1
    owners = [person for person in range(people) for _ in range(int(rows[person]))]
    table = tuple(zip(owners, integers_below(4, len(owners), source).tolist(), strict=True))
    less = tuple(row for row in table if row[0] != 1)
    return Pair("people at random, one less", table, less)


def count_rows(people: People, blocks: Sequence[Block]) -> Exact:
    """The counts of all rows, whoever they belong to."""
    return count(open_table(_frame(people)), DOMAIN, blocks, "add-remove")


def _frame(people: People) -> pd.DataFrame:
    owners = np.array([p for p, _ in people], dtype=np.int64)
    cells = np.array([c for _, c in people], dtype=np.int64)
    return pd.DataFrame({UNIT.column: owners, DOMAIN.names[0]: cells})
