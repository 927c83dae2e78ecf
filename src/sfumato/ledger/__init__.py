# SPDX-License-Identifier: Apache-2.0
"""The durable record of what was spent on a table and what was answered."""
