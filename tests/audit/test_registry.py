# SPDX-License-Identifier: Apache-2.0
"""Nothing that promises privacy is without an audit, and what an entry covers it really runs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import sfumato
from sfumato_audit import registry
from sfumato_audit.audit_limits import LIMITS
from sfumato_audit.broken import broken_subjects
from sfumato_audit.examine import Effort
from sfumato_audit.subjects.measured import opened
from tests.shared.words import SeededWords

KINDS = ("ledger:", "mechanism:", "method:", "stream:", "choice:", "selection:", "cost:", "unit:")
SOURCES = Path(sfumato.__file__).parent


@pytest.fixture(scope="module")
def sound():
    return registry.sound_subjects()


def test_everything_that_promises_privacy_has_an_audit(sound):
    assert sorted(registry.uncovered(sound)) == []


def test_a_mechanism_without_an_audit_is_noticed(sound, monkeypatch):
    from sfumato.planning.mechanisms import MECHANISMS

    monkeypatch.setitem(MECHANISMS, "new", MECHANISMS["laplace"])
    assert registry.uncovered(sound) == {"mechanism:new"}


def test_a_door_without_an_audit_is_noticed(sound, monkeypatch):
    from sfumato.vault.mechanisms import select

    def fresh() -> None:
        """Privacy: epsilon-DP, says nobody but this line."""

    fresh.__module__ = select.__name__
    monkeypatch.setattr(select, "fresh", fresh, raising=False)
    assert registry.uncovered(sound) == {"sfumato.vault.mechanisms.select.fresh"}


def test_an_audit_of_a_wrong_mechanism_covers_nothing(sound):
    wrong = [replace(s, is_broken=True) for s in sound]
    assert registry.uncovered(wrong) == registry.required()


def test_names_are_different_and_claims_are_positive(sound):
    every = [*sound, *broken_subjects()]
    assert len({s.name for s in every}) == len(every)
    assert all(s.claim.amount > 0 and s.pairs for s in every)


def executed(run) -> set[str]:
    """Qualified names of the functions of sfumato that run."""
    found: set[str] = set()

    def watch(frame, event, _):
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(SOURCES)):
            module = Path(path).relative_to(SOURCES.parent).with_suffix("")
            parts = [p for p in module.parts if p != "__init__"]
            found.add(".".join([*parts, frame.f_code.co_qualname.replace(".__init__", "")]))

    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


def test_every_audit_runs_the_code_that_it_covers(sound):
    """One run of each: the functions that it names are among those that are called."""
    first: dict[str, list] = {}
    for subject in sound:
        first.setdefault(str(sorted(subject.covers)), []).append(subject)
    for subject in (same[0] for same in first.values()):
        opened.cache_clear()  # a table that an earlier subject opened would not be opened again
        words = SeededWords(f"covers {subject.name}")  # what others draw must not matter
        calls = executed(lambda s=subject, w=words: s.sampler(s.pairs[0].right)(12, w))
        named = {c for c in subject.covers if not c.startswith(KINDS)}
        # Randomized responses are made before the audit begins; classes run by their __init__.
        encodings = (".keep_threshold", ".RandomizedResponse", ".UnaryEncoding")
        made = {c for c in named if c.endswith(encodings)}
        assert named - made <= calls, (subject.name, sorted(named - made - calls))


def test_several_processes_find_the_same_in_the_same_order(sound, monkeypatch):
    """Here with threads in their place; processes have their own test, as they start slowly."""
    from concurrent.futures import ThreadPoolExecutor

    seen = []
    monkeypatch.setattr(registry, "LIMITS", replace(LIMITS, subjects_per_worker=1))
    monkeypatch.setattr(registry, "subjects", lambda: sound)
    monkeypatch.setattr(registry, "ProcessPoolExecutor", lambda n, _: ThreadPoolExecutor(n))
    registry._by_name.cache_clear()
    chosen = [s for s in sound if s.name.startswith("randomized response")]
    found = registry.audit(
        chosen, Effort(800, 2000, 0), progress=lambda i, n, _: seen.append((i, n)), workers=2
    )
    registry._by_name.cache_clear()
    assert [f.name for f in found] == [s.name for s in chosen]
    assert seen == [(0, 3), (1, 3), (2, 3)]
    assert all(f.is_as_expected for f in found)


@pytest.mark.slow
def test_several_processes_audit_many_subjects(sound):
    chosen = [s for s in sound if s.slowness == 1][: 2 * LIMITS.subjects_per_worker]
    found = registry.audit(chosen, Effort(800, 2000, 0), workers=2)
    assert [f.name for f in found] == [s.name for s in chosen]
    assert all(f.is_as_expected for f in found)
