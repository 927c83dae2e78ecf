# SPDX-License-Identifier: Apache-2.0
"""Projection over cells that can be listed."""
