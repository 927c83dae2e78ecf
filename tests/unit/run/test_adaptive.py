# SPDX-License-Identifier: Apache-2.0
"""Adaptive releases: what they cost, what they choose, what they learn, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import sfumato as sf
from sfumato.domain.attributes import Integer
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import BudgetExhausted, LedgerError, PlanError, TooLarge, WorkloadError
from sfumato.ledger.account import fits
from sfumato.ledger.ledger import Ledger
from sfumato.measurement import Transcript
from sfumato.planning.adaptive_costs import Moves, Spending, answer_moves, candidate_sets, moves_of
from sfumato.privacy.cost import Cost
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.refine.learn import Learner, replay_tables
from sfumato.run.adaptive import AdaptivePlan, Task, _Loop, adaptive_rounds
from sfumato.types import Neighbours
from sfumato.vault.count import Counts
from sfumato.vault.mechanisms.select import (
    GRID_BITS,
    MAXIMUM_WEIGHT,
    ExactAnswers,
    ExactTables,
    exponential_mechanism,
    permute_and_flip,
    read_tables,
)
from sfumato.vault.tables import open_table
from tests.shared.ledger_home import made
from tests.shared.words import GivenWords, SeededWords

DOMAIN = sf.Domain({"a": 6, "b": 6, "c": 4, "d": 3})
WORK = sf.marginals(DOMAIN, 2)
BUDGET = sf.Budget(epsilon=2, delta=1e-6)
PURE = sf.Budget(epsilon=2)
Sets = tuple[str, ...]


@pytest.fixture
def people() -> pd.DataFrame:
    """b follows a, c follows b loosely, d is on its own."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 6, 3000)
    b = (a + (rng.random(3000) < 0.2)) % 6
    c = np.where(rng.random(3000) < 0.5, b % 4, rng.integers(0, 4, 3000))
    return pd.DataFrame({"a": a, "b": b, "c": c, "d": rng.integers(0, 3, 3000)})


def exact_table(people: pd.DataFrame, names: Sets) -> NDArray[np.float64]:
    shape = tuple(DOMAIN[n].size for n in names)
    flat = np.ravel_multi_index(tuple(people[n].to_numpy() for n in names), shape)
    return np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape).astype(float)


def run(
    people: pd.DataFrame, budget: sf.Budget = BUDGET, neighbours: Neighbours = "add-remove"
) -> tuple[Transcript, Learner, Spending]:
    """The loop itself, on repeatable words."""
    plan = sf.plan_adaptive(WORK, budget, neighbours)
    sets: list[Sets] = [*((n,) for n in DOMAIN.names), *plan.candidates]
    exact, rows = read_tables(open_table(people), DOMAIN, sets, neighbours)
    learner, purse = Learner(DOMAIN, rows), Spending.of(budget)
    weights = dict.fromkeys(plan.candidates, MAXIMUM_WEIGHT)
    task = Task(learner, weights, plan.rounds, moves_of(neighbours))
    transcript = adaptive_rounds(exact, rows, task, purse, SeededWords("adaptive"))
    return transcript, learner, purse


def mean_l1(learner: Learner, people: pd.DataFrame) -> float:
    pairs = list(combinations(DOMAIN.names, 2))
    apart = [np.abs(learner.model.table(s) - exact_table(people, s)).sum() for s in pairs]
    return float(np.mean(apart)) / len(people)


# --- costs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [BUDGET, PURE, sf.Budget(rho=0.1), sf.Budget(mu=1)])
@pytest.mark.parametrize("method", ["tables", "mwem"])
def test_the_debit_is_within_the_budget_and_no_more_would_be(
    budget: sf.Budget, method: str
) -> None:
    plan = sf.plan_adaptive(WORK, budget, method=method)  # type: ignore[arg-type]
    assert fits([plan.cost], budget)
    more = Cost.pure(Fraction(1, 100)) if budget.is_pure else Cost.gaussian(Fraction(1, 1000))
    assert not fits([plan.cost, more], budget)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("budget", [BUDGET, PURE])
