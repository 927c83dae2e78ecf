# SPDX-License-Identifier: Apache-2.0
"""``sfumato audit`` on a few subjects and repeatable words: table, JSON, pictures, exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sfumato_audit import examine, registry
from sfumato_audit.broken import broken_subjects
from sfumato_audit.subjects.textbook import local_subjects
from tests.shared.words import SeededWords
from tests.unit.cli.conftest import Ran

Run = Callable[..., Ran]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the command find these subjects, quickly, with the same words on every run."""

    def set_up(*subjects: object) -> None:
        monkeypatch.setattr(registry, "subjects", lambda: list(subjects))
        monkeypatch.setattr(registry, "uncovered", lambda _: frozenset())
        monkeypatch.setattr(registry, "system_words", lambda: SeededWords("cli"))
        monkeypatch.setattr(examine, "FAST", examine.Effort(2000, 20_000, 0))

    return set_up


def wrong(name: str) -> examine.Subject:
    return next(s for s in broken_subjects() if s.name.startswith(name))


def test_sound_claims_stand_and_wrong_ones_are_caught(few, run: Run, tmp_path: Path) -> None:
    few(local_subjects()[0], wrong("reused noise"))
    ran = run("audit", "--json", "--out", str(tmp_path / "pictures"))
    assert ran.code == 0
    told = json.loads(ran.out)
    assert told["is_well"]
    assert told["mode"] == "fast"
    sound, broken = told["findings"]
    assert sound["bound"] < sound["claim"]["amount"] == 1
    assert broken["is_refuted"]
    assert broken["is_known_wrong"]
    assert [Path(f).name for f in told["files"]] == ["audit.png"]
    assert (tmp_path / "pictures" / "audit.png").read_bytes().startswith(b"\x89PNG")


def test_a_refuted_claim_or_a_missed_one_is_exit_code_1(few, run: Run) -> None:
    few(replace(wrong("reused noise"), is_broken=False))
    ran = run("audit")
    assert ran.code == 1
    assert "REFUTED" in ran.out
    few(replace(local_subjects()[0], is_broken=True))
    ran = run("audit")
    assert ran.code == 1
    assert "NOT CAUGHT" in ran.out


def test_what_has_no_audit_is_exit_code_1(few, run: Run, monkeypatch) -> None:
    few(local_subjects()[0])
    monkeypatch.setattr(registry, "uncovered", lambda _: frozenset({"mechanism:new"}))
    ran = run("audit")
    assert ran.code == 1
    assert "mechanism:new" in ran.out


def test_an_unknown_name_is_refused_with_those_that_there_are(few, run: Run) -> None:
    few(local_subjects()[0])
    ran = run("audit", "--only", "nothing")
    assert ran.code == 2
    assert "randomized response of 2 codes" in ran.err


def test_gaussian_curves_are_drawn(few, run: Run, tmp_path: Path) -> None:
    few(wrong("sigma"))
    ran = run("audit", "--only", "SIGMA", "--json", "--out", str(tmp_path))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["audit-curves.png", "audit.png"]
    assert len(json.loads(ran.out)["findings"][0]["curve"]) == len(examine.EPSILONS)
