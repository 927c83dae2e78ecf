# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "releases.md"


def test_the_examples_of_the_page_run_as_shown():
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted >= 10
    assert found.failed == 0
