# SPDX-License-Identifier: Apache-2.0
"""The counter: what it answers, what it refuses, and what it pays."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
import sfumato.vault.mechanisms.stream_noise as vault
from sfumato.errors import (
    BudgetExhausted,
    LedgerError,
    PlanError,
    SfumatoError,
    TableError,
    TooLarge,
)
from sfumato.ledger.ledger import Ledger
from sfumato.planning.stream_plans import STRATEGIES
from sfumato.privacy.budget import Budget
from sfumato.run.stream import Stream
from tests.shared.ledger_home import made
from tests.shared.words import SeededWords

MU = Budget(mu=1)


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise at all: answers are then F x, up to the rounding to the grid."""
    monkeypatch.setattr(vault, "block_noise", lambda _l, size, _r: np.zeros(size, dtype=np.int64))


@pytest.fixture
def seeded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(vault, "system_words", lambda: SeededWords(11))
    return


def sums(values: np.ndarray, window: int | None) -> np.ndarray:
    running = np.cumsum(values, axis=0)
    if window is None:
        return running
    before = np.zeros_like(running)
    before[window:] = running[:-window]
    return running - before


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("window", [None, 1, 6, 29])
def test_without_noise_the_answers_are_the_exact_sums(strategy: str, window: int | None) -> None:
    values = np.array([(5 * t * t + t) % 13 for t in range(30)])
    counter = Stream(30, MU, strategy, largest=12, window=window)
    assert counter.add_many(values) == pytest.approx(sums(values, window), abs=1e-3)


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("strategy", ["optimal", "tree"])
def test_huge_counts_lose_nothing(strategy: str) -> None:
    values = np.full(40, 2**40) + np.arange(40)
    counter = Stream(40, MU, strategy, many=True)
    assert counter.add_many(values) == pytest.approx(np.cumsum(values), rel=1e-15, abs=1e-2)


@pytest.mark.usefixtures("seeded")
def test_values_one_at_a_time_and_all_at_once_give_the_same() -> None:
    values = [1, 0, 1, 1, 0]
    one, all_at_once = Stream(5, MU), Stream(5, MU)
    assert [one.add(v) for v in values] == all_at_once.add_many(values).tolist()
    assert one.total == all_at_once.total
    assert one.step == 5


@pytest.mark.usefixtures("silence")
def test_streams_of_many_hospitals_are_kept_apart() -> None:
    counter = Stream(4, MU, "optimal", dimensions=["north", "south"], many=True)
    counter.add([10, 2])
    counter.add({"south": 5, "north": 0})
    assert np.asarray(counter.total) == pytest.approx([10, 7], abs=1e-3)
    table = counter.released()
    assert list(table.columns) == ["step", "north", "south", "standard_error"]
    assert table["south"].tolist() == pytest.approx([2, 7], abs=1e-3)
    assert counter.names == ("north", "south")
    assert counter.add_many([[1, 1], [0, 2]]).shape == (2, 2)


def test_standard_errors_are_those_of_the_forecast() -> None:
    counter = Stream(20, MU, "optimal")
    assert counter.standard_error() == counter.forecast.standard_errors[0]
    counter.add_many([1] * 5)
    assert counter.standard_error() == counter.forecast.standard_errors[4]
    assert counter.standard_error(20) == counter.forecast.standard_errors[19]
    for wrong in (0, 21, 1.5, True):
        with pytest.raises(PlanError, match="1 to 20"):
            counter.standard_error(wrong)  # type: ignore[arg-type]
    assert counter.released()["standard_error"].tolist() == pytest.approx(
        counter.forecast.standard_errors[:5]
    )


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("wrong", [2, -1, 0.5, "1", None, [1], float("nan")])
def test_a_refused_value_changes_nothing_and_is_not_shown(wrong: object) -> None:
    counter, undisturbed = Stream(3, MU), Stream(3, MU)
    with pytest.raises(TableError, match="whole number from 0 to 1") as refusal:
        counter.add(wrong)
    assert "-1" not in str(refusal.value)
    with pytest.raises(TableError):
        counter.add_many([1, wrong, 0])
    assert counter.step == 0
    assert counter.add_many([1, 0, 1]).tolist() == undisturbed.add_many([1, 0, 1]).tolist()


@pytest.mark.parametrize("wrong", [[1], [1, 2, 3], 1, "ab", {"a": 1}, {"a": 1, "b": 1, "c": 0}])
def test_a_step_of_the_wrong_dimension_is_refused(wrong: object) -> None:
    counter = Stream(3, MU, dimensions=["a", "b"], largest=5)
    with pytest.raises(TableError):
        counter.add(wrong)
    assert counter.step == 0


