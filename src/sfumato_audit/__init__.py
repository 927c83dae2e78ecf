# SPDX-License-Identifier: Apache-2.0
"""Tries to break our own claims, and must break the known-wrong ones (docs/audit.md)."""
