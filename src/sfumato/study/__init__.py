# SPDX-License-Identifier: Apache-2.0
"""Mathematics of the lecture notes that no release calls: for study and comparison."""
