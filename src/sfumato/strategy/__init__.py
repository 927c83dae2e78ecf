# SPDX-License-Identifier: Apache-2.0
"""What can be measured, one module a family: measured queries, reconstruction, bounds."""
