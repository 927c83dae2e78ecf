# SPDX-License-Identifier: Apache-2.0
"""Subjects of the audit: the mechanisms of the lecture notes, as `sf.study` offers them.

Linear ones are measured many at a time, others are calls of the public functions, so that grids,
scales and costs are those that a student gets. The claim is the cost that the mechanism states.
In the local model it is the report of one client, whose code is replaced by another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import numpy as np

from sfumato.planning.forecast import Forecast
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.random import WordSource, system_words
from sfumato.run.textbook.choice_mechanisms import (
    exponential_mechanism,
    noisy_max,
    permute_and_flip,
)
from sfumato.run.textbook.linear_mechanisms import (
    binary_tree,
    calibrated,
    contingency_table,
    factorization_mechanism,
    gaussian_mechanism,
    laplace_mechanism,
    projection_mechanism,
)
from sfumato.run.textbook.local_responses import randomized_response
from sfumato.run.textbook.outcomes import Instance, LinearOutcome
from sfumato.run.textbook.private_weights import private_multiplicative_weights
from sfumato.run.textbook.sparse_vectors import above_threshold, numeric_sparse, sparse_vector
from sfumato.study.local_factorization import LocalFactorization
from sfumato.study.local_model import RandomizedResponse, UnaryEncoding, encode_table
from sfumato.types import Array, Neighbours
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.measure import Exact, measure, tallied_reports
from sfumato_audit.examine import Claim, Pair, Sampler, Subject, Table

__all__ = [
    "Counts",
    "broken_textbook_subjects",
    "local_subjects",
    "one_bit_subject",
    "tallied_subject",
    "textbook_subjects",
    "unary_subject",
]


Counts: TypeAlias = tuple[float, ...]


class Costly(Protocol):
    """What a mechanism returns."""

    @property
    def answers(self) -> object:
        """What is published."""
        ...

    @property
    def cost(self) -> Cost:
        """What it costs."""
        ...


Call: TypeAlias = Callable[[Counts, WordSource], Costly]

SLOWNESS = 1024  # a call takes a third of a millisecond or more
RUN = "sfumato.run.textbook"
VALUES = "sfumato.vault.mechanisms.sparse.answer_many"
THRESHOLDS = np.tril(np.ones((4, 4)))
ONE_MORE = (
    Pair("one record more in the first cell", (0.0, 0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)),
    Pair("one record more in the last cell", (3.0, 0.0, 5.0, 0.0), (3.0, 0.0, 5.0, 1.0)),
)
REPLACED = (Pair("a record moves to the last cell", (3.0, 0.0, 5.0, 0.0), (2.0, 0.0, 5.0, 1.0)),)
APART = (
    Pair("all scores equal, or up and down by one", (0.0,) * 4, (1.0, -1.0, 1.0, -1.0)),
    Pair("one score up, all others down", (2.0,) * 4, (3.0, 1.0, 1.0, 1.0)),
)


def textbook_subjects() -> tuple[Subject[Counts], ...]:
    """Every mechanism of the notes that draws noise."""
    return (*_linear(), *_called())


def _linear() -> tuple[Subject[Counts], ...]:
    """Linear mechanisms on a histogram: called once, then measured many times at once."""
    pure, gaussian = {"epsilon": 1}, {"mu": 1}
    # What is projected is the Gaussian mechanism's measurement: the rest is post-processing.
    both = (gaussian_mechanism, projection_mechanism)
    return (
        _measured("laplace", pure, "add-remove", laplace_mechanism),
        _measured("laplace", pure, "replace-one", laplace_mechanism),
        _measured("gaussian", gaussian, "replace-one", *both),
        _measured("laplace-table", pure, "add-remove", contingency_table),
        _measured("laplace-tree", pure, "replace-one", binary_tree),
        _measured("factorization", gaussian, "add-remove", factorization_mechanism),
    )


def _measured(
    mechanism: str,
    budget: Mapping[str, int],
    neighbours: Neighbours,
    *functions: Callable[..., LinearOutcome],
) -> Subject[Counts]:
    """As `linear_mechanisms` measures, which says the same cost."""
    queries = "prefixes" if mechanism.endswith("tree") else THRESHOLDS
    chosen = MECHANISMS[mechanism]

    def of(data: Counts) -> tuple[Instance, Forecast]:
        instance = Instance.of(queries, data, None, neighbours)
        strategy = chosen.build(instance.workload, chosen.noise, "rmse")
        return instance, calibrated(instance, strategy, Budget(**budget))

    def sampler(data: Counts) -> Sampler:
        instance, forecast = of(data)
        for function in functions:
            outcome = function(queries, data, neighbours=neighbours, **budget)
            assert outcome.cost == forecast.cost  # noqa: S101 - the claim is the function's own
        blocks, exact = forecast.strategy.blocks, instance.count(None, forecast.strategy.blocks)
        values = exact.values.reveal()

        def run(runs: int, source: WordSource) -> Array:
            again = Exact(Sensitive(tuple(np.tile(v, runs) for v in values)), exact.rows)
            outputs = measure(again, blocks, forecast.noise, source)
            units = [m.units.astype(np.float64).reshape(runs, -1) for m in outputs.measurements]
            return np.concatenate(units, axis=1)

        return run

    pairs = ONE_MORE if neighbours == "add-remove" else REPLACED
    claim = Claim.of(of(pairs[0].left)[1].cost)
    names = frozenset(f"{f.__module__}.{f.__name__}" for f in functions)
    return Subject(f"study: {functions[0].__name__} ({neighbours})", claim, pairs, sampler, names)


def _called() -> tuple[Subject[Counts], ...]:
    """By the public functions themselves, a call for every run."""
    apart = APART[:1]
    return (
        _subject(
            "study: Laplace mechanism on numbers",
            (Pair("numbers that are no steps of any grid", (0.1, 0.2), (0.43, 0.87)),),
            lambda x, words: laplace_mechanism(np.array(x), random=words, epsilon=1, sensitivity=1),
            VALUES,
        ),
        _subject(
            "study: NumericSparse",
            apart,
            lambda x, words: numeric_sparse(np.array(x), random=words, c=2, epsilon=1, T=0),
            "sparse_vectors.numeric_sparse",
        ),
        _subject(
            "study: SparseVector",
            apart,
            lambda x, words: sparse_vector(np.array(x), random=words, c=2, epsilon=1, T=0),
            "sparse_vectors.sparse_vector",
        ),
        _subject(
            "study: AboveThreshold",
            apart,
            lambda x, words: above_threshold(np.array(x), random=words, epsilon=1, T=0),
            "sparse_vectors.above_threshold",
        ),
        _subject(
            "study: private multiplicative weights",
            REPLACED,
            lambda h, words: private_multiplicative_weights(
                THRESHOLDS, h, random=words, epsilon=1, alpha=0.3, c=2
            ),
            "private_weights.private_multiplicative_weights",
        ),
        _subject(
            "study: exponential mechanism",
            APART[1:],
            lambda x, words: exponential_mechanism(np.array(x), random=words, epsilon=1),
            "choice_mechanisms.exponential_mechanism",
        ),
        _subject(
            "study: report noisy max",
            APART[1:],
            lambda x, words: noisy_max(np.array(x), random=words, epsilon=1),
            "choice_mechanisms.noisy_max",
        ),
        _subject(
            "study: permute-and-flip",
            APART[1:],
            lambda x, words: permute_and_flip(np.array(x), random=words, epsilon=1),
            "choice_mechanisms.permute_and_flip",
        ),
    )


def broken_textbook_subjects() -> tuple[Subject[Counts], ...]:
    """Sensitivities in the wrong unit, and scores that move further than was said."""
    wide = (Pair("numbers that move by 64", (0.0, 64.0), (64.0, 0.0)),)
    return (
        _subject(
            "study: numbers in another unit than their sensitivity",
            wide,
            lambda x, words: laplace_mechanism(np.array(x), random=words, epsilon=1, sensitivity=1),
            is_broken=True,
        ),
        _subject(
            "study: scores that move further than was said",
            wide,
            lambda x, words: above_threshold(np.array(x), random=words, epsilon=1, T=32),
            is_broken=True,
        ),
        _subject(
            "study: a choice among scores that move further than was said",
            wide,
            lambda x, words: permute_and_flip(np.array(x), random=words, epsilon=1),
            is_broken=True,
        ),
    )


def _subject(
    name: str, pairs: Sequence[Pair[Counts]], call: Call, *covers: str, is_broken: bool = False
) -> Subject[Counts]:
    """A mechanism by its call; what it says it costs is its claim."""
    claim = Claim.of(call(pairs[0].left, system_words()).cost)

    def sampler(data: Counts) -> Sampler:
        def run(runs: int, source: WordSource) -> Array:
            return np.array([_row(call(data, source).answers) for _ in range(runs)])

        return run

    names = frozenset(c if "." in c and c.startswith("sfumato") else f"{RUN}.{c}" for c in covers)
    return Subject(name, claim, pairs, sampler, names, slowness=SLOWNESS, is_broken=is_broken)


def _row(answers: object) -> Array:
    """Answers as numbers: below is -1, and what was not tested any more is not a number."""
    if isinstance(answers, list):
        numbers = [-1.0 if a is None else float(a) for a in answers]
        return np.array([*numbers, *[np.nan] * (4 - len(numbers))])
    return np.asarray(answers, dtype=np.float64).reshape(-1)


Code = tuple[int]
SIZES = (2, 3)
CODES = 5  # of the records of a table
CALLS = 16  # how much slower a call for every run is than one for all of them
ROOM = "sfumato.study.local_model"
ENCODE = f"{ROOM}.RandomizedResponse.encode"
BY_NAME = "sfumato.run.textbook.local_responses.randomized_response"


def local_subjects() -> tuple[Subject[Code] | Subject[Table] | Subject[tuple[int, ...]], ...]:
    """One bit, one of eight codes, a row, a bit of a factorization, bits of all codes, a table."""
    return (
        _response(2),
        _response(8),
        _random_row(),
        one_bit_subject("local factorization", 1),
        unary_subject("unary encoding"),
        unary_subject("unary encoding, symmetric", kind="symmetric"),
        tallied_subject("reports of a table, tallied"),
    )


def one_bit_subject(name: str, epsilon: float, is_broken: bool = False) -> Subject[Code]:
    """Running totals of four cells, one bit a client; the claim is epsilon = 1."""
    mechanism = LocalFactorization.of(np.tril(np.ones((4, 4))), epsilon)

    def sampler(code: Code) -> Sampler:
        return lambda runs, source: _column(mechanism.encode(np.full(runs, code[0]), source))

    pairs = (Pair("first cell becomes last", (0,), (3,)), Pair("and the next", (0,), (1,)))
    covers = frozenset({"sfumato.study.local_factorization.LocalFactorization.encode"})
    return Subject(name, Claim.of(Cost.pure(1)), pairs, sampler, covers, is_broken=is_broken)


def _response(size: int) -> Subject[Code]:
    response = RandomizedResponse(1, size)

    def sampler(code: Code) -> Sampler:
        return lambda runs, source: _column(response.encode(np.full(runs, code[0]), source))

    pairs = (
        Pair("first code becomes last", (0,), (size - 1,)),
        Pair("first code becomes second", (0,), (1,)),
    )
    name = f"randomized response of {size} codes"
    covers = frozenset({ENCODE, f"{ROOM}.RandomizedResponse", f"{ROOM}.keep_threshold"})
    return Subject(name, Claim.of(Cost.pure(1)), pairs, sampler, covers)


def unary_subject(
    name: str,
    factor: int = 1,
    kind: Literal["symmetric", "optimized"] = "optimized",
    is_broken: bool = False,
) -> Subject[Code]:
    """A bit for every one of four codes; with a factor, at so many times the claimed epsilon."""
    chosen = "symmetric" if is_broken else kind

    def sampler(code: Code) -> Sampler:
        response = UnaryEncoding(factor, 4, chosen)
        randomized_response([code[0]], epsilon=1, size=4, encoding="unary")  # the same, by its name

        def run(runs: int, source: WordSource) -> Array:
            return response.encode(np.full(runs, code[0]), source).astype(np.float64)

        return run

    pairs = (Pair("first code becomes last", (0,), (3,)),)
    unary = f"{ROOM}.UnaryEncoding"
    covers = frozenset({unary, f"{unary}.encode", BY_NAME})
    return Subject(name, Claim.of(Cost.pure(1)), pairs, sampler, covers, is_broken=is_broken)


def tallied_subject(name: str, is_broken: bool = False) -> Subject[tuple[int, ...]]:
    """Records of a table by their counts: what leaves are sums of reports.

    The wrong one tells the reports in the order in which counts list the records: one replaced
    record moves all that stand between its two codes.
    """
    response = RandomizedResponse(1, CODES)

    def sampler(counts: tuple[int, ...]) -> Sampler:
        codes = np.repeat(np.arange(CODES), counts)
        randomized_response(codes, epsilon=1, size=CODES)  # the same, by its name

        def run(runs: int, source: WordSource) -> Array:
            if is_broken:
                reports = response.encode(np.tile(codes, (runs, 1)), source)
                return reports.astype(np.float64)
            box = Sensitive[Sequence[int]](counts)
            rows = [tallied_reports(box, response.encode, CODES, source)[0] for _ in range(runs)]
            return np.array(rows, dtype=np.float64)

        return run

    pairs = (
        Pair("the first code becomes the last", (1,) * CODES, (0, 1, 1, 1, 2)),
        Pair("the only record is replaced", (1, 0, 0, 0, 0), (0, 0, 0, 0, 1)),
    )
    measure = "sfumato.vault.mechanisms.measure"
    covers = frozenset({f"{measure}.tallied_reports", f"{measure}.reported", BY_NAME})
    slowness = 1 if is_broken else CALLS
    return Subject(
        name,
        Claim.of(Cost.pure(1)),
        pairs,
        sampler,
        frozenset() if is_broken else covers,
        slowness=slowness,
        is_broken=is_broken,
    )


def _random_row() -> Subject[Table]:
    def sampler(table: Table) -> Sampler:
        codes = np.array(table, dtype=np.int64)

        def run(runs: int, source: WordSource) -> Array:
            reports = encode_table(np.tile(codes, (runs, 1)), SIZES, 1, source)
            return reports.astype(np.float64)

        return run

    pairs = (
        Pair("one attribute of a row changes", ((0, 0),), ((0, 1),)),
        Pair("both attributes change", ((0, 0),), ((1, 2),)),
    )
    covers = frozenset({"sfumato.study.local_model.encode_table", ENCODE})
    return Subject("randomized response of rows", Claim.of(Cost.pure(1)), pairs, sampler, covers)


def _column(values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Array:
    return values.astype(np.float64)[:, None]
