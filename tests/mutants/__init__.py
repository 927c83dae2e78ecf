# SPDX-License-Identifier: Apache-2.0
"""Mutation testing of the rooms that privacy rests on: `make mutants`, docs/mutants.md."""
