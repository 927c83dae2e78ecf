# SPDX-License-Identifier: Apache-2.0
"""Watching counts: debit before noise, the same bytes again, states that survive a restart."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.domain.attributes import DateTime
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import (
    BudgetExhausted,
    LedgerError,
    LedgerFrozen,
    PlanError,
    SfumatoError,
    TableError,
)
from sfumato.ledger.ledger import Ledger
from tests.shared.ledger_home import made

BUDGET = sf.Budget(epsilon=1)
QUIET = [20] * 30
LOUD = [20] * 10 + [5000] + [20] * 10 + [7000] + [20] * 8  # far beyond any noise at epsilon = 1


def test_alerts_come_where_counts_are_far_above_and_nowhere_else() -> None:
    watch = sf.watch(30, BUDGET, threshold=500, expected=20, alerts=3)
    seen = watch.values(LOUD)
    assert seen.alerts()["step"].tolist() == [11, 22]
    assert seen.frame()["outcome"].tolist() == ["alert" if c > 20 else "quiet" for c in LOUD]
    assert repr(seen) == "Watched 30 of 30 counts: 2 of at most 3 alerts"
    assert watch.values(QUIET).alerts().empty


def test_after_the_last_alert_nothing_is_watched() -> None:
    seen = sf.watch(30, BUDGET, threshold=500, expected=20).values(LOUD)
    assert seen.tested == 11
    assert seen.frame()["outcome"].tolist() == ["quiet"] * 10 + ["alert"] + ["not watched"] * 19


def test_expected_and_threshold_may_differ_from_step_to_step() -> None:
    expected = [5000.0 if c == 5000 else 20.0 for c in LOUD]
    thresholds = [10_000.0 if c == 7000 else 500.0 for c in LOUD]
    watch = sf.watch(30, BUDGET, thresholds, expected=expected, alerts=3)
    assert watch.values(LOUD).alerts().empty


def test_a_watch_for_what_is_missing() -> None:
    counts = [9000] * 5 + [3000] + [9000] * 4
    watch = sf.watch(10, BUDGET, 2000, expected=9000, side="below", counts=True)
    [row] = watch.values(counts).alerts().to_dict("records")
    assert row["step"] == 6
    assert row["limit"] == 7000
    assert row["low"] <= 3000 <= row["high"] <= 7000 + watch.tolerance


@pytest.mark.parametrize("budget", [BUDGET, sf.Budget(mu=1), sf.Budget(epsilon=1, delta=1e-9)])
def test_counts_of_alerts_have_intervals_that_hold_them(budget: sf.Budget) -> None:
    """confidence = 1 - 1e-9: a failure of this test is a failure of the code."""
    watch = sf.watch(30, budget, 500, expected=20, alerts=3, counts=True, confidence=1 - 1e-9)
    frame = watch.values(LOUD).alerts()
    assert frame["step"].tolist() == [11, 22]
    for exact, row in zip([5000, 7000], frame.to_dict("records"), strict=True):
        assert row["low"] <= row["value"] <= row["high"]
        assert row["low"] <= exact <= row["high"]
        assert row["high"] - row["low"] < 1000


def table_of(counts: list[int]) -> pd.DataFrame:
    days = pd.date_range("2025-03-01", periods=len(counts))
    return pd.DataFrame({"day": np.repeat(days, counts), "who": range(sum(counts))})


DOMAIN = sf.Domain([DateTime("day", date(2025, 3, 1), date(2025, 3, 31), "day")])


def test_a_table_is_watched_along_its_dates() -> None:
    watch = sf.watch(30, BUDGET, 500, expected=20, alerts=3)
    found = watch.release(table_of(LOUD), DOMAIN, "day").alerts()
    with pytest.warns(DeprecationWarning, match=r"Watch\.table is now Watch\.release"):
        watch.table(table_of(LOUD), DOMAIN, "day")
    assert [str(d)[:10] for d in found["day"]] == ["2025-03-11", "2025-03-22"]
    with pytest.raises(PlanError, match="has 30 cells"):
        sf.watch(29, BUDGET, 500).release(table_of(LOUD), DOMAIN, "day")
    with pytest.raises(PlanError, match="largest=7"):
        watch.release(table_of(LOUD), DOMAIN, "day", unit=PrivacyUnit("who", 7))


def test_the_ledger_is_debited_once_and_the_outcome_stays(tmp_path: Path) -> None:
    place = tmp_path / "watch.ledger"
    watch = sf.watch(30, sf.Budget(epsilon="0.5"), 500, expected=20, counts=True, alerts=2)
    book = Ledger.create(place, BUDGET, "visits", "add-remove")
    first = watch.release(table_of(LOUD), DOMAIN, "day", book, name="visits")
    assert first.entry is not None
    assert first.entry.cost == watch.plan.cost
    again = watch.release(table_of(QUIET), DOMAIN, "day", book, name="visits")  # not read again
    pd.testing.assert_frame_equal(first.alerts(), again.alerts())
    assert len(book.entries()) == 1
    watch.release(table_of(LOUD), DOMAIN, "day", book, name="visits", key="another")
    with pytest.raises(BudgetExhausted):
        watch.release(table_of(LOUD), DOMAIN, "day", book, name="visits", key="a third")
    assert len(book.entries()) == 2


def test_a_refused_debit_draws_no_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = Ledger.create(tmp_path / "x.ledger", sf.Budget(epsilon="0.1"), "series", "add-remove")

    def never(*_: object) -> None:
        raise AssertionError("noise was drawn without a debit")

    monkeypatch.setattr("sfumato.vault.mechanisms.sparse._drawn", never)
    watch = sf.watch(30, BUDGET, 500)
    with pytest.raises(BudgetExhausted):
        watch.values(LOUD, book, name="series")
    with pytest.raises(BudgetExhausted):
        watch.begin(book)


def test_counts_as_they_come_and_after_a_restart(tmp_path: Path) -> None:
    place = made(tmp_path / "live.ledger", BUDGET, "series")
    watch = sf.watch(30, BUDGET, 500, expected=20, alerts=3, counts=True)
    found = []
    for i, count in enumerate(LOUD):
        if i % 4 == 0:  # a new process, as far as the watch can tell
            live = watch.begin(place)
            assert live.step == i
        alert = live.add(count)
        found += [] if alert is None else [alert]
        if i % 4 == 3:
            live.close()
            with pytest.raises(PlanError, match="was closed"):
                live.add(count)
    live.close()
    assert [a.step for a in found] == [11, 22]
    again = watch.begin(place)
    assert again.watched().events == tuple(found)
    assert again.alerts_left == 1
    assert repr(again) == "Watching(step 30 of 30: 2 of at most 3 alerts)"
    with pytest.raises(PlanError, match="all 30 counts"):
        again.add(20)
    book = Ledger.open(place)
    assert len(book.entries()) == 1
    assert book.verify().is_whole
    assert json.loads(book.answer("watch step 11") or b"")[0] == 10


def noted(place: Path) -> dict[str, object]:
    """The private state of the watch, as the ledger has it."""
    state = Ledger.open(place).state("watch")
    assert state is not None
    found: dict[str, object] = json.loads(state.data)
    return found


def test_two_processes_do_not_go_on_with_one_state(tmp_path: Path) -> None:
    watch = sf.watch(30, sf.Budget(mu=1), 500, expected=20, alerts=2)
    made(tmp_path / "l", sf.Budget(mu=1), "series")
    one = watch.begin(tmp_path / "l")
    with pytest.raises(LedgerError, match="goes on with the watch"):
        watch.begin(tmp_path / "l")
    other = watch.begin(tmp_path / "l", take_over=True)
    assert other.alerts_left == 1  # one threshold is lost
    with pytest.raises(LedgerError):
        one.add(20)
    other.add(20)
    other.close()
    assert watch.begin(tmp_path / "l").step == 1


def test_the_threshold_is_in_the_ledger_only_while_the_watch_is_at_rest(tmp_path: Path) -> None:
    watch = sf.watch(30, BUDGET, 500, expected=20, alerts=1)
    made(tmp_path / "l", BUDGET, "series")
    live = watch.begin(tmp_path / "l")
    assert noted(tmp_path / "l")["finder"] == ""
    live.add(20)
    assert noted(tmp_path / "l")["finder"] == ""
    live.close()
    assert "noise" in str(noted(tmp_path / "l")["finder"])
    with watch.begin(tmp_path / "l") as live:
        assert noted(tmp_path / "l")["finder"] == ""
        assert live.step == 1
    assert noted(tmp_path / "l")["phase"] == "at rest"
    del live
    assert Ledger.open(tmp_path / "l").verify().is_whole


def test_an_interrupted_test_gives_its_threshold_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the outcome is kept: whether it was an alert is unknown, so it is the last
    outcome of its threshold; the next sparse vector of the plan goes on."""
    watch = sf.watch(30, sf.Budget(mu=1), 500, expected=20, alerts=2)
    assert (watch.plan.epochs, watch.plan.law.discoveries) == (2, 1)
    made(tmp_path / "l", sf.Budget(mu=1), "series")
    live = watch.begin(tmp_path / "l")
    live.add(20)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "keep", killed)
        with pytest.raises(KeyboardInterrupt):
            live.add(5000)
    with pytest.raises(PlanError, match="begin it again"):
        live.add(5000)
    again = watch.begin(tmp_path / "l")
    assert (again.step, again.alerts_left) == (1, 1)
    alert = again.add(5000)
    assert alert is not None
    assert alert.step == 2
    with pytest.raises(PlanError, match="lost with a threshold"):
        again.add(20)
    assert len(Ledger.open(tmp_path / "l").entries()) == 1