def test_what_was_measured_costs_less_than_the_debit_and_nearly_all_is_spent(
    people: pd.DataFrame, budget: sf.Budget, neighbours: Neighbours
) -> None:
    """Recomputed from the stored noise alone; the choices took the rest, a tenth of each round."""
    transcript, _, purse = run(people, budget, neighbours)
    ways = 1 if neighbours == "add-remove" else 2
    total = Fraction(0)
    for step in transcript.steps:
        law = step.measurement.noise
        scale = Fraction(law.units, 2**law.grid_bits)
        total += ways / scale if budget.is_pure else ways / scale**2
    assert total < purse.spent <= purse.total
    assert total > Fraction(85, 100) * purse.total
    assert 2 * total > purse.total  # the twin: noise of half the variance would not be paid for


def test_a_purse_refuses_what_it_does_not_hold() -> None:
    purse = Spending("gaussian", Fraction(1))
    purse.take(Fraction(3, 4))
    with pytest.raises(PlanError, match="more than is left"):
        purse.take(Fraction(1, 2))
    with pytest.raises(PlanError, match="more than is left"):
        purse.take(Fraction(0))
    assert purse.left == Fraction(1, 4)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("amount", [Fraction(1, 10**7), Fraction(1, 3), Fraction(50)])
def test_noise_and_rates_cost_what_they_were_given_at_most(law: str, amount: Fraction) -> None:
    purse = Spending(law, Fraction(100))  # type: ignore[arg-type]
    moves = Moves(2, 2)
    noise = purse.noise(amount, moves)
    rate = purse.rate(amount, 254)
    assert amount * Fraction(99, 100) < purse.cost_of_noise(noise, moves) <= amount
    assert amount * Fraction(99, 100) < purse.cost_of_choice(rate, 254) <= amount


# --- sensitivity -----------------------------------------------------------------------------


def scores_of(counts: NDArray[np.int64], estimate: NDArray[np.int64], weight: int) -> int:
    box = ExactTables(Counts({("a",): counts}))
    found = box.scores({("a",): estimate}, {("a",): 77}, {("a",): weight})
    return int(found.reveal()[0])


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_scores_of_neighbours_differ_by_no_more_than_is_paid_for(neighbours: Neighbours) -> None:
    """Every table of 3 cells with up to 2 records each, every neighbour, estimates off the grid."""
    allowed = MAXIMUM_WEIGHT * 2**GRID_BITS * moves_of(neighbours).l1
    widest = 0
    for cells in product(range(3), repeat=3):
        counts = np.array(cells, dtype=np.int64)
        if neighbours == "add-remove":
            moved = [counts + e for e in np.eye(3, dtype=np.int64)]
        else:
            eye = np.eye(3, dtype=np.int64)
            moved = [counts - eye[i] + eye[j] for i in range(3) for j in range(3) if counts[i]]
        for other in moved:
            for estimate in ([0, 0, 0], [256, 300, 17], [511, 5, 700]):
                near = np.array(estimate, dtype=np.int64)
                one = scores_of(counts, near, MAXIMUM_WEIGHT)
                widest = max(widest, abs(one - scores_of(other, near, MAXIMUM_WEIGHT)))
    assert widest <= allowed
    assert widest > allowed // 2  # the twin: half of it would not be enough


def test_a_person_of_several_rows_moves_tables_that_many_times() -> None:
    assert moves_of("add-remove", PrivacyUnit("id", 3)) == Moves(3, 9)
    assert moves_of("replace-one", PrivacyUnit("id", 3)) == Moves(6, 18)


def test_answers_move_by_their_coefficients() -> None:
    """Brute force over all cells: one record more, or one for another."""
    domain = sf.Domain({"x": 4})
    work = sf.explicit(domain, ["x"], np.array([[1.0, -2.0, 0.5, 0.0], [0.0, 0.0, 3.0, 3.0]]))
    columns = np.stack([work.evaluate(e) for e in np.eye(4, dtype=np.int64)], axis=1)
    added = np.abs(columns).max(axis=1)
    replaced = np.abs(columns[:, :, None] - columns[:, None, :]).max(axis=(1, 2))
    assert answer_moves(work, "add-remove") == pytest.approx(2 * added)  # steps of one half
    assert (answer_moves(work, "replace-one") >= 2 * replaced).all()
    assert (answer_moves(work, "replace-one") < 2 * replaced + 2 * added + 1).all()


# --- what is chosen and learnt ---------------------------------------------------------------


def test_the_table_that_independence_misses_most_is_measured_first(people: pd.DataFrame) -> None:
    transcript, _, _ = run(people)
    first = next(step.place for step in transcript.steps if len(step.place) > 1)
    assert first == (0, 1)  # a x b: b follows a


