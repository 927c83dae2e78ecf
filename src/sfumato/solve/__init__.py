# SPDX-License-Identifier: Apache-2.0
"""Numbers in, numbers and a certificate out: solvers that know nothing of what is measured."""
