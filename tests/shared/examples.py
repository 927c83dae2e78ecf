# SPDX-License-Identifier: Apache-2.0
"""How many examples a costly property sees: all of them in `make audit`, half in `make test`.

Both draw from one strategy; `make test` sees the same examples on every run, `make audit` new ones.
"""

from __future__ import annotations

import os

__all__ = ["examples"]


def examples(count: int) -> int:
    """``count`` where examples are new on every run, else half as many."""
    return count if os.environ.get("HYPOTHESIS_PROFILE") == "new" else -(-count // 2)
