# SPDX-License-Identifier: Apache-2.0
"""Questions one at a time: multiplicative weights over the sparse vector of the vault."""
