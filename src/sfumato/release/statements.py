# SPDX-License-Identifier: Apache-2.0
"""The answers of a SELECT in its own shape: columns as selected, intervals beside the noisy ones.

HAVING, ORDER BY and LIMIT are applied to the released values: after the noise, at no cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.errors import WorkloadError
from sfumato.release.answers import check_rows
from sfumato.release.estimates import Estimates
from sfumato.release.export import write_table_csv
from sfumato.release.labels import label_text
from sfumato.release.quantiles import totals_quantiles
from sfumato.release.release_limits import LIMITS
from sfumato.text import listing, shown
from sfumato.workload.statement import OutputNumbers, Statement, StatementSource
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ReleasedNumbers",
    "find_statement",
    "statement_columns",
    "statement_frame",
    "write_statements",
]


@dataclass(frozen=True, slots=True)
class ReleasedNumbers:
    """The numbers of statements, read off the answers of a release.

    Privacy: a function of released answers (post-processing: Dwork, Roth 2014, Proposition 2.1).
    """

    estimates: Estimates
    level: float

    def answer(self, term: int) -> OutputNumbers:
        """The answers of a group of queries."""
        answers = self.estimates.group(term)
        return OutputNumbers(answers.value(), *answers.interval(self.level))

    def mean(self, ratio: int) -> OutputNumbers:
        """The means, variances and so on of a statistic."""
        statistic = self.estimates.workload.ratios[ratio]
        derived = statistic.published(self.estimates, self.level)
        return OutputNumbers(derived.value, derived.low, derived.high)

    def quantile(self, term: int, attribute: str, probability: float) -> OutputNumbers:
        """The quantiles of an attribute, by the groups of its running totals."""
        ends = totals_quantiles(self.estimates, term, attribute, probability, self.level)
        return OutputNumbers(*ends)


def find_statement(workload: Workload, which: int) -> Statement:
    """The statement of this number, from 0."""
    statements = workload.statements
    if not statements:
        raise WorkloadError(
            "nothing here was asked in SQL; see answers(), or ask with sf.sql(domain, text)"
        )
    if isinstance(which, bool) or not isinstance(which, int) or which not in range(len(statements)):
        listed = listing([f"{i}: {s.text}" for i, s in enumerate(statements)])
        raise WorkloadError(
            f"there is no statement {shown(which)}; they are numbered from 0: {listed}"
        )
    return statements[which]


def statement_columns(statement: Statement, source: StatementSource) -> dict[str, OutputNumbers]:
    """The columns as selected, by title: one value per group that HAVING and LIMIT leave."""
    numbers = [output.numbers(source) for output in statement.outputs]
    check_rows(len(numbers[0].value))
    rows = statement.rows_after([one.value for one in numbers])
    return {title: one.at(rows) for title, one in zip(statement.titles(), numbers, strict=True)}


def statement_frame(statement: Statement, source: StatementSource) -> pd.DataFrame:
    """One row per group that HAVING and LIMIT leave: the columns as selected.

    Beside a noisy column ``n`` stand ``n_low`` and ``n_high``, the ends of its interval.
    """
    import pandas as pd

    columns: dict[str, object] = {}
    for title, one in statement_columns(statement, source).items():
        columns[title] = one.value
        if one.low is not None and one.high is not None:
            columns |= {f"{title}_low": one.low, f"{title}_high": one.high}
    return pd.DataFrame(columns)


def write_statements(estimates: Estimates, level: float, folder: Path) -> dict[str, Path]:
    """``statement-1.csv`` and so on, one for every SELECT, safe to open in a spreadsheet."""
    import pyarrow as pa

    paths: dict[str, Path] = {}
    for i, statement in enumerate(estimates.workload.statements[: LIMITS.statement_files]):
        if statement.rows > LIMITS.statement_file_rows:
            continue
        source = ReleasedNumbers(estimates, statement.level(level))
        frame = statement_frame(statement, source)
        for name in frame.columns:
            if frame[name].dtype == object:  # numbers and (missing), say
                frame[name] = frame[name].map(label_text)
        path = paths[f"statement_{i + 1}"] = folder / f"statement-{i + 1}.csv"
        write_table_csv(pa.Table.from_pandas(frame, preserve_index=False), path)
    return paths
