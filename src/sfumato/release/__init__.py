# SPDX-License-Identifier: Apache-2.0
"""What is published: answers, error bars, provenance, plots, report. Public; sees no exact data."""
