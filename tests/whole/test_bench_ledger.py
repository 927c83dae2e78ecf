# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the ledger does what it says: every operation, on a ledger that stays whole."""

from __future__ import annotations

from pathlib import Path

from bench.ledger import THREADS, rate, run


def test_every_operation_is_measured_once_per_number_of_threads(tmp_path: Path) -> None:
    rows = run(str(tmp_path / "b.ledger"), "SQLite", seconds=0)
    assert [(row.what, row.threads) for row in rows] == [
        (what, threads)
        for what in ("debit", "free answer", "stored answer", "refusal")
        for threads in THREADS
    ]
    assert all(row.per_second > 0 for row in rows)


def test_every_thread_counts_and_no_key_comes_twice() -> None:
    keys: list[str] = []
    per_second, _ = rate(keys.append, 5, 0)
    assert per_second > 0
    assert len(set(keys)) == len(keys) >= 5
