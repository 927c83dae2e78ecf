# SPDX-License-Identifier: Apache-2.0
"""The limits of every room: each has a reason, and the page of the documents lists them all."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import limits  # noqa: E402


def test_the_page_lists_the_limits_as_they_are():
    assert limits.PAGE.read_text() == limits.page(), "run python docs/limits.py"


@pytest.mark.parametrize("path", limits.modules(), ids=lambda p: p.stem)
def test_every_limit_has_a_reason(path):
    _, fields = limits.limits_of(path.read_text())
    assert fields
    assert [f.name for f in fields if not f.reason.endswith(".")] == []


def test_a_limit_without_a_reason_is_noticed():
    text = 'class MadeLimits:\n    # rows\n    most: int = 3\n    """Few."""\n    bare: int = 4\n'
    name, fields = limits.limits_of(text)
    assert name == "MadeLimits"
    assert [(f.module, f.name, f.value, f.reason) for f in fields] == [
        ("rows", "most", "3", "Few."),
        ("rows", "bare", "4", ""),
    ]