def test_a_full_stream_takes_no_more() -> None:
    counter = Stream(3, MU)
    counter.add_many([1, 1])
    with pytest.raises(PlanError, match="2 more values do not fit: 2 of 3"):
        counter.add_many([1, 1])
    counter.add(1)
    with pytest.raises(PlanError, match="3 of 3"):
        counter.add(1)
    assert len(counter.released()) == 3


def test_what_is_shown_is_public() -> None:
    counter = Stream(10, MU, "optimal", largest=987_654_321)
    counter.add(123_456_789)
    shown = repr(counter) + repr(counter.__dict__["_private"]) + repr(counter.forecast)
    assert "123456789" not in shown.replace(",", "")
    assert "step 1 of 10" in repr(counter)
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(SfumatoError, match="released"):
            attempt(counter)


def test_a_step_that_was_interrupted_after_its_noise_ends_the_counter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The value is counted and its answer is lost: going on would count it twice."""
    counter = Stream(10, MU, "optimal")
    counter.add(1)

    def interrupted(_: object) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(counter._public[0], "answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        counter.add(1)
    with pytest.raises(PlanError, match="closed"):
        counter.add(1)
    assert len(counter.released()) == 1


def test_answers_need_not_be_kept() -> None:
    counter = Stream(10, MU, keep=False)
    counter.add(1)
    with pytest.raises(PlanError, match="keep=False"):
        counter.released()


@pytest.mark.parametrize("wrong", [0, -1, True, [], ["a", "a"], ["step"], "ab", [1, 2], 2.0])
def test_wrong_dimensions_are_refused(wrong: object) -> None:
    with pytest.raises(PlanError, match="dimensions"):
        Stream(10, MU, dimensions=wrong)  # type: ignore[arg-type]


def test_too_many_streams_are_refused_with_the_size() -> None:
    with pytest.raises(TooLarge, match="numbers each"):
        Stream(1000, MU, "optimal", window=50, dimensions=10**6)
    with pytest.raises(TooLarge, match="10,000,000 dimensions"):
        Stream(1000, MU, "optimal", dimensions=10**7)


def test_a_stream_is_debited_once_before_any_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = Ledger.create(tmp_path / "a.ledger", Budget(mu=1), "visits", "add-remove")
    spent_at_draws: list[int] = []
    draw = vault.block_noise

    def watched(law: object, size: int, random: object) -> object:
        spent_at_draws.append(len(book.entries()))
        return draw(law, size, random)  # type: ignore[arg-type]

    monkeypatch.setattr(vault, "block_noise", watched)
    with Stream(20, Budget(mu="0.9"), "optimal", ledger=book) as counter:
        assert len(book.entries()) == 1
        counter.add_many([1] * 20)
    assert set(spent_at_draws) == {1}
    (entry,) = book.entries()
    assert entry.cost == counter.forecast.cost
    assert entry.state == "answered"
    kept = json.loads(book.answer(entry.key) or b"")
    assert kept["answers"] == counter.released()[["total"]].to_numpy().tolist()
    with pytest.raises(BudgetExhausted):
        Stream(20, Budget(mu="0.9"), "optimal", ledger=book)
    with pytest.raises(PlanError, match="closed"):
        counter.add(1)
    counter.close()  # a second time does nothing
    assert book.verify().is_whole
    book.close()


def test_a_path_opens_the_ledger_and_creates_none(tmp_path: Path) -> None:
    place = tmp_path / "b.ledger"
    with pytest.raises(LedgerError, match=r"sfumato ledger create .* --unit event"):
        Stream(5, MU, "tree", ledger=place, name="visits")
    assert not place.exists()
    made(place, MU, "visits")
    Stream(5, MU, "tree", ledger=place, name="visits").close()
    book = Ledger.open(place)
    assert book.table_id == "visits"
    assert book.spent().debits == 1
    with pytest.raises(LedgerError, match="neighbours"):
        Stream(5, MU, "tree", ledger=book, neighbours="replace-one")
    book.close()


def test_pure_budgets_count_too() -> None:
    counter = Stream(50, Budget(epsilon=1), window=7)
    counter.add_many([1] * 50)
    assert counter.forecast.cost.pure_epsilon <= 1
    assert counter.forecast.noise.noise == "laplace"


def test_a_plan_is_started_as_often_as_it_is_paid_for(tmp_path: Path) -> None:
    budget = sf.Budget(mu=1)
    plan = sf.plan_stream(10, budget, dimensions=["a", "b"], many=True)
    assert repr(plan).startswith("2 x Stream of 10 running totals by optimal")
    ledger = sf.Ledger.create(tmp_path / "a.ledger", budget, "visits", unit="event")
    with plan.start(ledger) as counter:
        assert counter.forecast is plan.forecast
        assert counter.names == ("a", "b")
        assert len(counter.add([3, 4])) == 2
    with pytest.raises(BudgetExhausted):
        plan.start(ledger)
    assert len(ledger.entries()) == 1
