# SPDX-License-Identifier: Apache-2.0
"""Plans that can be run on a table, and the one way to run them."""
