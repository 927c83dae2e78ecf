# SPDX-License-Identifier: Apache-2.0
"""The version, in one place."""

from __future__ import annotations

from importlib.metadata import version

__all__ = [
    "VERSION",
]


VERSION = version("sfumato")
