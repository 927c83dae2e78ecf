# SPDX-License-Identifier: Apache-2.0
"""Strategies that trade bias for noise, for a public number of records."""
