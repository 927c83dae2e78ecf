# SPDX-License-Identifier: Apache-2.0
"""What is known so far: noisy tables come one by one, an estimate of every other table is kept.

The public half of the adaptive loop (``run/rounds.py``). Tables over one attribute come first and
make the product that the maximum entropy model (``entropy.py``) starts from; every further table
moves the model, and rows are drawn anew when their weights have become uneven. The same steps give
the same estimate, so a stored transcript is a release.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.measurement import Measurement, Step, Transcript
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.refine.cells import Estimate, fit_explicit
from sfumato.refine.draws import Draws
from sfumato.refine.entropy import MaximumEntropy
from sfumato.refine.feasibility import witness
from sfumato.refine.grid import Grid
from sfumato.refine.minimax import fit_largest
from sfumato.refine.reconstruct import Fit, fit_answers
from sfumato.refine.refine_limits import LIMITS
from sfumato.refine.row_problem import make_possible, meet_published
from sfumato.solve.nonnegative import project_to_simplex
from sfumato.types import Array, Integers, Names
from sfumato.workload.constraints import CLOSE, Constraints
from sfumato.workload.queries import DENSE_LIMIT
from sfumato.workload.scans import answer_bits
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload, marginal, spread

__all__ = [
    "Boosted",
    "Hedge",
    "KeptRows",
    "Learner",
    "Told",
    "ToldIntervals",
    "begun_total",
    "half_widths",
    "kept_rows",
    "learn_query",
    "learn_sample",
    "replay_queries",
    "replay_samples",
    "replay_tables",
    "synopsis",
]


class Learner:
    """Measured tables in, an estimate of any table out, kept on so many ``rows``."""

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
        known = sum(s * w for s, w in sums) / sum(w for _, w in sums)
        return max(float(known), 1.0)

    @property
    def model(self) -> MaximumEntropy:
        """The model, begun when it is first needed."""
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
        """The table over some attributes as it would be if nothing hung together."""
        out = np.array(self.total)
        for name in names:
            out = np.multiply.outer(out, self.single(name) / self.total)
        return np.asarray(out)

    def learn(self, names: Names, measurement: Measurement) -> None:
        """Take one noisy table."""
        values, variance = measurement.values, measurement.noise.variance
        if len(names) == 1 and self._model is None:
            before, known = self._single.get(names[0], (np.zeros(values.size), np.inf))
            share = 1.0 if known == np.inf else known / (known + variance)
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
        known = self._deviates.get(law)
        if known is None or known.size < cells.size:
            draw = self._draws.normals if law == "gaussian" else self._draws.laplaces
            known = self._deviates[law] = draw(max(2 * cells.size, 1 << 12))
        noisy = project_to_simplex(cells + scale * known[: cells.size], self.total)
        return float(np.abs(noisy - cells).sum())

    def finish(self) -> MaximumEntropy:
        """Settle the model on many rows."""
        model = self.model
        if any(len(names) > 1 for names in model.sets):
            for _ in range(LIMITS.final_rounds):
                model.renew(LIMITS.final_rows)
                model.fit(1)
        model.fit(1)
        return model


# --------------------
# Multiplicative weights over all cells: the estimate that MWEM improves query by query.
#
# |   h(x) <- h(x) exp(q(x) (y - q(h)) / (2 n)),  scaled to sum n
#
# for a query q with coefficients in [-1, 1] and its noisy answer y (Hardt, Ligett, McSherry 2012,
# "A simple and practical algorithm for differentially private data release"; Hedge: Freund,
# Schapire 1997). As the authors advise, all queries measured so far are gone through again and
# again. The domain is explicit: one number per cell is held. Public arithmetic only.


class Hedge:
    """A histogram of ``total`` records, uniform at first, that learns measured queries.

    With constraints it is uniform over what is possible; published tables are met at the end
    (``learn.py``).

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
        self._known: dict[tuple[str, int], tuple[Term, Array, float, int]] = {}

    def table(self, names: Names) -> Array:
        """The estimated counts over some attributes, an axis each."""
        return np.asarray(marginal(self.histogram, self.domain, names))

    def answers(self, workload: Workload) -> Array:
        """The estimated answers to all queries, group after group."""
        return np.concatenate([t.answer(self.table(t.attributes)) for t in workload.terms])

    def learn(self, term: Term, query: int, value: float) -> None:
        """Take a noisy answer, and go through all that is known; equal queries are averaged."""
        one = np.zeros(term.rows)
        one[query] = 1.0
        coefficients = np.asarray(term.adjoint(one), dtype=np.float64).reshape(term.shape)
        _, _, before, times = self._known.get((term.name, query), (term, coefficients, 0.0, 0))
        averaged = (before * times + value) / (times + 1)
        self._known[term.name, query] = (term, coefficients, averaged, times + 1)
        left = self._pass()
        for i in range(1, LIMITS.hedge_passes_maximum):
            now = self._pass()
            if i >= LIMITS.hedge_passes and now > (1 - LIMITS.hedge_settled) * left:
                break
            left = now

    def _pass(self) -> float:
        """One step per known query; the sum of their errors before it, as shares of all records."""
        error = 0.0
        for term, coefficients, value, _ in self._known.values():
            greatest = float(np.abs(coefficients).max()) or 1.0
            found = float((coefficients * self.table(term.attributes)).sum())
            lack = (value - found) / (self.total * greatest)
            error += abs(lack)
            # Noise may ask for more records than there are: a step is never longer than 1/2.
            step = np.exp(coefficients / greatest * (min(max(lack, -1.0), 1.0) / 2))
            self.histogram = self.histogram * spread(step, self.domain, term.attributes)
            self.histogram *= self.total / self.histogram.sum()
        return error


