# SPDX-License-Identifier: Apache-2.0
"""The mechanisms of the lecture notes by their names, on arrays and on tables."""
