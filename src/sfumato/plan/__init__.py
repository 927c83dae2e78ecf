# SPDX-License-Identifier: Apache-2.0
"""How to ask it: strategies, noise, forecasts, the planner. Public; sees no data."""
