# SPDX-License-Identifier: Apache-2.0
"""What is asked: products of 1-D query sets, predicates, SQL. Public; sees no data."""
