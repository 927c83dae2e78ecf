# SPDX-License-Identifier: Apache-2.0
"""Projection without a histogram: weighted rows stand for cells that cannot be listed."""
