# SPDX-License-Identifier: Apache-2.0
"""Unit tests stand where their module stands: ``tests/unit/ROOM/test_MODULE[_aspect].py``."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "tests" / "unit"
HOMES = {"web": ROOT / "src" / "sfumato_web", "audit": ROOT / "src" / "sfumato_audit"}


def mirrored(test: Path) -> bool:
    """Whether the name of a test file begins with a module of the folder it stands for."""
    first, *rest = test.relative_to(UNIT).parts
    folder = HOMES[first] if first in HOMES else ROOT / "src" / "sfumato" / first
    folder = folder.joinpath(*rest).parent if rest else ROOT / "src" / "sfumato"
    words = test.stem.removeprefix("test_").split("_")
    return any((folder / ("_".join(words[:k]) + ".py")).exists() for k in range(len(words), 0, -1))


@pytest.mark.parametrize(
    "test", sorted(UNIT.rglob("test_*.py")), ids=lambda p: str(p.relative_to(UNIT))
)
def test_every_unit_test_names_the_module_that_it_tests(test):
    assert mirrored(test)


def test_a_test_of_no_module_is_noticed():
    assert not mirrored(UNIT / "vault" / "test_nothing_of_the_kind.py")
    assert mirrored(UNIT / "vault" / "mechanisms" / "test_measure_mixture.py")
