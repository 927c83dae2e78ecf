# SPDX-License-Identifier: Apache-2.0
"""Strategies along one attribute: prefixes, ranges, windows, hierarchies, and streams over time."""
