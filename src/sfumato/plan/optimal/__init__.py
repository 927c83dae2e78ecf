# SPDX-License-Identifier: Apache-2.0
"""Measured forms of the optimum: what the vault applies and how answers follow from it."""
