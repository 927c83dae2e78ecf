# SPDX-License-Identifier: Apache-2.0
"""What is made today is what was made before (`tests/golden/__init__.py`)."""

from __future__ import annotations

import pytest

from tests.golden import stored

MOST = 40  # differences that are shown


TOGETHER = {  # sections that one process makes: starting it takes as long as some of them
    "texts": ("help", "openapi", "imports"),
    "numbers": ("plans", "requests", "releases", "commands", "server"),
}


def test_every_section_is_made() -> None:
    assert sorted(n for names in TOGETHER.values() for n in names) == sorted(stored.SECTIONS)


@pytest.mark.parametrize("kind", TOGETHER)
def test_nothing_has_changed(kind: str) -> None:
    made, there = stored.made(*TOGETHER[kind]), stored.read("environment")
    here = made.pop("environment")
    assert isinstance(here, dict)
    assert isinstance(there, dict)
    needs = {n for section in TOGETHER[kind] for n in stored.SECTIONS[section]}
    other = sorted(n for n in needs if here[n] != there.get(n))
    same = [s for s in TOGETHER[kind] if not {*other} & {*stored.SECTIONS[s]}]
    changes = [
        change
        for section in same
        for change in stored.differences(stored.read(section), made[section], section)
    ]
    assert not changes, "\n".join([*changes[:MOST], f"{len(changes)} differences in all"])
    if other:
        names = ", ".join(f"{n} {there.get(n)}, here {here[n]}" for n in other)
        pytest.skip(f"compared are {same}; others were written with another environment: {names}")


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
