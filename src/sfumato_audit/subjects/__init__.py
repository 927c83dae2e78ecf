# SPDX-License-Identifier: Apache-2.0
"""What is audited: every mechanism that touches data, run through the code that releases use."""
