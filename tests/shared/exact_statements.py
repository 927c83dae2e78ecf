# SPDX-License-Identifier: Apache-2.0
"""Statements read off exact counts: what a release without noise would show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

import sfumato as sf
from sfumato.workload.statements.statement import OutputNumbers


@dataclass(frozen=True)
class ExactNumbers:
    """The exact answers of a workload on a histogram."""

    workload: sf.Workload
    answers: list[np.ndarray]

    def answer(self, term: int) -> OutputNumbers:
        return OutputNumbers(self.answers[term])

    def mean(self, ratio: int) -> OutputNumbers:
        one = self.workload.ratios[ratio]
        above, below = self.answers[one.numerator], self.answers[one.denominator]
        quotient = np.divide(above, below, out=np.full(len(above), np.nan), where=below != 0)
        return OutputNumbers(one.offset + one.scale * quotient)

    def quantile(self, term: int, attribute: str, probability: float) -> OutputNumbers:
        raise NotImplementedError


def exact_frame(work: sf.Workload, counts: np.ndarray, which: int = 0) -> pd.DataFrame:
    """The answer of a statement on exact counts."""
    from sfumato.release.group_sql import statement_frame

    ends = np.cumsum([term.rows for term in work.terms])[:-1]
    source = ExactNumbers(work, np.split(work.evaluate(counts), ends))
    return statement_frame(work.statements[which], source)
