# SPDX-License-Identifier: Apache-2.0
"""Certified optima and lower bounds: small matrices, chains, problems with symmetries."""