CHILD = """
import os, signal, sys
import sfumato as sf
from pathlib import Path
watch = sf.watch(30, sf.Budget(epsilon=1), 500, expected=20, alerts=3)
live = watch.begin(Path(sys.argv[1]))
live.add(20)
if sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_watch_loses_its_threshold_and_one_that_ends_does_not(tmp_path: Path) -> None:
    """A pure watch has one threshold for all its alerts: a kill loses those that are left."""
    watch = sf.watch(30, BUDGET, 500, expected=20, alerts=3)
    left = {}
    for end in ("killed", "ended"):
        place = made(tmp_path / end, BUDGET, "series")
        subprocess.run([sys.executable, "-c", CHILD, str(place), end], check=False)
        live = watch.begin(place)
        left[end] = live.alerts_left
        assert live.step == 1
        assert live.watched().events == ()
        if end == "killed":
            with pytest.raises(PlanError, match="lost with a threshold"):
                live.add(20)
        else:
            live.add(20)
        live.close()
        assert Ledger.open(place).verify().is_whole
    assert left == {"killed": 0, "ended": 3}


FORKED = """
import os, sys
import sfumato as sf
from pathlib import Path
from sfumato.ledger.ledger import Ledger
place = Path(sys.argv[1])
book = Ledger.create(place, sf.Budget(epsilon=1), "series", "add-remove", unit="event")
live = sf.watch(30, sf.Budget(epsilon=1), 500, expected=20, alerts=3).begin(book)
live.add(20)
child = os.fork()
if child == 0:
    sys.exit(0)  # at its end it must not put its parent's threshold to rest
