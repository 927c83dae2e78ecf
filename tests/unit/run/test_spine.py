# SPDX-License-Identifier: Apache-2.0
"""The one way to an answer: what is refused when, what is drawn, and what is paid how often."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

import sfumato as sf
from sfumato.errors import BudgetExhausted, LedgerError, SfumatoError, TableError
from sfumato.ledger.entries import Entry
from sfumato.ledger.ledger import Ledger, LedgerToCreate, Terms
from sfumato.privacy.cost import Cost
from sfumato.run.adaptive import AdaptiveRun
from sfumato.run.correct import CorrectionRun
from sfumato.run.linear import LinearRun
from sfumato.run.spine import Access, Runnable, begin, run, stored_answer
from sfumato.run.watch import SeriesWatch, TableWatch, Watched

DOMAIN = sf.Domain({"kind": 4})
BUDGET = sf.Budget(epsilon=1)
WORK = sf.marginals(DOMAIN, 1)
TABLE = pd.DataFrame({"kind": [0, 1, 1, 2, 3, 3, 3] * 20})


@dataclass(frozen=True)
class Kind:
    """A kind of plan: what is run, how people run it, and one that is refused at once."""

    runnable: Callable[[], Runnable[object, object]]
    release: Callable[..., object]
    refused: Callable[[object], object]
    unit: str = "row"


def linear() -> sf.Plan:
    return sf.plan(WORK, BUDGET)


def adaptive(method: str) -> Kind:
    plan = sf.plan_adaptive(WORK, BUDGET, method=method, rounds=2)  # type: ignore[arg-type]
    empty = sf.Constraints(DOMAIN, [], [([], 0)])
    return Kind(
        lambda: AdaptiveRun(plan),
        plan.release,
        lambda table: plan.release(table, constraints=empty),
    )


CORRECTION = sf.correct(WORK, BUDGET, tolerance=10)
PREDICTED = [20, 40, 20, 60]
WATCH = sf.watch(4, BUDGET, threshold=20)

KINDS = {
    "linear": Kind(
        lambda: LinearRun(linear()),
        lambda *place, **more: linear().release(*place, **more),
        lambda table: linear().release(table, project="wrong"),  # type: ignore[arg-type]
    ),
    **{f"adaptive {method}": adaptive(method) for method in ("tables", "mwem", "boosting")},
    "correction": Kind(
        lambda: CorrectionRun(CORRECTION, PREDICTED, CORRECTION._steps(PREDICTED)),
        lambda table, **more: CORRECTION.release(table, PREDICTED, **more),
        lambda table: CORRECTION.release(table, [1.0]),
    ),
    "watch of a table": Kind(
        lambda: TableWatch(WATCH, DOMAIN, "kind", None),
        lambda table, **more: WATCH.release(table, DOMAIN, "kind", **more),
        lambda table: WATCH.release(table, sf.Domain({"kind": 5}), "kind"),
    ),
    "watch of counts": Kind(
        lambda: SeriesWatch(WATCH, PREDICTED),
        lambda _, **more: WATCH.values(PREDICTED, **more),
        lambda _: WATCH.values([1]),
        "event",
    ),
}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


def opened(folder: Path, kind: Kind, total: sf.Budget = BUDGET) -> Ledger:
    return Ledger.create(folder / "a.ledger", total, "t", unit=kind.unit)  # type: ignore[arg-type]


def numbers(result: object) -> pd.DataFrame:
    """All that a result says."""
    frame: pd.DataFrame = result.frame() if isinstance(result, Watched) else result.answers()  # type: ignore[attr-defined]
    return frame


def forbid(monkeypatch: pytest.MonkeyPatch, kind: Kind, *steps: str) -> None:
    """Make steps of a run fail the test."""
    for step in steps:

        def fail(*_: object, step: str = step) -> None:
            pytest.fail(f"{step} must not be reached")

        monkeypatch.setattr(type(kind.runnable()), step, fail)


@kinds
def test_everything_that_is_run_is_runnable(kind: Kind) -> None:
    plan = kind.runnable()
    assert isinstance(plan, Runnable)
    assert plan.request() == kind.runnable().request()
    assert plan.key() == kind.runnable().key()
    assert plan.guarantee.budget == BUDGET


@kinds
def test_the_same_request_twice_is_one_debit_and_a_stored_answer_draws_nothing(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(tmp_path, kind)
    first = kind.release(TABLE, ledger=ledger, name="t")
    reading = stored_answer(kind.runnable(), ledger)
    assert reading is not None
    assert reading[0].key == kind.runnable().key()
    forbid(monkeypatch, kind, "count", "draw")
    again = kind.release(TABLE, ledger=ledger, name="t")
    assert (first.is_stored, again.is_stored) == (False, True)  # type: ignore[attr-defined]
    assert numbers(first).equals(numbers(again))
    assert len(ledger.entries()) == 1
    with pytest.raises(LedgerError, match="belongs to table 't'"):
        kind.release(TABLE, ledger=ledger, name="other")


@kinds
def test_a_new_ledger_is_created_by_the_first_debit_and_not_by_what_is_refused(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = Terms("t", "add-remove", kind.unit, BUDGET)  # type: ignore[arg-type]
    place = tmp_path / "new.ledger"

    def refuse(*_: object) -> None:
        raise TableError("the file is refused when it is read")

    with monkeypatch.context() as patch:
        patch.setattr(type(kind.runnable()), "count", refuse)
        with pytest.raises(TableError, match="when it is read"):
            kind.release(TABLE, ledger=LedgerToCreate(terms, place), name="t")
    assert not list(tmp_path.iterdir())
    with pytest.raises(LedgerError, match="belongs to table 't'"):
        kind.release(TABLE, ledger=LedgerToCreate(terms, place), name="other")
    first = kind.release(TABLE, ledger=LedgerToCreate(terms, place), name="t")
    assert [entry.state for entry in Ledger.open(place).entries()] == ["answered"]
    late = kind.release(TABLE, ledger=LedgerToCreate(terms, place), name="t")  # made meanwhile
    assert (first.is_stored, late.is_stored) == (False, True)  # type: ignore[attr-defined]
    assert numbers(first).equals(numbers(late))


@kinds
def test_nothing_is_drawn_if_the_debit_is_refused(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(tmp_path, kind, sf.Budget(epsilon=0.5))
    forbid(monkeypatch, kind, "draw")
    with pytest.raises(BudgetExhausted):
        kind.release(TABLE, ledger=ledger, name="t")
    assert ledger.entries() == ()


@kinds
def test_a_failed_draw_stays_paid_and_is_never_stored(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(tmp_path, kind)

    def fail(*_: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr(type(kind.runnable()), "draw", fail)
    with pytest.raises(MemoryError):
        kind.release(TABLE, ledger=ledger, name="t")
    assert [entry.state for entry in ledger.entries()] == ["burnt"]
    assert stored_answer(kind.runnable(), ledger) is None


@kinds
def test_arguments_are_refused_before_the_table_is_opened(kind: Kind) -> None:
    for refuse in (
        kind.refused,
        lambda table: kind.release(table, name=5),
        lambda table: kind.release(table, key=b"k"),
        lambda table: kind.release(table, ledger=5),
    ):
        with pytest.raises(SfumatoError) as refusal:
            refuse("no such file.parquet")
        assert "no such file" not in str(refusal.value)


@kinds
def test_columns_ledger_and_unit_are_refused_before_anything_is_counted(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, kind, "count", "draw")
    with pytest.raises(LedgerError, match="there is no ledger at"):
        kind.release(TABLE, ledger=tmp_path / "none.ledger", name="t")
    with pytest.raises(LedgerError, match="say name="):
        kind.release(TABLE, ledger=opened(tmp_path, kind))
    other = Ledger.create(tmp_path / "b.ledger", BUDGET, "t", unit=sf.PrivacyUnit("id", 2))
    with pytest.raises(LedgerError, match="protects"):
        kind.release(TABLE, ledger=other, name="t")
    if kind.runnable().domain is not None:
        with pytest.raises(TableError, match="lacks 'kind'"):
            kind.release(TABLE.rename(columns={"kind": "sort"}))


@kinds
def test_a_key_of_another_request_is_refused(kind: Kind, tmp_path: Path) -> None:

    ledger = opened(tmp_path, kind)
    ledger.answer_once(Cost.pure(BUDGET.pure_epsilon / 4), {"q": 1}, "k", lambda: b"other")
    with pytest.raises(LedgerError, match="'k' was used for another request"):
        kind.release(TABLE, ledger=ledger, name="t", key="k")
    assert len(ledger.entries()) == 1


@kinds
def test_another_process_that_was_faster_has_made_the_answer(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(tmp_path, kind)
    of_kind = type(kind.runnable())
    counted = of_kind.count

    def overtaken(*place: object) -> object:
        monkeypatch.setattr(of_kind, "count", counted)
        kind.release(TABLE, ledger=ledger, name="t")
        return counted(*place)  # type: ignore[arg-type]

    monkeypatch.setattr(of_kind, "count", overtaken)
    result = kind.release(TABLE, ledger=ledger, name="t")
    assert result.is_stored  # type: ignore[attr-defined]
    assert len(ledger.entries()) == 1


def test_a_run_without_a_ledger_draws_every_time() -> None:
    plan = LinearRun(linear(), project=False)
    first, again = (run(plan, Access(TABLE)).answers()["value"] for _ in range(2))
    assert not first.equals(again)


@pytest.mark.parametrize("method", ["answer_once", "debit"])
def test_only_the_spine_pays(method: str) -> None:
    source = Path(sf.__file__).parent
    callers = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == method
        and ast.unparse(node.func.value) != "self"
    }
    assert {path for path in callers if not path.startswith("ledger/")} == {"run/spine.py"}


def test_what_lasts_is_debited_before_it_begins_and_burnt_where_it_cannot(tmp_path: Path) -> None:
    ledger = sf.Ledger.create(tmp_path / "a.ledger", BUDGET, "t")
    cost = Cost.pure(BUDGET.pure_epsilon / 4)

    def start(entry: Entry) -> tuple[str, bytes, tuple[()]]:
        reserved = ledger.entry("one")
        assert reserved is not None
        assert (reserved.sequence, reserved.state) == (entry.sequence, "reserved")
        return "live", b"begun", ()

    def broken(_: Entry) -> tuple[str, bytes, tuple[()]]:
        raise MemoryError

    entry, live = begin(WATCH, ledger, cost, {"q": 1}, "one", start)
    assert (entry.state, live, ledger.answer("one")) == ("answered", "live", b"begun")
    with pytest.raises(MemoryError):
        begin(WATCH, ledger, cost, {"q": 2}, "two", broken)
    lost = ledger.entry("two")
    assert lost is not None
    assert lost.state == "burnt"
