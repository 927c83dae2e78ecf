# SPDX-License-Identifier: Apache-2.0
"""Which strategy, how much noise, how well: everything before a debit. No data."""
