# SPDX-License-Identifier: Apache-2.0
"""One request, one answer: every writing of a release is debited once and gets the same numbers."""
