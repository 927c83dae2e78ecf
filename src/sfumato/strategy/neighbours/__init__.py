# SPDX-License-Identifier: Apache-2.0
"""Strategies and bounds for other neighbours: records that are replaced, people with several."""
