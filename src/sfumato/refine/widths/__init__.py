# SPDX-License-Identifier: Apache-2.0
"""The geometry of possible answers, and forecasts that follow from it."""
