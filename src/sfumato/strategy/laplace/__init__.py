# SPDX-License-Identifier: Apache-2.0
"""Strategies for pure epsilon: Laplace noise, columns measured in L1."""
