# SPDX-License-Identifier: Apache-2.0
"""All that was measured, in one estimate: the scope, releases, and what was bought."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import LedgerError, PlanError
from sfumato.ledger.ledger import Ledger
from sfumato.release.object_file import forecast_bytes
from sfumato.session.purchases import blue_weights, gram
from sfumato.session.scope import ScopeMeasured
from sfumato.workload.question import Question, questions_of
from tests.shared.ledger_home import made

DOMAIN = sf.Domain(
    [sf.Integer("age", 0, 7), sf.Category("sex", ["F", "M"]), sf.Category("kind", ["a", "b", "c"])]
)
PURE, GAUSSIAN = sf.Budget(epsilon=8), sf.Budget(mu=2)
ROWS = 1200
PEOPLE = pd.DataFrame(
    {
        "age": (np.arange(ROWS) * 7) % 8,
        "sex": np.where(np.arange(ROWS) % 3 == 0, "F", "M"),
        "kind": np.array(["a", "b", "c"])[(np.arange(ROWS) // 5) % 3],
    }
)


def _count(condition: str) -> str:
    return f"SELECT COUNT(*) FROM t WHERE {condition}"


def _opened(ledger: Path | None, budget: sf.Budget, **more: object) -> sf.Session:
    if ledger is not None and not ledger.exists():
        made(
            str(ledger), sf.Budget(mu=4) if not budget.is_pure else sf.Budget(epsilon=20), "people"
        )
    chosen = {"records": ROWS, "questions": 100, "updates": 4, "name": "people"} | more
    return sf.open_session(PEOPLE, DOMAIN, budget, ledger=ledger, **chosen)  # type: ignore[arg-type]


def _vector(question: Question) -> np.ndarray:
    """The query over all cells of the domain."""
    table = question.coefficients() * 2.0**-question.bits
    wide = tuple(slice(None) if n in question.attributes else None for n in DOMAIN.names)
    return np.broadcast_to(table[wide], DOMAIN.shape).reshape(-1)


@pytest.mark.parametrize("budget", [GAUSSIAN, PURE], ids=["gaussian", "pure"])
def test_answers_that_were_bought_add_up(budget: sf.Budget, tmp_path: Path) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(ledger, budget) as session:
        women = session.ask(_count("sex = 'F' AND kind = 'a'"), error=8)
        men = session.ask(_count("sex = 'M' AND kind = 'a'"), error=6)
        debits = len(Ledger.open(ledger).entries())
        both = session.ask(_count("kind = 'a'"))
        assert both.how == "known"
        assert both.standard_error == pytest.approx(
            np.hypot(women.standard_error, men.standard_error)
        )
        assert both.value == pytest.approx(women.value + men.value)
        assert len(Ledger.open(ledger).entries()) == debits
        # Bought itself, it makes its parts sharper.
        session.ask(_count("kind = 'a'"), error=5)
        better = session.ask(_count("sex = 'F' AND kind = 'a'"))
        assert better.standard_error < women.standard_error * 0.99
        if not budget.is_pure:
            variances = [women.standard_error**2, men.standard_error**2]
            kind = session._state._purchases[both.key][0].law.standard_error ** 2
            design = np.array([[1.0, 0], [0, 1], [1, 1]])
            least = np.linalg.inv(design.T @ (design / np.array([*variances, kind])[:, None]))
            assert better.standard_error**2 == pytest.approx(least[0, 0])
    with _opened(ledger, budget) as session:  # the same bits after a restart
        again = session.ask(_count("sex = 'F' AND kind = 'a'"))
        assert (again.value, again.low, again.high) == (better.value, better.low, better.high)


def test_what_was_bought_makes_other_answers_of_the_scope_sharper() -> None:
    with _opened(None, GAUSSIAN, scope=2, scope_share=0.2) as session:
        before = session.ask(_count("age < 2"))
        other = session.ask(_count("age < 3"))
        session.ask(_count("age < 3"), error=other.standard_error / 5)
        after = session.ask(_count("age < 2"))
        assert after.how == "known"
        assert after.standard_error < before.standard_error * 0.95
        assert after.safe_high - after.safe_low > after.high - after.low


@pytest.mark.parametrize("budget", [GAUSSIAN, PURE], ids=["gaussian", "pure"])
def test_the_estimate_is_that_of_least_squares_over_all_cells(budget: sf.Budget) -> None:
    """Everything that was measured of the questions at hand, solved at once over the cells."""
    work = sf.marginals(DOMAIN, 2)
    with _opened(None, budget, scope=work, scope_share=0.3) as session:
        texts = ["age < 3", "age < 3 AND sex = 'F'", "sex = 'F'", "sex = 'F' AND kind <> 'b'"]
        for text in texts[:3]:
            session.ask(_count(text), error=session.ask(_count(text)).standard_error * 0.8)
        state = session._state
        scope = state.scope
        asked = [session.read(_count(text)) for text in texts]
        ways = [scope.way(q) for q in asked]
        sigma = scope.covariance([pull for _, pull in ways])
        prior = np.array([number.value for number, _ in ways])
        bought = [state._purchases[q.key][0] for q in asked[:3]]
        noise = np.diag([one.law.standard_error**2 for one in bought])
        gain = sigma[:, :3] @ np.linalg.inv(sigma[:3, :3] + noise)
        values = prior + gain @ (np.array([one.value for one in bought]) - prior[:3])
        errors = np.sqrt(np.diagonal(sigma - gain @ sigma[:3]))
        for question, value, error in zip(asked, values, errors, strict=True):
            number = state.knowledge(question)
            assert number.value == pytest.approx(value, abs=1e-6)
            assert number.standard_error == pytest.approx(error, rel=1e-6)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_blue_weights_are_those_of_least_squares(seed: int) -> None:
    draw = np.random.default_rng(seed)
    design = draw.integers(-1, 2, (7, 3)).astype(float)
    variances = draw.uniform(0.1, 9, 7)
    target = design.T @ draw.integers(-1, 2, 7).astype(float)  # told by some combination
    weights = blue_weights(design, np.diag(variances), target)
    assert weights is not None
    np.testing.assert_allclose(design.T @ weights, target, atol=1e-8)
    inverse = np.linalg.pinv(design.T @ (design / variances[:, None]))
    assert (weights**2) @ variances == pytest.approx(target @ inverse @ target, abs=1e-8)


def test_blue_weights_of_what_nothing_tells() -> None:
    assert blue_weights(np.array([[1.0, 0.0]]), np.eye(1), np.array([0.0, 1.0])) is None


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(["age < 3", "sex = 'F'", "age = 2 AND kind = 'b'", "kind IN ('a', 'c')"]))
def test_inner_products_are_those_over_all_cells(text: str) -> None:
    (one,) = questions_of(sf.sql(DOMAIN, _count(text)))
    for other in ("age > 1 AND sex = 'M'", "kind = 'a'", "age = 2"):
        (two,) = questions_of(sf.sql(DOMAIN, _count(other)))
        assert gram(one, two) == pytest.approx(float(np.mean(_vector(one) * _vector(two))))


def test_a_question_that_differs_in_one_cell_is_not_told() -> None:
    """The twin of combinations: one cell more, and nothing is known."""
    with _opened(None, GAUSSIAN) as session:
        session.ask(_count("sex = 'F'"), error=5)
        session.ask(_count("sex = 'M'"), error=5)
        state = session._state
        assert state.knowledge(session.read("SELECT COUNT(*) FROM t")) is not None
        one_less = session.read(_count("NOT (age = 7 AND sex = 'M' AND kind = 'c')"))
        assert state.knowledge(one_less) is None


def test_answers_that_epochs_paid_for_are_not_combined_with_others() -> None:
    """Whether they exist was decided by noise (docs/proofs/online.md, Theorem 10)."""
    with _opened(None, sf.Budget(mu=40)) as session:
        paid = session.ask(_count("sex = 'F' AND kind = 'a'"))
        assert paid.how == "paid"
        session.ask(_count("sex = 'M' AND kind = 'a'"), error=2)
        assert session._state.knowledge(session.read(_count("kind = 'a'"))) is None


def test_cells_with_noise_in_common_are_not_combined() -> None:
    both = "SELECT sex, COUNT(*) AS n FROM t WHERE age < 4 GROUP BY sex"
    totals = sf.prefixes(DOMAIN, "age")
    with _opened(None, GAUSSIAN) as session:
        session.ask(both)
        assert session.ask(_count("age < 4")).how == "known"  # disjoint cells add up
    with _opened(None, GAUSSIAN) as session:
        session.ask(totals)
        assert session._state.knowledge(session.read(_count("age = 3"))) is None


# Releases in the same ledger


@pytest.fixture(params=[GAUSSIAN, PURE], ids=["gaussian", "pure"])
def budget(request: pytest.FixtureRequest) -> sf.Budget:
    """One with Gaussian, one with Laplace noise."""
    return request.param


def _release(ledger: Path, budget: sf.Budget) -> sf.Release:
    plan = sf.plan(sf.marginals(DOMAIN, 2), budget)
    return plan.release(PEOPLE, ledger=ledger, name="people")


def test_a_release_in_the_ledger_answers_for_nothing(tmp_path: Path, budget: sf.Budget) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(ledger, budget, releases=()) as session:
        release = _release(ledger, budget)
        session.use(release)
        session.use(release)  # once is enough
        debits = len(Ledger.open(ledger).entries())
        answer = session.ask(_count("sex = 'F' AND kind <> 'b'"))
        assert (answer.how, answer.cost) == ("known", ())
        listed = release.combine({"sex x kind": [1, 0, 1, 0, 0, 0]})
        assert answer.standard_error == pytest.approx(listed.standard_error)
        assert session._state.knowledge(
            session.read(_count("sex = 'F' AND kind <> 'b'"))
        ).value == (pytest.approx(listed.value))
        groups = session.ask("SELECT sex, COUNT(*) AS n FROM t GROUP BY sex")
        assert groups.how == "known"
        assert "release" in groups.why
        # Only what the release lacks is bought.
        wanted = answer.standard_error / 2
        cost = session.estimate(_count("sex = 'F' AND kind <> 'b'"), error=wanted).cost
        if not budget.is_pure:
            assert float(cost.mu_squared) == pytest.approx(3 / answer.standard_error**2, rel=0.01)
        assert len(Ledger.open(ledger).entries()) == debits


def test_a_release_and_a_scope_are_weighed_by_their_noise(tmp_path: Path) -> None:
    ledger = tmp_path / "people.ledger"
    text = _count("age < 4 AND sex = 'F'")
    with _opened(ledger, GAUSSIAN, scope=2, scope_share=0.5) as session:
        alone = session.ask(text)
        release = _release(ledger, GAUSSIAN)
    with _opened(ledger, GAUSSIAN, scope=2, scope_share=0.5, releases=[release]) as session:
        both = session.ask(text)
        (told,) = [s.number(session.read(text)) for s in session._state._knowledge.sources[1:]]
        assert both.standard_error**-2 == pytest.approx(
            alone.standard_error**-2 + told.standard_error**-2
        )
        assert both.safe_low is not None
        assert both.safe_high - both.safe_low > both.high - both.low


def test_releases_of_the_ledger_are_used_as_they_come(tmp_path: Path, budget: sf.Budget) -> None:
    """Also those that are made while the session is open; nothing has to be passed."""
    ledger, text = tmp_path / "people.ledger", _count("sex = 'F' AND kind <> 'b'")
    with _opened(ledger, budget) as session:
        assert session.releases == ()
        release = _release(ledger, budget)
        debits = len(Ledger.open(ledger).entries())
        answer = session.ask(text)
        (key,) = session.releases
        assert key == Ledger.open(ledger).entries()[-1].key
        assert "1 release of its ledger in use" in repr(session)
        assert (answer.how, answer.cost) == ("known", ())
        assert "release" in answer.why
        listed = release.combine({"sex x kind": [1, 0, 1, 0, 0, 0]})
        assert answer.standard_error == pytest.approx(listed.standard_error)
        assert session.estimate(text, error=answer.standard_error).cost.parts == ()
    with _opened(ledger, budget) as session:  # as after a restart
        again = session.ask(text)
        assert (again.value, again.low, again.high) == (answer.value, answer.low, answer.high)
    with _opened(ledger, budget, releases=()) as session:
        assert session.releases == ()
        assert session.estimate(text).standard_error is None
    assert len(Ledger.open(ledger).entries()) == debits


def test_only_releases_that_fit_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of other domains, adaptive ones, of sessions, and of versions that did not say what reads."""
    ledger = tmp_path / "people.ledger"
    with _opened(ledger, GAUSSIAN, label="other") as session:
        session.ask("SELECT sex, COUNT(*) AS n FROM t GROUP BY sex")
    smaller = sf.marginals(sf.Domain({"age": 8}), 1)
    sf.plan(smaller, GAUSSIAN).release(PEOPLE, ledger=ledger, name="people")
    with monkeypatch.context() as patch:
        patch.setattr("sfumato.release.object_file.forecast_bytes", lambda _: None)
        old = _release(ledger, sf.Budget(mu=0.5))
    with _opened(ledger, GAUSSIAN) as session:
        assert session.releases == ()
        session.use(old)
        assert len(session.releases) == 1
        assert session.ask(_count("sex = 'F'")).how == "known"
    assert Ledger.open(ledger).verify().is_whole


