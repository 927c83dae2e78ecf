# SPDX-License-Identifier: Apache-2.0
"""Whole statements read as workloads: SELECT of SQL, tables of a TOML file. Public; no data."""
