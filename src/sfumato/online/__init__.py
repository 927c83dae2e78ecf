# SPDX-License-Identifier: Apache-2.0
"""Questions one at a time: answered from what was learnt, paid for only when that is wrong."""
