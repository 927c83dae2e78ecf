# SPDX-License-Identifier: Apache-2.0
"""Measure a strategy: `count` returns its exact values, `measure` the same with noise.

The second step of a release. The exact values stay in the vault (`Exact`); what leaves it are
noisy integers on a public grid, drawn after the debit.

Every block of the strategy is an integer matrix times ``2^-fraction_bits``, applied to exact
integer counts in integer arithmetic; the noise is exact on the same grid. No float stands
between the data and the noise (Mironov 2012, "On significance of the least significant bits";
Casacuberta et al. 2022, "Widespread underestimation of sensitivity").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, isqrt, log2

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.measurement import LENGTH_BITS, Length, Measured, Measurement
from sfumato.privacy.budget import total_is_public
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.random import WordSource, system_words
from sfumato.strategy.base import Block
from sfumato.types import Integers, Neighbours, Numbers, Progress
from sfumato.vault.count import Sensitive, count_conditions, count_marginals
from sfumato.vault.mechanisms.noise import block_noise
from sfumato.vault.tables import Table
from sfumato.vault.vault_limits import LIMITS
from sfumato.workload.terms import Term
from sfumato.workload.workload import RECORD_BITS, WORD_BITS, counted_sets, is_counted_alone

__all__ = [
    "Exact",
    "add_noise",
    "combined_values",
    "count",
    "count_histogram",
    "exact_values",
    "flat_answers",
    "measure",
    "measure_in_turn",
    "measured_length",
    "reported",
    "tallied_reports",
]


# Sums of at most 2^27 floats below 2^87 err by less than 2^(27 - 53 + 87) = 2^61.
FLOAT_BITS = 87


@dataclass(frozen=True, slots=True)
class Exact:
    """The exact ``M h`` of every block; never shown, stored or sent."""

    values: Sensitive[tuple[Numbers, ...]]
    rows: int | None


def count(
    table: Table,
    domain: Domain,
    blocks: Sequence[Block],
    neighbours: Neighbours,
    unit: PrivacyUnit | None = None,
    progress: Progress | None = None,
) -> Exact:
    """The exact ``M h`` of the blocks; what they read is counted, and nothing else.

    Under ``replace-one`` neighbours the number of counted records is public, and is kept too, but
    only when replacing a record cannot change it: neither a rule nor the source drops records, and
    one row is one person.
    """
    narrow, _ = counted_sets(b.term for b in blocks)
    is_public = total_is_public(neighbours, domain, unit, table.may_drop_records)
    sets = [*narrow, ()] if is_public else narrow
    counts = count_marginals(table, domain, sets, unit, progress, with_values=True)

    def answers(term: Term, block: Term) -> Numbers:
        if is_counted_alone(term, block):
            return count_conditions(table, domain, term.as_conditions(), unit).reveal()
        return exact_values(term, counts.reveal(term.attributes))

    values: list[Numbers] = []
    for block in blocks:
        exact = [
            _in_units(answers(t, block.term), block.term.unit_bits - t.unit_bits)
            for t in block.term.sources()
        ]
        values.append(combined_values(block.term, exact))
    return Exact(Sensitive(tuple(values)), int(counts.reveal(())) if is_public else None)


def count_histogram(
    histogram: Sensitive[Integers], blocks: Sequence[Block], is_public: bool
) -> Exact:
    """The exact ``M h`` of blocks over one attribute, from its histogram in place of a table.

    ``is_public`` says that the number of records is: then it is kept too, as in `count`.
    """
    cells = histogram.reveal()
    total = np.array(int(cells.sum()), dtype=np.int64)

    def answers(term: Term) -> Numbers:
        return exact_values(term, cells if term.attributes else total)

    values = [combined_values(b.term, [answers(t) for t in b.term.sources()]) for b in blocks]
    return Exact(Sensitive(tuple(values)), int(total) if is_public else None)


def flat_answers(exact: Exact, terms: Sequence[Term], bits: int) -> Sensitive[Sequence[int]]:
    """The exact answers of all terms in turn, in steps of ``2^-bits``; they stay in their box."""
    pairs = zip(exact.values.reveal(), terms, strict=True)
    shifts = ((values, bits - term.fraction_bits - term.unit_bits) for values, term in pairs)
    return Sensitive([int(v) << shift for values, shift in shifts for v in values])


def reported(
    codes: Sensitive[Integers],
    encode: Callable[[Integers, WordSource], Integers],
    random: WordSource,
) -> Integers:
    """The report of every person in turn: what ``encode`` makes of their codes.

    Privacy: that of ``encode`` for one code, a local randomizer (Claims 1 and 5 of
    docs/proofs/randomized-response.md).
    Neighbours: the code of one person replaced by any other.
    """
    return encode(codes.reveal(), random)


def tallied_reports(
    counts: Sensitive[Sequence[int]],
    encode: Callable[[Integers, WordSource], Integers],
    size: int,
    random: WordSource,
) -> tuple[list[int], int]:
    """How many reports say each code, or have a 1 there, and how many there are.

    Records are taken from their counts, so in the order of their codes: reports in this order would
    tell the codes, and only their sums leave (docs/proofs/randomized-response.md, Claim 6).
    Privacy: that of ``encode`` for one code; the number of records must be public.
    Neighbours: one record replaced by any other, none of them dropped.
    """
    codes = np.repeat(np.arange(size, dtype=np.int64), counts.reveal())
    tally = np.zeros(size, dtype=np.int64)
    block = max(1, LIMITS.values_at_once // size)
    for start in range(0, codes.size, block):
        reports = encode(codes[start : start + block], random)
        is_one_code = reports.ndim == 1
        tally += np.bincount(reports, minlength=size) if is_one_code else reports.sum(axis=0)
    return [int(t) for t in tally], int(codes.size)


def _in_units(exact: Numbers, bits: int) -> Numbers:
    """Exact counts in steps that are ``2^bits`` times finer: those of sums of values."""
    return exact if bits == 0 else np.asarray(exact.astype(object) * 2**bits)


def measure(
    exact: Exact,
    blocks: Sequence[Block],
    noise: Sequence[BlockNoise],
    random: WordSource | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Measure ``M h + z`` with exact noise.

    Privacy: mu-GDP (Gaussian) or epsilon-DP (Laplace) with the loss that
    ``planning.calibrate.privacy_loss`` states for these blocks, this noise and the neighbours.
    Neighbours: as given to ``privacy_loss``; ``rows`` is passed on only where it is public.
    """
    return measure_in_turn(exact, blocks, noise, lambda *_: noise, None, random, progress)


