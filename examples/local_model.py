# SPDX-License-Identifier: Apache-2.0
"""Nobody is trusted: every client randomizes its own answer (randomized response)."""

from __future__ import annotations

import numpy as np

import sfumato as sf

answers = np.array([i % 5 == 0 for i in range(20_000)], dtype=np.int64)  # 20% say yes

response = sf.study.RandomizedResponse(epsilon=1, size=2)
reports = response.encode(answers)  # runs at the client; only this is sent
found = sf.study.estimate_reports(response, reports).answer([[0, 1]])
print(f"yes: {found.value[0]:.0f}, 95% interval {found.low[0]:.0f} to {found.high[0]:.0f}")

needed = sf.study.response_rows_needed(response, alpha=0.01, beta=0.05, queries=1)
print(f"a share within 1% needs {needed:,} clients")
