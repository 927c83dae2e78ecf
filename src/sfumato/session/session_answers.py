# SPDX-License-Identifier: Apache-2.0
"""What a session returns: answers, which never change once they are out, and forecasts of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, sqrt
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import LedgerError
from sfumato.privacy.cost import Cost
from sfumato.workload.question import Question

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Answer",
    "Calibration",
    "Differences",
    "How",
    "Left",
    "QuestionForecast",
    "answer_frame",
    "bare_name",
    "paid_answer",
    "paid_bytes",
]


How: TypeAlias = Literal["paid", "free", "known", "untested"]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to one question; the same numbers for everybody who asks it, for ever.

    ``question`` is the text of who asks, ``aggregate``, ``condition`` and ``groups`` are its parts:
    what is computed, under which condition, and the group as a value for each column. They come
    from the asker's own request and are not stored: an answer that is read by its key alone has
    none of them. Answers are equal if their numbers are, whatever the words.

    ``how`` is "paid" (the truth with noise), "free" (the estimate, tested against the truth),
    "known" (unbiased, from what was measured before: free, and better once more is measured, such
    as by `Session.improve`), or
    "untested" (the estimate as it is: no promise, nothing stored, an interval only where a scope
    encloses it); ``why`` says so in words where the session has a scope. ``low`` to ``high`` holds
    the true answer with chance ``level`` for a question that was not chosen by the noise of earlier
    answers, in the sense of docs/mechanisms/online.md. ``safe_low`` to ``safe_high`` does so
    however the question was chosen, and for all known answers together; None where no such interval
    is known (known answers in pure noise, numbers of a GROUP BY, estimates that nothing encloses).
    ``is_dummy``: made up from made-up records. ``is_stored``: the answer was there when it was
    asked for, and nothing was spent on it now.
    """

    key: str
    question: str = field(compare=False)
    value: float
    low: float | None
    high: float | None
    level: float | None
    how: How
    epoch: int
    cost: tuple[Mapping[str, object], ...] = ()
    is_dummy: bool = False
    aggregate: str = field(default="", compare=False)
    condition: str = field(default="", compare=False)
    groups: Mapping[str, object] = field(default_factory=dict, compare=False)
    is_stored: bool = field(default=False, compare=False)
    why: str = field(default="", compare=False)
    standard_error: float | None = None
    safe_low: float | None = None
    safe_high: float | None = None

    def asked_as(self, question: Question) -> Answer:
        """The same answer in the words of who asks.

        The interval of a sum of middles of bins is stretched by what bins can hide, so that it
        holds the sum of the values; without one where numbers may be negative.
        """
        low, high, level = self.low, self.high, self.level
        safe_low, safe_high = self.safe_low, self.safe_high
        if question.hides is not None and low is not None and high is not None:
            least, most = question.hides
            if isfinite(least) and isfinite(most):
                low, high = self._stretched(low, high, least, most)
                if safe_low is not None and safe_high is not None:
                    safe_low, safe_high = self._stretched(safe_low, safe_high, least, most)
            else:
                low = high = level = safe_low = safe_high = None
        return replace(
            self,
            low=low,
            high=high,
            safe_low=safe_low,
            safe_high=safe_high,
            level=level,
            question=question.name,
            aggregate=question.aggregate,
            condition=question.condition,
            groups=dict(question.groups),
        )

    def _stretched(self, low: float, high: float, least: float, most: float) -> tuple[float, float]:
        """An interval for the sum of values in place of that of middles of bins."""
        return min(max(low, 0.0) * least, self.value), max(high * most, self.value)

    @property
    def is_paid(self) -> bool:
        """Whether budget was spent on this answer itself."""
        return self.how == "paid"

    def as_safe(self) -> Answer:
        """The same, of which the one interval holds however the question was chosen."""
        return replace(self, safe_low=self.low, safe_high=self.high)

    @property
    def has_two_intervals(self) -> bool:
        """Whether `low` to `high` is only for questions that no earlier noise has chosen."""
        if self.low is None or self.high is None:
            return False
        return (self.safe_low, self.safe_high) != (self.low, self.high)

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Itself: the one number behind it."""
        return (self,)

    @property
    def statements(self) -> list[dict[str, Any]]:
        """None: one number has no further shape."""
        return []

    def as_json(self) -> dict[str, object]:
        """The answer as JSON, for who asked."""
        words = {
            "question": self.question,
            "aggregate": self.aggregate,
            "condition": self.condition,
            "groups": dict(self.groups),
        }
        return {"key": self.key, **words, **self._numbers(), **self._known()}

    def _known(self) -> dict[str, object]:
        """What not every answer has."""
        parts = {
            "why": self.why or None,
            "standard_error": self.standard_error,
            "safe_low": self.safe_low,
            "safe_high": self.safe_high,
        }
        return {name: value for name, value in parts.items() if value is not None}

    def _numbers(self) -> dict[str, object]:
        """What is the same for everybody."""
        return {
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "level": self.level,
            "how": self.how,
            "epoch": self.epoch,
            "cost": [dict(part) for part in self.cost],
            "is_dummy": self.is_dummy,
        }

    def to_bytes(self) -> bytes:
        """What the ledger stores before the answer is sent: nobody's words."""
        return json.dumps(self._stored(), separators=(",", ":"), allow_nan=False).encode()

    def _stored(self) -> dict[str, object]:
        return {"key": self.key, "question": bare_name(self.key), **self._numbers()}

    @classmethod
    def from_bytes(cls, stored: bytes) -> Answer:
        """Read what `to_bytes` wrote."""
        try:
            return cls._of(json.loads(stored))
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        raise LedgerError(
            "a stored answer of the session cannot be read; restore the newest backup"
        )

    @classmethod
    def _of(cls, stored: Mapping[str, object]) -> Answer:
        """From what is stored; earlier versions stored the words of who asked first as well."""
        key = str(stored["key"])
        names = ("value", "low", "high", "level", "how", "epoch", "cost", "is_dummy")
        numbers = {name: stored[name] for name in names}
        numbers["cost"] = tuple(stored["cost"])  # type: ignore[arg-type]
        read = cls(key=key, question=bare_name(key), **numbers)  # type: ignore[arg-type]
        return read.as_safe() if read.how in ("free", "paid") else read


