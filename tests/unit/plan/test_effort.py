"""Time limits and remembered optima: never trusted, only tried first."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import numpy as np
import pytest

from sfumato.plan import effort as effort_module
from sfumato.plan.effort import cache_folder, current, effort, time_is_up
from sfumato.plan.matrix import factorize
from sfumato.plan.solve.optimum import Certified, certified_optimum
from sfumato.workload.queries import Array

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
    monkeypatch.setattr(effort_module, "WORTH", 0.0)


@pytest.mark.usefixtures("every_search")
def test_a_second_plan_starts_where_the_first_ended(tmp_path: Path) -> None:
    with effort("key", folder=tmp_path):
        first = _solve()
    with effort("key", folder=tmp_path):
        second = _solve()
    assert first.steps > 5
    assert second.steps == 1
    assert np.array_equal(first.v, second.v)
    assert (first.upper, first.scale) == (second.upper, second.scale)
    with effort("another key", folder=tmp_path):
        assert _solve().steps == first.steps


@pytest.mark.usefixtures("every_search")
def test_a_wrong_memory_costs_time_and_nothing_else(tmp_path: Path) -> None:
    honest = _solve()
    lies = [np.exp(np.linspace(-9, 9, CELLS)), np.ones(3), np.full(CELLS, np.nan), -np.ones(CELLS)]
    for lie in lies:
        np.savez(tmp_path / "key.npz", v1=lie)
        with effort("key", folder=tmp_path):
            found = _solve()
        assert found.certificate <= 1 + 1.01e-4
        assert found.upper >= honest.lower * (1 - 1e-9)
        assert found.lower <= honest.upper * (1 + 1e-9)


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 cut short"])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key.npz").write_bytes(content)
    with effort("key", folder=tmp_path):
        assert _solve().certificate <= 1 + 1.01e-4


def test_when_time_is_up_the_search_returns_what_it_has_proved() -> None:
    with effort("key", until=monotonic() - 1):
        assert time_is_up()
        found = _solve()
    assert not time_is_up()
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
    monkeypatch.setattr(effort_module, "LARGEST_FOLDER", 3000)
    for i in range(8):
        with effort(f"key{i}", folder=tmp_path):
            _solve()
    left = {f.name for f in tmp_path.iterdir()}
    assert "key7.npz" in left
    assert len(left) < 8


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
