# SPDX-License-Identifier: Apache-2.0
"""Subjects of the audit: selection by scores, and adaptive rounds with measurements between.

The rounds of adaptive releases run as they are, with the estimates they learn: a release is some
milliseconds, so runs are few and budgets large.

MWEM is audited with everything that it tells: what was chosen, what was measured, and from which
estimates. The estimates are public, so the likelihood of a whole transcript is known on any table:
that of every choice given the estimates before it, and that of every number. Its ratio is the
score, and no event tells more (Neyman, Pearson).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import permutations
from math import log
from typing import get_args

import numpy as np
import numpy.typing as npt

from sfumato.domain.domain import Domain
from sfumato.measurement import Measurement, Transcript
from sfumato.planning.adaptive_costs import Spending, moves_of
from sfumato.planning.selection_plans import SelectionMechanism
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.privacy.selection import ChoiceNoise, choice_cost
from sfumato.random import WordSource, integers_below
from sfumato.refine.learn import Learner
from sfumato.run.adaptive import Task, adaptive_rounds, boosting_rounds, mwem_rounds
from sfumato.run.choose import SelectionPlan, SelectionRun, plan_selection
from sfumato.types import Array, Integers, Neighbours
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.select import (
    ExactAnswers,
    ExactTables,
    read_answers,
    read_tables,
    report_noisy_max,
)
from sfumato.workload.build import marginals, prefixes
from sfumato.workload.workload import Workload
from sfumato_audit.examine import Claim, Pair, Sampler, Score, Subject, Table
from sfumato_audit.subjects.measured import opened

__all__ = [
    "AROUND",
    "Purse",
    "chosen_subjects",
    "mwem_subject",
    "mwem_subjects",
    "selection_subject",
]

Scores = tuple[int, ...]
Place = tuple[int, ...]

RATE = Fraction(1, 2)  # scores that move by 1: epsilon = 1
PLACES = 12
SLOW_CHOICE = 16
NEIGHBOURS: Neighbours = "add-remove"
MODEL_ROWS = 200  # that an estimate is kept on: public arithmetic, of which little is enough here
OCCASIONS = 3  # of measuring one place
WIDTH = 4  # values of one measurement, at most
SELECT = "sfumato.vault.mechanisms.select"
LAWS: tuple[ChoiceNoise, ...] = get_args(ChoiceNoise)


def chosen_subjects() -> tuple[Subject[Scores] | Subject[Table], ...]:
    """All choices, selections on tables, and all adaptive methods with both kinds of noise."""
    return (*_choices(), *_selections(), *_rounds())


def _choices() -> tuple[Subject[Scores], ...]:
    named: dict[str, str] = {"gumbel": "exponential mechanism", "exponential": "permute-and-flip"}
    names = {noise: named.get(noise, "report-noisy-max") for noise in LAWS}
    return (
        _choice("gumbel", "exponential mechanism, as epsilon", Cost.pure(2 * RATE), _ANY),
        *(_choice(w, names[w], choice_cost(w, RATE, 1), _ANY) for w in LAWS),
        *(_choice(w, names[w], choice_cost(w, 2 * RATE, 1, True), _MONOTONE) for w in LAWS),
    )


_LEVEL = (5,) * PLACES
_MONOTONE = (
    Pair("equal scores, one up", _LEVEL, (6, *_LEVEL[1:])),
    Pair("equal scores, all but one up", _LEVEL, (5, *(6,) * (PLACES - 1))),
)
_ANY = (
    Pair("equal scores, or one up and all others down", _LEVEL, (6, *(4,) * (PLACES - 1))),
    Pair("equal scores, or one down and all others up", _LEVEL, (4, *(6,) * (PLACES - 1))),
    Pair("one far ahead, or less so", (8, *(0,) * (PLACES - 1)), (7, *(1,) * (PLACES - 1))),
)


def _choice(
    noise: ChoiceNoise, name: str, cost: Cost, pairs: Sequence[Pair[Scores]]
) -> Subject[Scores]:
    """One choice among scores that move by at most 1 each, in any direction or all in one."""
    is_any = pairs is _ANY
    rate = RATE if is_any else 2 * RATE

    def sampler(scores: Scores) -> Sampler:
        exact = Sensitive(np.array(scores, dtype=np.int64))

        def run(runs: int, source: WordSource) -> Array:
            places = [report_noisy_max(exact, rate, source, noise) for _ in range(runs)]
            return np.array(places, dtype=np.float64)[:, None]

        return run

    functions = {"gumbel": "exponential_mechanism", "exponential": "permute_and_flip"}
    covers = {f"choice:{noise}", f"{SELECT}.report_noisy_max"}
    covers |= {f"{SELECT}.{functions[noise]}"} if noise in functions else set()
    shown = name if is_any else f"{name}, monotone"
    random = _random_scores if is_any else None
    return Subject(
        shown, Claim.of(cost), pairs, sampler, frozenset(covers), random, None, SLOW_CHOICE
    )


def _random_scores(source: WordSource) -> Pair[Scores]:
    scores = integers_below(8, PLACES, source)
    moved = scores + integers_below(3, PLACES, source) - 1
    return Pair("scores at random", tuple(scores.tolist()), tuple(moved.tolist()))


def _selections() -> tuple[Subject[Table], ...]:
    """Every mechanism of a selection, with the counts of the two that it chooses."""
    cells = marginals(Domain({"one": 4}), 1)
    pure, mixed = Budget(epsilon=2), Budget(mu=2)
    budgets: dict[SelectionMechanism, Budget] = {
        "permute-and-flip": pure,
        "exponential": mixed,
        "laplace-counts": pure,
        "gaussian-counts": mixed,
    }
    plans = {
        f"selection by {name}": plan_selection(
            cells, budget, "replace-one", top=2, counts=True, mechanism=name
        )
        for name, budget in budgets.items()
    }
    plans["selection of one, in rho"] = plan_selection(cells, Budget(rho=1), "replace-one")
    median = plan_selection(prefixes(Domain({"one": 3}), "one"), pure, nearest=0.5)
    return (
        *(selection_subject(name, plan) for name, plan in plans.items()),
        selection_subject("selection of the median", median, pair=AROUND),
    )


AROUND: Pair[Table] = Pair(
    "running totals around a half, all of them one more",
    ((0,), (1,), (1,), (2,)),
    ((0,),) * 2 + ((1,), (1,), (2,)),
)


def selection_subject(
    name: str, plan: SelectionPlan, is_broken: bool = False, pair: Pair[Table] | None = None
) -> Subject[Table]:
    """A selection on a table of one attribute: which are chosen, and their counts if told."""
    domain = plan.workload.domain
    few: Table = ((0,),) * 3
    last: Table = ((domain.shape[0] - 1,),)
    more = (*few[1:], *last) if plan.neighbours == "replace-one" else (*few, *last)
    far = Pair("all in one cell, and a record that comes or moves to the last", few, more)

    def sampler(table: Table) -> Sampler:
        exact = SelectionRun(plan).count(opened(domain, table), None)

        def run(runs: int, source: WordSource) -> Array:
            drawn = [json.loads(plan.drawn(exact, source)) for _ in range(runs)]
            rows = [[*each["places"], *(each["numbers"] or ())] for each in drawn]
            return np.array(rows, dtype=np.float64)

        return run

    covers = {f"selection:{plan.mechanism}", "sfumato.run.choose.SelectionPlan.drawn"}
    if plan.forecast.is_counted:
        covers |= {f"{SELECT}.ExactAnswers.top_measured", f"{SELECT}.ExactAnswers.measure_some"}
    else:
        covers |= {f"{SELECT}.ExactAnswers.top", f"{SELECT}.top_places"}
    return Subject(
        name,
        Claim.of(plan.cost),
        (far if pair is None else pair,),
        sampler,
        frozenset(() if is_broken else covers),
        None,
        lambda pair: _selection_likelihood(pair, plan),
        2 * SLOW_CHOICE,
        is_broken,
    )


def _selection_likelihood(pair: Pair[Table], plan: SelectionPlan) -> Score:
    """The log-likelihood ratio of what is told; of choices exactly, of noisy maxima nearly."""
    left, right = (_answers_of(t, plan) for t in (pair.left, pair.right))
    law, top = plan.forecast, plan.top

    def score(outputs: Array) -> Array:
        places = outputs[:, :top].astype(np.int64)
        ratio = np.zeros(len(outputs))
        if law.rate is not None:
            odds = {
                chosen: _log_chance(chosen, left, plan) - _log_chance(chosen, right, plan)
                for chosen in permutations(range(plan.candidates), top)
            }
            ratio += np.array([odds[tuple(row)] for row in places.tolist()])
        if law.noise is not None:
            values, steps = outputs[:, top:], 2.0**law.noise.grid_bits
            near, far = values - steps * left[places], values - steps * right[places]
            if law.noise.noise == "gaussian":
                ratio += ((far**2 - near**2) / (2 * law.noise.units**2)).sum(axis=1)
            else:
                ratio += ((np.abs(far) - np.abs(near)) / law.noise.units).sum(axis=1)
        return ratio

    return score


def _answers_of(table: Table, plan: SelectionPlan) -> Integers:
    """The exact scores of a table of one attribute."""
    work = plan.normal.workload
    counts = np.bincount([row[0] for row in table], minlength=work.domain.size)
    exact = np.rint(work.evaluate(counts)).astype(np.int64)
    if plan.nearest is None:
        return exact
    return -np.abs(plan.nearest.denominator * exact - plan.nearest.numerator * len(table))


def _log_chance(chosen: tuple[int, ...], counts: Integers, plan: SelectionPlan) -> float:
    """log P(these places in this order), each by the law of a choice among those left."""
    rate, rest, out = float(plan.forecast.rate or 0), list(range(len(counts))), 0.0
    for place in chosen:
        weights = np.exp(rate * (counts[rest] - counts[rest].max()))
        at = rest.index(place)
        if plan.mechanism == "permute-and-flip":
            orders = list(permutations(range(len(rest))))
            before = [np.prod(1 - weights[list(o[: o.index(at)])]) for o in orders]
            chance = float(weights[at] * np.mean(before))
        else:
            chance = float(weights[at] / weights.sum())
        out += log(chance)
        rest.remove(place)
    return out


def _rounds() -> tuple[Subject[Table], ...]:
    work = prefixes(Domain({"one": 3}), "one")  # the first cell counts in every query
    cube = marginals(Domain({"one": 2, "two": 2, "three": 2}), 2)
    gaussian, laplace = Budget(mu=2), Budget(epsilon=2)
    return (
        _adaptive("boosting", work, gaussian, _boosting, "boosting", 400),
        _adaptive("adaptive tables", cube, gaussian, _tables, "tables", 200),
        _adaptive("adaptive tables, pure", cube, laplace, _tables, "tables", 200),
    )


Prepared = Callable[[WordSource], Transcript]
Prepare = Callable[[Table, Workload, Budget], Prepared]


def _adaptive(
    name: str, work: Workload, budget: Budget, prepare: Prepare, method: str, slowness: int
) -> Subject[Table]:
    """An adaptive method: what was chosen and measured, in order."""
    first = (0,) * len(work.domain)
    last = tuple(size - 1 for size in work.domain.shape)
    few = (last,) * 3
    pairs = (Pair("a few records, one in the first cell more", few, (*few, first)),)

    def sampler(table: Table) -> Sampler:
        draw = prepare(table, work, budget)
        return lambda runs, source: np.array(
            [_row(draw(source), method, places) for _ in range(runs)]
        )

    places = _places(method, work)
    covers = frozenset({f"method:{method}"}) | COVERED[method]
    claim = Claim.of(Spending.of(budget).cost)

    def hint(pair: Pair[Table]) -> Score:
        return _likelihood(pair, work, places, method)

    return Subject(name, claim, pairs, sampler, covers, None, hint, slowness)


COVERED = {
    "boosting": frozenset(
        {
            "sfumato.run.adaptive.boosting_rounds",
            f"{SELECT}.ExactAnswers.measure_some",
            f"{SELECT}.SummedErrors.draw",
        }
    ),
    "tables": frozenset(
        {
            "sfumato.run.adaptive.adaptive_rounds",
            f"{SELECT}.ExactTables.choose",
            f"{SELECT}.ExactTables.measure",
        }
    ),
}


def _boosting(table: Table, work: Workload, budget: Budget) -> Prepared:
    exact, rows = read_answers(opened(work.domain, table), work, NEIGHBOURS)
    return lambda source: boosting_rounds(
        exact, rows, work, NEIGHBOURS, None, 2, 2, Spending.of(budget), source
    )[0]


def _tables(table: Table, work: Workload, budget: Budget) -> Prepared:
    domain = work.domain
    sets = [term.attributes for term in work.terms]
    measured_sets = [*((name,) for name in domain.names), *sets]
    exact, rows = read_tables(opened(domain, table), domain, measured_sets, NEIGHBOURS)
    return lambda source: _tables_run(exact, rows, domain, sets, budget, source)


def _tables_run(
    exact: ExactTables,
    rows: int | None,
    domain: Domain,
    sets: list[tuple[str, ...]],
    budget: Budget,
    source: WordSource,
) -> Transcript:
    """One loop with an estimate of its own."""
    task = Task(
        Learner(domain, rows, rows=MODEL_ROWS), dict.fromkeys(sets, 1), 1, moves_of(NEIGHBOURS)
    )
    return adaptive_rounds(exact, rows, task, Spending.of(budget), source)


def _places(method: str, work: Workload) -> dict[Place, int]:
    """Everything that a step can measure: the number of records, queries, or tables."""
    each: list[Place]
    if method == "boosting":
        each = [(q,) for q in range(work.queries)]
    else:
        sets = [(name,) for name in work.domain.names] + [t.attributes for t in work.terms]
        each = [tuple(work.domain.index(name) for name in names) for names in sets]
    return {place: i for i, place in enumerate([(), *each])}


def _row(transcript: Transcript, method: str, places: dict[Place, int]) -> Array:
    """A transcript as a row: what every place gave the first few times, and with which noise.

    NaN where a place was not asked; the scale of Laplace noise is shown as negative.
    """
    out = np.full((2, len(places), OCCASIONS, WIDTH), np.nan)
    seen = dict.fromkeys(places, 0)
    for step in transcript.steps:
        values, law = step.measurement.values, step.measurement.noise
        scale = law.scale if law.noise == "gaussian" else -law.scale
        parts = [(step.place, values)]
        if method == "boosting" and step.place:
            parts = [((q,), values[i : i + 1]) for i, q in enumerate(step.place)]
        for place, part in parts:
            if seen[place] < OCCASIONS:
                out[0, places[place], seen[place], : part.size] = part
                out[1, places[place], seen[place], : part.size] = scale
            seen[place] += 1
    rows = np.nan if transcript.rows is None else float(transcript.rows)
    return np.append(out.ravel(), rows)


def _likelihood(pair: Pair[Table], work: Workload, places: dict[Place, int], method: str) -> Score:
    """The log-likelihood ratio of everything that was measured (not of what was chosen)."""
    left, right = (_centres(t, work, places, method) for t in (pair.left, pair.right))

    def score(outputs: Array) -> Array:
        values, scales = outputs[:, :-1].reshape(len(outputs), 2, *left.shape).swapaxes(0, 1)
        far, near = np.abs(values - right), np.abs(values - left)
        gaussian = (far**2 - near**2) / (2 * scales**2)
        ratio = np.where(scales > 0, gaussian, (far - near) / -scales)
        return np.asarray(np.nansum(ratio, axis=(1, 2, 3)))

    return score


def _centres(table: Table, work: Workload, places: dict[Place, int], method: str) -> Array:
    """The exact value of every place."""
    domain = work.domain
    codes = np.array(table, dtype=np.int64).reshape(len(table), len(domain))
    histogram = np.zeros(domain.shape)
    np.add.at(histogram, tuple(codes.T), 1)

    def counts(names: tuple[str, ...]) -> Array:
        left_out = tuple(i for i, n in enumerate(domain.names) if n not in names)
        return np.asarray(histogram.sum(axis=left_out)).ravel()

    answers = [np.asarray(t.answer(counts(t.attributes).reshape(t.shape))) for t in work.terms]
    out = np.zeros((len(places), OCCASIONS, WIDTH))
    for place, i in places.items():
        if not place:
            exact = counts(())
        elif method == "boosting":
            exact = np.concatenate(answers)[place[0] : place[0] + 1]
        else:
            exact = counts(tuple(domain.names[k] for k in place))
        out[i, :, : exact.size] = exact
    return out


Purse = Callable[[], Spending]

WORK = prefixes(Domain({"cell": 3}), "cell")
QUERIES = 3
ROUNDS = 2
SLOW = 300
FUNCTIONS = (
    "run.adaptive.mwem_rounds",
    "vault.mechanisms.select.ExactAnswers.choose",
    "vault.mechanisms.select.ExactAnswers.measure",
)
MWEM_COVERED = frozenset({"method:mwem", *(f"sfumato.{function}" for function in FUNCTIONS)})
# One more record in the first cell: the first answer is above an even table's and goes further up,
# the second is below it and comes nearer, so that choices tell as well.
FIRST, SECOND, THIRD = 8, 4, 8
PAIR: Pair[Table] = Pair(
    "one more record in the first cell",
    ((0,),) * FIRST + ((1,),) * SECOND + ((2,),) * THIRD,
    ((0,),) * (FIRST + 1) + ((1,),) * SECOND + ((2,),) * THIRD,
)


def mwem_subjects() -> tuple[Subject[Table], ...]:
    """With both kinds of noise."""
    gaussian, pure = Budget(mu=2), Budget(epsilon=6)
    return (
        mwem_subject("mwem", lambda: Spending.of(gaussian), None),
        mwem_subject("mwem, pure", lambda: Spending.of(pure), 2.25),
    )


def mwem_subject(
    name: str, purse: Purse, minimum: float | None, is_broken: bool = False
) -> Subject[Table]:
    """Two rounds from a purse; ``minimum`` is that of the log-likelihood ratio in a known event."""

    def sampler(table: Table) -> Sampler:
        exact, rows = _Recorded.read(table)

        def run(runs: int, source: WordSource) -> Array:
            out = []
            for _ in range(runs):
                exact.record = []
                mwem_rounds(exact, rows, WORK, NEIGHBOURS, None, ROUNDS, purse(), source)
                out.append(exact.record)
            return np.array(out)

        return run

    def hint(pair: Pair[Table]) -> Score:
        ratio = _mwem_likelihood(pair)
        return ratio if minimum is None else lambda o: (ratio(o) >= minimum).astype(np.float64)

    claim, covers = Claim.of(purse().cost), frozenset() if is_broken else MWEM_COVERED
    return Subject(name, claim, (PAIR,), sampler, covers, None, hint, SLOW, is_broken)


class _Recorded(ExactAnswers):
    """Exact answers that note what is public of a call: estimates, rate, place; number, scale."""

    __slots__ = ("record",)
    record: list[float]

    @classmethod
    def read(cls, table: Table) -> tuple[_Recorded, int | None]:
        exact, rows = read_answers(opened(WORK.domain, table), WORK, NEIGHBOURS)
        return cls(exact._answers, exact._total, exact.bits), rows

    def choose(self, estimates: Integers, rate: Fraction, source: WordSource, is_pure: bool) -> int:
        place = super().choose(estimates, rate, source, is_pure)
        self.record += [*estimates.tolist(), float(rate), place]
        return place

    def measure(self, query: int | None, law: BlockNoise, source: WordSource) -> Measurement:
        measurement = super().measure(query, law, source)
        # The scale of Laplace noise is shown as negative.
        scale = law.scale if law.noise == "gaussian" else -law.scale
        self.record += [float(measurement.values[0]), scale]
        return measurement


def _mwem_likelihood(pair: Pair[Table]) -> Score:
    """The log-likelihood ratio of a transcript."""
    sides = [_answers(table) for table in (pair.left, pair.right)]

    def score(outputs: Array) -> Array:
        total, rounds = outputs[:, :2], outputs[:, 2:].reshape(len(outputs), ROUNDS, -1)
        logs = []
        for exact in sides:
            log = _of_number(total[:, 0], total[:, 1], exact[-1:])
            for part in rounds.swapaxes(0, 1):
                near, rate, place = part[:, :QUERIES], part[:, QUERIES], part[:, QUERIES + 1]
                chosen, scale = place.astype(np.int64), part[:, -1]
                log += _of_choice(np.abs(exact - near), rate, chosen, is_pure=scale < 0)
                log += _of_number(part[:, -2], scale, exact[chosen])
            logs.append(log)
        return np.asarray(logs[0] - logs[1])

    return score


def _answers(table: Table) -> Array:
    """The exact answers: running totals."""
    cells = np.array([record[0] for record in table], dtype=np.int64)
    return np.cumsum(np.bincount(cells, minlength=QUERIES)).astype(np.float64)


def _of_number(value: Array, scale: Array, exact: Array) -> Array:
    """The log density of a noisy number, up to what does not depend on the table."""
    far = np.abs(value - exact)
    return np.asarray(np.where(scale > 0, -(far**2) / (2 * scale**2), far / scale))


def _of_choice(
    scores: Array, rate: Array, chosen: Integers, is_pure: npt.NDArray[np.bool_]
) -> Array:
    """The log probability of a choice: by permute-and-flip, or by the exponential mechanism.

    With ``w_j = exp(rate (s_j - max))`` the first chooses i with probability ``w_i`` times the
    integral of ``prod over j != i of (1 - w_j t)`` over t from 0 to 1, the second ``w_i / sum w``.
    """
    weights = np.exp(rate[:, None] * (scores - scores.max(axis=1, keepdims=True)))
    own = np.take_along_axis(weights, chosen[:, None], axis=1)[:, 0]
    others = np.arange(QUERIES) != chosen[:, None]
    nodes, parts = np.polynomial.legendre.leggauss(QUERIES)  # exact for these products
    inner = [np.where(others, 1 - weights * (1 + t) / 2, 1.0).prod(axis=1) for t in nodes]
    flipped = own * (np.array(inner).T @ parts) / 2
    return np.asarray(np.log(np.where(is_pure, flipped, own / weights.sum(axis=1))))
