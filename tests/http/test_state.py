# SPDX-License-Identifier: Apache-2.0
"""The server's state file: who may read it, and what happens when it cannot be used."""

from __future__ import annotations

import os
import resource
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from sfumato.errors import SfumatoError
from sfumato_web.server.responses import ResponseStore
from tests.http.served import ADA, CONFIG, CORA, asked, bearer, served, write_served

SESSION = CONFIG.replace(
    "[datasets.others]",
    "[datasets.people.session]\nepsilon = 1\nquestions = 50\n\n[datasets.others]",
)
SQL = {"sql": "SELECT sex, COUNT(*) FROM data GROUP BY sex"}


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_the_state_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o000)
    try:
        store = ResponseStore(tmp_path / "server.state", 1000)
        store.keep([("people", "key", b"an answer")])
        files = sorted(tmp_path.iterdir())
        assert [f.name for f in files] == ["server.state", "server.state-shm", "server.state-wal"]
        assert {_mode(f) for f in files} == {0o600}
        store.close()
    finally:
        os.umask(before)


def test_a_state_that_others_could_read_is_taken_from_them(tmp_path: Path) -> None:
    path = tmp_path / "server.state"
    store = ResponseStore(path, 1000)
    store.keep([("people", "key", b"an answer")])
    for each in tmp_path.iterdir():
        each.chmod(0o644)
    again = ResponseStore(path, 1000)
    assert {_mode(each) for each in tmp_path.iterdir()} == {0o600}
    assert again.body("people", "key") == b"an answer"
    again.close()
    store.close()


class _Failing:
    """A database that fails as SQLite does, from one statement on."""

    def __init__(self, real: sqlite3.Connection, code: str, text: str, at: str) -> None:
        self.real, self.code, self.text, self.at = real, code, text, at

    def execute(self, statement: str, *given: Any) -> sqlite3.Cursor:
        if statement.startswith(self.at):
            error = sqlite3.OperationalError(self.text)
            error.sqlite_errorname = self.code  # type: ignore[misc]
            raise error
        return self.real.execute(statement, *given)

    def close(self) -> None:
        self.real.close()


FAULTS = [
    ("SQLITE_FULL", "database or disk is full", "INSERT", "the disk is full"),
    ("SQLITE_FULL", "database or disk is full", "COMMIT", "the disk is full"),
    ("SQLITE_CORRUPT", "database disk image is malformed", "SELECT", "the file is damaged"),
    ("SQLITE_READONLY_DBMOVED", "attempt to write", "BEGIN", "the file is read-only"),
    ("SQLITE_BUSY", "database is locked", "BEGIN", "another process has locked it"),
    ("SQLITE_IOERR_WRITE", "disk I/O error", "INSERT", "the disk cannot be read or written"),
]


@pytest.mark.parametrize(("code", "text", "at", "reason"), FAULTS)
def test_every_fault_of_the_state_is_503_with_its_reason_in_the_log(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    code: str,
    text: str,
    at: str,
    reason: str,
) -> None:
    with served(write_served(tmp_path / "s", SESSION)) as client:
        store = client.app.server.store
        real = store._database
        store._database = _Failing(real, code, text, at)
        key = {"Idempotency-Key": "one"}
        for path, headers, body in (
            ("release", bearer(ADA) | key, asked(0.2)),
            ("release", bearer(ADA), asked(0.3)),
            ("ask", bearer(ADA) | key, SQL),
            ("ask", bearer(ADA), SQL),
        ):
            caplog.clear()
            reply = client.post(f"/datasets/people/{path}", headers=headers, json=body)
            if reply.status_code != 200:  # what needs only the half that works is answered
                assert reply.status_code == 503, reply.text
                assert reply.json()["error"] == "unavailable"
                assert reason in caplog.text
                assert str(tmp_path) not in reply.text
        assert caplog.records
        parts = client.get("/ready").json()["parts"]
        assert parts["state"] == ("ok" if at in ("SELECT", "INSERT") else "cannot be used")
        store._database = real
        spent = client.get("/datasets/people/ledger", headers=bearer(CORA)).json()["entries"]
        for epsilon in (0.2, 0.3):
            send = {"headers": bearer(ADA), "json": asked(epsilon)}
            assert client.post("/datasets/people/release", **send).status_code == 200
        after = client.get("/datasets/people/ledger", headers=bearer(CORA)).json()["entries"]
        # What was debited while the state was down is answered now, without another debit.
        assert [e["key"] for e in after][: len(spent)] == [e["key"] for e in spent]
        assert len({e["key"] for e in after}) == len(after)


def test_garbled_pages_of_a_real_state_refuse_the_start_in_words(tmp_path: Path) -> None:
    """Who was let in while the server ran stands there, and nobody is let in by a guess."""
    path = write_served(tmp_path / "s")
    with served(path) as client:
        client.post("/datasets/people/release", headers=bearer(ADA), json=asked(0.2))
    state = tmp_path / "s" / "server.state"
    size = state.stat().st_size
    with state.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    with pytest.raises(SfumatoError, match="the file is damaged"), served(path):
        pass


