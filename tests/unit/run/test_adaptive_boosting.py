"""Boosting over queries: what sampling reveals, what it costs, what the rounds learn."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate, product
from math import exp, log
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import PlanError
from sfumato.measurement import Transcript
from sfumato.planning.adaptive_costs import Moves, Spending, answer_moves, joint_moves
from sfumato.refine.learn import Boosted, replay_samples
from sfumato.run.adaptive import Sampling, boosting_rounds, mwem_rounds
from sfumato.types import Neighbours
from sfumato.vault.mechanisms.select import ExactAnswers, read_answers
from sfumato.vault.tables import open_table
from sfumato.workload.workload import answer_bits
from tests.shared.dense import dense_workload
from tests.shared.ledger_home import made
from tests.shared.words import SeededWords

DOMAIN = sf.Domain({"a": 3, "b": 4})
SIGNED = sf.product(DOMAIN, {"a": np.array([[1.0, -1.0, 0.0], [0.0, 0.5, 1.0]]), "b": "identity"})
WORK = sf.marginals(DOMAIN, 1) | SIGNED
BUDGETS = [sf.Budget(epsilon=3, delta=1e-6), sf.Budget(epsilon=3)]


@pytest.fixture
def people() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, 2000)
    return pd.DataFrame({"a": a, "b": (a + (rng.random(2000) < 0.3)) % 4})


def moved_columns(neighbours: Neighbours) -> np.ndarray:
    """All the ways that one record moves the answers, in steps."""
    F = np.ldexp(dense_workload(WORK), answer_bits(WORK))
    if neighbours == "add-remove":
        return F.T
    gone = [F[:, i] - F[:, j] for i, j in product(range(12), range(12)) if i != j]
    return np.array([*gone, *F.T])  # the last: one record falls in no cell


def run(
    people: pd.DataFrame,
    budget: sf.Budget,
    neighbours: Neighbours = "add-remove",
    rounds: int = 3,
) -> tuple[Transcript, Boosted, Spending]:
    exact, rows = read_answers(open_table(people), WORK, neighbours)
    purse = Spending.of(budget)
    found = boosting_rounds(exact, rows, WORK, neighbours, None, rounds, 4, purse, SeededWords(5))
    return *found, purse


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_errors_of_neighbours_differ_by_no_more_than_their_answers(neighbours: Neighbours) -> None:
    """Every way that one record moves the answers, exhaustively; half of it is too little."""
    rng = np.random.default_rng(1)
    far = int(answer_moves(WORK, neighbours).max())
    answers = rng.integers(-20, 60, WORK.queries)
    largest = 0
    for low, span in [(0, 3), (2, 40), (5, 1000)]:
        near = rng.integers(-20, 60, WORK.queries)
        here = ExactAnswers(answers, 40, answer_bits(WORK)).errors(near, low, span).reveal()
        assert here.min() >= 0
        assert here.max() <= span
        for move in moved_columns(neighbours).astype(np.int64):
            other = ExactAnswers(answers + move, 41, answer_bits(WORK))
            moved = np.abs(other.errors(near, low, span).reveal() - here).max()
            assert moved <= far
            largest = max(largest, int(moved))
    assert largest > far / 2


def test_the_law_of_a_draw_has_the_bounded_range_that_is_paid_for() -> None:
    """Errors summed over t rounds: losses span at most 2 rate t D, and more than if t were 1."""
    rng = np.random.default_rng(2)
    rate, far, rounds = Fraction(1, 50), int(answer_moves(WORK, "add-remove").max()), 4
    answers, widest = rng.integers(0, 60, WORK.queries), 0.0
    nears = [rng.integers(0, 60, WORK.queries) for _ in range(rounds)]

    def law(exact: np.ndarray) -> np.ndarray:
        box = ExactAnswers(exact, 40, answer_bits(WORK))
        scores = sum(box.errors(near, 1, 1000).reveal() for near in nears)
        weights = np.array([exp(float(rate) * int(s)) for s in scores])
        return weights / weights.sum()

    for move in moved_columns("add-remove").astype(np.int64):
        losses = np.log(law(answers + move) / law(answers))
        widest = max(widest, float(np.ptp(losses)))
    assert widest <= 2 * float(rate) * rounds * far + 1e-12
    assert widest > 2 * float(rate) * far  # the twin: the price of one round would not cover it


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_sampled_answers_move_together_as_is_paid_for(neighbours: Neighbours) -> None:
    for queries in [(0,), (1, 2, 3), (0, 1, 5, 9), tuple(range(7)), tuple(range(WORK.queries))]:
        columns = moved_columns(neighbours)[:, list(queries)]
        moves = joint_moves(WORK, queries, neighbours)
        l1, l2 = np.abs(columns).sum(1).max(), (columns**2).sum(1).max()
        assert moves.l1 >= l1
        assert moves.l2_squared >= l2
        if neighbours == "add-remove":
            assert (moves.l1, moves.l2_squared) == (max(l1, 1), max(l2, 1))
        single = joint_moves(WORK, queries, neighbours, PrivacyUnit("id", 3))
        assert (single.l1, single.l2_squared) == (3 * moves.l1, 9 * moves.l2_squared)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_a_transcript_costs_no_more_than_the_debit_and_nearly_all_of_it(
    people: pd.DataFrame, budget: sf.Budget, neighbours: Neighbours
) -> None:
    """Recomputed from what was stored: measurements by their scale, draws by their rate."""
    transcript, _, purse = run(people, budget, neighbours)
    far = int(answer_moves(WORK, neighbours).max())
    fresh = Spending.of(budget)
    spent, done = Fraction(0), 0
    for step in transcript.steps:
        law = step.measurement.noise
        if not step.place:
            moves = 1 if neighbours == "add-remove" else 2
            scale = Fraction(law.units, 2**law.grid_bits)
            cost = Fraction(moves) / scale if budget.is_pure else Fraction(moves**2) / scale**2
            fresh.take(cost)
            sampling = Sampling.of(WORK.queries, 3, 4, far, fresh)
        else:
            if done == 0 and neighbours == "replace-one":
                sampling = Sampling.of(WORK.queries, 3, 4, far, fresh)
            cost = fresh.cost_of_noise(law, joint_moves(WORK, step.place, neighbours))
            if done:
                cost += 4 * fresh.cost_of_choice(sampling.rate, done * far)
            done += 1
        spent += cost
    assert spent == purse.spent <= purse.total
    assert spent > Fraction(99, 100) * purse.total


def test_more_rounds_or_samples_make_draws_duller() -> None:
    """The rate pays for t^2 in every round: doubling samples costs about a factor sqrt 2."""
    purse = Spending.of(sf.Budget(mu=1))
    rates = {
        (rounds, samples): float(Sampling.of(1000, rounds, samples, 1, purse).rate)
        for rounds, samples in [(2, 10), (4, 10), (4, 20)]
    }
    assert rates[2, 10] > rates[4, 10] > rates[4, 20]
    assert rates[4, 10] / rates[4, 20] == pytest.approx(2**0.5, rel=0.05)
    assert rates[2, 10] / rates[4, 10] == pytest.approx(14**0.5, rel=0.05)  # 1 + 4 + 9
    sampling = Sampling.of(1000, 4, 10, 1, purse)
    prices = [sampling.price(purse, t) for t in (1, 2, 3)]
    assert Fraction(99, 200) < sum(prices) <= Fraction(1, 2)
    # Wrong by the whole span multiplies a weight by (1 + 2 eta) / (1 - 2 eta) against right.
    twice_eta = (1 - 1000 ** (-2 / 4)) ** 0.5
    ratio = log((1 + twice_eta) / (1 - twice_eta))
    assert float(sampling.rate) * sampling.span == pytest.approx(ratio, rel=0.01)


def test_a_stored_transcript_gives_the_same_medians(people: pd.DataFrame) -> None:
    transcript, boosted, _ = run(people, BUDGETS[0])
    again = replay_samples(WORK, Transcript.from_bytes(transcript.to_bytes()))
    assert (again.medians == boosted.medians).all()


def test_boosting_draws_what_synopses_got_wrong(people: pd.DataFrame) -> None:
    """With a huge budget: the error of the median falls far below that of one synopsis."""
    exact = dense_workload(WORK) @ np.bincount(people["a"] * 4 + people["b"], minlength=12)
    worst = []
    for rounds in (1, 9):
        _, boosted, _ = run(people, sf.Budget(mu=200), "replace-one", rounds)
        worst.append(np.abs(boosted.medians - exact).max())
    assert worst[1] < 0.5 * worst[0]


def test_a_release_by_boosting_is_debited_once_and_repeats_itself(
    people: pd.DataFrame, tmp_path: Path
) -> None:
    plan = sf.plan_adaptive(WORK, BUDGETS[0], method="boosting", rounds=2)
    ledger = str(tmp_path / "people.ledger")
    made(ledger, BUDGETS[0], "people")
    first = plan.release(people, ledger, name="people")
    again = plan.release(people, ledger, name="people")
    assert (np.concatenate(first.values()) == np.concatenate(again.values())).all()
    assert first.measured()["measured"].iloc[0] == "number of records"
    assert "sampled queries" in first.measured()["measured"].iloc[1]
    assert plan.request()["samples"] == 40
    assert plan.seconds > 0
    assert plan.memory > 0
    total = sum(step.measurement.units.size for step in first.estimates.transcript.steps)
    assert first.total == pytest.approx(2000, rel=0.5)
    assert total <= 1 + 2 * 40


def test_other_methods_are_refused_by_name() -> None:
    with pytest.raises(PlanError, match='"mwem" or "boosting"'):
        sf.plan_adaptive(WORK, BUDGETS[0], method="boosted")  # type: ignore[arg-type]
    assert sf.plan_adaptive(WORK, BUDGETS[0], method="boosting").rounds == 5


def test_a_single_round_has_no_choices_to_pay_for_and_measures_with_all() -> None:
    table = open_table(pd.DataFrame({"a": [0, 1, 2], "b": [0, 1, 3]}))
    exact, _ = read_answers(table, WORK, "replace-one")
    purse = Spending.of(sf.Budget(mu=1))
    boosting_rounds(exact, 3, WORK, "replace-one", None, 1, 4, purse, SeededWords(6))
    assert Fraction(999, 1000) * purse.total < purse.spent <= purse.total


class Watched:
    """Exact answers that note at which rate queries are chosen."""

    def __init__(self, exact: ExactAnswers) -> None:
        self.exact, self.bits = exact, exact.bits
        self.rates: list[Fraction] = []
        self.were_pure: set[bool] = set()

    def choose(self, near: np.ndarray, rate: Fraction, words: object, is_pure: bool) -> int:
        self.rates.append(rate)
        self.were_pure.add(is_pure)
        return self.exact.choose(near, rate, words, is_pure)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:
        return getattr(self.exact, name)


@pytest.mark.parametrize("budget", [sf.Budget(mu=1), sf.Budget(epsilon=3)])
@pytest.mark.parametrize("method", ["mwem", "boosting"])
def test_persons_of_three_rows_are_paid_for(
    people: pd.DataFrame, method: str, budget: sf.Budget
) -> None:
    """Recomputed from the stored noise, for neighbours that differ in three records."""
    unit = PrivacyUnit("b", 3)
    exact, rows = read_answers(open_table(people), WORK, "add-remove", unit)
    assert rows is None
    purse, seen = Spending.of(budget), Watched(exact)
    given = (seen, rows, WORK, "add-remove", unit, 4)
    if method == "mwem":
        transcript, _ = mwem_rounds(*given, purse, SeededWords(7))  # type: ignore[arg-type]
    else:
        transcript, _ = boosting_rounds(*given, 2, purse, SeededWords(7))  # type: ignore[arg-type]
    total = Fraction(0)
    for step in transcript.steps:
        law = step.measurement.noise
        scale = Fraction(law.units, 2**law.grid_bits)
        if not step.place:
            far, square = 3, 9
        else:
            start = [0, *accumulate(t.rows for t in WORK.terms)]
            group = (start[step.place[0]] + step.place[1],) if method == "mwem" else step.place
            moves = joint_moves(WORK, group, "add-remove")
            far, square = 3 * moves.l1, 9 * moves.l2_squared
        total += far / scale if budget.is_pure else square / scale**2
    farthest = 3 * int(answer_moves(WORK, "add-remove").max())
    choices = sum((purse.cost_of_choice(r, farthest) for r in seen.rates), Fraction(0))
    # Permute-and-flip is paid for by pure budgets only, the exponential mechanism by others.
    assert seen.were_pure == ({budget.is_pure} if method == "mwem" else set())
    assert total + choices <= purse.spent <= purse.total
    assert total + choices > Fraction(2, 5) * purse.total
    # The twin: three times as little noise would not be paid for.
    assert total * (3 if budget.is_pure else 9) > purse.total


def test_a_replaced_record_moves_answers_without_negative_coefficients_less() -> None:
    """|c - c'|^2 <= |c|^2 + |c'|^2; with signs it may be twice as far as one."""
    assert joint_moves(sf.marginals(DOMAIN, 1), (0, 3), "replace-one").l2_squared == 2 * 2
    signed = joint_moves(SIGNED, (0,), "replace-one")  # coefficients 1 and -1, in halves
    assert signed.l2_squared == 4 * 4


@pytest.mark.parametrize("budget", BUDGETS)
def test_an_error_within_one_deviation_of_the_noise_counts_for_nothing(
    people: pd.DataFrame, budget: sf.Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores count what lies beyond the noise of the round; each round adds to those before."""
    told = []
    errors = ExactAnswers.errors

    def spied(self: ExactAnswers, near: np.ndarray, low: int, span: int) -> object:
        told.append((np.abs(near - self._answers), low, errors(self, near, low, span).reveal()))
        return errors(self, near, low, span)

    monkeypatch.setattr(ExactAnswers, "errors", spied)
    transcript, _, _ = run(people, budget)
    laws = [step.measurement.noise for step in transcript.steps if step.place]
    assert len(told) == len(laws) == 3
    for (distance, low, scores), law in zip(told, laws, strict=True):
        assert (low - 1) ** 2 < law.variance <= low**2
        assert not scores[distance <= low].any()


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("method", [boosting_rounds, mwem_rounds])
def test_every_measurement_is_paid_for_all_rows_of_a_unit(
    people: pd.DataFrame, budget: sf.Budget, method: object
) -> None:
    """Recomputed for units of three rows; for one row the same noise would cost a part of it."""
    unit = PrivacyUnit("id", 3)
    exact, rows = read_answers(open_table(people.assign(id=range(2000))), WORK, "add-remove", unit)
    purse, samples = Spending.of(budget), (4,) if method is boosting_rounds else ()
    transcript, _ = method(  # type: ignore[operator]
        exact, rows, WORK, "add-remove", unit, 3, *samples, purse, SeededWords(6)
    )
    first, *others = transcript.steps
    assert first.place == ()
    costs = [purse.cost_of_noise(first.measurement.noise, Moves(3, 9))]
    for step in others:
        place = step.place if method is boosting_rounds else (_number(step.place),)
        moves = joint_moves(WORK, place, "add-remove", unit)
        costs.append(purse.cost_of_noise(step.measurement.noise, moves))
    assert costs[0] <= purse.total / 20
    assert sum(costs) <= purse.spent <= purse.total
    assert sum(costs) > purse.total / 3


def _number(place: tuple[int, ...]) -> int:
    """The number of a query among all, from its group and its number there."""
    return [0, *accumulate(t.rows for t in WORK.terms)][place[0]] + place[1]
