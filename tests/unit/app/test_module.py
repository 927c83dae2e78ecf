"""``python -m sfumato`` is the command line."""

from __future__ import annotations

import subprocess
import sys


def test_the_module_is_the_command() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "sfumato", "plan", "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0
    assert "Usage: sfumato plan" in ran.stdout


def test_its_errors_are_those_of_the_command() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "sfumato", "plan", "no-such-file.toml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "no-such-file.toml" in ran.stderr
    assert "Traceback" not in ran.stderr