def test_a_disk_that_is_really_full_is_503_and_works_again_when_there_is_room(
    tmp_path: Path,
) -> None:
    """No file of this process may grow any more: writes fail as on a full disk."""
    store = ResponseStore(tmp_path / "server.state", 10)
    store.keep([("people", "before", b"x")])
    import signal

    heard = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(SfumatoError, match=r"the disk (is full|cannot be read or written)"):
            store.keep([("people", "key", b"x" * 100_000)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, heard)
    assert store.recent("people", "key") is None
    assert store.keep([("people", "key", b"y")]) == [b"y"]
    store.close()


@pytest.fixture
def client(tmp_path: Path) -> Any:
    with served(write_served(tmp_path / "s")) as found:
        yield found


def test_ready_says_which_kind_of_part_cannot_be_used_and_the_log_says_why(
    client: TestClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = client.get("/ready")
    assert (found.status_code, found.json()["status"]) == (200, "ready")
    assert client.head("/ready").status_code == client.head("/health").status_code == 200
    (tmp_path / "s" / "others.csv").rename(tmp_path / "s" / "gone.csv")
    (tmp_path / "s" / "people.csv").write_text("age,weight\n1,2\n")
    found = client.get("/ready")
    assert found.status_code == 503
    assert found.json() == {
        "status": "not ready",
        "parts": {"state": "ok", "ledgers": "ok", "tables": "2 of 2 cannot be used"},
    }
    assert "the table of people cannot be used" in caplog.text
    assert "people" not in found.text
    assert client.get("/health").json()["status"] == "ok"


def test_ready_sees_a_ledger_that_cannot_be_written(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    book = client.app.server.datasets["people"].ledger
    database = book._chain.store.database
    monkeypatch.setattr(type(database), "begin_alone", "INSERT INTO nothing VALUES (1)")
    found = client.get("/ready")
    assert found.json()["parts"]["ledgers"] == "2 of 2 cannot be used"
    assert "the ledger of people cannot be used" in caplog.text


def test_one_ledger_that_cannot_be_read_takes_nobody_elses_figures_away(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sfumato.errors import LedgerError
    from sfumato.ledger.reader import LedgerReader

    remaining = LedgerReader.remaining

    def broken(book: LedgerReader, analyst: str | None = None) -> Any:
        if book.table_id == "others.csv":
            raise LedgerError("the ledger others cannot be read")
        return remaining(book, analyst)

    monkeypatch.setattr(LedgerReader, "remaining", broken)
    found = client.get("/metrics", headers=bearer(CORA))
    assert found.status_code == 200
    assert 'sfumato_budget_remaining_share{dataset="people"} 1' in found.text
    assert 'sfumato_budget_remaining_share{dataset="others"}' not in found.text
    assert 'sfumato_ledger_up{dataset="others"} 0' in found.text
    listed = client.get("/datasets", headers=bearer(CORA))
    shown = {d["name"]: d["remaining"] for d in listed.json()}
    assert shown["others"] is None
    assert shown["people"] is not None


def test_metrics_show_a_curator_their_datasets_only(tmp_path: Path) -> None:
    config = CONFIG.replace(
        'role = "curator"\ndatasets = "all"', 'role = "curator"\ndatasets = ["people"]'
    )
    with served(write_served(tmp_path / "s", config)) as client:
        client.app.server.metrics.answered("others", "free")
        client.app.server.metrics.answered("people", "free")
        found = client.get("/metrics", headers=bearer(CORA)).text
    assert 'dataset="people"' in found
    assert "others" not in found


def test_a_freeze_without_a_reason_is_told_what_to_say(client: TestClient) -> None:
    for reason in ("", "   ", "two\nlines", "x" * 201):
        send = {"headers": bearer(CORA), "json": {"reason": reason}}
        reply = client.post("/datasets/people/freeze", **send)
        assert reply.status_code == 422
        assert reply.json()["message"].startswith("body.reason: say why, in one line of 1 to 200")
    assert client.get("/datasets", headers=bearer(ADA)).json()[0]["is_frozen"] is False


def test_who_froze_a_dataset_and_why_is_shown_to_curators(client: TestClient) -> None:
    send = {"headers": bearer(CORA), "json": {"reason": "quarterly review"}}
    client.post("/datasets/people/freeze", **send)
    seen = client.get("/datasets/people/ledger", headers=bearer(CORA)).json()
    assert seen["is_frozen"] is True
    assert seen["frozen"].endswith("frozen: by cora: quarterly review")
    hers = client.get("/datasets/people/ledger", headers=bearer(ADA)).json()
    assert (hers["is_frozen"], hers["frozen"]) == (True, None)
    client.post("/datasets/people/unfreeze", **send)
    after = client.get("/datasets/people/ledger", headers=bearer(CORA)).json()
    assert (after["is_frozen"], after["frozen"]) == (False, None)


def test_a_question_in_a_refusal_ends_with_its_question_mark() -> None:
    from sfumato.text import sentence

    assert sentence("there is no 'aeg'; did you mean 'age'?").endswith("'age'?")
    assert sentence("say why") == "Say why."
