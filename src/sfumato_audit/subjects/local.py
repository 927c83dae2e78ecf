# SPDX-License-Identifier: Apache-2.0
"""The local model: the report of one client, whose code is replaced by another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from sfumato.privacy.cost import Cost
from sfumato.random import WordSource
from sfumato.run.textbook.local_responses import randomized_response
from sfumato.study.local_factorization import LocalFactorization
from sfumato.study.local_model import (
    RandomizedResponse,
    UnaryEncoding,
    encode_table,
)
from sfumato.types import Array
from sfumato.vault.mechanisms.measure import tallied_reports
from sfumato.vault.sensitive import Sensitive
from sfumato_audit.bounds import Claim
from sfumato_audit.examine import Pair, Sampler, Subject, Table

__all__ = [
    "local_subjects",
    "one_bit_subject",
    "tallied_subject",
    "unary_subject",
]


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
        _row(),
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


def _row() -> Subject[Table]:
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
