# SPDX-License-Identifier: Apache-2.0
"""Tries to break our own claims, and must break the known-wrong ones (docs/audit.md).

registry.py   what is audited, and whether anything is left out
examine.py    a mechanism on neighbouring tables: search events, test them on fresh runs, and
              what a count of hits proves
subjects/     the mechanisms of the library       broken.py     mechanisms known to be wrong
command.py    ``sfumato audit`` and its charts    audit_limits.py  how hard it looks
published.py  the six published sparse vectors side by side, on made-up scores
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sfumato_audit.published import run_sparse_vector as run_sparse_vector
    from sfumato_audit.published import sparse_vectors_chart as sparse_vectors_chart
    from sfumato_audit.published import sparse_vectors_compared as sparse_vectors_compared

__all__ = ["run_sparse_vector", "sparse_vectors_chart", "sparse_vectors_compared"]


def __getattr__(name: str) -> object:
    """Public names are imported on first use."""
    if name not in __all__:
        raise AttributeError(f"module 'sfumato_audit' has no attribute {name!r}")
    return getattr(import_module("sfumato_audit.published"), name)
