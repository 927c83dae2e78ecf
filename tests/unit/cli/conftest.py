# SPDX-License-Identifier: Apache-2.0
"""A small table with its spec, and a way to run the command line inside the test."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sfumato.cli.main import main

SPEC = """\
[data]
source = "people.csv"
name = "people"

[domain.age]
kind = "integer"
min = 0
max = 19

[domain.sex]
kind = "category"
values = ["Female", "Male"]

[[workload]]
marginals = 1

[[workload]]
prefix = "age"
by = ["sex"]

[budget]
epsilon = 1
delta = 1e-9

[ledger]
path = "people.ledger"
create = true
epsilon = 3
delta = 1e-9
"""


@dataclass(frozen=True)
class Ran:
    """What one run of the command line left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, object]:
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def running(*arguments: object, agreed: bool = True) -> Ran:
        """``agreed``: with --yes where a command would ask before it spends."""
        capsys.readouterr()
        asking = ("release", "select", "ask", "discover")
        spends = arguments and arguments[0] in asking and "--help" not in arguments
        if spends and agreed and "--yes" not in arguments:
            arguments = (*arguments, "--yes")
        with pytest.raises(SystemExit) as left:
            main([str(a) for a in arguments])
        caught = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return Ran(left.value.code, caught.out, caught.err)

    return running


def write_people(folder: Path) -> None:
    """``people.csv`` (400 records) and ``release.toml``."""
    rows = [f"{(i * 7) % 20},{'Female' if i % 3 else 'Male'}" for i in range(400)]
    (folder / "people.csv").write_text("age,sex\n" + "\n".join(rows) + "\n")
    (folder / "release.toml").write_text(SPEC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_people(tmp_path)
    return tmp_path


@pytest.fixture
def rewrite(folder: Path) -> Callable[[str, str], Path]:
    """Change one part of the spec; the part must be there."""

    def rewriting(old: str, new: str) -> Path:
        path = folder / "release.toml"
        text = path.read_text()
        assert text.count(old) >= 1, old
        path.write_text(text.replace(old, new, 1))
        return path

    return rewriting