def test_what_reads_a_release_is_public_and_has_nobodys_words() -> None:
    """It is a function of the plan, made before anything is counted."""
    for budget in (GAUSSIAN, PURE):
        work = sf.sql(DOMAIN, "SELECT kind AS secret, COUNT(*) AS hidden FROM t GROUP BY kind")
        plain = sf.sql(DOMAIN, "SELECT kind, COUNT(*) FROM u GROUP BY kind")
        written = [forecast_bytes(sf.plan(w, budget).forecast) for w in (work, plain)]
        assert written[0] == written[1]
        assert written[0] is not None
        with ZipFile(BytesIO(written[0])) as file:
            text = b"".join(file.read(name) for name in file.namelist())
        assert b"secret" not in text
        assert b"hidden" not in text


def test_joint_intervals_hold_for_however_many_sources(tmp_path: Path) -> None:
    """The i-th has its part of the chance for ever, whatever comes after it."""
    ledger = tmp_path / "people.ledger"
    question = _count("sex = 'F'")
    with _opened(ledger, GAUSSIAN, scope=2, scope_share=0.5) as session:
        scope = session._state.scope
        assert scope is not None
        alone = scope.number(session.read(question)).joint_half_width
        made_up = ScopeMeasured(scope.forecast, scope.measured, scope.level, rank=2)
        assert made_up.number(session.read(question)).joint_half_width > alone
        _release(ledger, GAUSSIAN)
        session.ask(question)
        assert len(session.releases) == 1
        assert scope.number(session.read(question)).joint_half_width == alone


