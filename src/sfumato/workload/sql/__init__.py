# SPDX-License-Identifier: Apache-2.0
"""Counting queries written in SQL, read into terms of a workload."""
