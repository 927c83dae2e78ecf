# SPDX-License-Identifier: Apache-2.0
"""Synthetic records drawn from estimates."""
