# SPDX-License-Identifier: Apache-2.0
"""Bodies around all possible answers: relaxations, their projections, and the bounds they prove."""