def measure_in_turn(
    exact: Exact,
    blocks: Sequence[Block],
    noise: Sequence[BlockNoise],
    divide: Callable[[Measurement, Measurement | None], Sequence[BlockNoise]],
    length: Callable[[Measurement], Length | None] | None = None,
    random: WordSource | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Measure the first block with ``noise[0]``, then all with the noise that follows from it.

    ``length`` gets the measurement of the first block, which is public, and says which length is
    measured next, if one is. ``divide`` gets both measurements, and nothing else of the data. The
    first block is measured again where its noise is another then, and is not else.

    Privacy: where ``privacy_loss`` of ``noise[0]`` alone, the loss of the length and
    ``privacy_loss`` of all that ``divide`` returns add up to no more than the loss that is paid
    (without ``noise[0]`` alone, where it returns ``noise[0]``): docs/proofs/measuring.md, Divided
    budgets.
    Neighbours: as given to ``privacy_loss``; ``rows`` is passed on only where it is public.
    """
    random = system_words() if random is None else random
    revealed = exact.values.reveal()
    first = Measurement(add_noise(revealed[0], blocks[0].term, noise[0], random), noise[0])
    wanted = None if length is None else length(first)
    long = None if wanted is None else measured_length(exact, blocks, wanted, random)
    out = []
    laws = divide(first, long)
    for i, (values, block, law) in enumerate(zip(revealed, blocks, laws, strict=True)):
        is_measured = i == 0 and law == noise[0]
        out.append(
            first if is_measured else Measurement(add_noise(values, block.term, law, random), law)
        )
        if progress is not None:
            progress(i + 1, len(blocks), "measuring")
    return Measured(tuple(out), exact.rows)


def measured_length(
    exact: Exact, blocks: Sequence[Block], length: Length, random: WordSource
) -> Measurement:
    """The length of all values together, each block by its weight, with noise.

    ``floor(2^g sqrt(sum_b w_b |M_b h|^2))`` in exact integers, g the bits of the grid, and noise of
    whole steps.

    Privacy: two lengths differ by no more than the vectors do, rounded down by less than one step
    more; so it costs no more than what ``planning.division`` says: docs/proofs/measuring.md,
    Divided budgets.
    Neighbours: as given to ``planning.division``.
    """
    law, square = length.noise, 0
    for values, block, weight in zip(exact.values.reveal(), blocks, length.weights, strict=True):
        if weight and (block.term.fraction_bits or block.term.unit_bits):
            raise ValueError("lengths are those of whole numbers")  # planned for no others
        square += weight * _square(values) if weight else 0
    steps = isqrt(square << 2 * law.grid_bits) >> LENGTH_BITS
    noisy = steps + int(block_noise(law, 1, random)[0])
    return Measurement(np.array([noisy], dtype=object), law)


def _square(values: Numbers) -> int:
    """The sum of the squares, exactly."""
    if values.dtype.kind == "O" or _greatest(values) >= 2**31:
        return sum(int(v) ** 2 for v in values.reshape(-1))
    squares = values.reshape(-1).astype(np.int64) ** 2
    return (int((squares >> 32).sum()) << 32) + int((squares & (2**32 - 1)).sum())


def exact_values(term: Term, table: Integers) -> Numbers:
    """``M h`` in steps of ``2^-(fraction_bits + unit_bits)``, exactly.

    64-bit integers hold the result modulo 2^64, exactly, even where it is larger. Then floats,
    which err by less than half of 2^64 here, say how many times 2^64 is missing; where it is
    missing nowhere, the integers are the result. Coefficients beyond that are left to Python
    integers. Which of these it is shows in the time alone.
    """
    if term.slack:  # rounded to its grid, as far as the slack says
        return term.apply(table)
    reach = _reach_bits(term)
    if reach > FLOAT_BITS:
        return term.apply(table.astype(object))
    low = term.apply(table)
    if reach <= WORD_BITS:
        return low
    near = np.asarray(np.ldexp(term.apply(table.astype(np.float64)), term.fraction_bits))
    near -= low
    turns = np.rint(np.divide(near, 2.0**64, out=near), out=near)
    if not turns.any():
        return low
    whole = np.array([int(t) for t in turns], dtype=object)
    return np.asarray(low.astype(object) + whole * 2**64)


def combined_values(term: Term, answers: Sequence[Numbers]) -> Numbers:
    """``M h`` in steps of ``2^-fraction_bits``, exactly, from the exact answers of its sources.

    In 64 bits, where the result is known to fit (partial sums may wrap around), else in Python
    integers; which of the two is public.
    """
    return term.combine(answers, fits=_reach_bits(term) <= WORD_BITS)


def add_noise(exact: Numbers, term: Term, law: BlockNoise, random: WordSource) -> Numbers:
    """``M h + z`` in steps of the noise grid.

    The grid holds every possible value of ``M h``, or ``M h`` is rounded to it first, and
    ``planning.calibrate`` has counted what that can move.

    Privacy: the discrete Laplace of scale ``units`` steps, or the Gaussian of standard deviation
    ``units`` steps rounded to whole steps: docs/proofs/discrete-laplace.md, rounded-gaussian.md.
    """
    shift = law.grid_bits - term.fraction_bits - term.unit_bits
    z = block_noise(law, exact.size, random)
    if exact.dtype.kind != "O" and _reach_bits(term) + max(shift, 0) <= WORD_BITS:
        for part in _parts(exact.size):  # in place: no third array of this length
            z[part] += _shifted(exact[part], shift)
        return z
    parts = [_narrowed(_wide_sum(exact[p], shift, z[p])) for p in _parts(exact.size)]
    return np.concatenate(parts) if parts else z


def _shifted(values: Numbers, shift: int) -> Numbers:
    """So many bits to the left, or to the right and to the nearest step."""
    shifted = values << shift if shift >= 0 else (values + 2 ** (-shift - 1)) >> -shift
    return np.asarray(shifted)


def _wide_sum(values: Numbers, shift: int, noise: Numbers) -> Numbers:
    """The shifted values with their noise: in Python integers, unless these are in 64 bits too.

    The sums are the same either way; which it is shows in the time alone.
    """
    if values.dtype.kind != "O" and noise.dtype.kind != "O":
        reach = (_greatest(values) << max(shift, 0)) + (1 << max(-shift, 0)) + _greatest(noise)
        if reach < 2**WORD_BITS:
            return np.asarray(_shifted(values, shift) + noise)
    return np.asarray(_shifted(values.astype(object), shift) + noise)


def _greatest(numbers: Integers) -> int:
    """The greatest absolute value."""
    return max(-int(numbers.min(initial=0)), int(numbers.max(initial=0)))


def _parts(size: int) -> list[slice]:
    step = LIMITS.values_at_once
    return [slice(i, i + step) for i in range(0, size, step)]


def _narrowed(noisy: Numbers) -> Numbers:
    """The same values, as 64-bit integers if all of them fit; they are noisy, hence public."""
    fits = noisy.min(initial=0) > -(2**WORD_BITS) and noisy.max(initial=0) < 2**WORD_BITS
    return np.asarray(noisy.astype(np.int64) if fits else noisy)


def _reach_bits(term: Term) -> int:
    """Bits of ``|M h|``: in steps it stays below 2 to this power, for fewer than 2^44 records."""
    bits = term.fraction_bits + term.unit_bits
    return ceil(log2(max(term.greatest, 1.0))) + bits + RECORD_BITS
