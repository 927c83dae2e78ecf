"""Limits in steps and remembered searches: a plan is the same with and without them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import thread_time

import numpy as np
import pytest

from sfumato.solve import effort as effort_module
from sfumato.solve.effort import cache_folder, current, effort, must_stop, spend
from sfumato.solve.nuclear import Certified, certified_optimum
from sfumato.study.matrix_norms import factorize
from sfumato.types import Array

CELLS = 40
GRAM = np.tril(np.ones((CELLS, CELLS))).T @ np.tril(np.ones((CELLS, CELLS)))


def _root_diagonal(v: Array) -> Array:
    root = np.sqrt(v)
    values, vectors = np.linalg.eigh(GRAM * np.outer(root, root))
    return np.asarray((vectors**2) @ np.sqrt(np.maximum(values, 0)), dtype=np.float64)


def _solve() -> Certified:
    return certified_optimum(_root_diagonal, CELLS)


@pytest.fixture
def every_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        effort_module, "LIMITS", replace(effort_module.LIMITS, stored_search_minimum=0.0)
    )


class _Counting:
    """How often the matrix is decomposed."""

    calls = 0

    def __call__(self, v: Array) -> Array:
        self.calls += 1
        spend(1e6)
        return _root_diagonal(v)


def _counted(folder: Path | None, key: str = "key") -> tuple[Certified, int, float]:
    count = _Counting()
    with effort(key, folder=folder) as made:
        found = certified_optimum(count, CELLS)
    return found, count.calls, made.spent


@pytest.mark.usefixtures("every_search")
def test_a_search_that_was_made_before_is_found_again_bit_by_bit(tmp_path: Path) -> None:
    alone, calls, spent = _counted(None)
    cold, cold_calls, cold_spent = _counted(tmp_path)
    warm, warm_calls, warm_spent = _counted(tmp_path)
    assert calls == cold_calls > 5
    assert warm_calls == 2  # its error and its bound are proved anew
    assert spent == cold_spent == warm_spent  # what comes after has as many steps left
    for found in (cold, warm):
        assert np.array_equal(alone.v, found.v)
        assert (alone.upper, alone.lower) == (found.upper, found.lower)
        assert (alone.scale, alone.steps) == (found.scale, found.steps)
    assert _counted(tmp_path, "another key")[1] == calls


@pytest.mark.usefixtures("every_search")
def test_another_search_of_the_same_number_is_not_taken_for_it(tmp_path: Path) -> None:
    _counted(tmp_path)
    for options in ({"tolerance": 1e-3}, {"all_bind": True}, {"start": np.arange(1.0, CELLS + 1)}):
        with effort("key", folder=tmp_path):
            found = certified_optimum(_root_diagonal, CELLS, **options)  # type: ignore[arg-type]
        with effort("key"):
            alone = certified_optimum(_root_diagonal, CELLS, **options)  # type: ignore[arg-type]
        assert np.array_equal(found.v, alone.v)
        assert found.lower == alone.lower


@pytest.mark.usefixtures("every_search")
def test_a_wrong_memory_costs_time_and_nothing_else(tmp_path: Path) -> None:
    honest = _solve()
    lies = [np.exp(np.linspace(-9, 9, CELLS)), np.ones(3), np.full(CELLS, np.nan), -np.ones(CELLS)]
    for lie in lies:
        _counted(tmp_path)
        (file,) = tmp_path.iterdir()
        with np.load(file) as stored:
            arrays = {name: stored[name] for name in stored.files}
        for name in ("v1", "b1", "n1"):
            np.savez(file, **{**arrays, name: lie})
            found, _, _ = _counted(tmp_path)
            assert np.array_equal(found.v, honest.v)
            assert (found.upper, found.lower) == (honest.upper, honest.lower)


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 cut short"])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    _counted(tmp_path)
    for file in tmp_path.iterdir():
        file.write_bytes(content)
    with effort("key", folder=tmp_path):
        assert _solve().certificate <= 1 + 1.01e-4


def test_when_time_is_up_the_search_returns_what_it_has_proved() -> None:
    with effort("key", until=thread_time() - 1) as made:
        assert must_stop()
        found = _solve()
    assert made.is_late
    assert not must_stop()
    assert found.steps == 1
    assert found.certificate > 1.01
    full = _solve()
    assert found.lower <= full.upper
    assert found.upper >= full.lower


@pytest.mark.usefixtures("every_search")
def test_a_cache_that_cannot_be_written_is_no_cache(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with effort("key", folder=blocked):
        assert _solve().certificate < 1.001


@pytest.mark.usefixtures("every_search")
def test_the_oldest_memories_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        effort_module, "LIMITS", replace(effort_module.LIMITS, stored_search_bytes=3000)
    )
    for i in range(8):
        with effort(f"key{i}", folder=tmp_path):
            _solve()
    assert len(list(tmp_path.iterdir())) < 8
    assert _counted(tmp_path, "key7")[1] == 2


def test_when_the_steps_are_used_up_the_search_returns_what_it_has_and_reads_no_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(effort_module, "thread_time", None)
    count = _Counting()
    with effort("key", steps=3.5e6) as made:
        found = certified_optimum(count, CELLS)
    assert 1 < count.calls == found.steps < 5
    assert not made.is_late
    with effort("key", steps=3.5e6):
        again = certified_optimum(_Counting(), CELLS)
    assert np.array_equal(found.v, again.v)


@pytest.mark.usefixtures("every_search")
def test_a_search_that_a_clock_stopped_is_not_remembered(tmp_path: Path) -> None:
    with effort("key", until=thread_time() - 1, folder=tmp_path):
        _solve()
    assert list(tmp_path.iterdir()) == []


def test_outside_of_a_plan_nothing_is_remembered(tmp_path: Path) -> None:
    factorize(GRAM)
    assert current().remembered == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("told", ["off", "", "0"])
def test_the_cache_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    monkeypatch.setenv("SFUMATO_CACHE", told)
    assert cache_folder() is None


def test_the_cache_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path / "plans"
    monkeypatch.delenv("SFUMATO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "sfumato" / "plans"