def test_a_handicap_larger_than_any_error_keeps_a_table_from_being_chosen(
    people: pd.DataFrame,
) -> None:
    sets: list[Sets] = [("a", "b"), ("a", "d")]
    exact, _ = read_tables(open_table(people), DOMAIN, sets, "add-remove")
    flat = {s: np.zeros([DOMAIN[n].size for n in s], dtype=np.int64) for s in sets}
    even = dict.fromkeys(sets, 1)
    barred = {("a", "b"): 10**9, ("a", "d"): 0}
    assert exact.choose(flat, barred, even, Fraction(1), SeededWords(1), False) == ("a", "d")
    barred = {("a", "b"): 0, ("a", "d"): 10**9}
    assert exact.choose(flat, barred, even, Fraction(1), SeededWords(1), True) == ("a", "b")


def test_only_pure_choices_are_made_by_permute_and_flip(
    people: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its range is not bounded, so that a cost in mu would not cover it."""
    made: list[str] = []
    for law in (permute_and_flip, exponential_mechanism):

        def spy(*given: object, law: Callable[..., object] = law) -> object:
            made.append(law.__name__)
            return law(*given)

        monkeypatch.setattr(f"sfumato.vault.mechanisms.select.{law.__name__}", spy)
    sets: list[Sets] = [("a", "b"), ("a", "d")]
    exact, _ = read_tables(open_table(people), DOMAIN, sets, "add-remove")
    flat = {s: np.zeros([DOMAIN[n].size for n in s], dtype=np.int64) for s in sets}
    each = dict.fromkeys(sets, 1)
    for is_pure in (True, False):
        exact.choose(flat, each, each, Fraction(1), SeededWords(1), is_pure)
    assert made == ["permute_and_flip", "exponential_mechanism"]


@pytest.mark.parametrize("budget", [BUDGET, PURE])
def test_the_estimate_is_far_better_than_independence(
    people: pd.DataFrame, budget: sf.Budget
) -> None:
    transcript, learner, _ = run(people, budget)
    singles = Transcript(tuple(s for s in transcript.steps if len(s.place) == 1), None)
    alone = replay_tables(Learner(DOMAIN, None), singles)
    assert mean_l1(learner, people) < 0.12
    assert mean_l1(alone, people) > 0.3


def test_a_stored_transcript_gives_the_same_estimate(people: pd.DataFrame) -> None:
    transcript, learner, _ = run(people)
    again = replay_tables(Learner(DOMAIN, None), Transcript.from_bytes(transcript.to_bytes()))
    for names in combinations(DOMAIN.names, 2):
        assert (again.model.table(names) == learner.model.table(names)).all()


def test_three_way_dependence_is_found_where_no_pair_shows_it() -> None:
    """c = a xor b: all pairs are even, the asked triple is not."""
    rng = np.random.default_rng(2)
    domain = sf.Domain({"a": 2, "b": 2, "c": 2})
    a, b = rng.integers(0, 2, 2000), rng.integers(0, 2, 2000)
    table = pd.DataFrame({"a": a, "b": b, "c": a ^ b})
    result = sf.plan_adaptive(sf.marginals(domain, 3), BUDGET).release(table)
    found = result.table("a", "b", "c")
    assert found[0, 0, 1] + found[1, 1, 1] + found[0, 1, 0] + found[1, 0, 0] < 100
    assert np.abs(result.table("a", "b") - 500).max() < 120


# --- the flow --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["tables", "mwem"])
def test_equal_plans_share_one_answer_and_one_debit(
    people: pd.DataFrame, tmp_path: Path, method: str
) -> None:
    path = made(tmp_path / "people.ledger", BUDGET, "people")
    plan = sf.plan_adaptive(WORK, BUDGET, method=method)  # type: ignore[arg-type]
    first = plan.release(people, ledger=path, name="people")
    again = plan.release(people, ledger=path, name="people")
    assert (first.is_stored, again.is_stored) == (False, True)
    assert "stored answer, nothing spent" in repr(again)
    pd.testing.assert_frame_equal(first.answers(), again.answers())
    book = Ledger.open(path)
    (entry,) = book.entries()
    assert entry.cost == plan.cost
    assert first.entry is not None
    assert book.verify().is_whole
    with pytest.raises(BudgetExhausted):
        plan.release(people, ledger=path, name="people", key="another")


def test_a_ledger_of_other_neighbours_is_refused(people: pd.DataFrame, tmp_path: Path) -> None:
    book = Ledger.open_or_create(tmp_path / "l", "people", "replace-one", BUDGET)
    with pytest.raises(LedgerError, match="neighbours"):
        sf.plan_adaptive(WORK, BUDGET).release(people, ledger=book, name="people")


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_mwem_learns_queries_on_a_small_domain(
    people: pd.DataFrame, neighbours: Neighbours
) -> None:
    work = sf.marginals(DOMAIN, 2) | sf.prefixes(DOMAIN, "a", by=["d"])
    plan = sf.plan_adaptive(work, sf.Budget(epsilon=8, delta=1e-6), neighbours, method="mwem")
    result = plan.release(people)
    exact = work.evaluate(exact_table(people, DOMAIN.names).astype(np.int64))
    uniform = work.evaluate(np.full(DOMAIN.shape, len(people) / DOMAIN.size))
    found = np.concatenate(result.values())
    assert np.abs(found - exact).max() < 0.7 * np.abs(uniform - exact).max()
    assert len(result.measured()) == plan.rounds + 1  # the number of records comes first


def test_a_release_says_what_was_measured_and_draws_records(people: pd.DataFrame) -> None:
    result = sf.plan_adaptive(WORK, BUDGET).release(people)
    listed = result.measured()
    assert set(listed["measured"][:4]) == {"a", "b", "c", "d"}
    assert (listed["noise"] > 0).all()
    records = result.synthetic(200)
    assert list(records.columns) == list(DOMAIN.names)
    assert len(records) == 200
    assert set(result.answers().columns) == {"group", "query", "value", "low", "high"}
    assert sum(len(v) for v in result.values()) == len(WORK)
    with pytest.raises(WorkloadError, match="not asked about"):
        result.table("a", "z")


def test_attributes_that_nobody_asks_about_are_not_measured(people: pd.DataFrame) -> None:
    result = sf.plan_adaptive(sf.marginals(DOMAIN, [("a",)]), BUDGET).release(people)
    assert result.measured()["measured"].tolist() == ["a"]


def test_exact_tables_show_nothing(people: pd.DataFrame) -> None:
    exact, rows = read_tables(open_table(people), DOMAIN, [("a",)], "add-remove")
    assert rows is None
    assert "not shown" in repr(exact)


@pytest.mark.parametrize("method", ["tables", "mwem"])
def test_the_number_of_records_is_used_where_it_is_public_and_only_there(
    people: pd.DataFrame, method: str
) -> None:
    """Replacing a record changes no total if no rule drops records."""
    kept = sf.Domain(
        [
            Integer(n, min=0, max=DOMAIN[n].size - 1, outside="clamp", nulls="missing")
            for n in ("c", "d")
        ]
    )
    for neighbours, rows in (("replace-one", 3000), ("add-remove", None)):
        plan = sf.plan_adaptive(sf.marginals(kept, 2), BUDGET, neighbours, method=method)  # type: ignore[arg-type]
        result = plan.release(people)
        assert result.rows == rows
        assert (result.total == 3000) == (rows == 3000)


def test_a_plan_says_what_it_takes_before_anything_is_spent() -> None:
    plan = sf.plan_adaptive(sf.marginals(sf.Domain({f"x{i}": 50 for i in range(30)}), 2), BUDGET)
    assert plan.rounds == 210
    assert len(plan.candidates) == 419  # 435 pairs of 2,500 cells; 2^20 cells are held
    assert 10**7 < plan.memory < 10**9
    assert plan.seconds > 0
    assert "210 rounds" in repr(plan)
    assert isinstance(plan, AdaptivePlan)


def test_wide_asked_sets_are_candidates_only_while_they_are_small() -> None:
    domain = sf.Domain({"a": 9, "b": 9, "c": 9, "d": 30})
    found = candidate_sets(sf.marginals(domain, 3))
    assert ("a", "b", "c") in found
    assert ("a", "b", "d") not in found
    assert len(found) == 7


def test_plans_that_cannot_be_are_refused_with_a_way_out() -> None:
    huge = sf.Domain({f"x{i}": 10 for i in range(20)})
    with pytest.raises(TooLarge, match="tables"):
        sf.plan_adaptive(sf.marginals(huge, 2), BUDGET, method="mwem")
    with pytest.raises(TooLarge, match="1,000,000,000 cells"):
        sf.plan_adaptive(sf.marginals(huge, [huge.names[:9]]), BUDGET)
    with pytest.raises(PlanError, match="method must be"):
        sf.plan_adaptive(WORK, BUDGET, method="best")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="rounds must be"):
        sf.plan_adaptive(WORK, BUDGET, rounds=0)
    with pytest.raises(PlanError, match="needs a workload"):
        sf.plan_adaptive(DOMAIN, BUDGET)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="budget must be"):
        sf.plan_adaptive(WORK, 1.0)  # type: ignore[arg-type]
    with pytest.raises(TooLarge, match="500 attributes"):
        sf.plan_adaptive(sf.marginals(sf.Domain({f"x{i}": 2 for i in range(501)}), 1), BUDGET)


def test_damaged_transcripts_are_refused() -> None:
    with pytest.raises(LedgerError, match="cannot be read"):
        Transcript.from_bytes(b"nothing")


@pytest.mark.parametrize("method", ["tables", "mwem", "boosting"])
def test_rounds_tell_how_far_they_are(people: pd.DataFrame, method: str) -> None:
    told: list[tuple[int, int, str]] = []
    plan = sf.plan_adaptive(WORK, BUDGET, method=method)  # type: ignore[arg-type]
    plan.release(people, progress=lambda *now: told.append(now))
    label = "sampling and measuring" if method == "boosting" else "choosing and measuring"
    rounds = [(done, total) for done, total, what in told if what == label]
    total = 100 if method == "tables" else plan.rounds
    assert [t for _, t in rounds] == [total] * len(rounds)
    done = [d for d, _ in rounds]
    if method == "tables":  # percents of the budget
        assert done == sorted(done)
        assert done[0] < 60 < 98 <= done[-1] <= 100
    else:
        assert done == list(range(1, total + 1))


def shares_of_rounds(taught: list[bool], monkeypatch: pytest.MonkeyPatch) -> list[Fraction]:
    """What each round may spend, if rounds teach what is said and spend all that they may."""
    shares: list[Fraction] = []

    def one_round(loop: _Loop, amount: Fraction) -> bool:
        shares.append(amount)
        loop.spending.take(amount)
        return taught[len(shares) - 1]

    monkeypatch.setattr(_Loop, "round", one_round)
    monkeypatch.setattr(_Loop, "look_at_attributes", lambda _: None)
    purse = Spending("gaussian", Fraction(1))
    task = Task(Learner(DOMAIN, None), {("a", "b"): 1}, 20, moves_of("add-remove"))
    adaptive_rounds(None, None, task, purse, SeededWords(1))  # type: ignore[arg-type]
    assert purse.left == 0
    return [share * 20 for share in shares]


def test_rounds_that_teach_spend_equal_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shares_of_rounds([True] * 20, monkeypatch) == [1] * 20
    alternating = [True, False] * 10
    assert shares_of_rounds(alternating, monkeypatch) == [1] * 20


def test_after_two_rounds_in_a_row_that_taught_nothing_four_times_as_much_is_spent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 2 of 20, 2 times 4 of the 18 left, and the 10 that are left are not twice 16: all of them.
    assert shares_of_rounds([False] * 9, monkeypatch) == [1, 1, 4, 4, 10]
    # Two misses that are not in a row count for nothing; what is left over goes to the last round.
    mixed = [False, True, False, False, *[True] * 9]
    assert shares_of_rounds(mixed, monkeypatch) == [1, 1, 1, 1, 4, 4, 4, 4]


@pytest.mark.parametrize("method", ["mwem", "boosting"])
def test_noise_of_single_answers_lies_on_a_fine_grid(people: pd.DataFrame, method: str) -> None:
    """On whole counts a standard deviation of a few steps would round most of it away."""
    work = sf.marginals(DOMAIN, [("a",), ("d",)])
    plan = sf.plan_adaptive(work, sf.Budget(rho=5), method=method)  # type: ignore[arg-type]
    for step in plan.release(people).estimates.transcript.steps[1:]:
        assert step.measurement.noise.units >= 2**16
        assert step.measurement.noise.grid_bits > 0


def test_a_round_hands_over_estimates_and_handicaps_on_the_grid_of_scores(
    people: pd.DataFrame,
) -> None:
    """And spends a tenth on the choice and the rest on what it chose."""
    seen: dict[str, object] = {}

    class Tables:
        def __init__(self, exact: ExactTables) -> None:
            self.exact = exact

        def choose(self, estimates, handicaps, weights, rate, words, is_pure):  # type: ignore[no-untyped-def]  # noqa: ARG002
            seen.update(estimates=estimates, handicaps=handicaps, rate=rate, is_pure=is_pure)
            return ("a", "b")

        def measure(self, names, law, words):  # type: ignore[no-untyped-def]
            seen.update(names=names, law=law)
            return self.exact.measure(names, law, words)

    pairs: list[Sets] = [("a", "b"), ("c", "d")]
    exact, _ = read_tables(
        open_table(people), DOMAIN, [*((n,) for n in DOMAIN.names), *pairs], "add-remove"
    )
    learner, purse = Learner(DOMAIN, None), Spending("gaussian", Fraction(1))
    task = Task(learner, dict.fromkeys(pairs, 1), 4, moves_of("add-remove"))
    loop = _Loop(Tables(exact), task, purse, SeededWords(8))  # type: ignore[arg-type]
    loop._attributes(Fraction(1, 2))
    before = {names: learner.model.table(names).copy() for names in pairs}
    assert loop.round(Fraction(1, 4))  # b follows a: far more than noise
    law = seen["law"]
    assert isinstance(law, BlockNoise)
    for names, table in before.items():
        np.testing.assert_array_equal(seen["estimates"][names], np.rint(256 * table))  # type: ignore[index]
        assert seen["handicaps"][names] == round(256 * loop.handicap(table, law.scale))  # type: ignore[index]
    moved = MAXIMUM_WEIGHT * 256
    assert purse.cost_of_choice(seen["rate"], moved) == pytest.approx(1 / 40, rel=1e-6)  # type: ignore[arg-type]
    assert purse.cost_of_noise(law, task.moves) == pytest.approx(9 / 40, rel=1e-3)
    assert (seen["names"], seen["is_pure"]) == (("a", "b"), False)
    assert float(purse.spent) == pytest.approx(3 / 4, rel=1e-3)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("is_diagonal", [True, False])
def test_a_round_says_whether_it_taught_more_than_its_noise(law: str, is_diagonal: bool) -> None:
    """A table that follows from its margins teaches about as much as its noise, others more."""
    pair, told = ("a", "b"), []
    table = np.eye(6) * 600 if is_diagonal else np.full((6, 6), 100)
    exact = {pair: table, **{(n,): table.sum(axis=1) for n in pair}}
    counts = Counts({names: found.astype(np.int64) for names, found in exact.items()})
    for seed in range(5):
        learner = Learner(sf.Domain({"a": 6, "b": 6}), 3600)
        task = Task(learner, {pair: MAXIMUM_WEIGHT}, 1, moves_of("add-remove"))
        loop = _Loop(ExactTables(counts), task, Spending(law, Fraction(101)), SeededWords(seed))  # type: ignore[arg-type]
        for name in pair:
            loop.measure((name,), Fraction(50))
        before = learner.model.table(pair)
        told.append(loop.round(Fraction(1, 20)))
        noise = loop.handicap(before, loop.steps[-1].measurement.noise.scale)
        moved = float(np.abs(learner.model.table(pair) - before).sum())
        assert told[-1] is bool(moved > noise)
    assert all(told) is is_diagonal


@pytest.mark.parametrize("method", ["mwem", "boosting"])
@pytest.mark.parametrize("greatest", [1.0, 2.0**7, 2.0**14])
def test_measured_answers_fit_a_word_however_great_coefficients_are(
    people: pd.DataFrame, method: str, greatest: float
) -> None:
    """Records, coefficients, their fractions and the grid: 62 bits together."""
    matrix = np.vstack([np.eye(6), [greatest, 0, 0, 0, 0, -0.25]])
    work = sf.product(DOMAIN, {"a": matrix})
    plan = sf.plan_adaptive(work, sf.Budget(rho=10**6), rounds=3, method=method)  # type: ignore[arg-type]
    steps = plan.release(people).estimates.transcript.steps
    bits = [s.measurement.noise.grid_bits for s in steps if s.place]
    assert bits
    assert all(b == 62 - 44 - 2 - np.log2(greatest) for b in bits)  # so little noise wants all


@pytest.mark.parametrize(("law", "power"), [("gaussian", 2 / 3), ("laplace", 1 / 2)])
def test_attributes_share_the_budget_by_the_power_of_their_cells_that_errs_least(
    law: str, power: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors are cells / sqrt(share) or cells / share: no other powers give a smaller sum."""
    shares: dict[Sets, Fraction] = {}
    monkeypatch.setattr(_Loop, "measure", lambda _, names, amount: shares.update({names: amount}))
    domain = sf.Domain({"a": 2, "b": 30, "c": 500})
    task = Task(Learner(domain, 100), {}, 1, moves_of("add-remove"))
    _Loop(None, task, Spending(law, Fraction(1)), SeededWords(1)).look_at_attributes()  # type: ignore[arg-type]
    assert sum(shares.values()) == 1
    found = np.array([float(shares[n,]) for n in domain.names])
    cells = np.array(domain.shape, dtype=float)
    assert found == pytest.approx(cells**power / (cells**power).sum(), rel=1e-3)

    def error(parts: NDArray[np.float64]) -> float:
        return float((cells / (np.sqrt(parts) if law == "gaussian" else parts)).sum())

    for other in (0.0, power - 0.1, power + 0.1, 1.0):
        assert error(found) < error(cells**other / (cells**other).sum())


def test_an_answer_takes_one_word_of_noise_and_a_table_one_a_cell() -> None:
    for law in ("gaussian", "laplace"):
        noise = BlockNoise(law, 100, 0)  # type: ignore[arg-type]
        answers = ExactAnswers(np.array([5, 7]), 12, 0)
        for query in (None, 1):
            words = GivenWords([12345 << 40])
            assert answers.measure(query, noise, words).values.size == 1
            assert words.used == 1
        words = GivenWords([12345 << 40] * 2)
        assert answers.measure_some([1, 0], noise, words).values.size == words.used == 2
        words = GivenWords([12345 << 40] * 6)
        tables = ExactTables(Counts({("a",): np.arange(6)}))
        assert tables.measure(("a",), noise, words).values.size == words.used == 6


def test_weights_and_estimates_beyond_their_bounds_are_refused() -> None:
    """Within them a score fits 64 bits."""
    box = ExactTables(Counts({("a",): np.arange(6)}))
    for weight, is_fit in ((0, False), (1, True), (MAXIMUM_WEIGHT, True), (128, False)):
        if is_fit:
            box.scores({("a",): np.zeros(6, np.int64)}, {("a",): 0}, {("a",): weight})
        else:
            with pytest.raises(PlanError, match=f"1 to 127, got {weight}"):
                box.scores({("a",): np.zeros(6, np.int64)}, {("a",): 0}, {("a",): weight})
    near = np.array([2**52, 0, 0, 0, 0, 0])
    # 15 records in steps of 1/256, the first cell apart by 2^52: clamped there.
    assert box.scores({("a",): near}, {("a",): 0}, {("a",): 127}).reveal().tolist() == [127 * 2**52]
    assert box.scores({("a",): -near}, {("a",): 2**54}, {("a",): 2}).reveal().tolist() == [-(2**53)]
    with pytest.raises(PlanError, match="more records than a table can"):
        box.scores({("a",): near + 1}, {("a",): 0}, {("a",): 127})
    wraps = np.array([2**62, 2**62, 2**62, 2**62, 0, 0])  # 0 in 64 bits
    with pytest.raises(PlanError, match="more records than a table can"):
        box.scores({("a",): wraps}, {("a",): 0}, {("a",): 127})


def test_a_release_is_debited_to_its_analyst_and_refused_beyond_their_allowance(tmp_path):
    domain = sf.Domain({"a": 3, "b": 2})
    people = pd.DataFrame({"a": [0, 1, 2, 1], "b": [0, 1, 1, 0]})
    ledger = Ledger.create(tmp_path / "l.ledger", sf.Budget(epsilon=2), "people", unit="row")
    ledger.allow("ann", sf.Budget(epsilon=1))
    plan = sf.plan_adaptive(sf.marginals(domain, 2), sf.Budget(epsilon=1), rounds=1)
    plan.release(people, ledger, name="people", analyst="ann")
    assert [entry.analyst for entry in ledger.entries()] == ["ann"]
    with pytest.raises(sf.BudgetExhausted, match="allowance of analyst 'ann'"):
        plan.release(people, ledger, name="people", key="again", analyst="ann")