def test_groups_are_answered_number_by_number_where_that_is_better(tmp_path: Path) -> None:
    """Two releases tell every group: together they are better than either."""
    ledger, text = tmp_path / "people.ledger", "SELECT sex, COUNT(*) AS n FROM t GROUP BY sex"
    with _opened(ledger, GAUSSIAN) as session:
        _release(ledger, sf.Budget(mu=0.5))
        one = session.ask(text)
        _release(ledger, sf.Budget(mu=0.4))
        two = session.ask(text)
        assert [one.how, two.how] == ["known", "known"]
        widths = [[a.high - a.low for a in answer.answers] for answer in (one, two)]
        assert all(b < 0.9 * a for a, b in zip(*widths, strict=True))
        assert two.answers[0].value == session.ask(_count("sex = 'F'")).value


def test_releases_are_read_from_their_folder(tmp_path: Path) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(ledger, GAUSSIAN, releases=()) as session:
        _release(ledger, GAUSSIAN).save(tmp_path / "out")
        session.use(sf.read_release(tmp_path / "out"))
        assert session.ask(_count("sex = 'F'")).how == "known"


def test_releases_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    ledger, other = tmp_path / "people.ledger", tmp_path / "other.ledger"
    with _opened(ledger, GAUSSIAN) as session:
        with pytest.raises(PlanError, match="uses releases, got"):
            session.use("folder")  # type: ignore[arg-type]
        made(str(other), sf.Budget(mu=4), "people")
        with pytest.raises(LedgerError, match="no debit"):
            session.use(_release(other, GAUSSIAN))
        smaller = sf.Domain({"age": 8})
        plan = sf.plan(sf.marginals(smaller, 1), GAUSSIAN)
        with pytest.raises(PlanError, match="another domain"):
            session.use(plan.release(PEOPLE, ledger=ledger, name="people"))
        swapped = sf.plan(sf.marginals(DOMAIN, 1), sf.Budget(mu=0.5), "replace-one")
        with pytest.raises(PlanError, match="other neighbours"):
            session.use(swapped.release(PEOPLE))
    with (
        sf.open_session(None, DOMAIN, GAUSSIAN, dummy=True) as session,
        pytest.raises(PlanError, match="made-up"),
    ):
        session.use(sf.plan(sf.marginals(DOMAIN, 1), GAUSSIAN).release(PEOPLE))