# --------------------
# Synopses of few queries, and their median: the public half of boosting over queries.
#
# A synopsis is a histogram made of the noisy answers y of a few queries F. Of all histograms that
# explain them it is the most even one,
#
# |   minimise c n KL(h / n | uniform) + sum_q (F h - y)_q^2 / (2 sigma_q^2)   over h >= 0, 1'h =
#   n,
#
# so queries it does not know are answered as evenness has it. The dual is smooth, in one variable
# per known query whatever the domain: ``h = n exp(F'u) / sum exp(F'u)`` with ``c sigma^2 u = y - F
# h``. (The base generators of Dwork, Rothblum, Vadhan 2010, "Boosting and differential privacy",
# search all small data sets, and know the queries of their own round only.)
#
# Every query is answered by the median over synopses; where more than half of them are within some
# distance of the truth, so is it. The medians need not be those of a data set: ``histogram`` is
# the one whose largest difference from them is least (``minimax``), at most twice as far. Public
# arithmetic only; which queries are known, and how that hangs on the data: ``run/rounds.py``.


class Boosted:
    """Synopses of ``total`` records, one per round, and the answers they vote for."""

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
        self._known: dict[int, tuple[float, float]] = {}  # value and precision by query
        self._votes: list[Array] = []

    def learn(self, queries: Sequence[int], values: Array, variance: float) -> Array:
        """One more synopsis, from these noisy answers and all earlier ones; its answers to all.

        Queries that come again are averaged, each answer by its inverse variance.
        """
        self.__dict__.pop("histogram", None)
        for query, value in zip(queries, values, strict=True):
            mean, precision = self._known.get(query, (0.0, 0.0))
            after = precision + 1 / variance
            self._known[query] = ((mean * precision + float(value) / variance) / after, after)
        known = np.array(list(self._known.values()))
        h = synopsis(self.workload, list(self._known), known[:, 0], 1 / known[:, 1], self.total)
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
        """The histogram whose largest difference from the medians is least."""
        fit = fit_answers(self.workload, _split(self.workload, self.medians))
        known = self._constraints
        grid = Grid.of(fit, known)
        found = self._nearest(fit, grid)
        # One cell stands for all that no query tells apart.
        public = Constraints(self.domain) if known is None else known
        full = np.zeros(self.domain.shape)
        at = tuple(public.completed(grid.names, grid.codes(found.cells)))
        np.add.at(full, at, found.weights)
        return full

    def _nearest(self, fit: Fit, grid: Grid) -> Estimate:
        """Minimax knows no published tables: the nearest histogram in least squares meets them."""
        if any(t.names for t in grid.published):
            try:
                return fit_explicit(fit, grid, self.total, gap=LIMITS.coarse_gap)
            except WorkloadError:  # the tables could not be met; what is paid for is still answered
                pass
        return fit_largest(fit, grid, self.total, gap=LIMITS.coarse_gap)

    def table(self, names: Names) -> Array:
        """The estimated counts over some attributes, an axis each."""
        return np.asarray(marginal(self.histogram, self.domain, names))


