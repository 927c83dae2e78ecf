# SPDX-License-Identifier: Apache-2.0
"""What a scan of a table counts, and in which numbers: public arithmetic."""

from __future__ import annotations

__all__ = ["RECORD_BITS", "WORD_BITS"]

RECORD_BITS = 44  # a table has fewer than 2^44 records
WORD_BITS = 62  # one bit less than int64 holds
