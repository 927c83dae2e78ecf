# SPDX-License-Identifier: Apache-2.0
"""The example in JavaScript, run against a server as a user would."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.page.museum import ADA, DAYS, museum_server

EXAMPLE = Path(__file__).parents[2] / "examples" / "client.mjs"


def test_the_example_plans_releases_and_is_refused(tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("NO NODE, the example in JavaScript is not run: apt-get install nodejs")
    with museum_server(tmp_path / "museum") as museum:
        command = [node, str(EXAMPLE), museum.address, ADA, "museum"]
        first, second = (
            subprocess.run(command, capture_output=True, text=True, check=True).stdout
            for _ in range(2)
        )
    forecast, *days, refused = first.splitlines()
    assert forecast.endswith("fits: true")
    assert [line.partition(":")[0] for line in days] == list(DAYS)
    assert refused.startswith("refused: budget-exhausted, pure epsilon left: 2.4")
    assert second.splitlines()[1:] == [*days, refused]  # stored, and nothing more is spent
