# SPDX-License-Identifier: Apache-2.0
"""The six published sparse vectors side by side, on made-up scores: claims, and proved losses.

    from sfumato_audit import sparse_vectors_compared, sparse_vectors_chart
    table = sparse_vectors_compared()            # claimed epsilon, and a proved lower bound
    sparse_vectors_chart(table)

KNOWN TO BE WRONG: numbers 3 to 6. The numbers, scales and faults are those of Lyu, Su, Li 2017,
"Understanding the sparse vector technique for differential privacy", Figure 1 and Table 1, as on
the slides of the notes. None of them reads a table: scores are short lists that were made up. The
two that are private are `sf.study.sparse_vector`, which does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf, isfinite
from typing import TYPE_CHECKING, Final

import numpy as np

from sfumato.errors import PlanError
from sfumato.random import WordSource, system_words
from sfumato.types import Array
from sfumato.vault.mechanisms.noise import discrete_laplace
from sfumato_audit.audit_limits import LIMITS
from sfumato_audit.examine import FAST, Claim, Effort, Pair, Sampler, Subject, examine

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

__all__ = [
    "PUBLISHED",
    "PublishedVector",
    "Scores",
    "place_and_value",
    "run_sparse_vector",
    "sparse_vectors_chart",
    "sparse_vectors_compared",
]


Scores = tuple[float, ...]
STEPS: Final = 2**12  # of the grid of the noise, in one unit of a score
LAST, LOW = 6, 3.5  # the event that tells number 3: its place, and its value at epsilon = 1


@dataclass(frozen=True, slots=True)
class PublishedVector:
    """One of the six: its noise for queries of sensitivity 1, and what is wrong with it.

    Args:
        number: That of Figure 1.
        authors: Who published it.
        threshold: The scale of the threshold's noise times epsilon, for one discovery.
        query: The scale of a score's noise times epsilon, for one discovery; 0 for none.
        threshold_grows: Whether the first grows with c.
        query_grows: Whether the second does.
        redraws: Whether the threshold is drawn anew after a discovery.
        stops: Whether it ends after c discoveries.
        tells: Whether it tells the noisy score that it compared.
        fault: What is wrong; empty if nothing is.
    """

    number: int
    authors: str
    threshold: Fraction
    query: Fraction
    threshold_grows: bool = False
    query_grows: bool = False
    redraws: bool = False
    stops: bool = True
    tells: bool = False
    fault: str = ""

    def loss(self, epsilon: float, c: int) -> float:
        """The epsilon that it really keeps: proved, or infinite where there is none.

        Args:
            epsilon: The one that it claims.
            c: The most discoveries.

        Returns:
            Lyu, Su, Li 2017, Table 1.
        """
        if not self.fault:
            return epsilon
        return epsilon * (1 + 6 * c) / 4 if self.number == 4 else inf

    def scales(self, epsilon: Fraction, c: int) -> tuple[Fraction, Fraction]:
        """The scales of the noise of the threshold and of the scores.

        Args:
            epsilon: The one that it claims.
            c: The most discoveries.

        Returns:
            Both scales.
        """
        first = self.threshold * (c if self.threshold_grows else 1) / epsilon
        return first, self.query * (c if self.query_grows else 1) / epsilon

    def run(self, exact: Array, epsilon: Fraction, c: int, source: WordSource) -> Array:
        """One run per row of exact scores, the threshold being 0.

        Args:
            exact: Made-up scores, a row per run.
            epsilon: The one that it claims.
            c: The most discoveries.
            source: Random words.

        Returns:
            1 for above and 0 for below (or the noisy score, and minus infinity), NaN after the end.
        """
        runs, count = exact.shape
        first, second = self.scales(epsilon, c)
        threshold = _laplace(first, runs, source)
        noise = _laplace(second, exact.size, source).reshape(exact.shape)
        left, out = np.full(runs, c), np.full(exact.shape, np.nan)
        for i in range(count):
            noisy = exact[:, i] + noise[:, i]
            above, is_tested = noisy >= threshold, left > 0
            says = np.where(above, noisy, -inf) if self.tells else above.astype(np.float64)
            out[is_tested, i] = says[is_tested]
            if self.stops:
                left -= above & is_tested
            if self.redraws:
                threshold = np.where(above, _laplace(first, runs, source), threshold)
        return out


def _laplace(scale: Fraction, size: int, source: WordSource) -> Array:
    if not scale:
        return np.zeros(size)
    return discrete_laplace(scale * STEPS, size, source).astype(np.float64) / STEPS


PUBLISHED: Final = (
    PublishedVector(1, "Lyu, Su, Li 2017", Fraction(2), Fraction(4), query_grows=True),
    PublishedVector(
        2,
        "Dwork, Roth 2014",
        Fraction(2),
        Fraction(4),
        threshold_grows=True,
        query_grows=True,
        redraws=True,
    ),
    PublishedVector(
        3,
        "Roth 2011",
        Fraction(2),
        Fraction(2),
        query_grows=True,
        tells=True,
        fault="tells the noisy score that it compared",
    ),
    PublishedVector(
        4,
        "Lee, Clifton 2014",
        Fraction(4),
        Fraction(4, 3),
        fault="noise does not grow with the discoveries",
    ),
    PublishedVector(
        5,
        "Stoddard, Chen, Machanavajjhala 2014",
        Fraction(2),
        Fraction(0),
        stops=False,
        fault="no noise on the scores",
    ),
    PublishedVector(
        6,
        "Chen, Xiao, Zhang, Xu 2015",
        Fraction(2),
        Fraction(2),
        stops=False,
        fault="no end to the discoveries",
    ),
)


def run_sparse_vector(
    number: int,
    scores: Sequence[float],
    *,
    epsilon: float = 1.0,
    c: int = 3,
    T: float = 0.0,
    random: WordSource | None = None,
) -> list[float]:
    """One run of a published sparse vector on made-up scores; 3 to 6 protect nobody.

    Args:
        number: 1 to 6, as in Figure 1 of Lyu, Su, Li 2017.
        scores: A short list of made-up numbers; tables, files and dataframes are refused.
        epsilon: The epsilon that it claims.
        c: The most discoveries.
        T: The threshold.
        random: Random words; the system's if None.

    Returns:
        1 for above, 0 for below (number 3: the noisy score, or minus infinity), up to the end.

    Raises:
        PlanError: The scores are not made up, or an argument is out of range.
    """
    vector, exact = _published(number), _made_up(scores)
    _check(epsilon, c)
    shifted = np.array([exact]) - T
    source = system_words() if random is None else random
    out = vector.run(shifted, Fraction(epsilon), c, source)[0]
    tested = out[~np.isnan(out)]
    return [float(x) for x in (tested + T if vector.tells else tested)]


def _published(number: int) -> PublishedVector:
    for vector in PUBLISHED:
        if vector.number == number:
            return vector
    raise PlanError(f"six sparse vectors were published, numbers 1 to 6, got {number!r}")


def _made_up(scores: Sequence[float]) -> Scores:
    """A short list of plain numbers; whatever could be a table is refused."""
    is_list = isinstance(scores, list | tuple) and 0 < len(scores) <= LIMITS.made_up_scores
    if not is_list or not all(type(x) in (int, float) and isfinite(x) for x in scores):
        raise PlanError(
            f"wrong mechanisms run on made-up scores only: a list of at most "
            f"{LIMITS.made_up_scores} plain numbers; for data use sf.study.sparse_vector"
        )
    return tuple(float(x) for x in scores)


def _check(epsilon: float, c: int) -> None:
    if not isinstance(epsilon, int | float) or not 0.01 <= epsilon <= 100:
        raise PlanError(f"epsilon must lie between 0.01 and 100, got {epsilon!r}")
    if isinstance(c, bool) or not isinstance(c, int) or not 1 <= c <= 20:
        raise PlanError(f"c, the most discoveries, is a whole number from 1 to 20, got {c!r}")


def sparse_vectors_compared(
    epsilon: float = 1.0, c: int = 3, *, runs: int = 100_000, random: WordSource | None = None
) -> pd.DataFrame:
    """All six on the same made-up neighbours: the epsilon they claim, and one they surely exceed.

    The loss is measured: events are searched that tell two lists of scores apart which differ by 1
    at most each, and counted in fresh runs. The bound holds with 99.9% (Clopper-Pearson); one above
    the claim refutes it, one below proves nothing: a small epsilon needs more runs.

    Args:
        epsilon: The epsilon that all of them claim.
        c: The most discoveries of those that end.
        runs: Runs on each list that count; a few seconds for the default.
        random: Random words; the system's if None.

    Returns:
        A dataframe: algorithm, authors, c (number 3 is run with one discovery), claimed, proved,
        real (what it keeps, by proof), refuted, fault.

    Raises:
        PlanError: An argument is out of range.
    """
    import pandas as pd

    _check(epsilon, c)
    source = system_words() if random is None else random
    effort = Effort(search=max(FAST.search, runs // 4), test=runs, pairs=0)
    lines = []
    for vector in PUBLISHED:
        most = 1 if vector.tells else c  # what is told with one discovery is enough
        finding = examine(_subject(vector, epsilon, most), source, effort)
        lines.append(
            {
                "algorithm": vector.number,
                "authors": vector.authors,
                "c": most if vector.stops else None,
                "claimed": epsilon,
                "proved": max(finding.bound, 0.0),
                "real": vector.loss(epsilon, most),
                "refuted": finding.bound > epsilon,
                "fault": vector.fault or "none",
            }
        )
    return pd.DataFrame(lines)


def _subject(vector: PublishedVector, epsilon: float, c: int) -> Subject[Scores]:
    """One of the six on neighbours that are known to tell, as a subject of the audit."""
    exact = Fraction(epsilon)

    def sampler(scores: Scores) -> Sampler:
        row = np.array(scores)

        def run(runs: int, source: WordSource) -> Array:
            outputs = vector.run(np.tile(row, (runs, 1)), exact, c, source)
            return place_and_value(outputs) if vector.tells else outputs

        return run

    def only_the_last_and_low(outputs: Array) -> Array:
        """Then the threshold was low as well, as in the paper's proof for number 3."""
        place, value = outputs.T
        return np.asarray((place == LAST) & (value <= LOW / epsilon), dtype=np.float64)

    return Subject(
        f"published sparse vector {vector.number}",
        Claim("epsilon", epsilon),
        _pairs(c) if not vector.tells else _pairs(c)[-1:],
        sampler,
        hint=(lambda _: only_the_last_and_low) if vector.tells else None,
        is_broken=bool(vector.fault),
    )


