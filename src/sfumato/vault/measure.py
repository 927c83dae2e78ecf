# SPDX-License-Identifier: Apache-2.0
"""Measure: exact counts in, noisy integers on a public grid out. The only door of the vault.

Every block of the strategy is an integer matrix times ``2^-fraction_bits``, applied to exact
integer counts in integer arithmetic; the noise is exact on the same grid. No float stands
between the data and the noise (Mironov 2012, "On significance of the least significant bits";
Casacuberta et al. 2022, "Widespread underestimation of sensitivity").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, log2

import numpy as np

from sfumato.budget import Neighbours
from sfumato.domain import Domain
from sfumato.plan.calibrate import BlockNoise
from sfumato.plan.strategy import Block
from sfumato.randomness import WordSource, system_words
from sfumato.refine.measurement import Measured, Measurement
from sfumato.vault.count import PrivacyUnit, count_conditions, count_marginals
from sfumato.vault.noise import discrete_laplace, rounded_gaussian
from sfumato.vault.tables import Table
from sfumato.workload.queries import Integers, Numbers
from sfumato.workload.terms import Predicates, Term

__all__ = ["add_noise", "exact_values", "measure"]

COUNT_BITS = 40  # counts are below 2^40: the vault clamps every cell there
WORD_BITS = 62

Progress = Callable[[int, int, str], None]


def measure(
    table: Table,
    domain: Domain,
    blocks: Sequence[Block],
    noise: Sequence[BlockNoise],
    neighbours: Neighbours,
    unit: PrivacyUnit | None = None,
    words: WordSource | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Measure ``M h + z``: count what the blocks read, apply them exactly, add exact noise.

    Privacy: mu-GDP (Gaussian) or epsilon-DP (Laplace) with the loss that
    ``plan.calibrate.privacy_loss`` states for these blocks, this noise and these neighbours.
    Neighbours: under ``replace-one`` the number of records is public and is passed on;
    under ``add-remove`` it is not.
    """
    words = system_words() if words is None else words
    narrow = sorted({b.term.attributes for b in blocks if not _is_wide(b.term)})
    totals = [()] if neighbours == "replace-one" else []
    counts = count_marginals(table, domain, [*narrow, *totals], unit, progress)
    measurements = []
    for i, (block, law) in enumerate(zip(blocks, noise, strict=True)):
        if progress is not None:
            progress(i, len(blocks), "measuring")
        term = block.term
        if isinstance(term, Predicates) and term.is_wide:
            exact = count_conditions(table, domain, term.conditions, unit).reveal()
        else:
            exact = exact_values(term, counts.reveal(term.attributes), law)
        measurements.append(Measurement(add_noise(exact, term, law, words), law))
    rows = int(counts.reveal(())) if neighbours == "replace-one" else None
    return Measured(tuple(measurements), rows)


def exact_values(term: Term, table: Integers, law: BlockNoise) -> Numbers:
    """``M h`` in steps of ``2^-fraction_bits``: int64 where it cannot overflow, else Python ints."""
    entry_bits = ceil(log2(max(term.greatest, 1))) + term.fraction_bits
    shift = law.grid_bits - term.fraction_bits
    fits = entry_bits + COUNT_BITS + max(shift, 0) <= WORD_BITS
    return term.apply(table.astype(np.int64 if fits else object))


def add_noise(exact: Numbers, term: Term, law: BlockNoise, words: WordSource) -> Numbers:
    """``M h + z`` in steps of the noise grid, which holds every possible value of ``M h``.

    Privacy: the discrete Laplace of scale ``units`` steps, or the Gaussian of standard deviation
    ``units`` steps rounded to whole steps; see docs/proofs.
    """
    shift = law.grid_bits - term.fraction_bits
    draw = rounded_gaussian if law.noise == "gaussian" else discrete_laplace
    z = draw(Fraction(law.units), exact.size, words)
    if exact.dtype.kind == "O":
        return exact * 2**shift + z.astype(object)
    return (exact << shift) + z


def _is_wide(term: Term) -> bool:
    return isinstance(term, Predicates) and term.is_wide
