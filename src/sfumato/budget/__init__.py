# SPDX-License-Identifier: Apache-2.0
"""Epsilon, delta, rho, mu: composition, conversion; the ledger."""

from sfumato.budget.accounting import Cost
from sfumato.budget.budget import Budget, Neighbours, check_neighbours

__all__ = ["Budget", "Cost", "Neighbours", "check_neighbours"]