def bare_name(key: str) -> str:
    """What a question is called where nobody's words for it are at hand.

    >>> bare_name("0123456789abcdef")
    'question 0123456789ab'
    """
    return f"question {key[:12]}"


def answer_frame(answers: Sequence[Answer]) -> pd.DataFrame:
    """Answers as a frame: a column for each column of the groups, then the numbers.

    An attribute that is called like a column of answers gets `` (attribute)`` after its name.
    """
    import pandas as pd

    rows = []
    for answer in answers:
        row = answer.as_json()
        groups = row.pop("groups")
        assert isinstance(groups, dict)  # noqa: S101
        named = {f"{n} (attribute)" if n in row else n: value for n, value in groups.items()}
        rows.append({**named, **row})
    return pd.DataFrame(rows)


@dataclass(frozen=True, slots=True)
class QuestionForecast:
    """What asking would cost and how good the answer would be; nothing was spent to say so.

    ``value`` is what the estimate says now, None before anything is known. If that is found right
    it is the answer, for nothing, within ``free_bound`` of the truth; if not, ``cost`` has been
    paid for already or is now, and the answer has a standard error of ``paid_error``. A question of
    many numbers is not tested but paid for: its ``free_bound`` is None, its errors are those of the
    plan that measures them together, the typical and the largest one. What follows from a scope has
    a ``standard_error``; it costs nothing, and its ``free_bound`` is half of its interval.

    For an error that was named: ``value`` and ``free_bound`` are what is known without paying,
    ``cost`` is that of the measurement that is missing (none if nothing is), ``paid_error`` its
    noise by itself, ``standard_error`` and ``paid_bound`` those of the answer with it, and
    ``least_error`` the least error that what is left can pay for.

    ``estimate`` is what the learnt table says (the most even one that explains what was paid for),
    beside the unbiased number: without an interval; `Session.calibration` is its record.
    """

    key: str
    question: str
    value: float | None
    is_stored: bool
    free_bound: float | None
    paid_error: float
    paid_bound: float
    level: float
    cost: Cost
    paid_left: int
    standard_error: float | None = None
    why: str = ""
    least_error: float | None = None
    estimate: float | None = None


