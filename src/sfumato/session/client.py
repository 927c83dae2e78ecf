# SPDX-License-Identifier: Apache-2.0
"""`Client` asks a sfumato server from Python.

    import sfumato as sf
    client = sf.Client("https://stats.example.org", token)
    client.plan("adult", [{"marginals": 1}], epsilon=0.5, delta=1e-9)["rmse"]
    client.release("adult", [{"marginals": 1}], epsilon=0.5, delta=1e-9).answers
    client.ask("adult", "SELECT COUNT(*) FROM data WHERE age >= 65").answers

Importing it needs the standard library only; answers as dataframes need pandas, when they are
read. A request that gets lost or is told to wait is sent again
with the same idempotency key, so it is paid for at most once. Refusals are the errors that the
same call would raise on the server.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Final, Literal, overload
from urllib.parse import quote, urlsplit

from sfumato.errors import (
    BudgetError,
    BudgetExhausted,
    LedgerFrozen,
    PlanError,
    SchemaError,
    ServerError,
    SfumatoError,
    SqlError,
    TooLarge,
    WorkloadError,
)
from sfumato.session.session_limits import LIMITS
from sfumato.text import shown

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Client", "Reply", "ServerAnswer", "ServerJob", "Transport"]


_ERRORS: Final[dict[str, type[SfumatoError]]] = {
    "budget": BudgetError,
    "budget-exhausted": BudgetExhausted,
    "frozen": LedgerFrozen,
    "plan": PlanError,
    "request": SchemaError,
    "sql": SqlError,
    "too-large": TooLarge,
    "workload": WorkloadError,
}
_AGAIN: Final = (429, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: status, headers (lower case) and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Transport = Callable[[str, str, Mapping[str, str], bytes | None], Reply]
"""(method, path, headers, body) -> Reply; raises OSError or HTTPException if it gets lost."""


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """Answers as a dataframe, with what the server said about them."""

    key: str
    answers: pd.DataFrame
    document: Mapping[str, object]

    def statement(self, which: int = 0) -> pd.DataFrame:
        """The answer of a SELECT in its own shape: columns as selected, in order.

        Beside a noisy column ``n`` stand ``n_low`` and ``n_high``, the ends of its interval.

        Args:
            which: The number of the SELECT among those that were asked, from 0.

        Returns:
            One row per group that HAVING and LIMIT leave.

        Raises:
            WorkloadError: There is no such SELECT.
        """
        import pandas as pd

        shapes = self.document.get("statements")
        number = len(shapes) if isinstance(shapes, list) else 0
        if isinstance(which, bool) or which not in range(number):
            raise WorkloadError(
                f"there is no statement {shown(which)}; of those asked in SQL there are {number}, "
                "numbered from 0; answers has all that was released"
            )
        assert isinstance(shapes, list)  # noqa: S101
        columns: dict[str, object] = {}
        for column in shapes[which]["columns"]:
            name = column["name"]
            columns[name] = column["values"]
            if column["low"] is not None:
                columns |= {f"{name}_low": column["low"], f"{name}_high": column["high"]}
        return pd.DataFrame(columns)


class ServerJob:
    """A release that goes on when nobody waits; it can be looked at from anywhere by its id.

    Args:
        client: Who asks.
        document: What the server said of it.
    """

    def __init__(self, client: Client, document: Mapping[str, object]) -> None:
        self._client, self._last = client, document

    @property
    def id(self) -> str:
        """Its name at the server."""
        return str(self._last["id"])

    def status(self) -> Mapping[str, object]:
        """How far it is now: its state, the step, about how long that step takes.

        Returns:
            What the server says of it; ``state`` is waiting, working, paying, done, failed,
            cancelled or lost.

        Raises:
            ServerError: The server refuses or cannot be reached.
        """
        self._last = self._client._document("GET", f"/jobs/{self.id}")
        return self._last

    def cancel(self) -> Mapping[str, object]:
        """Stop it before it pays; nothing is spent.

        Returns:
            What the server says of it.

        Raises:
            ServerError: It pays already, or is over.
        """
        self._last = self._client._document("DELETE", f"/jobs/{self.id}")
        return self._last

    def result(
        self,
        seconds: float | None = None,
        *,
        progress: Callable[[Mapping[str, object]], object] | None = None,
    ) -> ServerAnswer:
        """Wait for the answers.

        Args:
            seconds: How long at most; until the job is over if None.
            progress: Called with each `status`.

        Returns:
            The answers, as `Client.release` returns them.

        Raises:
            BudgetExhausted: The cost does not fit what is left.
            ServerError: It failed, was cancelled, or is not over in time; it goes on then.
        """
        waited, pause = 0.0, LIMITS.job_pause
        while self.status()["state"] in ("waiting", "working", "paying"):
            if progress is not None:
                progress(self._last)
            if seconds is not None and waited >= seconds:
                raise ServerError(
                    f"the job {self.id} is not over after {waited:.0f} s, it is "
                    f"{self._last['state']}; ask for its result later"
                )
            self._client._sleep(pause)
            waited, pause = waited + pause, min(LIMITS.job_pause_most, 1.5 * pause)
        if progress is not None:
            progress(self._last)
        return _read(self._client._document("GET", f"/jobs/{self.id}/result"))

    def __repr__(self) -> str:
        about = self._last
        return f"ServerJob({self.id!r}, {about['kind']} of {about['dataset']}: {about['state']})"


class Client:
    """A server and a token. ``tries`` is how often a request is sent at most.

    Args:
        url: The address of the server.
        token: Who asks, as the curator handed it out.
        tries: How often a request is sent at most.
        timeout: Seconds to wait for an answer.
        transport: What sends requests; HTTP if None.
        sleep: What waits between tries.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        tries: int = 5,
        timeout: float = 300.0,
        transport: Transport | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        if tries < 1:
            raise SchemaError(f"tries must be a whole number of at least 1, got {tries!r}")
        self._token, self._tries, self._sleep = token, tries, sleep
        self._transport = transport or _connection(url, timeout)

    def datasets(self) -> pd.DataFrame:
        """The datasets that are open to this token, one row each.

        Returns:
            One row per dataset.

        Raises:
            ServerError: The server refuses or cannot be reached.
        """
        return self._rows("/datasets")

    def schema(self, dataset: str) -> Mapping[str, object]:
        """What the records of a dataset may look like.

        Args:
            dataset: The name of a dataset.

        Returns:
            The ``[domain]`` of the dataset.

        Raises:
            ServerError: The server refuses or cannot be reached.
        """
        return self._document("GET", _path(dataset, "schema"))

    def plan(
        self,
        dataset: str,
        workload: Sequence[Mapping[str, object]],
        *,
        epsilon: float | str | None = None,
        delta: float | str | None = None,
        rho: float | str | None = None,
        mu: float | str | None = None,
        objective: str = "rmse",
        mechanism: str | None = None,
    ) -> Mapping[str, object]:
        """The forecast of a release: errors, cost, whether it fits; costs nothing.

        Args:
            dataset: The name of a dataset.
            workload: Entries as in the ``[[workload]]`` of a spec.
            epsilon: The epsilon of the budget.
            delta: Its delta.
            rho: The budget in rho-zCDP.
            mu: The budget in mu-GDP.
            objective: What is made small: ``"rmse"`` or ``"max"``.
            mechanism: The name of one mechanism; None for the best.

        Returns:
            The forecast, as JSON.

        Raises:
            ServerError: The server refuses or cannot be reached.
        """
        request = _release(workload, epsilon, delta, rho, mu, objective, mechanism)
        return self._document("POST", _path(dataset, "plan"), request)

    @overload
    def release(
        self,
        dataset: str,
        workload: Sequence[Mapping[str, object]],
        *,
        epsilon: float | str | None = None,
        delta: float | str | None = None,
        rho: float | str | None = None,
        mu: float | str | None = None,
        objective: str = "rmse",
        mechanism: str | None = None,
        project: bool | str = True,
        level: float = 0.95,
        shares: bool = False,
        key: str | None = None,
        wait: Literal[True] = True,
    ) -> ServerAnswer: ...

    @overload
    def release(
        self,
        dataset: str,
        workload: Sequence[Mapping[str, object]],
        *,
        epsilon: float | str | None = None,
        delta: float | str | None = None,
        rho: float | str | None = None,
        mu: float | str | None = None,
        objective: str = "rmse",
        mechanism: str | None = None,
        project: bool | str = True,
        level: float = 0.95,
        shares: bool = False,
        key: str | None = None,
        wait: Literal[False],
    ) -> ServerJob: ...

    def release(
        self,
        dataset: str,
        workload: Sequence[Mapping[str, object]],
        *,
        epsilon: float | str | None = None,
        delta: float | str | None = None,
        rho: float | str | None = None,
        mu: float | str | None = None,
        objective: str = "rmse",
        mechanism: str | None = None,
        project: bool | str = True,
        level: float = 0.95,
        shares: bool = False,
        key: str | None = None,
        wait: bool = True,
    ) -> ServerAnswer | ServerJob:
        """Pay for a workload, or get its stored answers; ``key`` is the idempotency key.

        Args:
            dataset: The name of a dataset.
            workload: Entries as in the ``[[workload]]`` of a spec.
            epsilon: The epsilon of the budget.
            delta: Its delta.
            rho: The budget in rho-zCDP.
            mu: The budget in mu-GDP.
            objective: What is made small: ``"rmse"`` or ``"max"``.
            mechanism: The name of one mechanism; None for the best.
            project: As in `Plan.release`.
            level: The probability with which an interval holds the truth.
            shares: Whether shares of the records stand beside the counts (``share``, ``share_low``
                and so on); refused by the server where their number is private.
            key: The idempotency key; a new one if None.
            wait: Whether to wait for the answers. If not, a job is returned at once, which goes on
                by itself: `ServerJob.status`, `ServerJob.cancel` before it pays, and
                `ServerJob.result`.

        Returns:
            The answers as a dataframe, with what the server says of them; or a job.

        Raises:
            BudgetExhausted: The cost does not fit what is left.
            LedgerFrozen: The curator froze the dataset.
            ServerError: The server refuses or cannot be reached.
        """
        request = _release(workload, epsilon, delta, rho, mu, objective, mechanism)
        request |= {"project": project, "level": level}
        if shares:
            request["shares"] = True
        if not wait:
            headers = {"Prefer": "respond-async", "Idempotency-Key": key or secrets.token_hex(16)}
            return ServerJob(
                self, self._document("POST", _path(dataset, "release"), request, headers)
            )
        return self._answered(_path(dataset, "release"), request, key)

    def call(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> Mapping[str, object] | list[Mapping[str, object]]:
        """A request to any route of the server, such as those of its curators.

        Args:
            method: ``"GET"``, ``"POST"`` or ``"DELETE"``.
            path: The path of the route.
            body: What is sent, as JSON.

        Returns:
            The JSON that came back.

        Raises:
            ServerError: The server refuses or cannot be reached.
        """
        document = self._sent(method, path, body, {})
        if not isinstance(document, dict | list):
            raise ServerError("the server sent no JSON object; check its address")
        return document

    def audit(self, dataset: str) -> list[Mapping[str, object]]:
        """Every record of the ledger of a dataset, with its hash; for auditors and curators.

        Args:
            dataset: The name of a dataset.

        Returns:
            ``hash`` and ``record`` of each, oldest first.

        Raises:
            ServerError: The server refuses or cannot be reached.
        """
        records: list[Mapping[str, object]] = []
        path = _path(dataset, "audit")
        while page := self._lines(f"{path}?after={len(records) - 1}"):
            records += page
        return records

    def changes(self) -> list[Mapping[str, object]]:
        """Who changed people and allowances of the server, when and why, oldest first.

        Returns:
            ``hash`` and ``record`` of each.

        Raises:
            ServerError: The server refuses or cannot be reached.
        """
        return self._lines("/changes")

    def jobs(self) -> pd.DataFrame:
        """What was sent without waiting, newest first: who, when, state, error, mechanism.

        Returns:
            One row per job.

        Raises:
            ServerError: The server refuses or cannot be reached.
        """
        return self._rows("/jobs")

    def job(self, name: str) -> ServerJob:
        """A job by its id, from wherever it was sent.

        Args:
            name: The id of a job.

        Returns:
            The job.

        Raises:
            ServerError: There is none of this id that is yours.
        """
        return ServerJob(self, self._document("GET", f"/jobs/{quote(name, safe='')}"))

    def releases(self, dataset: str) -> pd.DataFrame:
        """What was released before, newest first; its ``key`` opens it again.

        Args:
            dataset: The name of a dataset.

        Returns:
            One row per release: key, entry, time, analyst, budget, mechanism, rmse and more.

        Raises:
            ServerError: The server refuses or cannot be reached.
        """
        return self._rows(_path(dataset, "releases"))

    def plan_selection(
        self,
        dataset: str,
        candidates: Sequence[Mapping[str, object]] | str,
        *,
        epsilon: float | str | None = None,
        delta: float | str | None = None,
        rho: float | str | None = None,
        mu: float | str | None = None,
        top: int | None = None,
        which: str | None = None,
        nearest: float | str | None = None,
        counts: bool | None = None,
        mechanism: str | None = None,
        confidence: float = 0.95,
    ) -> Mapping[str, object]:
        """The forecast of a selection: what would hold of the chosen ones; costs nothing.

        Args:
            dataset: The name of a dataset.
            candidates: Entries as in the ``[[workload]]`` of a spec, or one SELECT with ORDER BY
                and LIMIT.
            epsilon: The epsilon of the budget.
            delta: Its delta.
            rho: The budget in rho-zCDP.
            mu: The budget in mu-GDP.
            top: How many are chosen; 1 if None.
            which: ``"largest"`` or ``"smallest"``.
            nearest: In its place, nearest to this share of all records.
            counts: Whether the counts of the chosen ones are told.
            mechanism: The name of one mechanism; None for the best.
            confidence: The probability with which what is said of the chosen ones holds.

        Returns:
            The forecast, as JSON.

        Raises:
            ServerError: The server refuses or cannot be reached.
        """
        budget = _budget(epsilon, delta, rho, mu)
        options = {"top": top, "which": which, "nearest": nearest, "counts": counts}
        request = _selection(candidates, budget, {**options, "mechanism": mechanism}, confidence)
        return self._document("POST", _path(dataset, "select", "plan"), request)

    def select(
        self,
        dataset: str,
        candidates: Sequence[Mapping[str, object]] | str,
        *,
        epsilon: float | str | None = None,
        delta: float | str | None = None,
        rho: float | str | None = None,
        mu: float | str | None = None,
        top: int | None = None,
        which: str | None = None,
        nearest: float | str | None = None,
        counts: bool | None = None,
        mechanism: str | None = None,
        confidence: float = 0.95,
        key: str | None = None,
    ) -> ServerAnswer:
        """Pay for the best few candidates, or get the stored ones.

        Args:
            dataset: As in `plan_selection`.
            candidates: As in `plan_selection`.
            epsilon: As in `plan_selection`.
            delta: As in `plan_selection`.
            rho: As in `plan_selection`.
            mu: As in `plan_selection`.
            top: As in `plan_selection`.
            which: As in `plan_selection`.
            nearest: As in `plan_selection`.
            counts: As in `plan_selection`.
            mechanism: As in `plan_selection`.
            confidence: As in `plan_selection`.
            key: The idempotency key; a new one if None.

        Returns:
            The chosen ones as a dataframe, with what the server says of them.

        Raises:
            BudgetExhausted: The cost does not fit what is left.
            LedgerFrozen: The curator froze the dataset.
            ServerError: The server refuses or cannot be reached.
        """
        budget = _budget(epsilon, delta, rho, mu)
        options = {"top": top, "which": which, "nearest": nearest, "counts": counts}
        request = _selection(candidates, budget, {**options, "mechanism": mechanism}, confidence)
        return self._answered(_path(dataset, "select"), request, key)

    def plan_description(
        self,
        dataset: str,
        *,
        epsilon: float | str = 1,
        delta: float | str | None = "1e-6",
        columns: Sequence[str] | None = None,
        kinds: Mapping[str, str] | None = None,
    ) -> Mapping[str, object]:
        """The forecast of a description: kinds of columns, errors, cost; costs nothing.

        Args:
            dataset: The name of a dataset.
            epsilon: The epsilon of the whole description.
            delta: Its delta; columns of texts need one.
            columns: The columns to describe; all that may be if None.
            kinds: What columns are, where their types do not say it.

        Returns:
            The forecast, as JSON.

        Raises:
            ServerError: The server refuses or cannot be reached.
        """
        request = _description(_budget(epsilon, delta, None, None), columns, kinds)
        return self._document("POST", _path(dataset, "describe", "plan"), request)

    def describe(
        self,
        dataset: str,
        *,
        epsilon: float | str = 1,
        delta: float | str | None = "1e-6",
        columns: Sequence[str] | None = None,
        kinds: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> ServerAnswer:
        """Pay for a summary of columns, or get the stored one.

        Args:
            dataset: As in `plan_description`.
            epsilon: As in `plan_description`.
            delta: As in `plan_description`.
            columns: As in `plan_description`.
            kinds: As in `plan_description`.
            key: The idempotency key; a new one if None.

        Returns:
            A row per column as a dataframe; ``document`` has histograms and the completed schema.

        Raises:
            BudgetExhausted: The cost does not fit what is left.
            LedgerFrozen: The curator froze the dataset.
            ServerError: The server refuses or cannot be reached.
        """
        request = _description(_budget(epsilon, delta, None, None), columns, kinds)
        return self._answered(_path(dataset, "describe"), request, key)

    def plan_discovery(
        self,
        dataset: str,
        domain: Mapping[str, Mapping[str, object]],
        *,
        epsilon: float | str = 1,
        delta: float | str | None = None,
        confidence: float = 0.95,
    ) -> Mapping[str, object]:
        """The forecast of a discovery: how many people a value needs, and the cost.

        Args:
            dataset: The name of a dataset.
            domain: Tables of ``[domain]`` that say "discover".
            epsilon: The epsilon of the budget.
            delta: Its delta; values of texts need one, ranges do not.
            confidence: The probability with which the interval of a published count holds.

        Returns:
            The forecast, as JSON.

        Raises:
            ServerError: The server refuses or cannot be reached.
        """
        request = _discovery(domain, _budget(epsilon, delta, None, None), confidence)
        return self._document("POST", _path(dataset, "discover", "plan"), request)

    def discover(
        self,
        dataset: str,
        domain: Mapping[str, Mapping[str, object]],
        *,
        epsilon: float | str = 1,
        delta: float | str | None = None,
        confidence: float = 0.95,
        key: str | None = None,
    ) -> ServerAnswer:
        """Pay for the values and ranges of columns, or get the stored ones.

        Args:
            dataset: As in `plan_discovery`.
            domain: As in `plan_discovery`.
            epsilon: As in `plan_discovery`.
            delta: As in `plan_discovery`.
            confidence: As in `plan_discovery`.
            key: The idempotency key; a new one if None.

        Returns:
            The published values with their counts; ``document`` has them as a schema file.

        Raises:
            BudgetExhausted: The cost does not fit what is left.
            LedgerFrozen: The curator froze the dataset.
            ServerError: The server refuses or cannot be reached.
        """
        request = _discovery(domain, _budget(epsilon, delta, None, None), confidence)
        return self._answered(_path(dataset, "discover"), request, key)

    def ask(
        self, dataset: str, sql: str, *, error: float | None = None, key: str | None = None
    ) -> ServerAnswer:
        """One question in SQL; free as long as the server's model knows the answer.

        Args:
            dataset: The name of a dataset.
            sql: One SELECT.
            error: The standard error that the answer may have: what is known is used first, and
                the precision that is missing is paid for.
            key: The idempotency key; a new one if None.

        Returns:
            The answers as a dataframe, with what the server says of them.

        Raises:
            SqlError: The text is not a linear query.
            BudgetExhausted: The question is new and the budget is used up, or does not suffice for
                the error.
            ServerError: The server refuses or cannot be reached.
        """
        request = {"sql": sql} if error is None else {"sql": sql, "error": error}
        return self._answered(_path(dataset, "ask"), request, key)

    def estimate(
        self, dataset: str, sql: str, *, error: float | None = None
    ) -> Mapping[str, object]:
        """What a question would cost and how good its answer would be; spends nothing.

        Args:
            dataset: The name of a dataset.
            sql: One SELECT.
            error: The standard error that the answer may have.

        Returns:
            The forecast, as JSON: ``questions`` has each number's, ``paid_answers_left`` how many
            can still be paid for.

        Raises:
            SqlError: The text is not a linear query.
            ServerError: The server refuses or cannot be reached.
        """
        request = {"sql": sql} if error is None else {"sql": sql, "error": error}
        return self._document("POST", _path(dataset, "estimate"), request)

    def answers(self, dataset: str, key: str) -> ServerAnswer:
        """A stored answer by its key, the same for ever.

        Args:
            dataset: The name of a dataset.
            key: The key of an answer.

        Returns:
            The answers as a dataframe, with what the server says of them.

        Raises:
            ServerError: There is none, or the server cannot be reached.
        """
        return _read(self._document("GET", _path(dataset, "answers", key)))

    def ledger(self, dataset: str) -> pd.DataFrame:
        """What was spent, one row per debit; ``attrs`` has the budget and what remains.

        Args:
            dataset: The name of a dataset.

        Returns:
            One row per debit.

        Raises:
            ServerError: The server refuses or cannot be reached.
        """
        import pandas as pd

        path, rows = _path(dataset, "ledger"), []
        page = self._document("GET", path)
        while True:
            entries = page["entries"]
            assert isinstance(entries, list)  # noqa: S101
            rows += entries
            if page["next"] is None:
                break
            page = self._document("GET", f"{path}?after={page['next']}")
        frame = pd.DataFrame(rows)
        frame.attrs = {name: page[name] for name in ("budget", "remaining", "allowances")}
        return frame

    def freeze(self, dataset: str, reason: str) -> None:
        """Stop new answers of a dataset; curators only.

        Args:
            dataset: The name of a dataset.
            reason: Why, for the record.

        Raises:
            ServerError: The token is not a curator's.
        """
        self._document("POST", _path(dataset, "freeze"), {"reason": reason})

    def unfreeze(self, dataset: str, reason: str) -> None:
        """Let a dataset be asked again; curators only.

        Args:
            dataset: The name of a dataset.
            reason: Why, for the record.

        Raises:
            ServerError: The token is not a curator's.
        """
        self._document("POST", _path(dataset, "unfreeze"), {"reason": reason})

    def _answered(self, path: str, request: Mapping[str, object], key: str | None) -> ServerAnswer:
        name = key or secrets.token_hex(16)
        return _read(self._document("POST", path, request, {"Idempotency-Key": name}))

    def _document(
        self,
        method: str,
        path: str,
        request: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Mapping[str, object]:
        document = self._sent(method, path, request, headers or {})
        if not isinstance(document, dict):
            raise ServerError("the server sent no JSON object; check its address")
        return document

    def _rows(self, path: str) -> pd.DataFrame:
        import pandas as pd

        rows = self._sent("GET", path, None, {})
        if not isinstance(rows, list):
            raise ServerError("the server sent no JSON list; check its address")
        return pd.DataFrame(rows)

    def _sent(
        self, method: str, path: str, request: Mapping[str, object] | None, more: Mapping[str, str]
    ) -> object:
        return _parsed(self._replied(method, path, request, more))

    def _lines(self, path: str) -> list[Mapping[str, object]]:
        reply = self._replied("GET", path, None, {})
        if reply.status != 200:
            _parsed(reply)
        try:
            return [json.loads(line) for line in reply.body.splitlines()]
        except (ValueError, RecursionError):
            raise ServerError("the server sent no lines of JSON; check its address") from None

    def _replied(
        self, method: str, path: str, request: Mapping[str, object] | None, more: Mapping[str, str]
    ) -> Reply:
        """Send a request until it is answered or refused for good."""
        body = None if request is None else json.dumps(request).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json", **more}
        if body is not None:
            headers["Content-Type"] = "application/json"
        for attempt in range(1, self._tries + 1):
            is_last = attempt == self._tries
            try:
                reply = self._transport(method, path, headers, body)
            except (OSError, HTTPException) as error:
                if is_last:
                    raise ServerError(
                        f"the server cannot be reached ({type(error).__name__}), tried "
                        f"{attempt} times; check the address and the network"
                    ) from None
                self._sleep(min(LIMITS.client_wait, 0.1 * 2**attempt))
                continue
            if reply.status in _AGAIN and not is_last:
                self._sleep(_wait(reply, attempt))
                continue
            return reply
        raise AssertionError("unreachable")


def _path(dataset: str, *rest: str) -> str:
    return "/datasets/" + "/".join(quote(part, safe="") for part in (dataset, *rest))


def _release(
    workload: Sequence[Mapping[str, object]],
    epsilon: float | str | None,
    delta: float | str | None,
    rho: float | str | None,
    mu: float | str | None,
    objective: str,
    mechanism: str | None,
) -> dict[str, object]:
    request: dict[str, object] = {
        "workload": [dict(w) for w in workload],
        "budget": _budget(epsilon, delta, rho, mu),
        "objective": objective,
    }
    return request if mechanism is None else {**request, "mechanism": mechanism}


def _budget(*parts: float | str | None) -> dict[str, float | str]:
    named = zip(("epsilon", "delta", "rho", "mu"), parts, strict=True)
    return {name: value for name, value in named if value is not None}


def _selection(
    candidates: Sequence[Mapping[str, object]] | str,
    budget: Mapping[str, object],
    options: Mapping[str, object],
    confidence: float,
) -> dict[str, object]:
    what: dict[str, object] = (
        {"sql": candidates}
        if isinstance(candidates, str)
        else {"workload": [dict(entry) for entry in candidates]}
    )
    chosen = {name: value for name, value in options.items() if value is not None}
    return {**what, "budget": budget, "confidence": confidence, **chosen}


def _description(
    budget: Mapping[str, object], columns: Sequence[str] | None, kinds: Mapping[str, str] | None
) -> dict[str, object]:
    request: dict[str, object] = {"budget": budget, "kinds": dict(kinds or {})}
    return request if columns is None else {**request, "columns": list(columns)}


def _discovery(
    domain: Mapping[str, Mapping[str, object]], budget: Mapping[str, object], confidence: float
) -> dict[str, object]:
    tables = {name: dict(table) for name, table in domain.items()}
    return {"domain": tables, "budget": budget, "confidence": confidence}


def _read(document: Mapping[str, object]) -> ServerAnswer:
    import pandas as pd

    columns = document.get("answers")
    if not isinstance(columns, dict | list):
        raise ServerError("the server sent no answers; check its address")
    if isinstance(columns, list):
        columns = [_grouped(answer) for answer in columns]
    return ServerAnswer(str(document["key"]), pd.DataFrame(columns), document)


def _grouped(answer: object) -> dict[str, object]:
    """An answer with a column for each column of its group, first."""
    if not isinstance(answer, dict):
        raise ServerError("the server sent no answers; check its address")
    numbers = {name: value for name, value in answer.items() if name != "groups"}
    groups = answer.get("groups") or {}
    named = {f"{n} (attribute)" if n in numbers else n: value for n, value in groups.items()}
    return {**named, **numbers}


def _wait(reply: Reply, attempt: int) -> float:
    seconds = reply.headers.get("retry-after", "")
    wait = float(seconds) if seconds.isdigit() else 0.1 * 2**attempt
    return min(LIMITS.client_wait, wait)


def _parsed(reply: Reply) -> object:
    """The document of a reply; a refusal is raised as the error it stands for."""
    try:
        document = json.loads(reply.body)
    except (ValueError, RecursionError):
        raise ServerError(
            f"the server answered {reply.status} with something else than JSON; check the address"
        ) from None
    if reply.status in (200, 202):
        return document
    words = document if isinstance(document, dict) else {}
    code, message = str(words.get("error", "")), str(words.get("message", "refused"))
    kind = _ERRORS.get(code)
    if kind is not None:
        error, left = kind(message), words.get("remaining")
        if isinstance(error, BudgetExhausted) and isinstance(left, dict):
            error.remaining = left
        raise error
    raise ServerError(f"{message} (status {reply.status})")


def _connection(url: str, timeout: float) -> Transport:
    """Requests over one connection, opened anew when it was closed."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SchemaError(f"a server is http://HOST:PORT or https://HOST, got {url!r}")
    host, port, root = parts.hostname, parts.port, parts.path.rstrip("/")
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(host, port, timeout=timeout)

    def send(method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        try:
            connection.request(method, root + path, body, dict(headers))
            answer = connection.getresponse()
            fields = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, fields, answer.read())
        except (OSError, HTTPException):
            connection.close()  # the next try opens a new one
            raise

    return send
