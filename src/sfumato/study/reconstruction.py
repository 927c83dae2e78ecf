# SPDX-License-Identifier: Apache-2.0
"""Attacks that read records off answers with too little noise, on made-up data.

I. Dinur, K. Nissim, 2003, "Revealing information while preserving privacy": answers to many counts
over subsets of persons, each within a small error, tell nearly every person's secret bit. That is
what "blatantly non-private" means. `reconstruct` guesses bits from answers; `reconstruction_table`
runs it for many errors and numbers of queries, and with private noise, for which no attack guesses
a bit right with a chance above ``e^epsilon / (1 + e^epsilon)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import exp, sqrt
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.optimize import lsq_linear

from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.random import Draws
from sfumato.study.study_limits import LIMITS
from sfumato.types import Array, Integers

if TYPE_CHECKING:
    import altair as alt

__all__ = [
    "ReconstructionRow",
    "ReconstructionTable",
    "reconstruct",
    "reconstruction_table",
]


def reconstruct(queries: npt.ArrayLike, answers: npt.ArrayLike) -> Integers:
    """Guesses the secret bit of every person from answers about sets of persons.

    The bits, as numbers from 0 to 1, that agree best with the answers in the sense of least
    squares, rounded. It reads nothing but what was published.

    Args:
        queries: A row per answer, a column per person: 1 where the person is counted.
        answers: How many of the counted persons have the bit, more or less.

    Returns:
        A guess for each person.

    Raises:
        WorkloadError: Numbers of queries and answers differ, or are not finite.

    >>> import numpy as np, sfumato as sf
    >>> sets = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1]])
    >>> sf.study.reconstruct(sets, sets @ [1, 0, 1] + 0.3).tolist()
    [1, 0, 1]
    """
    matrix = np.asarray(queries, dtype=np.float64)
    values = np.asarray(answers, dtype=np.float64)
    if matrix.ndim != 2 or values.shape != (len(matrix),):
        raise WorkloadError(
            f"reconstruct needs a matrix with a row per answer, got shapes {matrix.shape} and "
            f"{values.shape}"
        )
    if not np.isfinite(matrix).all() or not np.isfinite(values).all():
        raise WorkloadError("reconstruct needs finite numbers")
    if len(matrix) > matrix.shape[1]:  # the same least squares, with a row per person
        turn, matrix = np.linalg.qr(matrix)
        values = turn.T @ values
    return np.asarray(lsq_linear(matrix, values, (0, 1)).x > 0.5, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class ReconstructionRow:
    """What an attack got out of the answers of one kind.

    Args:
        queries: How many sets of persons were counted.
        error: The greatest error of an answer as a share of the persons, or its typical size.
        epsilon: What the answers spent; None where they are not private.
        recovered: The share of persons whose bit was guessed right.
        bound: What no attack exceeds on average; 1 where answers are not private.
    """

    queries: int
    error: float
    epsilon: float | None
    recovered: float
    bound: float


@dataclass(frozen=True, slots=True)
class ReconstructionTable:
    """Rows of an experiment with made-up bits of ``persons`` persons, each a fair coin.

    Args:
        persons: How many there were.
        runs: Made-up data sets, over which every row is a mean.
        rows: What was tried, and what came out.
    """

    persons: int
    runs: int
    rows: tuple[ReconstructionRow, ...]

    def __str__(self) -> str:
        head = f"{self.persons} persons, fair bits, mean of {self.runs} data sets"
        lines = [f"{'queries':>8}  {'error of an answer':>28}  {'bits recovered':>14}  bound"]
        for row in self.rows:
            kind = "at most " if row.epsilon is None else f"epsilon {row.epsilon:g}: "
            error = f"{kind}{row.error:.4f} n"
            bound = "none" if row.epsilon is None else f"{row.bound:.0%}"
            lines.append(f"{row.queries:>8,}  {error:>28}  {row.recovered:>14.0%}  {bound}")
        return "\n".join([head, *lines])

    def chart(self) -> alt.LayerChart:
        """The table as a picture: the share of bits that were recovered, by queries and error.

        Returns:
            A chart for notebooks; ``.save(path)`` writes it.
        """
        import altair as alt
        import pandas as pd

        frame = pd.DataFrame(
            {
                "queries": [f"{row.queries:,}" for row in self.rows],
                "answers": [
                    f"within {row.error:.3f} n"
                    if row.epsilon is None
                    else f"private, epsilon {row.epsilon:g}"
                    for row in self.rows
                ],
                "recovered": [row.recovered for row in self.rows],
            }
        )
        base = alt.Chart(frame).encode(
            alt.X("queries:N", sort=None, title=f"queries about {self.persons} persons"),
            alt.Y("answers:N", sort=None, title=None),
        )
        scale = alt.Scale(domain=[0.5, 1], scheme="orangered")
        squares = base.mark_rect().encode(
            alt.Color("recovered:Q", scale=scale, title="bits recovered", legend=None)
        )
        on_dark = alt.condition("datum.recovered > 0.8", alt.value("white"), alt.value("black"))
        numbers = base.mark_text().encode(alt.Text("recovered:Q", format=".0%"), color=on_dark)
        title = "Bits that an attack recovers (half of them by guessing)"
        return alt.layer(squares, numbers).properties(title=title, width=300, height=190)


def reconstruction_table(
    persons: int = 100,
    queries: Sequence[int] | None = None,
    errors: Sequence[float] | None = None,
    epsilons: Sequence[float] = (0.5, 1.0),
    runs: int = 5,
) -> ReconstructionTable:
    """How many bits an attack recovers, by number of queries and error: the table of the slides.

    Every query counts a random half of the persons. Without privacy, answers are wrong by up to
    ``error n``, evenly; with it, Laplace noise spends epsilon on all queries together. Data are
    made up and draws are repeatable: nothing here protects anybody.

    Args:
        persons: How many persons have a bit.
        queries: Numbers of queries; n/10, n and 8 n if None.
        errors: Greatest errors as shares of n; 1/(4 root n), 1/root n and 1/8 if None.
        epsilons: What private answers spend in all.
        runs: Made-up data sets for each row.

    Returns:
        A row per number of queries and error; ``str`` of it is a table.

    Raises:
        PlanError: A number is out of range.
        TooLarge: There are more queries or persons than are tried.

    >>> import sfumato as sf
    >>> table = sf.study.reconstruction_table(persons=40, runs=2)
    >>> exact = [row for row in table.rows if row.queries == 320 and row.error < 0.05]
    >>> exact[0].recovered
    1.0
    """
    root = sqrt(max(persons, 1))
    numbers = tuple(queries or (max(persons // 10, 1), persons, 8 * persons))
    shares = tuple(errors or (0.25 / root, 1 / root, 0.125))
    if min(persons, runs, *numbers) < 1 or min(*shares, *(*epsilons, 1.0)) <= 0:
        raise PlanError("persons, queries, runs, errors and epsilons must be above 0")
    if persons > LIMITS.reconstruction_persons or max(numbers) > LIMITS.reconstruction_queries:
        raise TooLarge(
            f"{persons:,} persons and {max(numbers):,} queries were asked; at most "
            f"{LIMITS.reconstruction_persons:,} and {LIMITS.reconstruction_queries:,} are attacked"
        )
    rows: list[ReconstructionRow] = []
    for k in numbers:
        for share in shares:
            recovered = _mean_recovered(persons, k, runs, share * persons, None)
            rows.append(ReconstructionRow(k, share, None, recovered, 1.0))
        for epsilon in epsilons:
            recovered = _mean_recovered(persons, k, runs, k / epsilon, epsilon)
            bound = exp(epsilon) / (1 + exp(epsilon))
            rows.append(
                ReconstructionRow(k, sqrt(2) * k / epsilon / persons, epsilon, recovered, bound)
            )
    return ReconstructionTable(persons, runs, tuple(rows))


def _mean_recovered(persons: int, k: int, runs: int, size: float, epsilon: float | None) -> float:
    """The share of bits guessed right, over made-up data sets."""
    right = 0
    for run in range(runs):
        draws = Draws(f"reconstruction {persons} {k} {Fraction(size)} {epsilon} {run}")
        bits = draws.below(2, persons)
        matrix: Array = draws.below(2, k * persons).reshape(k, persons).astype(np.float64)
        noise = draws.laplaces(k) if epsilon is not None else 2 * draws.uniforms(k) - 1
        right += int((reconstruct(matrix, matrix @ bits + size * noise) == bits).sum())
    return right / (persons * runs)