def synopsis(
    workload: Workload, queries: Sequence[int], values: Array, variances: Array, total: float
) -> Array:
    """The most even histogram of ``total`` records that explains some noisy answers.

    >>> import sfumato as sf
    >>> work = sf.marginals(sf.Domain({"sex": 2}), 1)
    >>> synopsis(work, [0], np.array([8.0]), np.array([1.0]), 10.0).round(1).tolist()
    [8.0, 2.0]
    """
    from scipy.optimize import minimize

    known = np.asarray(queries, dtype=np.int64)
    if not known.size or len(set(known.tolist())) != known.size or known.size != len(values):
        raise PlanError("a synopsis needs one answer for each of some different queries")
    # In v = sigma u the dual has curvature 1 or more, and nearly that where noise is large.
    sigma, y = (
        np.sqrt(LIMITS.evenness_weight * np.asarray(variances)),
        np.asarray(values, dtype=np.float64),
    )

    def dual(v: Array) -> tuple[float, Array]:
        h, log_mass = _tilted(workload, known, v / sigma, total)
        found = _answers(workload, h)[known]
        value = total * log_mass - float(v @ (y / sigma)) + 0.5 * float(v @ v)
        return value, (found - y) / sigma + v

    start = np.zeros(known.size)
    best = minimize(
        dual, start, jac=True, method="L-BFGS-B", options={"maxiter": LIMITS.synopsis_steps}
    ).x
    return _tilted(workload, known, best / sigma, total)[0]


def _tilted(workload: Workload, known: Integers, u: Array, total: float) -> tuple[Array, float]:
    """``n exp(F'u) / sum exp(F'u)``, and the logarithm of the mean of ``exp(F'u)``."""
    all_queries = np.zeros(workload.queries)
    all_queries[known] = u
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


# --------------------
# The estimate of an adaptive release, made to keep constraints: weighted rows of all attributes.
#
# What was learnt is a weighted sample over the attributes that are asked about. Rows that cannot
# be records are left out, attributes that nobody asks about are drawn as published tables and
# conditions have them, and the weights are raked to all published tables: the nearest ones in
# relative entropy (``rows/possible.py``). Answers of such rows are those of a data set that meets
# the constraints.
#
# Public arithmetic with repeatable draws.


@dataclass(frozen=True, eq=False)
class KeptRows:
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


