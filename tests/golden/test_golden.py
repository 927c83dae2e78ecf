# SPDX-License-Identifier: Apache-2.0
"""What is made today is what was made before (`tests/golden/__init__.py`)."""

from __future__ import annotations

import pytest

from tests.golden import stored

MOST = 40  # differences that are shown


@pytest.mark.parametrize("section", stored.SECTIONS)
def test_nothing_has_changed(section: str) -> None:
    here, there = stored.environment(), stored.read("environment")
    assert isinstance(there, dict)
    other = [n for n in stored.SECTIONS[section] if here[n] != there.get(n)]
    if other:
        names = ", ".join(f"{n} {there.get(n)}, here {here[n]}" for n in other)
        pytest.skip(f"written with another environment: {names}")
    found = list(stored.differences(stored.read(section), stored.made(section), section))
    assert not found, "\n".join([*found[:MOST], f"{len(found)} differences in all"])


@pytest.mark.parametrize(
    "changed",
    [{"rmse": 2.5 * (1 + 1e-8)}, {"key": "ac"}, {"more": 1}, {"rows": [1, 3]}, {"rows": [1]}],
)
def test_a_change_is_noticed(changed: dict[str, object]) -> None:
    before = {"rmse": 2.5, "key": "ab", "rows": [1, 2]}
    assert not list(stored.differences(before, {**before, "rmse": 2.5 * (1 + 1e-11)}))
    assert len(list(stored.differences(before, {**before, **changed}))) == 1


def test_no_golden_file_names_a_module() -> None:
    for path in stored.DATA.glob("*.json"):
        text = path.read_text()
        assert "sfumato." not in text.replace("sfumato.toml", ""), path.name
