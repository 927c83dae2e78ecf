# SPDX-License-Identifier: Apache-2.0
"""Three ways to count: Laplace noise on the queries, on the contingency table, or at the source.

``queries`` counting questions on ``cells`` cells, each about half of them, all of them about the
first cell: the worst case, in which one record moves every answer. Errors are root mean squares, as
shares of the records; those of the two central ways are exact, that of randomized response is for
the worst data set. Y.-X. Wang, lecture notes "Sparse vector technique and linear query release".
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isqrt, sqrt
from typing import Final

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.random import WordSource, system_words
from sfumato.refine.draws import Draws
from sfumato.study.local_model import RandomizedResponse, estimate_reports, forecast_rmse
from sfumato.types import Array, Integers
from sfumato.vault.noise import discrete_laplace
from sfumato.workload.build import explicit
from sfumato.workload.workload import Workload
from sfumato_web.learn.drawing import Axis, Hue, Plot, number

__all__ = [
    "LINES",
    "WAYS",
    "ThreeWays",
    "three_ways",
]


WAYS: Final = ("Laplace on the queries", "contingency table", "randomized response")
HUES: Final[dict[str, Hue]] = dict(zip(WAYS, ("red", "blue", "gold"), strict=True))
LINES: Final = 25  # points of a line
FEWEST, MOST = 10, 10**6  # records
MOST_QUERIES = 10**4
GRID: Final = 2**10  # steps of noise to a count: what is left of the grid is not seen
TRIED_QUERIES = 64  # that are written out for a run
TRIED_RECORDS: Final = (30, 300, 3_000, 30_000)


@dataclass(frozen=True, slots=True)
class ThreeWays:
    """A setting, and what each way makes of it."""

    epsilon: Fraction
    cells: int
    queries: int
    records: int

    def rmse(self, way: str, *, queries: int | None = None, records: int | None = None) -> float:
        """The root mean square error in counts; elsewhere, if another number is given."""
        k, n = queries or self.queries, records or self.records
        if way == WAYS[0]:  # one record is in all k queries
            return sqrt(2) * k / float(self.epsilon)
        if way == WAYS[1]:  # one record is in one cell, a query sums half of them
            return sqrt(self.cells) / float(self.epsilon)
        return float(forecast_rmse(self._response(), self.matrix(1), n)[0])

    def share(self, way: str, *, queries: int | None = None, records: int | None = None) -> float:
        """The same as a share of the records."""
        n = records or self.records
        return self.rmse(way, queries=queries, records=n) / n

    def best(self) -> str:
        """The way with the least error."""
        return min(WAYS, key=self.rmse)

    def queries_where_the_table_wins(self) -> int:
        """The least number of queries from which the table errs less than noise on the queries."""
        return isqrt(self.cells // 2) + 1  # sqrt(2) k > sqrt(cells)

    def records_where_it_wins(self, way: str) -> int:
        """The least number of records from which a central way beats randomized response.

        Its error in counts stays the same, that of randomized response grows with sqrt(n).
        """
        return max(1, ceil((self.rmse(way) / self.rmse(WAYS[2], records=1)) ** 2))

    def matrix(self, queries: int) -> Integers:
        """So many queries as rows of 0 and 1: the first cell and half of the others' number."""
        out = np.zeros((queries, self.cells), dtype=np.int64)
        out[:, 0] = 1
        draws = Draws(f"three ways {self.cells}")
        for row in out:
            order = 1 + np.argsort(draws.uniforms(self.cells - 1), kind="stable")
            row[order[: self.cells // 2 - 1]] = 1
        return out

    def workload(self) -> Workload:
        """The queries for a plan."""
        cells = Domain({"cell": self.cells})
        return explicit(cells, ["cell"], self.matrix(self.queries))

    def tried(self, records: int, source: WordSource | None = None) -> dict[str, float]:
        """The errors of one run on made-up records, as shares: exact counts, then the noise."""
        source = system_words() if source is None else source
        k = min(self.queries, TRIED_QUERIES)
        queries = self.matrix(k)
        shares = np.asarray(1.0 / (1.0 + np.arange(self.cells)), dtype=np.float64)
        counts = Draws(f"records {records} {self.cells}").counts(shares, records)
        truth = queries @ counts
        on_queries = discrete_laplace(GRID * self.queries / self.epsilon, k, source) / GRID
        on_cells = discrete_laplace(GRID / self.epsilon, self.cells, source) / GRID
        reports = self._response().encode(np.repeat(np.arange(self.cells), counts), source)
        local = queries @ estimate_reports(self._response(), reports).counts
        off = (on_queries, queries @ on_cells, local - truth)
        return {way: _rms(errors) / records for way, errors in zip(WAYS, off, strict=True)}

    def against_records(self, source: WordSource | None = None) -> str:
        """Error against n, with the points of one run on made-up data."""
        sizes = np.geomspace(FEWEST, MOST, LINES)
        plot = Plot(
            Axis("records n", FEWEST, MOST, is_log=True),
            Axis("error, as a share of the records", 1e-6, 1e3, is_log=True, is_share=True),
        )
        for way in WAYS:
            line = [(float(n), self.share(way, records=round(n))) for n in sizes]
            plot.line(line, HUES[way], way)
        for n in TRIED_RECORDS:
            for way, error in self.tried(n, source).items():
                plot.dots([(n, error)], HUES[way])
        plot.rule(y=1.0, name="all of the records: the answer says nothing")
        cross = self.records_where_it_wins(WAYS[0])
        if FEWEST < cross < MOST:
            plot.dots([(cross, self.share(WAYS[0], records=cross))], "grey", size=6, look="hollow")
        return plot.svg(
            f"Error of {self.queries:,} queries against the number of records, for three ways to "
            f"count; Laplace on the queries and randomized response cross at {cross:,} records"
        )

    def against_queries(self) -> str:
        """Error against k at this number of records."""
        ks = sorted({round(k) for k in np.geomspace(1, MOST_QUERIES, LINES)})
        lines = {way: [(k, self.share(way, queries=k)) for k in ks] for way in WAYS}
        errors = [error for line in lines.values() for _, error in line]
        plot = Plot(
            Axis("queries k", 1, MOST_QUERIES, is_log=True),
            Axis(
                "error, as a share of the records",
                10.0 ** np.floor(np.log10(min(errors))),
                10.0 ** np.ceil(np.log10(max(errors))),
                is_log=True,
                is_share=True,
            ),
        )
        for way in WAYS:
            plot.line(lines[way], HUES[way], way)
        cross = self.queries_where_the_table_wins()
        plot.dots([(cross, self.share(WAYS[0], queries=cross))], "grey", size=6, look="hollow")
        plot.rule(x=self.queries, name=f"k = {self.queries:,}")
        return plot.svg(
            f"Error on {self.records:,} records against the number of queries, for three ways to "
            f"count; from {cross:,} queries on the table errs less than noise on the queries"
        )

    def notices(self) -> list[str]:
        """What there is to see, with the numbers of this setting."""
        table = self.queries_where_the_table_wins()
        local, few = (self.records_where_it_wins(way) for way in WAYS[:2])
        against_table = f"the table only below {few:,}" if few > 2 else "never the table"
        return [
            f"From {table:,} queries on, noise on the {self.cells} cells of the table is better "
            "than noise on the queries: the table is paid for once, however many queries are "
            "summed from it. About the square root of half the cells, at any epsilon.",
            f"Randomized response trusts nobody, and its error falls only with the square root of "
            f"n. It beats Laplace on {self.queries:,} queries below {number(local)} records "
            f"(the ring), and {against_table}.",
            "Doubling epsilon halves the error of the first two; twice the records do so, too.",
            f"The least error here: {self.best()}, {100 * self.share(self.best()):.3g}% of "
            f"{self.records:,} records.",
        ]

    def _response(self) -> RandomizedResponse:
        return RandomizedResponse(self.epsilon, self.cells)


def three_ways(epsilon: float, attributes: int, queries: int, records: int) -> ThreeWays:
    """A setting: so many yes/no attributes, hence ``2^attributes`` cells."""
    exact = Fraction(epsilon).limit_denominator(1000)
    return ThreeWays(exact, 2**attributes, queries, records)


def _rms(errors: Array | Integers) -> float:
    return float(np.sqrt(np.mean(np.square(errors.astype(np.float64)))))
