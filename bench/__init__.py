# SPDX-License-Identifier: Apache-2.0
"""Peers and sfumato side by side; `python -m bench` runs all, each module runs alone."""
