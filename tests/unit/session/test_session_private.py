# SPDX-License-Identifier: Apache-2.0
"""What a session must not show: errors alike on neighbours, and a canary that is never seen."""

from __future__ import annotations

import struct
import traceback
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.errors import SfumatoError
from sfumato.ledger.ledger import Ledger
from sfumato.session.session import Session
from sfumato.vault import encode
from sfumato.vault.arrow_codes import Codes
from sfumato.vault.mechanisms import sparse as vault
from sfumato.vault.tables import open_table
from tests.sessions import begin_session
from tests.shared.ledger_home import made
from tests.shared.words import SeededWords

CANARY = 104_729
DOMAIN = sf.Domain({"age": 4, "city": 2})
ASKED = [
    "SELECT COUNT(*) FROM t WHERE age = 2 AND city = 1",
    "SELECT COUNT(*) FROM t",
    "SELECT SUM(age) FROM t WHERE city = 1",
    "SELECT city, COUNT(*) FROM t GROUP BY city",
    "SELECT AVG(age) FROM t",
]
BAD = [
    "SELECT MAX(age) FROM t",
    "SELECT COUNT(*) FROM t WHERE salary > 3",
    "SELECT COUNT(DISTINCT age) FROM t",
    "SELECT COUNT(*) FROM t WHERE age = 'x'",
    "SELECT COUNT(*) FROM t WHERE age > 99",
    "DROP TABLE t",
    "",
    "SELECT COUNT(*) FROM t GROUP BY age HAVING COUNT(*) > 5",
]


def _table(canary: int) -> pd.DataFrame:
    few = pd.DataFrame({"age": [0, 1, 3], "city": [0, 1, 0]})
    many = pd.DataFrame({"age": np.full(canary, 2), "city": np.full(canary, 1)})
    return pd.concat([few, many], ignore_index=True)


def _open(table: pd.DataFrame, ledger: Path, epsilon: str, **more: object) -> Session:
    budget = sf.Budget(epsilon=epsilon)
    chosen = {"questions": 50, "updates": 3, "records": 100, **more}
    made(ledger, budget, "people")
    return begin_session(
        table, DOMAIN, budget, SeededWords("canary"), ledger=ledger, name="people", **chosen
    )


def test_the_canary_is_nowhere(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise is far larger than the count, so honest chance does not write it."""
    said = []
    ledger = tmp_path / "people.ledger"
    session = _open(_table(CANARY), ledger, "1e-6")
    with session:
        for text in [*ASKED, *BAD]:
            try:
                said += [repr(a) for a in session.ask_all(text, untested=True)]
            except SfumatoError as error:
                said += traceback.format_exception(error)
        said += [repr(session), repr(session.left()), repr(session.plan)]
        said += [repr(session._state._exact), f"{session._state._exact:d}", repr(session.__dict__)]
        said += [repr(vars(session._state)), repr(session.table("age", "city").tolist())]
        monkeypatch.setattr(vault, "answer", _broken)
        try:
            session.ask("SELECT COUNT(*) FROM t WHERE age < 2")
        except Exception as error:  # whatever it is, it must not quote the data
            said += traceback.format_exception(error)
    caught = capfd.readouterr()
    text = "\n".join([*said, caught.out, caught.err])
    for written in (str(CANARY), f"{CANARY:,}", hex(CANARY)):
        assert written not in text
    # In steps of scores as well: 2^8 of them are one person.
    assert str(CANARY << 8) not in text
    spelled = [str(CANARY).encode(), str(CANARY << 8).encode()]
    spelled += [struct.pack(f, CANARY) for f in ("<q", ">q", "<i", "<d")]
    for path in tmp_path.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not any(s in data for s in spelled), path


def _broken(*_: object) -> int:
    raise RuntimeError("the noise source is gone")


def test_the_canary_would_be_seen(tmp_path: Path) -> None:
    """The twin: with a budget that hides nothing the number is there."""
    with _open(_table(CANARY), tmp_path / "people.ledger", "900") as session:
        found = session.ask(ASKED[0])
    assert round(found.value) == CANARY
    files = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()]
    assert any(str(CANARY).encode() in data for data in files)


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_errors_sizes_and_keys_are_alike_on_neighbours(tmp_path: Path, rows: int) -> None:
    """With noise that drowns every difference, all that is said has one shape and one key."""
    shapes = []
    for i, table in enumerate([_table(rows), _table(rows + 1)]):
        shape: list[object] = []
        ledger = tmp_path / f"{i}.ledger"
        with _open(table, ledger, "1e-6") as session:
            for text in [*BAD, *ASKED]:
                try:
                    shape += [(a.key, a.question, a.how) for a in session.ask_all(text)]
                except SfumatoError as error:
                    shape.append((type(error).__name__, str(error)))
            shape.append((session.left(), session.name, repr(session)))
        shape += [(e.key, e.cost, e.request, e.state) for e in Ledger.open(ledger).entries()]
        shapes.append(shape)
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("value", [None, 99, -3, float("nan"), "x"])
def test_records_outside_the_domain_are_no_error(tmp_path: Path, value: object) -> None:
    odd = pd.DataFrame({"age": pd.Series(["1", "2", str(value)]), "city": ["0", "1", "1"]})
    path = tmp_path / "people.csv"
    odd.to_csv(path, index=False)
    with _open(path, tmp_path / "a.ledger", "1") as session:  # type: ignore[arg-type]
        assert session.ask(ASKED[1]).value >= 0


@pytest.mark.parametrize("by", ["engine", "arrow"])
def test_an_engine_that_fails_says_nothing_of_its_rows(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "engine":
        monkeypatch.setattr(encode, "_arrow_codes", lambda *_: None)
    session = _open(_table(3), tmp_path / "a.ledger", "1")
    session.ask(ASKED[1])
    engine = type(open_table(_table(1)).engine)

    def failing(*_: object) -> None:
        raise ValueError(f"cannot cast {CANARY}")

    if by == "engine":
        monkeypatch.setattr(engine, "batches", failing)
    else:
        monkeypatch.setattr(Codes, "counts", failing)
    with pytest.raises(SfumatoError) as caught:
        session.ask(ASKED[0])
    assert str(CANARY) not in "".join(traceback.format_exception(caught.value))
    monkeypatch.undo()
    assert session.ask(ASKED[0]).key  # it was refused before a test was made
    session.close()
