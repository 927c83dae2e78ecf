# SPDX-License-Identifier: Apache-2.0
"""Ages predicted by a public model; only where the model is wrong is anything paid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

import sfumato as sf

ages = np.arange(20, 70)
truth = 400 - 3 * (ages - 20)
truth[[12, 13]] += 600  # a baby boom that the model does not know
table = pd.DataFrame({"age": np.repeat(ages, truth)})
domain = sf.Domain([sf.Integer("age", 20, 69)])
work = sf.marginals(domain, 1)

predictions = 395.0 - 3 * (ages - 20)  # last year's fit, say
correction = sf.correct(work, sf.Budget(epsilon=1), tolerance=200, corrections=3, confidence=0.99)
print(correction)  # known before anything is spent
result = correction.release(table, predictions)
print(result)
shown = result.answers().iloc[10:16].round(1)
print(shown.to_string(index=False))


def as_before(_query: int, answers: Sequence[float]) -> float:
    """A predictor that learns: the last answer again, and 400 to begin with."""
    return answers[-1] if answers else 400.0


learnt = correction.release(table, as_before)
print("by the last answer:", learnt)