os.waitpid(child, 0)
assert b'at rest' not in book.state("watch").data
live.add(20)
live.close()
assert b'at rest' in book.state("watch").data
"""


def test_a_fork_does_not_put_the_watch_of_its_parent_to_rest(tmp_path: Path) -> None:
    run = [sys.executable, "-c", FORKED, str(tmp_path / "l")]
    ended = subprocess.run(run, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_a_state_of_the_older_form_is_given_up(tmp_path: Path) -> None:
    """It held its threshold all the time, so nobody knows whether a test was under way."""
    from sfumato.ledger.entries import State
    from sfumato.vault.mechanisms.sparse import Discoverer

    watch = sf.watch(30, sf.Budget(mu=1), 500, expected=20, alerts=2)
    book = Ledger.create(tmp_path / "l", sf.Budget(mu=1), "series", "add-remove", unit="event")
    entry = book.debit(watch.plan.cost, watch.request() | {"begun": "watch"}, "watch", unit="event")
    old = {"step": 0, "alerts": [], "finder": Discoverer(watch.plan).state().decode()}
    book.store(entry, b"begun", states=[State("watch", 1, json.dumps(old).encode())])
    live = watch.begin(book)
    assert (live.step, live.alerts_left) == (0, 1)
    assert live.add(5000) is not None


def test_a_frozen_ledger_lets_a_watch_be_closed_later(tmp_path: Path) -> None:
    book = Ledger.create(tmp_path / "l", BUDGET, "series", "add-remove", unit="event")
    live = sf.watch(30, BUDGET, 500, expected=20).begin(book)
    book.freeze("holiday")
    with pytest.raises(LedgerFrozen):
        live.close()
    book.unfreeze("over")
    live.close()
    assert sf.watch(30, BUDGET, 500, expected=20).begin(book).alerts_left == 1


def test_a_debit_whose_watch_never_began_is_burnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = sf.watch(30, sf.Budget(epsilon="0.4"), 500, expected=20)
    book = Ledger.create(tmp_path / "l", BUDGET, "series", "add-remove")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "store", killed)
        with pytest.raises(KeyboardInterrupt):
            watch.begin(book)
    assert [e.state for e in book.entries()] == ["burnt"]
    watch.begin(book).add(20)
    assert [e.state for e in book.entries()] == ["burnt", "answered"]


def test_a_watch_of_another_kind_is_not_continued(tmp_path: Path) -> None:
    made(tmp_path / "l", BUDGET, "series")
    with sf.watch(30, BUDGET, 500).begin(tmp_path / "l") as live:
        live.add(3)
    with pytest.raises(LedgerError, match="another request"):
        sf.watch(30, BUDGET, 501).begin(tmp_path / "l")


def test_a_watch_without_a_ledger_ends_with_its_last_alert_and_is_not_copied() -> None:
    live = sf.watch(3, BUDGET, 500).begin()
    assert live.add(10**6) is not None
    with pytest.raises(PlanError, match="all 1 alerts"):
        live.add(0)
    with pytest.raises(SfumatoError, match="copied"):
        copy.copy(live)


@pytest.mark.parametrize(
    "bad", [[104729, -1], [0.5, 104729.0], [[104729]], ["104729", "x"], 104729]
)
def test_what_is_wrong_with_counts_is_said_without_them(bad: object) -> None:
    with pytest.raises(TableError) as found:
        sf.watch(2, BUDGET, 500).values(bad)  # type: ignore[arg-type]
    assert "104729" not in str(found.value)


def test_errors_are_the_same_on_neighbouring_counts() -> None:
    """Same refusals whatever the counts: too few, and after the last alert."""
    said = []
    for counts in ([7, 8], [7, 9]):
        with pytest.raises(TableError) as found:
            sf.watch(3, BUDGET, 500).values(counts)
        said.append(str(found.value))
    assert said[0] == said[1]


def test_wrong_plans_are_refused() -> None:
    for arguments, what in (
        ({"steps": 0}, "steps"),
        ({"threshold": [1, 2]}, "threshold"),
        ({"threshold": "high"}, "threshold"),
        ({"expected": float("nan")}, "expected"),
        ({"alerts": 0}, "discoveries"),
        ({"side": "left"}, "side"),
        ({"largest": 0}, "largest"),
        ({"confidence": 1}, "confidence"),
        ({"budget": 1}, "budget"),
    ):
        given = {"steps": 30, "budget": BUDGET, "threshold": 500, **arguments}
        with pytest.raises(PlanError, match=what):
            sf.watch(**given)  # type: ignore[arg-type]


def test_replaced_records_do_not_move_counts_together() -> None:
    """Under replace-one a count falls while another rises: the larger noise."""
    add, replace = (
        sf.watch(30, BUDGET, 500, neighbours=n).plan.law for n in ("add-remove", "replace-one")
    )
    assert (add.is_monotone, replace.is_monotone) == (True, False)
    assert replace.query.scale > add.query.scale


def test_a_count_is_found_in_no_file_of_the_ledger_and_in_no_text(tmp_path: Path) -> None:
    """A canary of 13 digits: no hash, time or noise has them by chance (below 1e-9).

    Scaled to the grid it must not be there either.
    """
    canary = 9_876_104_729_651
    counts = [20] * 5 + [canary] + [20] * 5
    watch = sf.watch(11, sf.Budget(epsilon="1e-6"), 10**12, alerts=2, counts=True)
    for name in ("a.ledger", "b.ledger"):
        made(tmp_path / name, sf.Budget(epsilon="1e-6"), "series")
    seen = watch.values(counts, tmp_path / "a.ledger", name="series")
    live = watch.begin(tmp_path / "b.ledger")
    for count in counts:
        live.add(count)
    files = [path.read_bytes() for path in tmp_path.iterdir()]
    assert len(files) >= 2
    for text in (str(canary), str(canary * 256)):
        assert text not in f"{watch!r}{seen!r}{live!r}{seen.frame()}{vars(live)}"
        assert all(text.encode() not in data for data in files)
