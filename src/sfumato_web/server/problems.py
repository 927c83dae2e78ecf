# SPDX-License-Identifier: Apache-2.0
"""Refusals of the server: a status, a code for programs, words for people.

Bodies depend on public inputs only. Errors that sfumato raises on purpose are written for people;
those that could name places on the host (a file, a database) are told to the log instead. Any other
exception may quote a value of the data, so neither the body nor the log has its text.

    401 no-token           404 not-found, gone or foreign    405 method       408 slow
    409 budget-exhausted   409 key-reused                    413 too-large    422 not a question
    423 frozen             429 too-many                      500 unexpected   503 unavailable
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sfumato.errors import (
    BudgetError,
    BudgetExhausted,
    LedgerError,
    LedgerFrozen,
    PlanError,
    SchemaError,
    SfumatoError,
    SqlError,
    TableError,
    TooLarge,
    WorkloadError,
)
from sfumato.ledger.account import Remaining
from sfumato_web.server.models import remaining_document
from sfumato_web.server.server_limits import LIMITS

__all__ = [
    "Problem",
    "disconnected",
    "exhausted",
    "key_reused",
    "no_dataset",
    "no_token",
    "not_curator",
    "not_in_role",
    "not_valid",
    "problem_of",
    "too_many",
]


class Problem(Exception):
    """A refusal as it is sent."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        more: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.more, self.headers = dict(more or {}), dict(headers or {})

    def body(self) -> bytes:
        """The body, as JSON in ASCII."""
        return json.dumps({"error": self.code, "message": self.message, **self.more}).encode()


# The first that fits decides; the status, the code, and whether the message may be sent.
_KINDS: Final[tuple[tuple[type[Exception], int, str, bool], ...]] = (
    (TooLarge, 413, "too-large", True),
    (BudgetExhausted, 409, "budget-exhausted", True),
    (SqlError, 422, "sql", True),
    (WorkloadError, 422, "workload", True),
    (SchemaError, 422, "request", True),
    (PlanError, 422, "plan", True),
    (BudgetError, 422, "budget", True),
    (LedgerFrozen, 423, "frozen", False),
    (LedgerError, 503, "unavailable", False),
    (TableError, 503, "unavailable", False),
    (SfumatoError, 503, "unavailable", False),
)

_WORDS: Final = {
    "frozen": "the curator has frozen this dataset; stored answers are still there, ask the "
    "curator for new ones",
    "unavailable": "this dataset cannot be used at the moment; the reason is in the server's log, "
    "ask the curator",
    "unexpected": "an error that should not happen; the server's log has its place, ask the "
    "curator",
}


def problem_of(error: Exception) -> Problem:
    """The refusal that stands for an exception."""
    if isinstance(error, Problem):
        return error
    for kind, status, code, is_sent in _KINDS:
        if isinstance(error, kind):
            headers = {"Retry-After": "5"} if status == 503 else None
            return Problem(status, code, str(error) if is_sent else _WORDS[code], headers=headers)
    return Problem(500, "unexpected", _WORDS["unexpected"])


def no_token() -> Problem:
    """No token, or one that nobody holds: the same refusal for both."""
    return Problem(
        401,
        "no-token",
        "a known token is needed; send the header Authorization: Bearer and your token",
        headers={"WWW-Authenticate": "Bearer"},
    )


def not_curator() -> Problem:
    """What only a curator may do."""
    return Problem(403, "not-curator", "only a curator may do this; ask yours")


def not_in_role(role: str) -> Problem:
    """What somebody of this role may never do, whatever the dataset."""
    may = {
        "auditor": "an auditor reads ledgers, releases and the audit trail, and changes nothing",
        "scraper": "this token reads /metrics, and nothing else",
    }
    message = may.get(role, "only a curator, an auditor or a scraper may read this")
    return Problem(403, "not-in-role", f"{message}; ask your curator for another role")


def no_dataset() -> Problem:
    """A dataset that is not there, or is not theirs: the same refusal for both."""
    return Problem(
        404, "not-found", "no dataset of this name is open to you; GET /datasets lists yours"
    )


def not_valid(faults: Sequence[Mapping[str, Any]]) -> Problem:
    """A request that does not look as it must; ``faults`` are those that pydantic found."""
    messages = [
        f"{'.'.join(str(p)[:64] for p in f['loc'])}: {f['msg'].removeprefix('Value error, ')[:200]}"
        for f in faults
    ]
    rest = len(messages) - LIMITS.listed_faults
    more = [f"and {rest} more"] if rest > 0 else []
    return Problem(422, "request", "; ".join([*messages[: LIMITS.listed_faults], *more]))


def disconnected() -> Problem:
    """The caller has closed the connection; nobody reads this but the counters."""
    return Problem(400, "disconnected", "the connection was closed before the answer was there")


def too_many(seconds: int) -> Problem:
    """More requests than the limits allow."""
    return Problem(
        429,
        "too-many",
        f"too many requests; wait {seconds} s and send this one again",
        headers={"Retry-After": str(seconds)},
    )


def key_reused() -> Problem:
    """An idempotency key that was used for another request."""
    return Problem(
        409,
        "key-reused",
        "this Idempotency-Key was used for another request; use a new key for a new request",
    )


def exhausted(message: str, remaining: Remaining) -> Problem:
    """The budget does not allow it; what remains is said in words and numbers."""
    more = {"remaining": remaining_document(remaining)}
    return Problem(409, "budget-exhausted", message, more)
