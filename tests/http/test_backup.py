# SPDX-License-Identifier: Apache-2.0
"""Backup and restore as the documents say: their commands are run as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sfumato.errors import LedgerError
from tests.http.served import ADA, CORA, ROLES, asked, bearer, served, write_served

DOCS = Path(__file__).parents[2] / "docs" / "server.md"
FILES = ("*.ledger", "*.ledger.head", "server.state")


def _run(number: int, data: Path, backup: Path) -> None:
    """Run a block of the section with these folders."""
    section = DOCS.read_text().partition("## Backup and restore\n")[2].partition("\n## ")[0]
    block = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)[number]
    own = data.parent / "bin"
    own.mkdir(exist_ok=True)
    (own / "sfumato").write_text(f'#!/bin/sh\nexec {sys.executable} -m sfumato "$@"\n')
    (own / "sfumato").chmod(0o755)
    path = f"{own}:{os.environ['PATH']}"
    env = {**os.environ, "DATA": str(data), "BACKUP": str(backup), "PATH": path}
    subprocess.run(["/bin/sh", "-eu", "-c", block], env=env, check=True, capture_output=True)


def test_what_was_backed_up_answers_with_the_same_bytes_and_an_older_ledger_is_refused(
    tmp_path: Path,
) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    path = write_served(data, ROLES)
    why = {"reason": "a test"}
    with served(path) as client:
        send = {"json": asked(0.5), "headers": bearer(ADA)}
        first = client.post("/datasets/people/release", **send).content
        person = {"name": "eve", "datasets": ["people"], **why}
        eve = client.post("/people", json=person, headers=bearer(CORA)).json()["token"]
    _run(0, data, backup)
    for pattern in FILES:
        for file in data.glob(pattern):
            file.unlink()
    for file in data.glob("*-wal"):
        file.unlink()
    _run(1, data, backup)
    with served(path) as client:
        assert client.post("/datasets/people/release", **send).content == first
        assert client.get("/datasets", headers=bearer(eve)).status_code == 200
        assert len(client.app.server.datasets["people"].ledger.entries()) == 1
        client.post("/datasets/people/release", json=asked(0.25), headers=bearer(ADA))
    shutil.copy(backup / "people.ledger", data / "people.ledger")  # older than its head file
    with pytest.raises(LedgerError, match="older"), served(path):
        pass
