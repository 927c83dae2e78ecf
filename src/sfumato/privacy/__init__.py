# SPDX-License-Identifier: Apache-2.0
"""What is promised: arithmetic of privacy losses and of noise. No data and no ledger."""
