# SPDX-License-Identifier: Apache-2.0
"""A ledger that its first debit creates: empty before it, the ledger itself after."""

from __future__ import annotations

from pathlib import Path

import sfumato as sf
from sfumato.ledger.ledger import Ledger, LedgerToCreate, Terms
from sfumato.ledger.unmade_ledger import UnmadeLedger
from sfumato.privacy.cost import Cost

HALF = Cost.pure(sf.Budget(epsilon="0.5").pure_epsilon)


def test_it_is_empty_with_the_whole_budget_and_after_a_debit_the_ledger_itself(
    tmp_path: Path,
) -> None:
    place = tmp_path / "new.ledger"
    new = LedgerToCreate(Terms("t", "add-remove", "row", sf.Budget(epsilon=1)), place)
    ledger = UnmadeLedger(new)
    assert (ledger.answer("a"), ledger.entry("a"), ledger.state("a")) == (None, None, None)
    assert ledger.keys_after(0, "a") == (0, ())
    assert (ledger.how_many_more(HALF), ledger.remaining().share) == (2, 1)
    assert not ledger.is_frozen()
    assert ledger.allowance("ann") is None
    new.close()
    assert not list(tmp_path.iterdir())

    entry = ledger.debit(HALF, {"a": 1}, "a", unit="row")
    ledger.store(entry, b"answer")
    made = Ledger.open(place)
    assert made.answer("a") == ledger.answer("a") == b"answer"
    assert ledger.entry("a") == made.entry("a")
    assert ledger.keys_after(0, "a")[1] == ("a",)
    assert (ledger.how_many_more(HALF), ledger.remaining()) == (1, made.remaining())
    kept = ledger.keep_soon("b", {"b": 1}, b"free", entry).result()
    assert (kept.answer, made.answer("b")) == (b"free", b"free")
    late = ledger.debit(HALF, {"c": 1}, "c", unit="row")
    assert ledger.burn(late).state == made.entry("c").state == "burnt"
    made.freeze("a reason")
    assert ledger.is_frozen()
    new.close()
