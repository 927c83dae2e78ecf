# SPDX-License-Identifier: Apache-2.0
"""Estimates that learn from measurements one by one: hedge, boosting, tables."""
