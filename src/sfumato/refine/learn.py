# SPDX-License-Identifier: Apache-2.0
"""Estimates that learn from noisy measurements step by step: the public half of adaptive loops.

Three learners, one for each loop of ``run/adaptive.py``; each takes measurements and returns an
estimate of any table:

* ``Learner``: measured tables, by maximum entropy (``MaximumEntropy``). Tables over one attribute
  come first and make the product that the model starts from; every further table moves the model,
  and rows are drawn anew when their weights have become uneven.
* ``Hedge``: measured queries, by multiplicative weights over all cells (MWEM).
* ``Boosted``: measured samples of queries, by synopses and their median (boosting).

The rounds of a release learn through the same functions while they measure, so a stored transcript
gives the same estimate again (``replay_tables``, ``replay_queries``, ``replay_samples``).
``constrained_rows`` makes an estimate meet constraints. Public arithmetic with repeatable draws
only: nothing here costs privacy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod, sqrt

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.measurement import Measurement, Step, Transcript
from sfumato.random import Draws
from sfumato.refine.cells import CellEstimate, fit_explicit, fit_minimax
from sfumato.refine.feasibility import witness
from sfumato.refine.problem import Grid
from sfumato.refine.reconstruct import Fit, fit_answers
from sfumato.refine.refine_limits import LIMITS
from sfumato.refine.row_problem import make_possible, meet_published
from sfumato.solve.nonnegative import project_to_simplex
from sfumato.types import Array, Integers, Names
from sfumato.workload.constraints import Constraints
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload, answer_bits, marginal, spread
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

__all__ = [
    "Boosted",
    "ConstrainedRows",
    "Hedge",
    "Learner",
    "MaximumEntropy",
    "begun_total",
    "constrained_rows",
    "independent_shares",
    "learn_query",
    "learn_sample",
    "replay_queries",
    "replay_samples",
    "replay_tables",
    "synopsis",
]


class Learner:
    """Takes measured tables, returns an estimate of any table; the model has so many ``rows``."""

    def __init__(
        self,
        domain: Domain,
        records: int | None,
        constraints: Constraints | None = None,
        rows: int = LIMITS.loop_rows,
    ) -> None:
        self.domain = domain
        self._rows = rows
        self._public = None if constraints is None else constraints.within(domain)
        self._records: float | None = records
        if self._public is not None and self._public.total is not None:
            self._records = self._public.total
        self._single: dict[str, tuple[Array, float]] = {}  # average, variance
        self._model: MaximumEntropy | None = None
        self._draws = Draws("noise that tables would get")
        self._deviates: dict[str, Array] = {}

    @property
    def total(self) -> float:
        """The number of records: public, or the best average of the sums of the first tables."""
        if self._records is not None:
            return float(max(self._records, 1))
        if self._model is not None:
            return self._model.total
        sums = [(values.sum(), 1 / (v * values.size)) for values, v in self._single.values()]
        average = sum(s * w for s, w in sums) / sum(w for _, w in sums)
        return max(float(average), 1.0)

    @property
    def model(self) -> MaximumEntropy:
        """The maximum entropy model, made when it is first needed."""
        if self._model is None:
            total = self.total
            tables = [self.single(name) for name in self.domain.names]
            self._model = MaximumEntropy(
                self.domain, tables, total, self._rows, constraints=self._public
            )
            for name, (values, variance) in self._single.items():
                self._model.observe((name,), values, variance)
            for table in () if self._public is None else self._public.published:
                if table.names:
                    self._model.observe(table.names, table.values, LIMITS.published_variance)
        return self._model

    def single(self, name: str) -> Array:
        """The estimated table over one attribute, before the model."""
        for table in () if self._public is None else self._public.published:
            if name in table.names:
                return table.margin((name,))
        return project_to_simplex(self._single[name][0], self.total)

    def independent(self, names: Names) -> Array:
        """The table over some attributes if all of them were independent."""
        out = np.array(self.total)
        for name in names:
            out = np.multiply.outer(out, self.single(name) / self.total)
        return np.asarray(out)

    def learn(self, names: Names, measurement: Measurement) -> None:
        """Take one noisy table."""
        values, variance = measurement.values, measurement.noise.variance
        if len(names) == 1 and self._model is None:
            before, previous = self._single.get(names[0], (np.zeros(values.size), np.inf))
            share = 1.0 if previous == np.inf else previous / (previous + variance)
            averaged = before + share * (values - before)
            self._single[names[0]] = (averaged, variance * share)
            return
        model = self.model
        model.observe(names, values, variance)
        model.fit(1, [names])
        model.fit(1)
        if model.evenness < LIMITS.evenness_minimum:
            model.renew()
            model.fit(1)

    def single_errors(self) -> dict[str, float]:
        """The L1 error expected of every table over one attribute, as a share of all records."""
        return {
            name: self.expected_noise(self.single(name), variance**0.5, "gaussian") / self.total
            for name, (_, variance) in self._single.items()
        }

    def expected_noise(self, estimate: Array, scale: float, law: str) -> float:
        """L1 error that noise of this scale leaves in a table like this one, after projection.

        One public draw of the noise stands for its mean: tables have many cells.
        """
        cells = np.asarray(estimate).ravel()
        deviates = self._deviates.get(law)
        if deviates is None or deviates.size < cells.size:
            draw = self._draws.normals if law == "gaussian" else self._draws.laplaces
            deviates = self._deviates[law] = draw(max(2 * cells.size, 1 << 12))
        noisy = project_to_simplex(cells + scale * deviates[: cells.size], self.total)
        return float(np.abs(noisy - cells).sum())

    def finish(self) -> MaximumEntropy:
        """The model, settled on many rows."""
        model = self.model
        if any(len(names) > 1 for names in model.sets):
            for _ in range(LIMITS.final_rounds):
                model.renew(LIMITS.final_rows)
                model.fit(1)
        model.fit(1)
        return model


# Maximum entropy


class MaximumEntropy:
    """Weighted rows of the maximum entropy distribution of noisy tables, ``total`` records in all.

        p(x) ~ prod_a shares_a(x_a) exp(sum_S theta_S(x_S))

    is the distribution nearest to independence (in relative entropy) that agrees with what was
    measured on the attribute sets S. The measured tables are noisy, so agreement is weighed: the
    potentials minimise

        n KL(p || independent) + sum_S |n p_S - y_S|^2 / (2 variance_S),  table S counting g_S-fold,

    and are found one table at a time: given all others,
    ``theta_S = g_S (y_S - n p_S) / variance_S`` is one equation per cell (proportional fitting,
    Deming, Stephan 1940, "On a least squares adjustment of a sampled frequency table", with noise:
    the exact block step of the dual). ``g_S``, how much looser than sampling noise the dependence
    is taken to be, is the excess of the squared difference when the table came (empirical Bayes).

    p is never built: rows drawn from it stand for it, as importance weights while potentials move,
    and drawn anew (resampled, then Metropolis steps) when the weights have become uneven (Del
    Moral, Doucet, Jasra 2006, "Sequential Monte Carlo samplers"). Memory is that of the rows and
    the measured tables; the domain may have any size. Draws come from a public label, so they are
    repeatable. With constraints no row is ever impossible; published tables are observed like
    others, with next to no noise.

    >>> model = MaximumEntropy(Domain({"a": 2, "b": 2}), [np.ones(2), np.ones(2)], 100.0, 4000)
    >>> model.observe(("a", "b"), np.array([[50.0, 0.0], [0.0, 50.0]]), 1.0)
    >>> model.fit(3)
    >>> [round(v) for v in model.table(("a", "b")).ravel()]
    [50, 0, 0, 50]
    """

    def __init__(
        self,
        domain: Domain,
        shares: Sequence[Array],
        total: float,
        rows: int,
        label: str = "maximum entropy",
        constraints: Constraints | None = None,
    ) -> None:
        if not (np.isfinite(total) and total > 0 and rows >= 1):
            raise PlanError(f"{rows} rows cannot stand for {total} records: both must be above 0")
        self.domain, self.total = domain, float(total)
        self._shares = [independent_shares(s) for s in shares]
        self._draws = Draws(label)
        self._tables: dict[Names, tuple[Array, float, float]] = {}
        self._potentials: dict[Names, Array] = {}
        self._cells: dict[Names, Integers] = {}
        self._constraints = constraints
        self.codes = self._independent(rows)
        self.weights = np.full(rows, 1.0 / rows)

    @property
    def evenness(self) -> float:
        """The effective number of rows (Kong 1992), as a share of all."""
        return float(1.0 / (self.weights**2).sum() / self.weights.size)

    @property
    def sets(self) -> tuple[Names, ...]:
        """The attribute sets that were observed."""
        return tuple(self._tables)

    def table(self, names: Names) -> Array:
        """The estimated counts over any attributes, an axis each, in the order of the domain."""
        from sfumato.solve.row_kernels import margin

        shape = self._shape(names)
        stored = self._cells.get(names)
        cells = self._cell_numbers(names) if stored is None else stored
        out = np.zeros(prod(shape))
        margin(cells, self.weights, out)
        return np.asarray(out * self.total).reshape(shape)

    def observe(self, names: Names, values: Array, variance: float) -> None:
        """Take a noisy table; one over the same attributes is averaged with the one before."""
        noisy = np.asarray(values, dtype=np.float64).ravel()
        looseness = 1.0
        if names in self._tables:
            before, previous, looseness = self._tables[names]
            share = previous / (previous + variance)
            noisy, variance = before + share * (noisy - before), previous * (1 - share)
        apart = noisy - self.table(names).ravel()
        excess = float(apart @ apart) - noisy.size * variance
        excess += LIMITS.looseness_margin * sqrt(2 * noisy.size) * variance
        looseness = min(max(excess / self.total, looseness), LIMITS.looseness_maximum)
        self._tables[names] = (noisy, variance, looseness)
        self._potentials.setdefault(names, np.zeros(noisy.size))
        if names not in self._cells:
            self._cells[names] = self._cell_numbers(names)

    def fit(self, sweeps: int = 1, sets: Iterable[Names] | None = None) -> None:
        """Solve for the potentials of one table after the other: of ``sets``, by default all."""
        from sfumato.solve.row_kernels import margin, reweight, solve

        for _ in range(sweeps):
            for names in self._tables if sets is None else sets:
                values, variance, looseness = self._tables[names]
                old, new = self._potentials[names], np.empty(values.size)
                shares = np.zeros(values.size)
                margin(self._cells[names], self.weights, shares)
                with np.errstate(divide="ignore"):
                    solve(
                        shares,
                        old,
                        values,
                        looseness / variance,
                        self.total,
                        LIMITS.potential_step,
                        new,
                    )
                self.weights /= reweight(self._cells[names], np.exp(new - old), self.weights)
                self._potentials[names] = new

    def renew(self, rows: int | None = None, moves: int = LIMITS.metropolis_steps) -> None:
        """Draw rows anew: in proportion to their weights, then moved under the potentials."""
        count = self.weights.size if rows is None else rows
        edges = np.cumsum(self.weights)
        at = (np.arange(count) + self._draws.uniforms(1)[0]) / count * edges[-1]
        chosen = np.minimum(np.searchsorted(edges, at, side="right"), edges.size - 1)
        self.codes = np.ascontiguousarray(self.codes[chosen])
        self.weights = np.full(count, 1.0 / count)
        self._move(moves)
        self._cells = {names: self._cell_numbers(names) for names in self._tables}

    def _move(self, times: int) -> None:
        from sfumato.solve.row_kernels import move

        sets = list(self._potentials)
        if not sets:
            return
        stride = np.stack([self._strides(names) for names in sets])
        lengths = [self._potentials[names].size for names in sets]
        offset = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
        by_attribute = [np.flatnonzero(stride[:, a]) for a in range(len(self.domain))]
        start = np.concatenate([[0], np.cumsum([len(k) for k in by_attribute])]).astype(np.int64)
        sizes = np.array(self.domain.shape, dtype=np.int64)
        seed = np.uint64(int(self._draws.uniforms(1)[0] * 2**53))
        before = None if self._constraints is None else self.codes.copy()
        move(
            self.codes,
            np.concatenate([np.cumsum(s) for s in self._shares]),
            np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64),
            sizes,
            np.concatenate([self._potentials[names] for names in sets]),
            offset,
            stride,
            start,
            np.concatenate(by_attribute).astype(np.int64),
            times,
            seed,
        )
        if self._constraints is not None and before is not None:
            # Moves that end outside are refused: the law is the same, given that it is possible.
            outside = ~self._constraints.are_possible(self.codes.T)
            self.codes[outside] = before[outside]

    def _independent(self, rows: int) -> Integers:
        """Rows of the product of the shares, every attribute spread evenly over its quantiles."""
        codes = np.empty((rows, len(self._shares)), dtype=np.int32)
        for a, shares in enumerate(self._shares):
            order = np.argsort(self._draws.uniforms(rows))
            at = (order + self._draws.uniforms(rows)) / rows
            edges = np.cumsum(shares)
            codes[:, a] = np.minimum(np.searchsorted(edges, at, side="right"), shares.size - 1)
        if self._constraints is not None and self._constraints.linked:
            rows_of = codes.T.astype(np.int64)
            drawn = make_possible(self._constraints, rows_of, self._shares, self._draws.uniforms)
            codes = np.ascontiguousarray(drawn.T, dtype=np.int32)
        return codes  # type: ignore[return-value]

    def _shape(self, names: Names) -> tuple[int, ...]:
        return tuple(self.domain[n].size for n in names)

    def _strides(self, names: Names) -> Integers:
        """What a step of each attribute adds to the cell number of a table."""
        out, step = np.zeros(len(self.domain), dtype=np.int64), 1
        for name in reversed(names):
            out[self.domain.index(name)] = step
            step *= self.domain[name].size
        return out

    def _cell_numbers(self, names: Names) -> Integers:
        from sfumato.solve.row_kernels import cells_of

        out = np.empty(self.codes.shape[0], dtype=np.int32)
        members = np.array([self.domain.index(n) for n in names], dtype=np.int64)
        cells_of(self.codes, members, self._strides(names), out)
        return out  # type: ignore[return-value]


def independent_shares(counts: Array) -> Array:
    """Non-negative counts as shares, none of them quite zero."""
    positive = np.maximum(np.asarray(counts, dtype=np.float64).ravel(), 0.0)
    mass = positive.sum()
    even = np.full(positive.size, 1.0 / positive.size)
    shares = positive / mass if mass > 0 else even
    return np.asarray(
        (1 - LIMITS.one_way_share_minimum) * shares + LIMITS.one_way_share_minimum * even
    )


# Multiplicative weights


class Hedge:
    """A histogram of ``total`` records, uniform at first, that learns measured queries.

        h(x) <- h(x) exp(q(x) (y - q(h)) / (2 n)),  scaled to sum n

    for a query q with coefficients in [-1, 1] and its noisy answer y (Hardt, Ligett, McSherry 2012,
    "A simple and practical algorithm for differentially private data release"; Hedge: Freund,
    Schapire 1997). As the authors advise, all queries measured so far are gone through again and
    again. The domain is explicit: one number per cell is held.

    With constraints it is uniform over what is possible; published tables are met at the end
    (``constrained_rows``).

    >>> import sfumato as sf
    >>> domain = sf.Domain({"sex": 2})
    >>> cells = sf.marginals(domain, 1).terms[0]
    >>> hedge = Hedge(domain, 10.0)
    >>> hedge.learn(cells, 0, 8.0)
    >>> hedge.histogram.round(1).tolist()
    [8.0, 2.0]
    """

    def __init__(
        self, domain: Domain, total: float, constraints: Constraints | None = None
    ) -> None:
        if domain.size > LIMITS.learned_cells:
            raise TooLarge(
                f"multiplicative weights hold all {domain.size:,} cells of the domain, at most "
                f'{LIMITS.learned_cells:,} are allowed; use method="tables", or fewer attributes'
            )
        self.domain, self.total = domain, max(float(total), 1.0)
        self.histogram = np.full(domain.shape, self.total / domain.size)
        if constraints is not None:  # steps multiply, so what is impossible stays 0
            possible = constraints.possible(domain.names)
            self.histogram = possible * (self.total / float(possible.sum()))
        self._measured: dict[tuple[str, int], tuple[Term, Array, float, int]] = {}

    def table(self, names: Names) -> Array:
        """The estimated counts over some attributes, an axis each."""
        return np.asarray(marginal(self.histogram, self.domain, names))

    def answers(self, workload: Workload) -> Array:
        """The estimated answers to all queries, group after group."""
        return np.concatenate([t.answer(self.table(t.attributes)) for t in workload.terms])

    def learn(self, term: Term, query: int, value: float) -> None:
        """Take a noisy answer, and go through all of them; equal queries are averaged."""
        one = np.zeros(term.rows)
        one[query] = 1.0
        coefficients = np.asarray(term.adjoint(one), dtype=np.float64).reshape(term.shape)
        _, _, before, times = self._measured.get((term.name, query), (term, coefficients, 0.0, 0))
        averaged = (before * times + value) / (times + 1)
        self._measured[term.name, query] = (term, coefficients, averaged, times + 1)
        left = self._pass()
        for i in range(1, LIMITS.hedge_passes_maximum):
            now = self._pass()
            if i >= LIMITS.hedge_passes and now > (1 - LIMITS.hedge_settled) * left:
                break
            left = now

    def _pass(self) -> float:
        """One step per measured query; their summed errors before it, as shares of all records."""
        error = 0.0
        for term, coefficients, value, _ in self._measured.values():
            maximum = float(np.abs(coefficients).max()) or 1.0
            estimate = float((coefficients * self.table(term.attributes)).sum())
            lack = (value - estimate) / (self.total * maximum)
            error += abs(lack)
            # Noise may ask for more records than there are: a step is never longer than 1/2.
            step = np.exp(coefficients / maximum * (min(max(lack, -1.0), 1.0) / 2))
            self.histogram = self.histogram * spread(step, self.domain, term.attributes)
            self.histogram *= self.total / self.histogram.sum()
        return error


# Boosting


class Boosted:
    """Synopses of ``total`` records, one per round, and the median of their answers.

    Every query is answered by the median over synopses; where more than half of them are within
    some distance of the truth, so is it (Dwork, Rothblum, Vadhan 2010, "Boosting and differential
    privacy"; their base generators search all small data sets, and know the queries of their own
    round only). The medians need not be those of a data set: ``histogram`` is the one whose maximum
    difference from them is minimal (``cells.fit_minimax``), at most twice as far. Which queries are
    measured, and how that depends on the data: ``run/adaptive.py``.
    """

    def __init__(
        self, workload: Workload, total: float, constraints: Constraints | None = None
    ) -> None:
        self._constraints = constraints
        if workload.domain.size > LIMITS.learned_cells:
            raise TooLarge(
                f"boosting holds all {workload.domain.size:,} cells of the domain, at most "
                f'{LIMITS.learned_cells:,} are allowed; use method="tables", or fewer attributes'
            )
        self.workload, self.domain, self.total = workload, workload.domain, max(float(total), 1.0)
        self._measured: dict[int, tuple[float, float]] = {}  # value and precision by query
        self._votes: list[Array] = []

    def learn(self, queries: Sequence[int], values: Array, variance: float) -> Array:
        """The answers to all queries of one more synopsis, made of these and all earlier answers.

        Queries that come again are averaged, each answer by its inverse variance.
        """
        self.__dict__.pop("histogram", None)
        for query, value in zip(queries, values, strict=True):
            mean, precision = self._measured.get(query, (0.0, 0.0))
            after = precision + 1 / variance
            self._measured[query] = ((mean * precision + float(value) / variance) / after, after)
        measured = np.array(list(self._measured.values()))
        h = synopsis(
            self.workload, list(self._measured), measured[:, 0], 1 / measured[:, 1], self.total
        )
        self._votes.append(_answers(self.workload, h))
        return self._votes[-1]

    @property
    def medians(self) -> Array:
        """The answers to all queries, group after group: each the median of its votes."""
        if not self._votes:
            raise PlanError("there is no median of no synopses; learn from one first")
        return np.asarray(np.median(self._votes, axis=0))

    @cached_property
    def histogram(self) -> Array:
        """The histogram whose maximum difference from the medians is minimal."""
        fit = fit_answers(self.workload, _split(self.workload, self.medians))
        constraints = self._constraints
        grid = Grid.of(fit, constraints)
        nearest = self._nearest(fit, grid)
        # One cell stands for all that no query tells apart.
        public = Constraints(self.domain) if constraints is None else constraints
        full = np.zeros(self.domain.shape)
        at = tuple(public.completed(grid.names, grid.codes(nearest.cells)))
        np.add.at(full, at, nearest.weights)
        return full

    def _nearest(self, fit: Fit, grid: Grid) -> CellEstimate:
        """The minimax histogram, or the least-squares one where published tables must be met."""
        if any(t.names for t in grid.published):
            try:
                return fit_explicit(fit, grid, self.total, gap=LIMITS.coarse_gap)
            except WorkloadError:  # the tables could not be met; what is paid for is still answered
                pass
        return fit_minimax(fit, grid, self.total, gap=LIMITS.coarse_gap)

    def table(self, names: Names) -> Array:
        """The estimated counts over some attributes, an axis each."""
        return np.asarray(marginal(self.histogram, self.domain, names))


def synopsis(
    workload: Workload, queries: Sequence[int], values: Array, variances: Array, total: float
) -> Array:
    """The most even histogram of ``total`` records that explains noisy answers of a few queries.

        minimise c n KL(h / n | uniform) + sum_q (F h - y)_q^2 / (2 sigma_q^2)
        over h >= 0, 1'h = n

    Other queries are answered as evenness has it. The dual is smooth, in one variable per measured
    query whatever the domain: ``h = n exp(F'u) / sum exp(F'u)`` with ``c sigma^2 u = y - F h``.

    >>> import sfumato as sf
    >>> work = sf.marginals(sf.Domain({"sex": 2}), 1)
    >>> synopsis(work, [0], np.array([8.0]), np.array([1.0]), 10.0).round(1).tolist()
    [8.0, 2.0]
    """
    from scipy.optimize import minimize

    places = np.asarray(queries, dtype=np.int64)
    if not places.size or len(set(places.tolist())) != places.size or places.size != len(values):
        raise PlanError("a synopsis needs one answer for each of some different queries")
    # In v = sigma u the dual has curvature 1 or more, and nearly that where noise is large.
    sigma, y = (
        np.sqrt(LIMITS.evenness_weight * np.asarray(variances)),
        np.asarray(values, dtype=np.float64),
    )

    def dual(v: Array) -> tuple[float, Array]:
        h, log_mass = _tilted(workload, places, v / sigma, total)
        answers = _answers(workload, h)[places]
        value = total * log_mass - float(v @ (y / sigma)) + 0.5 * float(v @ v)
        return value, (answers - y) / sigma + v

    start = np.zeros(places.size)
    best = minimize(
        dual, start, jac=True, method="L-BFGS-B", options={"maxiter": LIMITS.synopsis_steps}
    ).x
    return _tilted(workload, places, best / sigma, total)[0]


def _tilted(workload: Workload, places: Integers, u: Array, total: float) -> tuple[Array, float]:
    """``n exp(F'u) / sum exp(F'u)``, and the logarithm of the mean of ``exp(F'u)``."""
    all_queries = np.zeros(workload.queries)
    all_queries[places] = u
    tilt = np.zeros(workload.domain.shape)
    for term, part in zip(workload.terms, _split(workload, all_queries), strict=True):
        if part.any():
            table = np.asarray(term.adjoint(part), dtype=np.float64).reshape(term.shape)
            tilt = tilt + spread(table, workload.domain, term.attributes)
    top = float(tilt.max())
    mass = np.exp(tilt - top)
    whole = float(mass.sum())
    return mass * (total / whole), top + float(np.log(whole / mass.size))


def _answers(workload: Workload, h: Array) -> Array:
    tables = {t.attributes: marginal(h, workload.domain, t.attributes) for t in workload.terms}
    return np.concatenate([t.answer(tables[t.attributes]) for t in workload.terms])


def _split(workload: Workload, numbers: Array) -> list[Array]:
    return list(np.split(numbers, np.cumsum([t.rows for t in workload.terms])[:-1]))


# Constraints


@dataclass(frozen=True, eq=False)
class ConstrainedRows:
    """Rows of the whole domain (attribute x row), weights with the number of records as sum.

    ``are_met`` says whether the published tables are met, up to rounding; no row is impossible.
    """

    domain: Domain
    codes: Integers
    weights: Array
    are_met: bool

    @property
    def total(self) -> float:
        """The number of records."""
        return float(self.weights.sum())

    def table(self, names: Names) -> Array:
        """The counts over some attributes, an axis each, in the order of the domain."""
        shape = tuple(self.domain[n].size for n in names)
        columns = tuple(self.codes[self.domain.index(n)] for n in names)
        none = np.zeros(self.codes.shape[1], dtype=np.int64)
        at = np.ravel_multi_index(columns, shape) if columns else none
        counts = np.bincount(at, self.weights, minlength=prod(shape))
        return np.asarray(counts, dtype=np.float64).reshape(shape)


def constrained_rows(
    constraints: Constraints, domain: Domain, cells: Integers, weights: Array, total: float
) -> ConstrainedRows:
    """Rows of all attributes that meet the constraints, near ``cells`` (row x attribute) of some.

    ``domain`` has the attributes of the cells, those that queries read. Rows that cannot be records
    are left out, the other attributes are drawn as published tables and conditions have them, and
    the weights are raked to all published tables: the nearest ones in relative entropy
    (``row_problem.meet_published``). Answers of such rows are those of a data set that meets the
    constraints.
    """
    whole = constraints.domain
    total = total if constraints.total is None else constraints.total
    held = (weights > 0) & constraints.within(domain).are_possible(cells.T)
    if not held.any():  # nothing that was learnt is possible: any rows that are
        feasible = witness(constraints)
        return ConstrainedRows(whole, feasible.codes, feasible.weights, True)
    draws = Draws("rows that keep constraints")
    shares = [_shares(constraints, name) for name in whole.names]
    is_all = len(domain) == len(whole)
    copies = (
        1 if is_all else -(-LIMITS.completed_rows // int(held.sum()))
    )  # each is completed in its own way
    left = np.repeat(weights[held], copies)
    codes = np.empty((len(whole), len(left)), dtype=np.int64)
    for i, name in enumerate(whole.names):
        if name in domain.names:
            codes[i] = np.repeat(cells[held, domain.index(name)], copies)
        else:
            edges = np.cumsum(shares[i])
            at = draws.uniforms(codes.shape[1]) * edges[-1]
            codes[i] = np.minimum(np.searchsorted(edges, at, side="right"), len(edges) - 1)
    codes = make_possible(constraints, codes, shares, draws.uniforms, fixed=domain.names)
    left *= total / float(left.sum())
    if not constraints.published:
        return ConstrainedRows(whole, codes, left, True)
    met = meet_published(constraints, codes, left)
    return ConstrainedRows(whole, met.codes, met.weights, met.off <= WORKLOAD_LIMITS.published_gap)


def _shares(constraints: Constraints, name: str) -> Array:
    """The published margin of an attribute, or equal shares of all its cells."""
    for table in constraints.published:
        if name in table.names:
            return table.margin((name,))
    return np.ones(constraints.domain[name].size)


# Replay of a transcript


def replay_tables(learner: Learner, transcript: Transcript) -> Learner:
    """The learner after the measured tables of a transcript, learnt as the loop did."""
    for step in transcript.steps:
        names = tuple(learner.domain.names[i] for i in step.place)
        learner.learn(names, step.measurement)
    return learner


def replay_queries(
    workload: Workload, transcript: Transcript, constraints: Constraints | None = None
) -> Hedge:
    """The histogram after the measured queries of a transcript, learnt as MWEM did."""
    total = begun_total(transcript.steps, transcript.rows, constraints)
    hedge = Hedge(workload.domain, total, constraints)
    for step in transcript.steps:
        if step.place:
            learn_query(hedge, workload, step)
    return hedge


def replay_samples(
    workload: Workload, transcript: Transcript, constraints: Constraints | None = None
) -> Boosted:
    """The synopses of the measured samples of a transcript, learnt as boosting did."""
    total = begun_total(transcript.steps, transcript.rows, constraints)
    boosted = Boosted(workload, total, constraints)
    for step in transcript.steps:
        if step.place:
            learn_sample(boosted, workload, step)
    return boosted


def begun_total(
    steps: Sequence[Step], rows: int | None, constraints: Constraints | None = None
) -> float:
    """The number of records: public, or measured by the first step."""
    if constraints is not None and constraints.total is not None:
        return constraints.total
    return float(steps[0].measurement.values[0]) if rows is None else float(rows)


def learn_query(hedge: Hedge, workload: Workload, step: Step) -> None:
    """Learn one measured query, its answer in steps of the workload."""
    term, query = step.place
    value = float(np.ldexp(step.measurement.values[0], -answer_bits(workload)))
    hedge.learn(workload.terms[term], query, value)


def learn_sample(boosted: Boosted, workload: Workload, step: Step) -> Array:
    """Learn one measured sample of queries; returns the answers of the synopsis that it gives."""
    bits = answer_bits(workload)
    values = np.ldexp(step.measurement.values, -bits)
    return boosted.learn(step.place, values, step.measurement.noise.variance * 4.0**-bits)
