# SPDX-License-Identifier: Apache-2.0
"""The local model: randomized response at the client, nobody is trusted with exact data."""

from sfumato.local.accuracy import (
    error_bound,
    forecast_radius,
    forecast_rmse,
    row_variances,
    rows_needed,
    workload_rmse,
)
from sfumato.local.estimation import LocalAnswers, LocalEstimate, estimate, estimate_from_tally
from sfumato.local.randomized_response import RandomizedResponse
from sfumato.local.table import encode_table, estimate_table, joint_response, product_queries

__all__ = [
    "LocalAnswers",
    "LocalEstimate",
    "RandomizedResponse",
    "encode_table",
    "error_bound",
    "estimate",
    "estimate_from_tally",
    "estimate_table",
    "forecast_radius",
    "forecast_rmse",
    "joint_response",
    "product_queries",
    "row_variances",
    "rows_needed",
    "workload_rmse",
]
