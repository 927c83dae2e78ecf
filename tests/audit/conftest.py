# SPDX-License-Identifier: Apache-2.0
"""A way to run the command line inside the test."""

from __future__ import annotations

from tests.unit.cli.conftest import run

__all__ = ["run"]
