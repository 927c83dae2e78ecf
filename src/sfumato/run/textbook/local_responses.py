# SPDX-License-Identifier: Apache-2.0
"""Randomized response by the notes' name: bits, codes, or a bit for every code; arrays and tables.

    import sfumato as sf
    reported = sf.study.randomized_response(codes, F, epsilon=1)
    reported.answers, reported.cost, reported.noise, reported.error_bound(beta=0.05)

The randomizers are those of `study.local_model`, which clients run by themselves; here all persons
report at once, so that the local model stands beside the central ones. Proof:
docs/proofs/randomized-response.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import log, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from sfumato.errors import PlanError, SchemaError, WorkloadError
from sfumato.privacy.cost import Cost
from sfumato.random import WordSource
from sfumato.run.textbook.outcomes import Instance, Outcome, budget_of, drawn
from sfumato.study.local_model import (
    RandomizedResponse,
    UnaryEncoding,
    checked_codes,
    estimate_from_tally,
)
from sfumato.study.matrix_norms import dense_queries
from sfumato.types import Array, Integers
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.measure import reported, tallied_reports
from sfumato.workload.build import marginals
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    from sfumato.ledger.ledger import Ledger

__all__ = ["ResponseOutcome", "randomized_response"]


Encoding: TypeAlias = Literal["direct", "unary", "symmetric-unary"]
Response: TypeAlias = RandomizedResponse | UnaryEncoding

TITLE = "randomized response"
MARK = b"r"  # stored reports are bytes that are no JSON


@dataclass(frozen=True, eq=False, repr=False)
class ResponseOutcome(Outcome[Array]):
    """Reports, and unbiased answers from them.

    Args:
        mechanism: As in `Outcome`.
        answers: One number per query: sums over persons, or counts of codes.
        budget: What every person spends.
        cost: The same as a cost: each person's report alone is epsilon-DP.
        noise: The exact probabilities of a report, as floats: ``"keep"``, of the true code (or of
            a 1 at it), and ``"other"``, of each other.
        theorem: As in `Outcome`.
        bound: As in `Outcome`.
        neighbours: Records are replaced: that a person reports is public.
        n: How many persons reported.
        note: As in `Outcome`.
        reports: What the persons sent, in their order; of a table, whose records have none, empty.
        tally: How many reports say each code, or have a 1 there.
        response: How: probabilities and epsilon.
        queries: How many queries were answered.
        spread: The largest range of a query over the codes (or persons' bits).
        over: ``"codes"`` or ``"persons"``.
    """

    reports: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    tally: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    response: Response = field(default_factory=lambda: RandomizedResponse(1, 2))
    queries: int = 0
    spread: float = 0.0
    over: str = "codes"

    def __repr__(self) -> str:
        kind = type(self.response).__name__
        lines = [
            f"randomized response ({kind}, {self.response.size:,} codes) of {self.n:,} persons at "
            f"epsilon = {float(self.response.epsilon):g} each",
            f"  noise    keeps with {self.noise['keep']:.4g}, others {self.noise['other']:.4g}",
            f"  error    within {self.error_bound():,.4g} with probability 0.95: {self.theorem}",
            f"  answers  {self._shown_answers()}",
        ]
        return "\n".join([*lines, f"  note     {self.note}"] if self.note else lines)


def randomized_response(
    data: object,
    queries: object = None,
    *,
    epsilon: Fraction | float,
    size: int | None = None,
    encoding: Encoding = "direct",
    over: Literal["codes", "persons"] = "codes",
    ledger: Ledger | str | Path | None = None,
    name: str | None = None,
    key: str | None = None,
    random: WordSource | None = None,
) -> ResponseOutcome:
    """Randomized response: every person reports for themselves, and answers follow unbiased.

    One bit per person (``size=2``) is kept with probability ``e^eps / (1 + e^eps)``, a code of
    ``size`` many with ``e^eps / (e^eps + size - 1)``; ``"unary"`` sends a bit for every code
    (`UnaryEncoding`), better from about ``3 e^eps + 2`` codes on.

    ``queries`` over ``"codes"`` have a column per code: ``q . h``, h the histogram. Over
    ``"persons"`` (bits alone; Wang's indicator representation) they have a column per person:
    ``sum_i q_i x_i``, estimated by ``sum_i q_i (0.5 + (Y_i - 0.5) / (2p - 1))``. None asks for
    every code, or for the sum of the bits.

    With a table the queries are a `Workload`, and a code is a cell of its domain. Reports do not
    depend on the queries, so that with a ledger all further ones are free.

    Privacy: epsilon-local differential privacy of every report (Warner 1965; Kairouz, Bonawitz,
    Ramage 2016; docs/proofs/randomized-response.md); any number of queries costs nothing more.
    Neighbours: the data of one person replaced by any other.
    Error: all answers within ``(spread / gap) sqrt(n ln(2k/beta) / 2)`` with probability 1 - beta.

    Args:
        data: One true bit or code per person; or a table.
        queries: A row per query; None for all codes, or the sum of all bits; a workload for a
            table.
        epsilon: What every person spends.
        size: How many codes there are; if None the columns of queries over codes, else 2.
        encoding: ``"direct"``, ``"unary"`` (optimized) or ``"symmetric-unary"``.
        over: Whether queries are over codes or over persons.
        ledger: As in `laplace_mechanism`.
        name: As in `laplace_mechanism`.
        key: As in `laplace_mechanism`.
        random: Words of a demonstration (`SeededWords`); the system's if None.

    Returns:
        Reports, answers, probabilities and the error bound.

    Raises:
        BudgetError: Epsilon is out of range.
        BudgetExhausted: The cost does not fit what is left in the ledger.
        PlanError: The number of records of the table is private.
        SchemaError: A code is out of range.
        WorkloadError: The queries do not fit.

    >>> import numpy as np
    >>> import sfumato as sf
    >>> bits = np.arange(10_000) % 4 == 0
    >>> result = sf.study.randomized_response(bits, [[0, 1]], epsilon=1)
    >>> bool(abs(result.answers[0] - 2500) <= result.error_bound(1e-9))
    True
    """
    if encoding not in ("direct", "unary", "symmetric-unary"):
        raise SchemaError(f'encoding is "direct", "unary" or "symmetric-unary", got {encoding!r}')
    if over not in ("codes", "persons"):
        raise WorkloadError(f'queries are over "codes" or over "persons", got {over!r}')
    if over == "persons" and (encoding != "direct" or size not in (None, 2)):
        raise WorkloadError("queries over persons are of one bit each: size=2, direct")
    access = {"ledger": ledger, "name": name, "key": key, "random": random}
    if isinstance(queries, Workload):
        if over == "persons" or size is not None:
            raise WorkloadError("records of a table have no order: a workload asks over codes")
        return _of_table(queries, data, epsilon, encoding, access)
    codes = np.asarray(data)
    codes = codes.astype(np.int64) if codes.dtype.kind == "b" else codes
    if codes.ndim != 1 or not codes.size:
        raise SchemaError(
            f"data are one code per person in one row, got shape {codes.shape}; of a table ask "
            "with a workload: randomized_response(table, workload, epsilon=...)"
        )
    matrix = None if queries is None else np.atleast_2d(np.asarray(queries, np.float64))
    if size is None:
        size = 2 if matrix is None or over == "persons" else matrix.shape[1]
    response = _response(epsilon, size, encoding)
    columns = codes.size if over == "persons" else size
    if matrix is None:
        matrix = np.ones((1, columns)) if over == "persons" else np.eye(columns)
    if matrix.shape[1:] != (columns,) or not np.isfinite(matrix).all():
        raise WorkloadError(
            f"queries over {over} have {columns:,} finite columns, got {matrix.shape}"
        )
    return _of_codes(codes, matrix, response, over, access)


def _response(epsilon: Fraction | float, size: int, encoding: Encoding) -> Response:
    if encoding == "direct":
        return RandomizedResponse(epsilon, size)
    return UnaryEncoding(epsilon, size, "optimized" if encoding == "unary" else "symmetric")


def _of_codes(
    codes: npt.NDArray[np.generic],
    matrix: Array,
    response: Response,
    over: Literal["codes", "persons"],
    access: Mapping[str, object],
) -> ResponseOutcome:
    """Reports of persons in their order, from an array."""
    true, size = checked_codes(codes, response.size, "codes"), response.size
    is_direct = isinstance(response, RandomizedResponse)
    # The domain of the array: what is asked of it follows from the reports.
    instance = Instance.of(np.ones((1, size)), None, true, "replace-one")

    def noisy(exact: Sensitive[Integers], words: WordSource) -> bytes:
        reports = reported(exact, response.encode, words)
        packed = reports.astype("<i8") if is_direct else np.packbits(reports.astype(np.uint8))
        return MARK + packed.tobytes()

    def described() -> dict[str, object]:
        return {**_described(response), "persons": true.size, "reports": "in order"}

    cost = Cost.pure(Fraction(response.epsilon))
    answer, note = drawn(
        instance,
        TITLE,
        budget_of(Fraction(response.epsilon), None),
        cost,
        described,
        lambda _: Sensitive(true),
        noisy,
        **access,  # type: ignore[arg-type]
    )
    assert isinstance(answer, bytes)  # noqa: S101
    n = true.size
    if is_direct:
        reports = np.frombuffer(answer[1:], dtype="<i8").astype(np.int64)
        tally = np.bincount(reports, minlength=size)
    else:
        bits = np.unpackbits(np.frombuffer(answer[1:], dtype=np.uint8), count=n * size)
        reports = bits.reshape(n, size).astype(np.int64)
        tally = reports.sum(axis=0)
    if over == "codes":
        return _outcome(response, matrix, tally, n, note, reports)
    estimate = 0.5 + (reports - 0.5) / float(response.gap)
    # Report i moves an answer by |q_i| / gap: Hoeffding's sum of squares, as n times a square.
    spread = sqrt(float((matrix**2).sum(axis=1).max()) / n)
    return _result(response, matrix @ estimate, spread, tally, n, note, reports, "persons")


def _of_table(
    queries: Workload,
    table: object,
    epsilon: Fraction | float,
    encoding: Encoding,
    access: Mapping[str, object],
) -> ResponseOutcome:
    """The tally of the reports of all records of a table, whose codes are cells of its domain."""
    domain = queries.domain
    response = _response(epsilon, domain.size, encoding)
    instance = Instance.of(marginals(domain, [domain.names]), table, None, "replace-one")
    if not instance.n_is_public:
        raise PlanError(
            "in the local model everybody reports, so that the number of reports is public; here a "
            'record may be dropped: say records="all-inside" in the domain, and read a table, '
            "not a view or a query that leaves records out"
        )
    matrix = dense_queries(queries, TITLE)

    def noisy(exact: Sensitive[Sequence[int]], words: WordSource) -> list[int]:
        tally, n = tallied_reports(exact, response.encode, response.size, words)
        return [n, *tally]

    answer, note = drawn(
        instance,
        TITLE,
        budget_of(Fraction(response.epsilon), None),
        Cost.pure(Fraction(response.epsilon)),
        lambda: {**_described(response), "workload": instance.workload.normal.key},
        lambda opened: instance.answers(opened, 0),
        noisy,
        **access,  # type: ignore[arg-type]
    )
    assert isinstance(answer, list)  # noqa: S101
    tally = np.array(answer[1:], dtype=np.int64)
    return _outcome(response, matrix, tally, int(answer[0]), note, np.zeros(0, np.int64))


def _described(response: Response) -> dict[str, object]:
    """What the law of a report depends on."""
    kind = "direct" if isinstance(response, RandomizedResponse) else f"unary, {response.kind}"
    return {"encoding": kind, "size": response.size, "epsilon": str(response.epsilon)}


def _outcome(
    response: Response, matrix: Array, tally: Integers, n: int, note: str, reports: Integers
) -> ResponseOutcome:
    """Answers to queries over codes from the tally of the reports."""
    counts: Array
    if isinstance(response, RandomizedResponse):
        counts = np.asarray(estimate_from_tally(response, tally).counts, np.float64)
        # One report moves the estimate of q . h by q's range over gap; of unary ones by its sum.
        ranges = np.ptp(matrix, axis=1)
    else:
        counts = np.asarray((tally - n * float(response.other)) / float(response.gap), np.float64)
        ranges = np.abs(matrix).sum(axis=1)
    spread = float(ranges.max())
    return _result(response, matrix @ counts, spread, tally, n, note, reports, "codes")


def _result(
    response: Response,
    answers: Array,
    spread: float,
    tally: Integers,
    n: int,
    note: str,
    reports: Integers,
    over: str,
) -> ResponseOutcome:
    def bound(beta: float) -> float:
        return spread / float(response.gap) * sqrt(n * log(2 * len(answers) / beta) / 2)

    return ResponseOutcome(
        TITLE,
        answers,
        budget_of(Fraction(response.epsilon), None),
        Cost.pure(Fraction(response.epsilon)),
        {"keep": float(response.keep), "other": float(response.other)},
        "Hoeffding and a union bound",
        bound,
        "replace-one",
        n,
        note,
        reports,
        tally,
        response,
        len(answers),
        spread,
        over,
    )
