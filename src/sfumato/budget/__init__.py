# SPDX-License-Identifier: Apache-2.0
"""Epsilon, delta, rho, mu: what a release may cost, what it costs, and who has spent it.

Budget      the promise                         budget.py
Cost        the parts of one release            accounting.py
Account     units spent of a budget             account.py
Ledger      the durable account of one table    ledger.py
"""

from __future__ import annotations

from sfumato.budget.account import UNITS, Account, Remaining, fits
from sfumato.budget.accounting import (
    Cost,
    GaussianPart,
    PurePart,
    composed_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    mu_squared_of,
    rho_of,
)
from sfumato.budget.book import Allowance, Spent
from sfumato.budget.budget import Budget, Neighbours, Number, check_neighbours
from sfumato.budget.entries import Entry, KeptAnswer, request_key
from sfumato.budget.groups import Pending
from sfumato.budget.ledger import Ledger
from sfumato.budget.private import State

__all__ = [
    "UNITS",
    "Account",
    "Allowance",
    "Budget",
    "Cost",
    "Entry",
    "GaussianPart",
    "KeptAnswer",
    "Ledger",
    "Neighbours",
    "Number",
    "Pending",
    "PurePart",
    "Remaining",
    "Spent",
    "State",
    "check_neighbours",
    "composed_epsilon",
    "fits",
    "gaussian_delta",
    "gaussian_epsilon",
    "mu_squared_of",
    "request_key",
    "rho_of",
]