def place_and_value(outputs: Array) -> Array:
    """The place of the first discovery and the number that was told; -1 and NaN without one."""
    above = outputs > -inf
    first, is_any = above.argmax(axis=1), above.any(axis=1)
    value = outputs[np.arange(len(outputs)), first]
    return np.stack([np.where(is_any, first, -1), np.where(is_any, value, np.nan)], axis=1)


def _pairs(c: int) -> tuple[Pair[Scores], ...]:
    """Lists of scores that differ by 1 at most each."""
    zero, one = 0.0, 1.0
    return (
        Pair("0 and 1, or 1 and 0", (zero, one), (one, zero)),
        Pair("all equal, or c higher and c lower", (zero,) * 2 * c, (one,) * c + (-one,) * c),
        Pair("all equal, or 5 higher and 5 lower", (zero,) * 10, (one,) * 5 + (-one,) * 5),
        Pair("only the last is high, or low", (zero,) * LAST + (one,), (one,) * LAST + (zero,)),
    )


def sparse_vectors_chart(table: pd.DataFrame) -> alt.LayerChart:
    """A picture of `sparse_vectors_compared`: proved losses beside the claim.

    Args:
        table: What `sparse_vectors_compared` returned.

    Returns:
        A chart for notebooks; ``.save(path)`` writes it.
    """
    import altair as alt

    shown = table.assign(
        name=[f"{n}: {a}" for n, a in zip(table["algorithm"], table["authors"], strict=True)],
        verdict=["exceeds its claim" if r else "stands" for r in table["refuted"]],
    )
    bars = (
        alt.Chart(shown)
        .mark_bar()
        .encode(
            x=alt.X("proved:Q", title="epsilon that is surely lost (99.9%)"),
            y=alt.Y("name:N", title=None, sort=None),
            color=alt.Color(
                "verdict:N",
                title=None,
                scale=alt.Scale(
                    domain=["stands", "exceeds its claim"], range=["#1f6f8b", "#c0392b"]
                ),
            ),
            tooltip=["name", "claimed", "proved", "real", "fault"],
        )
    )
    rule = alt.Chart(shown).mark_rule(strokeDash=[4, 3]).encode(x="max(claimed):Q")
    return alt.layer(bars, rule).properties(title="Six published sparse vectors", width=420)