def kept_rows(
    constraints: Constraints, asked: Domain, cells: Integers, weights: Array, total: float
) -> KeptRows:
    """Rows that keep the constraints, near the given ones (row x attribute that is asked about)."""
    whole = constraints.domain
    total = total if constraints.total is None else constraints.total
    held = (weights > 0) & constraints.within(asked).are_possible(cells.T)
    if not held.any():  # nothing that was learnt is possible: any rows that are
        found = witness(constraints)
        return KeptRows(whole, found.codes, found.weights, True)
    draws = Draws("rows that keep constraints")
    shares = [_shares(constraints, name) for name in whole.names]
    is_all = len(asked) == len(whole)
    copies = (
        1 if is_all else -(-LIMITS.completed_rows // int(held.sum()))
    )  # each is completed in its own way
    left = np.repeat(weights[held], copies)
    codes = np.empty((len(whole), len(left)), dtype=np.int64)
    for i, name in enumerate(whole.names):
        if name in asked.names:
            codes[i] = np.repeat(cells[held, asked.index(name)], copies)
        else:
            edges = np.cumsum(shares[i])
            at = draws.uniforms(codes.shape[1]) * edges[-1]
            codes[i] = np.minimum(np.searchsorted(edges, at, side="right"), len(edges) - 1)
    codes = make_possible(constraints, codes, shares, draws.uniforms, kept=asked.names)
    left *= total / float(left.sum())
    if not constraints.published:
        return KeptRows(whole, codes, left, True)
    met = meet_published(constraints, codes, left)
    return KeptRows(whole, met.codes, met.weights, met.off <= CLOSE)


def _shares(constraints: Constraints, name: str) -> Array:
    """What is published about an attribute, else all its cells alike."""
    for table in constraints.published:
        if name in table.names:
            return table.margin((name,))
    return np.ones(constraints.domain[name].size)


# --------------------
# What a transcript teaches: the estimates of adaptive releases, learnt step by step.
#
# The rounds of a release learn through the same functions while they measure, so a stored
# transcript gives the same estimate again. Public arithmetic only.


def replay_tables(learner: Learner, transcript: Transcript) -> Learner:
    """Learn measured tables as the loop did."""
    for step in transcript.steps:
        names = tuple(learner.domain.names[i] for i in step.place)
        learner.learn(names, step.measurement)
    return learner


def replay_queries(
    workload: Workload, transcript: Transcript, constraints: Constraints | None = None
) -> Hedge:
    """Learn measured queries as the rounds of MWEM did."""
    total = begun_total(transcript.steps, transcript.rows, constraints)
    hedge = Hedge(workload.domain, total, constraints)
    for step in transcript.steps:
        if step.place:
            learn_query(hedge, workload, step)
    return hedge


def replay_samples(
    workload: Workload, transcript: Transcript, constraints: Constraints | None = None
) -> Boosted:
    """Learn measured samples of queries as boosting did."""
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
    """One measured query, its answer in steps of the workload."""
    term, query = step.place
    value = float(np.ldexp(step.measurement.values[0], -answer_bits(workload)))
    hedge.learn(workload.terms[term], query, value)


def learn_sample(boosted: Boosted, workload: Workload, step: Step) -> Array:
    """One measured sample of queries; the answers of the synopsis that it gives."""
    bits = answer_bits(workload)
    values = np.ldexp(step.measurement.values, -bits)
    return boosted.learn(step.place, values, step.measurement.noise.variance * 4.0**-bits)


# --------------------
# Intervals for what an adaptive release measured: the noise of every step is fresh.
#
# What is measured next depends on earlier answers, so an interval of the usual width around the
# best measurement of a query would not hold: that it was the last one may be due to its noise. But
# every step's noise is drawn after the step was chosen, from a law that was fixed by then. So the
# k-th step that tells a query's answer misses it by more than its own bound with probability at
# most ``(1 - level) / (k (k + 1))``, whatever came before; these add up to at most ``1 - level``
# over all k, and all steps that tell an answer may be used together (docs/proofs/adaptive.md,
# Theorem 5).
#
# A measured table tells every query about its attributes, or some of them; a measured query tells
# itself. Public arithmetic: a function of the transcript.

RATES = np.linspace(0, 1, 66)[1:-1]  # shares of the greatest rate of an exponential bound


@dataclass(frozen=True, eq=False)
class ToldIntervals:
    """The transcript of a release of ``workload``; ``domain`` is that of the places of tables."""

    workload: Workload
    method: str
    domain: Domain
    transcript: Transcript

    def interval(self, group: int, level: float) -> Told:
        """Ends that hold each true answer of a group with probability at least ``level``.

        Not-a-number where no step tells the answer.
        """
        term = self.workload.terms[group]
        return _together(term.rows, self._seen(group, term), level)

    def combination(self, coefficients: Mapping[int, Array], level: float) -> Told:
        """The same for one combination of the answers of some groups, by measured tables.

        It is a query as any other: tables that hold the attributes of all groups tell it.
        """
        terms = {group: self.workload.terms[group] for group in coefficients}
        asked = self.domain.in_order({name for term in terms.values() for name in term.attributes})
        return _together(1, self._functional(asked, terms, coefficients), level)

    def _functional(
        self,
        asked: tuple[str, ...],
        terms: Mapping[int, Term],
        coefficients: Mapping[int, Array],
    ) -> Iterator[_Seen]:
        if self.method != "tables" or any(term.slack for term in terms.values()):
            return
        for step in self.transcript.steps:
            names = tuple(self.domain.names[i] for i in step.place)
            if not set(asked) <= set(names):
                continue
            shape = tuple(self.domain[n].size for n in names)
            weights = np.zeros(shape)  # of the measured values in the combination
            for group, term in terms.items():
                along = [
                    s if n in term.attributes else 1 for n, s in zip(names, shape, strict=True)
                ]
                weights = weights + term.adjoint(coefficients[group]).reshape(along)
            sizes = np.abs(weights)
            value = float((weights * step.measurement.values.reshape(shape)).sum())
            norms = (float((sizes**2).sum()), float(sizes.sum()), float(sizes.max(initial=0.0)))
            yield _Seen(
                np.zeros(1, dtype=np.int64),
                np.array([value]),
                step.measurement.noise,
                *(np.array([norm]) for norm in norms),
            )

    def _seen(self, group: int, term: Term) -> Iterator[_Seen]:
        if self.method == "tables":
            yield from self._tables(term)
        else:
            yield from self._queries(group, term)

    def _tables(self, term: Term) -> Iterator[_Seen]:
        """Tables that hold all attributes of a group: the sums of their noisy cells."""
        if term.rows > DENSE_LIMIT or term.slack:
            return
        low, high = term.coefficient_bounds()
        greatest = np.maximum(np.abs(low), np.abs(high))
        for step in self.transcript.steps:
            names = tuple(self.domain.names[i] for i in step.place)
            if not set(term.attributes) <= set(names):
                continue
            shape = tuple(self.domain[n].size for n in names)
            away = tuple(i for i, n in enumerate(names) if n not in term.attributes)
            table = step.measurement.values.reshape(shape).sum(axis=away)
            times = prod(shape[i] for i in away)
            yield _Seen(
                np.arange(term.rows),
                term.answer(table),
                step.measurement.noise,
                term.row_powers(2) * times,
                term.row_powers(1) * times,
                greatest,
            )

    def _queries(self, group: int, term: Term) -> Iterator[_Seen]:
        """Single measured queries, in steps of the workload."""
        bits = answer_bits(self.workload)
        start = sum(t.rows for t in self.workload.terms[:group])
        for step in self.transcript.steps:
            if self.method == "mwem":
                is_here = len(step.place) == 2 and step.place[0] == group
                at = np.array(step.place[1:] if is_here else (), dtype=np.int64)
                kept = np.arange(len(at))
            else:
                numbers = np.array(step.place, dtype=np.int64) - start
                kept = np.flatnonzero((numbers >= 0) & (numbers < term.rows))
                at = numbers[kept]
            if len(at):
                unit = np.full(len(at), 2.0**-bits)
                values = step.measurement.values[kept] * unit
                yield _Seen(at, values, step.measurement.noise, unit**2, unit, unit)


@dataclass(frozen=True, eq=False)
class Told:
    """The best mean of what was measured, and the ends; not-a-number where nothing was."""

    centre: Array
    low: Array
    high: Array


@dataclass(frozen=True, eq=False)
class _Seen:
    """Answers that one step tells: sums of noisy values with given norms of coefficients."""

    queries: Integers
    values: Array
    law: BlockNoise
    squares: Array
    sums: Array
    greatest: Array


def _together(rows: int, steps: Iterable[_Seen], level: float) -> Told:
    """Ends that all steps leave, each by its own share of what may be missed (Theorem 5)."""
    low, high = np.full(rows, -np.inf), np.full(rows, np.inf)
    times = np.zeros(rows)
    sums, precision = np.zeros(rows), np.zeros(rows)
    for seen in steps:
        at = seen.queries
        times[at] += 1
        miss = (1 - level) / (times[at] * (times[at] + 1))
        half = half_widths(seen.law, seen.squares, seen.sums, seen.greatest, miss)
        low[at] = np.maximum(low[at], seen.values - half)
        high[at] = np.minimum(high[at], seen.values + half)
        weight = 1 / np.maximum(seen.law.variance * seen.squares, 1e-300)
        sums[at] += weight * seen.values
        precision[at] += weight
    centre = np.divide(sums, precision, out=np.full(rows, np.nan), where=precision > 0)
    # Steps that exclude each other leave the mean of all; it is inside at every level.
    low, high = np.fmin(low, centre), np.fmax(high, centre)
    is_told = times > 0
    return Told(centre, np.where(is_told, low, np.nan), np.where(is_told, high, np.nan))


def half_widths(
    law: BlockNoise, squares: Array, sums: Array, greatest: Array, miss: Array
) -> Array:
    """c with ``P(|sum_j c_j Z_j| > c) <= miss``, by norms of the coefficients c_j.

    ``squares`` is ``sum c^2``, ``sums`` is ``sum |c|``, ``greatest`` is ``max |c|``. Gaussian noise
    is exact up to the rounding of every draw to the grid. A single Laplace draw is exact up to one
    step of the grid; sums have an exponential bound: docs/proofs/adaptive.md, Lemma 6.
    """
    from scipy.special import ndtri

    step = 2.0**-law.grid_bits
    if law.noise == "gaussian":
        wide = law.scale * -ndtri(miss / 2) * np.sqrt(squares)
        return np.asarray(wide + step / 2 * sums, dtype=np.float64)
    safe = np.where(greatest > 0, greatest, 1.0)
    scale, spread = law.scale * safe, squares / safe**2  # the spread of one draw is 1
    wide = np.full(squares.shape, np.inf)
    for rate in RATES:
        bound = (np.log(2 / miss) + spread * rate**2 / (1 - rate**2)) / rate
        wide = np.minimum(wide, bound)
    alone = -np.log(miss) + step / law.scale
    found = scale * np.where(spread <= 1, np.minimum(alone, wide), wide)
    return np.where(greatest > 0, found, 0.0)
