# SPDX-License-Identifier: Apache-2.0
"""Counting over time: strategies that answer at every step."""