# The estimate beside what was measured


def test_the_estimate_has_a_record_of_how_far_it_was(tmp_path: Path) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(ledger, GAUSSIAN) as session:
        nothing = session.calibration()
        assert (nothing.measured.count, nothing.found_wrong.error) == (0, None)
        assert nothing.describe() == "not compared with any measurement yet"
        text = _count("sex = 'F' AND kind = 'a'")
        session.ask(_count("sex = 'F'"), error=8)  # the number of records is known from here on
        bought = session.ask(text, error=8)
        forecast = session.estimate(text, error=8)
        assert forecast.value == pytest.approx(bought.value)  # unbiased
        if forecast.estimate is not None:
            assert abs(forecast.estimate - bought.value) < 100
        session.ask(_count("age < 3 AND sex = 'M'"))
        record = session.calibration()
        assert record.measured.count == 2
        assert record.measured.noise == pytest.approx(8, rel=0.01)
        assert record.measured.rmse >= record.measured.error >= 0
        assert "typically" in record.describe() or record.measured.error == 0
    with _opened(ledger, GAUSSIAN) as session:  # the same after a restart
        assert session.calibration() == record


def test_the_estimate_of_a_session_is_made_when_it_is_needed(tmp_path: Path) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(ledger, GAUSSIAN, scope=2) as session:
        session.ask(_count("sex = 'F'"))
        assert session._state._estimate is None  # known answers do without
        assert session.estimate(_count("sex = 'F'")).estimate is not None
        assert session._state._estimate is not None
