# SPDX-License-Identifier: Apache-2.0
"""The matrices on the page of the tree mechanism are what the example prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_shows_what_the_example_prints() -> None:
    script = ROOT / "examples" / "exercise_2_1.py"
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    page = (ROOT / "docs" / "mechanisms" / "binary-tree.md").read_text(encoding="utf-8")
    shown = page.split("```text\n")[1].split("```")[0]
    assert shown == ran.stdout
    assert "R M = F: True, and by least squares: True" in shown
