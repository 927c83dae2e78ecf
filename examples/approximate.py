# SPDX-License-Identifier: Apache-2.0
"""A little bias for much less noise: running totals of few records, and wide conjunctions."""

from __future__ import annotations

import numpy as np

import sfumato as sf

# The running totals of 24 cells: what the approximate factorization norm buys.
prefixes = np.tril(np.ones((24, 24)))
print("allowed bias   gamma    at least")
for alpha in (0.0, 0.05, 0.2, 0.5):
    found = sf.study.bounded_bias(prefixes, alpha)
    print(f"{alpha:10.2f} {found.gamma:9.4f} {found.lower_bound:9.4f}")

# The best trade for a number of records and a budget: noise is (1 / (mu n))^2.
unbiased = sf.study.factorize(prefixes).gamma
print("\nmu n    unbiased   best linear   with the number of records public")
for strength in (1, 3, 10, 100):
    noise = strength**-2.0
    best = sf.study.least_worst_case(prefixes, noise)
    centred = sf.study.least_worst_case(prefixes, noise, "best")
    print(
        f"{strength:4d} {unbiased / strength:11.4f} {best.worst_error():13.4f} "
        f"{centred.worst_error():13.4f}"
    )

# All conjunctions of 6 of 12 yes/no attributes, from characters of few of them.
domain = sf.Domain({f"q{i}": 2 for i in range(12)})
work = sf.conjunctions(domain, 6)
print(f"\n{len(work):,} conjunctions of 6 of 12 attributes")
for degree in (2, 3, 4, 6):
    print(
        f"  degree {degree}: a polynomial errs by at most {sf.study.chebyshev_error(6, degree):.3f}"
    )
for records in (3, 30, 1_000):
    strategy = sf.study.conjunctions_by_polynomial(work, records, loss=1.0)
    print(f"  {records:,} records: {strategy.describe()[0]}, {len(strategy.blocks):,} characters")
