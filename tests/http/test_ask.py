# SPDX-License-Identifier: Apache-2.0
"""Single questions over HTTP: stored, free, paid for, refused; many at once share a commit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from httpx import Response

from sfumato.domain.domain import Domain
from sfumato.errors import BudgetExhausted, LedgerFrozen, SqlError
from sfumato.ledger.ledger import Ledger
from sfumato.session.client import Client
from sfumato.workload.question import Question
from sfumato_web.app import ServerState
from sfumato_web.server import batcher as batcher_module
from sfumato_web.server.responses import NewestCache
from tests.http.served import ADA, BOB, CONFIG, CORA, Clock, bearer, served, write_served
from tests.http.test_client import over

SESSION = CONFIG.replace(
    "[datasets.others]",
    "[datasets.people.session]\nepsilon = 2\nquestions = 100\nupdates = 8\n\n[datasets.others]",
)
ASK = "/datasets/people/ask"
COUNT = "SELECT COUNT(*) FROM data WHERE age >= {}"


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with served(write_served(tmp_path_factory.mktemp("asking"), SESSION)) as found:
        yield found


def test_an_answer_has_an_interval_and_comes_back_as_the_same_bytes(asking: TestClient) -> None:
    send = {"sql": COUNT.format(5)}
    first = asking.post(ASK, headers=bearer(ADA), json=send)
    assert first.status_code == 200, first.text
    answer = first.json()["answers"][0]
    assert answer["low"] <= answer["value"] <= answer["high"]
    assert answer["how"] in ("free", "paid")
    assert asking.post(ASK, headers=bearer(CORA), json=send).content == first.content
    other = {"sql": "select count(*) from people where not age < 5"}  # the same question
    same = asking.post(ASK, headers=bearer(ADA), json=other)
    assert asking.post(ASK, headers=bearer(CORA), json=other).content == same.content
    key = first.json()["key"]
    stored = asking.get(f"/datasets/people/answers/{key}", headers=bearer(CORA))
    for reply in (same, stored):  # the same answer, in the words of who asks, or in none
        assert {**answer, **_words(reply)} == reply.json()["answers"][0]


def _words(reply: Response) -> dict[str, object]:
    answer = reply.json()["answers"][0]
    return {name: answer[name] for name in ("question", "aggregate", "condition", "groups")}


def test_groups_are_one_question_in_the_shape_of_their_select(asking: TestClient) -> None:
    ledger = asking.app.server.datasets["people"].ledger
    text = "SELECT sex, COUNT(*) AS n, AVG(age) AS years, MEDIAN(age) AS middle FROM data"
    send = {"sql": f"{text} GROUP BY sex ORDER BY n DESC"}
    before = len(list(ledger.entries()))
    first = asking.post(ASK, headers=bearer(ADA), json=send)
    assert first.status_code == 200, first.text
    assert len(list(ledger.entries())) == before + 1
    (shape,) = first.json()["statements"]
    columns = {column["name"]: column for column in shape["columns"]}
    assert list(columns) == ["sex", "n", "years", "middle"]
    assert columns["n"]["values"] == sorted(columns["n"]["values"], reverse=True)
    for name in ("n", "years", "middle"):
        ends = zip(*(columns[name][part] for part in ("low", "values", "high")), strict=True)
        assert all(low <= value <= high for low, value, high in ends)
    assert first.json()["cost"]
    limited = asking.post(ASK, headers=bearer(CORA), json={"sql": send["sql"] + " LIMIT 1"})
    assert len(limited.json()["statements"][0]["columns"][0]["values"]) == 1
    assert len(list(ledger.entries())) == before + 1  # another shape of what was paid for
    key = first.json()["key"]
    stored = asking.get(f"/datasets/people/answers/{key}", headers=bearer(ADA))
    assert stored.content == first.content


def test_an_error_is_paid_for_once(asking: TestClient) -> None:
    ledger = asking.app.server.datasets["people"].ledger
    send = {"sql": COUNT.format(7), "error": 20}
    before = len(list(ledger.entries()))
    forecast = asking.post("/datasets/people/estimate", headers=bearer(ADA), json=send)
    assert forecast.status_code == 200, forecast.text
    (offer,) = forecast.json()["questions"]
    assert len(list(ledger.entries())) == before
    first = asking.post(ASK, headers=bearer(ADA), json=send)
    assert first.status_code == 200, first.text
    (answer,) = first.json()["answers"]
    assert answer["standard_error"] <= 20
    assert (answer["how"], answer["cost"]) == ("paid", offer["cost"])
    assert len(list(ledger.entries())) == before + 1
    assert asking.post(ASK, headers=bearer(CORA), json=send).content == first.content
    wider = asking.post(ASK, headers=bearer(ADA), json={**send, "error": 30}).json()["answers"][0]
    assert (wider["value"], wider["how"], wider["cost"]) == (answer["value"], "known", [])
    client = Client("http://x", ADA, transport=over(asking))
    frame = client.ask("people", COUNT.format(7), error=25).answers
    assert frame["value"].tolist() == [answer["value"]]
    assert len(list(ledger.entries())) == before + 1
    for error in (0, -1, "x", None):
        refused = asking.post(ASK, headers=bearer(ADA), json={**send, "error": error})
        assert refused.status_code == (200 if error is None else 422)
    mean = {"sql": "SELECT AVG(age) FROM data", "error": 5}
    assert asking.post(ASK, headers=bearer(ADA), json=mean).status_code == 422


def test_what_was_bought_answers_the_plain_question_as_well(asking: TestClient) -> None:
    session = asking.app.server.datasets["people"].batcher.session
    send = {"sql": COUNT.format(4)}
    first = asking.post(ASK, headers=bearer(ADA), json=send)
    assert asking.post(ASK, headers=bearer(ADA), json=send).content == first.content
    bought = asking.post(ASK, headers=bearer(ADA), json={**send, "error": 15})
    assert bought.status_code == 200, bought.text
    assert bought.json()["answers"][0]["how"] == "paid"
    after = asking.post(ASK, headers=bearer(CORA), json=send)
    (answer,), (earlier,) = after.json()["answers"], first.json()["answers"]
    assert (answer["how"], answer["cost"]) == ("known", [])
    assert answer["value"] == bought.json()["answers"][0]["value"] == session.ask(send["sql"]).value
    assert answer["high"] - answer["low"] < earlier["high"] - earlier["low"]
    assert asking.post(ASK, headers=bearer(ADA), json=send).content == after.content


def test_an_estimate_spends_nothing(asking: TestClient) -> None:
    before = asking.get("/datasets", headers=bearer(ADA)).json()
    reply = asking.post(
        "/datasets/people/estimate", headers=bearer(ADA), json={"sql": COUNT.format(11)}
    )
    assert reply.status_code == 200, reply.text
    assert reply.json()["questions"][0]["is_stored"] is False
    assert asking.get("/datasets", headers=bearer(ADA)).json() == before


def test_idempotency_keys_hold_for_questions(asking: TestClient) -> None:
    headers = bearer(ADA) | {"Idempotency-Key": "ask-1"}
    first = asking.post(ASK, headers=headers, json={"sql": COUNT.format(7)})
    again = asking.post(ASK, headers=headers, json={"sql": COUNT.format(7)})
    other = asking.post(ASK, headers=headers, json={"sql": COUNT.format(8)})
    assert first.status_code == 200
    assert again.content == first.content
    assert (other.status_code, other.json()["error"]) == (409, "key-reused")


BAD = [
    ("SELECT MAX(age) FROM data", 422, "sql", "MAX"),
    ("SELECT COUNT(*) FROM data WHERE aeg > 1", 422, "sql", "aeg"),
    ("nonsense", 422, "sql", ""),
    ("", 422, "request", "sql"),
    ("x" * 5000, 422, "request", "sql"),
]


@pytest.mark.parametrize(("text", "status", "code", "words"), BAD)
def test_what_is_no_question_is_422(
    asking: TestClient, text: str, status: int, code: str, words: str
) -> None:
    for route in ("ask", "estimate"):
        reply = asking.post(f"/datasets/people/{route}", headers=bearer(ADA), json={"sql": text})
        assert (reply.status_code, reply.json()["error"]) == (status, code)
        assert words.lower() in reply.json()["message"].lower()


def test_too_many_questions_in_one_are_413(tmp_path: Path) -> None:
    config = SESSION.replace("planning_seconds", "questions = 39\nplanning_seconds")
    with served(write_served(tmp_path / "s", config)) as client:
        send = {"sql": "SELECT age, sex, COUNT(*) FROM data GROUP BY age, sex"}
        reply = client.post(ASK, headers=bearer(ADA), json=send)
        assert (reply.status_code, reply.json()["error"]) == (413, "too-large")
        assert "40 questions" in reply.json()["message"]


def test_a_dataset_without_a_session_says_so(asking: TestClient) -> None:
    reply = asking.post("/datasets/others/ask", headers=bearer(BOB), json={"sql": COUNT.format(3)})
    assert (reply.status_code, reply.json()["error"]) == (404, "no-session")


def test_an_exhausted_allowance_is_409_and_stored_answers_stay(tmp_path: Path) -> None:
    config = SESSION.replace(
        "allowance.people = {epsilon = 2}", "allowance.people = {epsilon = 1e-9}"
    )
    with served(write_served(tmp_path / "s", config)) as client:
        ada = Client("http://x", ADA, transport=over(client))
        cora = Client("http://x", CORA, transport=over(client))
        with pytest.raises(BudgetExhausted):
            ada.ask("people", COUNT.format(5))
        reply = client.post(ASK, headers=bearer(ADA), json={"sql": COUNT.format(5)})
        assert reply.status_code == 409
        assert reply.json()["remaining"]["pure_epsilon"] <= 1e-9
        paid = cora.ask("people", COUNT.format(5))
        assert ada.ask("people", COUNT.format(5)).document == paid.document


def test_a_frozen_dataset_answers_stored_questions_only(tmp_path: Path) -> None:
    with served(write_served(tmp_path / "s", SESSION)) as client:
        ada = Client("http://x", ADA, transport=over(client))
        cora = Client("http://x", CORA, transport=over(client))
        first = ada.ask("people", COUNT.format(5))
        cora.freeze("people", "review")
        with pytest.raises(LedgerFrozen):
            ada.ask("people", COUNT.format(6))
        assert ada.ask("people", COUNT.format(5)).document == first.document
        cora.unfreeze("people", "done")
        assert len(ada.ask("people", COUNT.format(6)).answers) == 1
        with pytest.raises(SqlError):
            ada.ask("people", "SELECT MAX(age) FROM data")


def test_sessions_survive_a_restart(tmp_path: Path) -> None:
    path = write_served(tmp_path / "s", SESSION)
    with served(path) as client:
        first = client.post(ASK, headers=bearer(ADA), json={"sql": COUNT.format(5)})
    with served(path) as client:
        again = client.post(ASK, headers=bearer(ADA), json={"sql": COUNT.format(5)})
        key = first.json()["key"]
        stored = client.get(f"/datasets/people/answers/{key}", headers=bearer(ADA))
    assert again.content == first.content
    answer = first.json()["answers"][0]
    assert {**answer, **_words(stored)} == stored.json()["answers"][0]
    assert Ledger.open(path.parent / "people.ledger").verify().is_whole


MIXED = SESSION.replace("budget = {epsilon = 4}", "budget = {epsilon = 4, delta = 1e-9}").replace(
    "epsilon = 2\nquestions", "epsilon = 1\ndelta = 1e-9\nquestions"
)


def test_a_session_with_gaussian_noise_leaves_the_rest_of_the_table_to_pure_noise(
    tmp_path: Path,
) -> None:
    """Its first paid answer turned everything that was left into Gaussian noise: 0.53 was pure."""
    path = write_served(tmp_path / "s", MIXED)
    laplace = {
        "workload": [{"marginals": 1}],
        "budget": {"epsilon": 2, "delta": "1e-9"},
        "mechanism": "laplace",
    }
    with served(path) as client:
        for age in range(1, 19):
            client.post(ASK, headers=bearer(CORA), json={"sql": COUNT.format(age)})
        book = client.app.server.datasets["people"].ledger  # type: ignore[attr-defined]
        assert any(" epoch " in entry.key for entry in book.entries())
        assert book.budget.pure == 3
        assert book.remaining().pure_epsilon == 3
        plan = client.post("/datasets/people/plan", headers=bearer(CORA), json=laplace).json()
        assert plan["fits"]
        released = client.post("/datasets/people/release", headers=bearer(CORA), json=laplace)
        assert released.status_code == 200
    with served(path) as client:  # the lanes are the ledger's: the file need not repeat them
        book = client.app.server.datasets["people"].ledger  # type: ignore[attr-defined]
        assert book.budget.pure == 3
    path.write_text(path.read_text().replace("epsilon = 4, delta", "epsilon = 3.5, delta"))
    with served(path) as client:
        book = client.app.server.datasets["people"].ledger  # type: ignore[attr-defined]
        assert (book.budget.epsilon, book.budget.pure) == (3.5, 2.5)
        assert book.remaining().pure_epsilon == pytest.approx(0.5, abs=1e-3)
        assert book.verify().problems == ()


def test_an_analyst_whose_allowance_covers_no_epoch_is_not_tested(tmp_path: Path) -> None:
    """Whoever began the epoch: their question might end it, and could not be charged to them."""
    small = SESSION.replace(
        "allowance.people = {epsilon = 2}", "allowance.people = {epsilon = 0.01}"
    )
    with served(write_served(tmp_path / "s", small)) as client:
        first = client.post(ASK, headers=bearer(CORA), json={"sql": COUNT.format(5)})
        assert first.status_code == 200
        for age in range(1, 5):
            refused = client.post(ASK, headers=bearer(ADA), json={"sql": COUNT.format(age)})
            assert refused.status_code == 409
            assert "allowance of analyst 'ada'" in refused.text
        assert client.post(ASK, headers=bearer(ADA), json={"sql": COUNT.format(5)}).is_success
        book = client.app.server.datasets["people"].ledger  # type: ignore[attr-defined]
        assert book.allowance("ada").account.spent == 0
        listed = client.get("/datasets", headers=bearer(ADA)).json()
        assert [d["paid_answers"] for d in listed] == [0]


def test_questions_of_many_threads_are_all_answered_and_equal_ones_alike(
    asking: TestClient,
) -> None:
    server: ServerState = asking.app.server  # type: ignore[attr-defined]
    bodies: dict[tuple[int, int], bytes] = {}

    def run(thread: int) -> None:
        for age in range(1, 19):
            reply = asking.post(
                ASK, headers=bearer(ADA if thread % 2 else CORA), json={"sql": COUNT.format(age)}
            )
            bodies[thread, age] = reply.content if reply.status_code == 200 else b"refused"

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(bodies) == 4 * 18
    for age in range(1, 19):
        assert len({bodies[i, age] for i in range(4)} - {b"refused"}) <= 1
    assert server.datasets["people"].ledger.verify().is_whole


def test_a_failure_inside_a_batch_reaches_everybody_who_waits(
    asking: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server: ServerState = asking.app.server  # type: ignore[attr-defined]

    def broken(*_: object, **__: object) -> None:
        raise ValueError("104729")

    monkeypatch.setattr(server.datasets["people"].batcher.session, "ask_many", broken)
    reply = asking.post(ASK, headers=bearer(ADA), json={"sql": COUNT.format(19)})
    assert (reply.status_code, reply.json()["error"]) == (500, "unexpected")
    assert "104729" not in reply.text + caplog.text


def test_texts_that_were_read_are_remembered_up_to_a_number_of_bytes(
    asking: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: ServerState = asking.app.server  # type: ignore[attr-defined]
    held = server.datasets["people"].batcher
    few = NewestCache[batcher_module.ParsedText](most_bytes=5_000, nbytes=lambda read: read.nbytes)
    monkeypatch.setattr(held, "_texts", few)
    texts = [f"SELECT COUNT(*) FROM data WHERE age < {age}" for age in range(1, 15)]
    for text in texts:
        held.read(text)
    assert 1 <= len(held._texts) <= 5
    assert few.held == sum(read.nbytes for read in few._things.values())
    assert held.read(texts[-1]) is held.read(texts[-1])


def test_what_waits_for_a_session_keeps_nobody_else_waiting_and_leaves_on_the_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a question is counted its session is locked; the loop of the server is not."""
    clock = Clock()
    with served(write_served(tmp_path / "served", SESSION), clock) as client:
        server: ServerState = client.app.server
        people = server.datasets["people"]
        state, looked = people.batcher.session._state, people.on_session
        begun = threading.Event()

        async def seen(*given: object) -> object:
            begun.set()
            return await looked(*given)

        monkeypatch.setattr(people, "on_session", seen)
        for path, status in (("/datasets", 200), (f"/datasets/people/answers/{'0' * 64}", 404)):
            waiting = _Got(client, path)
            slept = len(clock.slept)
            begun.clear()
            with state.lock:
                waiting.start()
                assert begun.wait(600)
                healthy = _Got(client, "/health")
                healthy.start()
                healthy.join(600)  # at once, unless the loop waits for the lock
                assert healthy.status == 200
                assert waiting.status is None
            waiting.join()
            assert waiting.status == status
            assert len(clock.slept) == slept + 1
        send = {"sql": COUNT.format(3)}
        planned = {"workload": [{"marginals": 1}], "budget": {"epsilon": 0.1}}
        why = {"reason": "a look"}
        for who, method, route, body, more in (
            (ADA, "POST", "estimate", send, 1),
            (ADA, "POST", "plan", planned, 1),
            (ADA, "GET", "ledger", None, 1),
            (CORA, "POST", "freeze", why, 1),
            (CORA, "POST", "unfreeze", why, 1),
            (ADA, "GET", "schema", None, 0),  # it waits for nobody
        ):
            slept = len(clock.slept)
            path = f"/datasets/people/{route}"
            assert client.request(method, path, headers=bearer(who), json=body).is_success, route
            assert len(clock.slept) == slept + more, route


class _Got(threading.Thread):
    """A request in a thread of its own."""

    def __init__(self, client: TestClient, path: str) -> None:
        super().__init__(daemon=True)
        self.client, self.path, self.status = client, path, None

    def run(self) -> None:
        self.status = self.client.get(self.path, headers=bearer(ADA)).status_code


def test_a_text_that_two_read_at_once_is_counted_once(
    asking: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = asking.app.server.datasets["people"].batcher
    text, plain = COUNT.format(13) + " ", batcher_module.plain_count

    def overtaken(domain: Domain, given: str) -> Question | None:
        """Another thread reads the same text meanwhile."""
        monkeypatch.setattr(batcher_module, "plain_count", plain)
        ours.read(given)
        return plain(domain, given)

    monkeypatch.setattr(batcher_module, "plain_count", overtaken)
    assert ours.read(text).key == ours.read(text).key
    assert ours._texts.held == sum(read.nbytes for read in ours._texts._things.values())
