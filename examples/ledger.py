# SPDX-License-Identifier: Apache-2.0
"""A ledger remembers what was spent: repeats are free, and the budget is never exceeded."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pandas as pd

import sfumato as sf

records = pd.DataFrame({"grade": [i % 6 for i in range(1200)]})
domain = sf.Domain({"grade": 6})
work = sf.marginals(domain, 1)

with tempfile.TemporaryDirectory() as folder:
    # All releases of this table together may spend epsilon = 1.
    total = sf.Budget(epsilon=1)
    book = sf.Ledger.create(Path(folder) / "grades.ledger", total, "grades", unit="row")
    plan = sf.plan(work, sf.Budget(epsilon=0.5))

    first = plan.release(records, ledger=book, name="grades")
    again = plan.release(records, ledger=book, name="grades")  # the stored answer: costs nothing
    print("the same answers:", first.answers().equals(again.answers()), again.is_stored)
    print(book.remaining().describe())

    plan.release(records, ledger=book, name="grades", key="second look")
    try:
        plan.release(records, ledger=book, name="grades", key="third look")
    except sf.BudgetExhausted as refusal:
        print(refusal)
    print("whole:", book.verify().is_whole)
    book.close()