@dataclass(frozen=True, slots=True)
class Differences:
    """How far an estimate was from numbers that were measured afterwards.

    ``rmse`` is the root mean square difference, ``noise`` that part of it which the noise of the
    measurements explains; what is left of it, ``error``, is the estimate's own typical error on
    these questions. Both are None where nothing was measured.
    """

    count: int
    rmse: float | None
    noise: float | None

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]]) -> Differences:
        """Of differences, each with the variance of the noise.

        >>> one = Differences.of([(5.0, 9.0), (-5.0, 9.0)])
        >>> one.count, one.rmse, one.noise, one.error
        (2, 5.0, 3.0, 4.0)
        """
        if not pairs:
            return cls(0, None, None)
        off, variances = np.array(pairs).T
        return cls(len(pairs), sqrt(float((off**2).mean())), sqrt(float(variances.mean())))

    @property
    def error(self) -> float | None:
        """The typical error of the estimate, without the noise it was compared with."""
        if self.rmse is None or self.noise is None:
            return None
        return sqrt(max(self.rmse**2 - self.noise**2, 0.0))


@dataclass(frozen=True, slots=True)
class Calibration:
    """The record of a session's estimate beside what was measured, before it learnt that.

    ``found_wrong``: questions that a test found too far off, the worst of those that were tested.
    ``measured``: what was bought, and groups that were measured, whatever the estimate said.
    """

    found_wrong: Differences
    measured: Differences

    def describe(self) -> str:
        """In words."""
        parts = []
        for name, one in (("measured", self.measured), ("found wrong", self.found_wrong)):
            if one.error is not None:
                parts.append(f"off by {one.error:,.3g} typically on {one.count:,} numbers {name}")
        return "; ".join(parts) or "not compared with any measurement yet"


@dataclass(frozen=True, slots=True)
class Left:
    """What a session can still do.

    ``paid_answers`` more questions can be found wrong and paid for, this session's and the
    ledger's limits both kept; questions that are found right cost nothing, whatever their number.
    ``share`` is what is left of the ledger's budget, None without a ledger.
    """

    paid_answers: int
    updates: int
    share: float | None

    def describe(self) -> str:
        """In words."""
        words = f"{self.paid_answers} of {self.updates} paid answers left"
        return words if self.share is None else f"{words}, {self.share:.2%} of the ledger's budget"


def paid_bytes(answer: Answer, question: Question, value: float, variance: float) -> bytes:
    """A paid answer with all that the estimate learns from: it can be learnt again after a restart.

    ``value`` is the noisy value itself, before it is cut to what is possible.
    """
    learnt = {
        "attributes": question.attributes,
        "class_of": [c.tolist() for c in question.class_of],
        "shape": question.table.shape,
        "table": question.table.reshape(-1).tolist(),
        "bits": question.bits,
        "value": value,
        "variance": variance,
    }
    document = {"answer": answer._stored(), "learnt": learnt}
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def paid_answer(stored: bytes, domain: Domain) -> tuple[Answer, Question, float, float]:
    """Read what `paid_bytes` wrote."""
    try:
        document = json.loads(stored)
        answer, learnt = Answer._of(document["answer"]), document["learnt"]
        table = np.array(learnt["table"], dtype=np.int64).reshape(learnt["shape"])
        class_of = tuple(np.array(c, dtype=np.int64) for c in learnt["class_of"])
        names = tuple(learnt["attributes"])
        question = Question(domain, answer.question, names, class_of, table, learnt["bits"])
        return answer, question, float(learnt["value"]), float(learnt["variance"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        pass
    raise LedgerError("a paid answer of the session cannot be read; restore the newest backup")
