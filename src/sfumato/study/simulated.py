# SPDX-License-Identifier: Apache-2.0
"""Mechanisms tried out on made-up data: their errors, to set beside what theory says of them.

The functions ``measure_...`` return a root mean square error over some runs. The data are drawn
from a public surrogate: a skewed or uniform law over the cells, or a table that the caller says is
public (`MadeUp`); on large domains they are records (`made_up`, `resampled`). Draws are repeatable
and protect nothing; no table of records is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf, sqrt
from typing import Literal, Protocol

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.planning.forecast import Forecast, drawn_noise
from sfumato.random import Draws
from sfumato.refine.project import project
from sfumato.refine.shrink import PublicRecords
from sfumato.study.experts import simulated_weights
from sfumato.study.projection_forecast import ProjectionForecast
from sfumato.study.study_limits import LIMITS
from sfumato.study.widths import Hull
from sfumato.types import Array, Integers
from sfumato.workload.build import explicit
from sfumato.workload.queries import repeated
from sfumato.workload.workload import Workload

__all__ = [
    "MadeUp",
    "MeasuredError",
    "SurrogateRecords",
    "made_up",
    "measure_forecast",
    "measure_noise",
    "measure_projected",
    "measure_projection",
    "measure_weights",
    "resampled",
    "simulated_noise",
]


Surrogate = Literal["skewed", "uniform"]


@dataclass(frozen=True, slots=True)
class MeasuredError:
    """The root mean square error of ``runs`` runs, in counts; ``standard_error`` is its own."""

    rmse: float
    standard_error: float
    runs: int

    def __float__(self) -> float:
        return self.rmse


@dataclass(frozen=True, eq=False)
class MadeUp:
    """Made-up histograms over the classes of cells that a workload tells apart.

    Args:
        hull: What tells cells apart.
        shares: The share of every class of cells.
        label: What the data are called.
    """

    hull: Hull
    shares: Array
    label: str

    @classmethod
    def of(cls, workload: Workload, surrogate: Surrogate | Array = "skewed") -> MadeUp:
        """Made-up histograms; ``"skewed"`` shares are 1, 1/2, 1/3, ... in an arbitrary order.

        Args:
            workload: What is asked.
            surrogate: ``"skewed"``, ``"uniform"``, or a public table of counts.

        Returns:
            What draws histograms.
        """
        hull = Hull.of(workload)
        size = hull.matrix.shape[1]  # refused if it cannot be written out
        label = f"made up {workload.digest()}"
        if not isinstance(surrogate, str):
            shares = _public_shares(hull, surrogate)
        elif surrogate == "uniform":
            shares = np.ones(size)
        elif surrogate == "skewed":
            order = np.argsort(Draws(label).uniforms(size), kind="stable")
            shares = 1 / (1.0 + order)
        else:
            raise WorkloadError(
                f"surrogate must be 'skewed', 'uniform' or a public table, got {surrogate!r}"
            )
        return cls(hull, shares / shares.sum(), label)

    @cached_property
    def flat(self) -> Workload:
        """The queries as one group over one attribute: quicker to project."""
        cells = Domain({"cell": self.hull.matrix.shape[1]})
        return explicit(cells, ["cell"], self.hull.matrix)

    def histogram(self, records: int, run: int) -> Array:
        """The histogram of one run; of very many records it is the shares exactly.

        Args:
            records: How many records are drawn.
            run: The number of the run.

        Returns:
            One number per class of cells.
        """
        if records > LIMITS.records_drawn:
            return self.shares * records
        return self.draws("data", run, records).counts(self.shares, records).astype(np.float64)

    def draws(self, what: str, run: int, records: int) -> Draws:
        """The randomness of one run.

        Args:
            what: What is drawn.
            run: The number of the run.
            records: How many records there are.

        Returns:
            A source of repeatable draws.
        """
        return Draws(f"{self.label}|{what}|{run}|{records}")


def _public_shares(hull: Hull, table: Array) -> Array:
    """A public table over the domain as one over the classes of the asked attributes."""
    domain = hull.workload.domain
    numbers = np.asarray(table, dtype=np.float64)
    if numbers.shape != domain.shape:
        raise WorkloadError(
            f"the surrogate has shape {numbers.shape}, the domain has {domain.shape}"
        )
    if not np.isfinite(numbers).all() or numbers.min() < 0 or not numbers.sum() > 0:
        raise WorkloadError("a surrogate has finite counts of 0 or more, and not only zeros")
    unasked = tuple(i for i, n in enumerate(domain.names) if n not in hull.names)
    out = numbers.sum(axis=unasked)
    for axis, name in enumerate(hull.names):
        of = hull.class_of[name]
        merged = np.zeros((int(of.max()) + 1, *np.delete(out.shape, axis)))
        np.add.at(merged, of, np.moveaxis(out, axis, 0))
        out = np.moveaxis(merged, 0, axis)
    return np.asarray(out.reshape(-1), dtype=np.float64)


def measure_forecast(
    forecast: Forecast, made_up: MadeUp, records: int, runs: int = LIMITS.simulated_runs
) -> MeasuredError:
    """The error of a planned linear mechanism with its noise; unbiased, so data do not matter."""
    return measure_noise(forecast, made_up.draws(f"noise {forecast.mechanism}", 0, records), runs)


def measure_noise(
    forecast: Forecast, source: Draws, runs: int = LIMITS.simulated_runs, *, by_weight: bool = False
) -> MeasuredError:
    """The error of a planned linear mechanism: noise is drawn and reconstructed, as often as asked.

    Answers are exact but for the noise, whatever the data; so no data are needed. All queries
    weigh the same, or as their groups do: then it is ``weighted_rmse`` that is drawn.
    """
    weights = None
    if by_weight:
        weights = np.concatenate([repeated(t.weight**2, t.rows) for t in forecast.workload.terms])
    drawn = drawn_noise(forecast, source, runs)
    return _measured([float(np.average(noise**2, weights=weights)) for noise in drawn])


class HasForecast(Protocol):
    """A plan of a linear mechanism."""

    @property
    def forecast(self) -> Forecast:
        """What is forecast of it."""


def simulated_noise(
    plan: HasForecast, label: str = "", *, by_weight: bool = False
) -> MeasuredError | None:
    """The error of noise drawn for a plan and taken through its reconstruction.

    Public draws that protect nothing, the same on every call; no table is read. What is forecast is
    an expectation, what is drawn here one sample of it. None where it would be too much.

    Args:
        plan: A plan.
        label: Tells draws for one plan apart.
        by_weight: Whether queries weigh as their groups do.

    Returns:
        The error, in counts, with its own standard error, or None.
    """
    forecast = plan.forecast
    queries = forecast.workload.queries
    size = queries + sum(forecast.strategy.block_rows)
    if size > LIMITS.simulated_size:
        return None
    runs = min(
        LIMITS.simulated_runs_maximum,
        ceil(LIMITS.simulated_answers / queries),
        LIMITS.simulated_numbers // size,
    )
    runs = max(LIMITS.simulated_runs_minimum, runs)
    source = Draws(f"simulated {forecast.workload.digest()} {forecast.mechanism} {label}")
    return measure_noise(forecast, source, runs, by_weight=by_weight)


def measure_projected(
    forecast: Forecast, made_up: MadeUp, records: int, runs: int = LIMITS.simulated_runs
) -> MeasuredError:
    """The error of its answers projected onto the hull, all queries weighing the same."""
    source = made_up.draws(f"projected {forecast.mechanism}", 0, records)
    errors = []
    for run, noise in enumerate(drawn_noise(forecast, source, runs)):
        truth = made_up.hull.matrix @ made_up.histogram(records, run)
        projected = project(truth + noise, made_up.flat, records, gap=LIMITS.simulated_gap)
        errors.append(float(np.mean((projected.answers - truth) ** 2)))
    return _measured(errors)


def measure_projection(
    forecast: ProjectionForecast,
    made_up: MadeUp,
    records: int | None = None,
    runs: int = LIMITS.simulated_runs,
) -> MeasuredError:
    """The error of Gaussian answers that were projected onto the hull of so many records.

    Args:
        forecast: What theory says.
        made_up: The data that it is tried on.
        records: How many records there are; as in the forecast if None.
        runs: How often it is tried.

    Returns:
        The error, in counts, with its own standard error.
    """
    n = forecast.records if records is None else records
    matrix = made_up.hull.matrix
    errors = []
    for run in range(runs):
        truth = matrix @ made_up.histogram(n, run)
        noise = forecast.noise * made_up.draws("noise", run, n).normals(len(truth))
        projected = project(truth + noise, made_up.flat, n, gap=LIMITS.simulated_gap)
        errors.append(float(np.mean((projected.answers - truth) ** 2)))
    return _measured(errors)


def measure_weights(
    forecast: ProjectionForecast,
    made_up: MadeUp,
    records: int | None = None,
    runs: int = LIMITS.simulated_runs,
) -> MeasuredError:
    """The error of private multiplicative weights with the parameters of its theorem."""
    n = forecast.records if records is None else records
    matrix = made_up.hull.matrix
    weights = forecast.weights(n)
    errors = []
    for run in range(runs):
        h = made_up.histogram(n, run)
        draws = made_up.draws("weights", run, n)
        answers = simulated_weights(matrix, h, weights, forecast.moved, draws)
        errors.append(float(np.mean((answers - matrix @ h) ** 2)))
    return _measured(errors)


def _measured(squares: list[float]) -> MeasuredError:
    runs = len(squares)
    mean = float(np.mean(squares))
    # The error of a root is that of the square over twice the root.
    spread = float(np.std(squares, ddof=1)) / sqrt(runs) if runs > 1 else inf
    rmse = sqrt(mean)
    return MeasuredError(rmse, spread / (2 * rmse) if rmse else 0.0, runs)


# Records, on domains of any size


@dataclass(frozen=True, eq=False)
class SurrogateRecords:
    """``records`` records: ``codes[:, i]`` are cells of attribute i of the domain, all alike."""

    domain: Domain
    codes: Integers
    records: int

    @cached_property
    def weight(self) -> float:
        """How many records a row stands for."""
        return self.records / max(1, len(self.codes))

    def table(self, names: tuple[str, ...]) -> Array:
        """The counts over some attributes."""
        shape = tuple(self.domain[n].size for n in names)
        columns = [self.codes[:, self.domain.index(n)] for n in names]
        if not names:
            return np.array(float(self.records))
        at = np.ravel_multi_index(columns, shape)
        counts = np.bincount(at, minlength=int(np.prod(shape))).reshape(shape)
        return np.asarray(counts * self.weight, dtype=np.float64)

    def answers(self, workload: Workload) -> list[Array]:
        """The true answers, group by group."""
        return [np.asarray(t.answer(self.table(t.attributes))) for t in workload.terms]


def made_up(domain: Domain, records: int, run: int, label: str) -> SurrogateRecords:
    """The made-up records of one run: every run makes up another population.

    A mixture of a few kinds of records, the first the most frequent, each with skewed shares (1,
    1/2, 1/3, ... in an arbitrary order) in every attribute. So attributes hang together.
    """
    draws = Draws(f"surrogate {label} {run} {records}")
    kinds = LIMITS.surrogate_kinds[run % len(LIMITS.surrogate_kinds)]
    rows = min(records, LIMITS.records_drawn)
    of = _drawn(draws, 1 / np.arange(1.0, kinds + 1), rows)
    columns = []
    for attribute in domain:
        column = np.zeros(rows, dtype=np.int64)
        for kind in range(kinds):
            order = np.argsort(draws.uniforms(attribute.size), kind="stable")
            here = np.flatnonzero(of == kind)
            column[here] = _drawn(draws, 1 / (1.0 + order), len(here))
        columns.append(column)
    return SurrogateRecords(domain, np.column_stack(columns), records)


def resampled(
    domain: Domain, public: PublicRecords, records: int, run: int, label: str
) -> SurrogateRecords:
    """As many records of public ones, drawn with replacement."""
    draws = Draws(f"public {label} {run} {records}")
    chosen = _drawn(draws, public.weights, min(records, LIMITS.records_drawn))
    columns = [public.codes[chosen, public.attributes.index(n)] for n in domain.names]
    return SurrogateRecords(domain, np.column_stack(columns), records)


def _drawn(draws: Draws, shares: Array, count: int) -> Integers:
    """Independent indices with these shares."""
    edges = np.cumsum(shares, dtype=np.float64)
    at = np.searchsorted(edges, draws.uniforms(count) * edges[-1], side="right")
    return np.asarray(np.minimum(at, len(shares) - 1), dtype=np.int64)
