# SPDX-License-Identifier: Apache-2.0
"""KNOWN TO BE WRONG: mechanisms that do not keep their claim, for the audit to catch.

Nothing outside ``sfumato_audit`` may import this module (an import contract says so). Each was
published, shipped or is an easy mistake; an audit that passes one of them is blind, and fails.

Sparse vectors: the numbers are those of Lyu, Su, Li 2017, "Understanding the sparse vector
technique for differential privacy", Figure 1. All claim epsilon = 1 for queries that move by at
most 1; a table is the list of their exact answers, the threshold is 0.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from zipfile import ZipFile

import numpy as np
import numpy.typing as npt

from sfumato.domain.domain import Domain
from sfumato.planning.adaptive_costs import FINEST_GRID_BITS, Moves, Spending
from sfumato.planning.calibrate import calibrate, privacy_loss
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.planning.selection_plans import SelectionMechanism
from sfumato.planning.sparse_plans import sparse_of_epsilon
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.privacy.discovery_laws import KeyLaw
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.random import WordSource
from sfumato.run.choose import plan_selection
from sfumato.session.session_plan import UNIT as PERSON
from sfumato.strategy.base import Block, Strategy
from sfumato.strategy.laplace.atoms import in_span
from sfumato.types import Array, Integers, Noise
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.k_norm import KNorm
from sfumato.vault.mechanisms.measure import Exact, count
from sfumato.vault.mechanisms.noise import discrete_laplace, rounded_gaussian
from sfumato.vault.mechanisms.select import exponential_mechanism
from sfumato.workload.build import marginals, predicates, prefixes
from sfumato.workload.predicates import attribute
from sfumato_audit.examine import Claim, Pair, Sampler, Score, Subject, Table, listed_pairs
from sfumato_audit.published import LAST, LOW, PUBLISHED, place_and_value
from sfumato_audit.subjects.chosen import AROUND, mwem_subject, selection_subject
from sfumato_audit.subjects.discoveries import (
    KEY_LAW,
    Cells,
    Texts,
    broken_bound_subjects,
    broken_kind_subjects,
    broken_range_subjects,
    key_subject,
)
from sfumato_audit.subjects.measured import (
    K_QUERIES,
    VARIANCE,
    Measuring,
    Numbers,
    beside_a_count,
    divided_subject,
    k_norm_subject,
    length_subject,
    pairs_by_degree,
    replaced_pieces,
    square_of_half_the_range,
    unclamped,
    value_subject,
)
from sfumato_audit.subjects.online import (
    LANES,
    RESERVE,
    broken_group_subjects,
    broken_purchase_subjects,
    broken_whole_session_subjects,
    filter_subject,
)
from sfumato_audit.subjects.periods import Series, broken_period_subject
from sfumato_audit.subjects.sources import (
    DOMAIN,
    HEADER,
    JSON_LINES,
    OPEN,
    PROMISED,
    SHEET,
    SHEET_PART,
    CsvFile,
    Filtered,
    Strange,
    csv_subject,
    filtered,
    json_lines,
    reads_sheets,
    replaced_lines,
    sheets,
    source_forecast,
    source_subject,
    strange_subject,
    units_of_two_bytes,
    written_rows,
    zipped,
)
from sfumato_audit.subjects.sparse import session_plan, session_subject
from sfumato_audit.subjects.textbook import (
    Code,
    Counts,
    broken_textbook_subjects,
    one_bit_subject,
    tallied_subject,
    unary_subject,
)
from sfumato_audit.subjects.units import (
    IN_GROUPS,
    ONE_ROW,
    UNIT,
    Counted,
    People,
    count_rows,
    counted_in_the_vault,
    granted,
    ledger_subject,
    unit_subject,
)

__all__ = ["broken_subjects"]


Answers = tuple[int, ...]
Vector = Callable[[Array, WordSource], Array]

STEPS = 2**12  # of the grid, in one count
ONE = Claim("epsilon", 1.0)
FAR = 30  # records, by which estimates are surely found wrong


def broken_subjects() -> tuple[
    Subject[Answers]
    | Subject[Code]
    | Subject[Table]
    | Subject[People]
    | Subject[CsvFile]
    | Subject[Filtered]
    | Subject[Strange]
    | Subject[Numbers]
    | Subject[Counts]
    | Subject[Cells]
    | Subject[Texts]
    | Subject[Series],
    ...,
]:
    """Everything that must be caught."""
    return (
        *_sparse_vectors(),
        *_wrong_noise(),
        *_wrong_use(),
        divided_subject(is_broken=True),
        length_subject(is_broken=True),
        *_wrong_units(),
        broken_period_subject(),
        *_wrong_files(),
        *_wrong_sources(),
        strange_subject("gaussian", PROMISED, OPEN, is_broken=True),
        *_wrong_values(),
        *_wrong_rounds(),
        *_wrong_selections(),
        *broken_range_subjects(),
        *broken_bound_subjects(),
        *broken_kind_subjects(),
        *_wrong_keys(),
        *_wrong_sessions(),
        *broken_purchase_subjects(),
        *broken_whole_session_subjects(),
        *broken_group_subjects(),
        one_bit_subject("local factorization at twice its epsilon", 2, is_broken=True),
        *broken_textbook_subjects(),
        unary_subject("unary encoding: every bit at the whole of epsilon", 2, is_broken=True),
        tallied_subject("reports of a table, in the order of codes", is_broken=True),
        filter_subject(
            "ledger: the better of two filters after the fact", LANES, LANES.promise, is_broken=True
        ),
        filter_subject(
            "ledger: Gaussian noise at the whole delta, beside a reserve",
            RESERVE,
            RESERVE.promise,
            is_broken=True,
        ),
    )


def _laplace(scale: Fraction | int, shape: tuple[int, ...], source: WordSource) -> Array:
    drawn = discrete_laplace(Fraction(scale) * STEPS, int(np.prod(shape)), source)
    return drawn.reshape(shape).astype(np.float64) / STEPS


def _subject(
    name: str,
    run: Vector,
    pairs: Sequence[Pair[Answers]],
    slowness: int = 1,
    claim: Claim = ONE,
    score: Score | None = None,
) -> Subject[Answers]:
    """A mechanism that takes a row of exact answers per run."""

    def sampler(answers: Answers) -> Sampler:
        exact = np.array(answers, dtype=np.float64)
        return lambda runs, source: run(np.tile(exact, (runs, 1)), source)

    hint = None if score is None else lambda _: score
    return Subject(name, claim, pairs, sampler, hint=hint, slowness=slowness, is_broken=True)


def _sparse_vectors() -> tuple[Subject[Answers], ...]:
    down = Pair("all equal, or 3 higher and 3 lower", (0,) * 6, (1,) * 3 + (-1,) * 3)
    long = Pair("all equal, or 5 higher and 5 lower", (0,) * 10, (1,) * 5 + (-1,) * 5)
    swap = Pair("0 and 1, or 1 and 0", (0, 1), (1, 0))
    last = Pair("only the last is high, or only it is low", (0,) * LAST + (1,), (1,) * LAST + (0,))
    return (
        _subject(
            "sparse vector 3: publishes the noisy answer it compared",
            _third,
            [last],
            score=_third_event,
        ),
        _subject("sparse vector 4: noise does not grow with the cut-off", _fourth, [down]),
        _subject("sparse vector 5: no noise on the queries", _fifth, [swap]),
        _subject("sparse vector 6: no cut-off", _sixth, [long]),
        _subject("sparse vector, Gaussian queries: one draw for all", _one_draw, [swap]),
        _subject(
            "watch: a killed test is done again with its stored threshold",
            _tested_again,
            [Pair("all equal, or 20 higher and 20 lower", (0,) * 40, (1,) * 20 + (-1,) * 20)],
            score=_halves,
        ),
    )


def _third(exact: Array, source: WordSource) -> Array:
    """Algorithm 3 (Roth 2011), cut-off 1: which query was above, and the value that was above."""
    return place_and_value(PUBLISHED[2].run(exact, Fraction(1), 1, source))


def _third_event(outputs: Array) -> Array:
    """Whether only the last is above, with a low value: then the threshold was low as well.

    As in the paper's proof. Of probability 0.0137 or 0.0020 for the pair, and so a loss of 1.93,
    proved as more than 1 by 300,000 runs but for a chance below 10^-6 (tests/audit/test_audit.py).
    """
    place, value = outputs.T
    return np.asarray((place == LAST) & (value <= LOW), dtype=np.float64)


def _fourth(exact: Array, source: WordSource) -> Array:
    """Algorithm 4 (Lee, Clifton 2014): noise of 4/3 whatever the cut-off, here 3."""
    return PUBLISHED[3].run(exact, Fraction(1), 3, source)


def _fifth(exact: Array, source: WordSource) -> Array:
    """Algorithm 5 (Stoddard, Chen, Machanavajjhala 2014): only the threshold is noisy."""
    return PUBLISHED[4].run(exact, Fraction(1), 1, source)


def _sixth(exact: Array, source: WordSource) -> Array:
    """Algorithm 6 (Chen, Xiao, Zhang, Xu 2015): as many discoveries as there are."""
    return PUBLISHED[5].run(exact, Fraction(1), 1, source)


def _tested_again(exact: Array, source: WordSource) -> Array:
    """One alert, noise as it should be; but whoever kills the process at an alert sees that it
    would have come, and the threshold in the ledger is tested again as if it had not."""
    return _compared(exact, Fraction(2), Fraction(4), source)


def _halves(outputs: Array) -> Array:
    """Alerts of the first half less those of the second: the noise of the threshold cancels."""
    half = outputs.shape[1] // 2
    return np.asarray(outputs[:, :half].sum(axis=1) - outputs[:, half:].sum(axis=1))


def _compared(exact: Array, threshold: Fraction, noise: Fraction, source: WordSource) -> Array:
    limit = _laplace(threshold, (len(exact), 1), source)
    return np.asarray(exact + _laplace(noise, exact.shape, source) >= limit, dtype=np.float64)


def _one_draw(exact: Array, source: WordSource) -> Array:
    """Gaussian noise for two discoveries, but drawn once for all queries."""
    law = sparse_of_epsilon(Fraction(1), 2, STEPS, query="gaussian", false_alarm=Fraction(1, 16))
    noise = rounded_gaussian(law.query.scale, len(exact), source)[:, None]
    limit = discrete_laplace(law.threshold.scale, len(exact), source)[:, None]
    gap = np.minimum(limit - exact * STEPS, law.reach or 0)
    return np.asarray(noise >= gap, dtype=np.float64)


def _wrong_noise() -> tuple[Subject[Answers] | Subject[Table], ...]:
    one_more = [Pair("no record, or one", (0,), (1,))]
    either = [Pair("equal counts, or one more", (5, 5), (5, 6))]
    return (
        _subject("float Laplace: textbook noise in floating point", _float_laplace, one_more),
        _subject("reused noise: one draw for two counts", _reused, either),
        _scaled("sigma 10% low", "gaussian", Fraction(9, 10)),
        _halved(),
        _half_norm(),
        _by_length(),
        _scaled("Laplace noise on whole numbers 25% low", "laplace", Fraction(3, 4)),
        _subject(
            "Laplace noise on a coarser grid than the values",
            _coarser,
            one_more,
            score=lambda outputs: np.asarray(outputs[:, 0] % 1),
        ),
        _one_character_of_each_degree(),
        _differences_as_public(),
    )


def _float_laplace(exact: Array, source: WordSource) -> Array:
    """``x - sign * log(u)`` with a 53-bit u: which doubles can come out depends on x."""
    drawn = source.words(exact.size).reshape(exact.shape)
    uniform = ((drawn >> np.uint64(11)).astype(np.float64) + 1) * 2.0**-53
    sign = np.where(drawn & np.uint64(1), 1.0, -1.0)
    return np.asarray(exact - sign * np.log(uniform))


def _reused(exact: Array, source: WordSource) -> Array:
    """The same noise on every count: their differences are exact."""
    return np.asarray(exact + _laplace(1, (len(exact), 1), source))


def _coarser(exact: Array, source: WordSource) -> Array:
    """Half the count with noise in whole numbers: whether a count is even is seen in the half."""
    return np.asarray(
        exact / 2 + discrete_laplace(Fraction(1), exact.size, source).reshape(exact.shape)
    )


def _cells() -> tuple[Domain, Callable[[Noise], Strategy]]:
    domain = Domain({"cell": 4})
    table = marginals(domain, 1)
    return domain, lambda noise: MECHANISMS[noise].build(table, noise, "rmse")


def _scaled(name: str, noise: Noise, factor: Fraction) -> Subject[Table]:
    """Noise of a factor times the scale that the claim needs, through the vault."""
    domain, build = _cells()
    strategy = build(noise)
    right = calibrate(strategy, 1.0, "add-remove")
    wrong = tuple(replace(law, units=int(law.units * factor)) for law in right)
    cost = privacy_loss(strategy, right, "add-remove")
    run = Measuring(domain, strategy.blocks, wrong, "add-remove")
    return Subject(
        name,
        Claim.of(Cost.gaussian(cost) if noise == "gaussian" else Cost.pure(cost)),
        listed_pairs(domain.shape, "add-remove"),
        run.sampler,
        is_broken=True,
    )


def _halved() -> Subject[Table]:
    """Replaced records with the noise for added ones: they move a table twice as far."""
    domain, build = _cells()
    strategy = build("laplace")
    noise = calibrate(strategy, 1.0, "add-remove")
    run = Measuring(domain, strategy.blocks, noise, "replace-one")
    return Subject(
        "halved sensitivity: replaced records, noise for added ones",
        Claim.of(Cost.pure(privacy_loss(strategy, noise, "add-remove"))),
        listed_pairs(domain.shape, "replace-one"),
        run.sampler,
        is_broken=True,
    )


def _half_norm() -> Subject[Table]:
    """K-norm noise in a norm twice as large as moves allow, so that it is half the size."""
    right = KNorm.of(K_QUERIES, 1)
    wrong = replace(right, denominator=right.denominator // 2, reach=max(1, right.reach // 2))
    return k_norm_subject("K-norm noise of half the size", wrong, is_broken=True)


def _by_length() -> Subject[Table]:
    """A mixture of queries with Laplace noise for the length of its columns in L2, not in L1."""
    domain = Domain(dict.fromkeys(("one", "two", "three"), 2))
    strategy = in_span(predicates(domain, [attribute(domain, n) == 1 for n in domain.names]))
    right = calibrate(strategy, 1.0, "add-remove")
    in_l1 = strategy.sensitivity(1, scales=[1.0]).power
    in_l2 = Fraction(strategy.sensitivity(2, scales=[1.0]).power ** 0.5)
    wrong = tuple(replace(law, units=int(law.units * in_l2 / Fraction(in_l1))) for law in right)
    run = Measuring(domain, strategy.blocks, wrong, "add-remove")
    return Subject(
        "Laplace noise by the L2 norm of a matrix",
        Claim.of(Cost.pure(privacy_loss(strategy, right, "add-remove"))),
        listed_pairs(domain.shape, "add-remove"),
        run.sampler,
        hint=run.hint,
        is_broken=True,
    )


def _differences_as_public() -> Subject[Table]:
    """Pieces for replaced records with next to no noise, which the total alone may have."""
    strategy = replaced_pieces()
    domain = strategy.workload.domain
    right = calibrate(strategy, 1.0, "replace-one")
    wrong = tuple(replace(law, units=law.units // 8) for law in right)
    run = Measuring(domain, strategy.blocks, wrong, "replace-one")
    return Subject(
        "pieces for replaced records: differences as public as the total",
        Claim.of(Cost.gaussian(privacy_loss(strategy, right, "replace-one"))),
        listed_pairs(domain.shape, "replace-one"),
        run.sampler,
        hint=run.hint,
        is_broken=True,
    )


def _one_character_of_each_degree() -> Subject[Table]:
    """Conjunctions by degrees, as if a record moved one character of every degree only."""
    domain = Domain(dict.fromkeys(("one", "two", "three"), 2))
    strategy = pairs_by_degree(domain)
    right = calibrate(strategy, 1.0, "add-remove")
    wrong = tuple(
        replace(law, units=int(law.units / block.term.rows))
        for law, block in zip(right, strategy.blocks, strict=True)
    )
    run = Measuring(domain, strategy.blocks, wrong, "add-remove")
    return Subject(
        "conjunctions by degrees: one character of each counted",
        Claim.of(Cost.gaussian(privacy_loss(strategy, right, "add-remove"))),
        listed_pairs(domain.shape, "add-remove"),
        run.sampler,
        hint=run.hint,
        is_broken=True,
    )


def _wrong_use() -> tuple[Subject[Answers], ...]:
    rare = [Pair("a key that nobody has, or one", (7, 0), (7, 1))]
    either = [Pair("equal counts, or one more", (5, 5), (6, 5))]
    scores = [Pair("equal scores, or one up and all others down", (5,) * 12, (6, *(4,) * 11))]
    return (
        _subject("data-dependent domain: keys that occur", _keys, rare),
        _subject("post-selection: the largest exact count, noisy", _largest, either),
        _subject("published number of records", _rows, [Pair("2 or 3 records", (2,), (3,))]),
        _subject("exponential mechanism at twice its rate", _twice, scores, slowness=16),
        _subject("one request in two writings, drawn for each", _written_twice, either),
    )


def _keys(exact: Array, source: WordSource) -> Array:
    """GROUP BY: a noisy count for every key that the data has."""
    return np.where(exact > 0, exact + _laplace(1, exact.shape, source), np.nan)


def _largest(exact: Array, source: WordSource) -> Array:
    """All counts are noisy, but which one is published was decided on the exact ones."""
    last = exact.shape[1] - 1
    place = last - exact[:, ::-1].argmax(axis=1)  # of equal ones the last
    noisy = exact + _laplace(1, exact.shape, source)
    return np.stack([place.astype(np.float64), noisy[np.arange(len(exact)), place]], axis=1)


def _rows(exact: Array, source: WordSource) -> Array:
    """A noisy count beside the exact number of records it was divided by."""
    return np.concatenate([exact + _laplace(1, exact.shape, source), exact], axis=1)


def _written_twice(exact: Array, source: WordSource) -> Array:
    """Paid for once: fresh noise for every way of writing the same request."""
    writings = [exact + _laplace(1, exact.shape, source) for _ in range(2)]
    return np.concatenate(writings, axis=1)


def _twice(exact: Array, source: WordSource) -> Array:
    """``exp(epsilon q)`` in place of ``exp(epsilon q / 2)`` for scores that move by 1."""
    scores = Sensitive(exact[0].astype(np.int64))
    chosen = [exponential_mechanism(scores, Fraction(1), source)[0] for _ in exact]
    return np.array(chosen, dtype=np.float64)[:, None]


def _wrong_selections() -> tuple[Subject[Table], ...]:
    """Half the noise: two cells that a replaced record moves apart by 2, accounted for 1."""
    cells = marginals(Domain({"one": 2}), 1)
    names: tuple[SelectionMechanism, ...] = ("exponential", "permute-and-flip")
    out = []
    for name in names:
        plan = plan_selection(cells, Budget(epsilon=1), "replace-one", mechanism=name)
        rate = plan.forecast.rate
        assert rate is not None  # noqa: S101
        wrong = replace(plan, forecast=replace(plan.forecast, rate=2 * rate))
        subject = selection_subject(f"selection by {name}: half the noise", wrong, is_broken=True)
        out.append(replace(subject, slowness=12))  # so many runs that no luck is needed
    median = plan_selection(prefixes(Domain({"one": 3}), "one"), Budget(epsilon=1), nearest=0.5)
    rate = median.forecast.rate
    assert rate is not None  # noqa: S101
    wrong = replace(median, forecast=replace(median.forecast, rate=4 * rate))
    title = "selection of the median: distances counted as if they moved by a quarter"
    return (*out, selection_subject(title, wrong, is_broken=True, pair=AROUND))


def _wrong_units() -> tuple[Subject[People], ...]:
    wrong: dict[str, Counted] = {
        "privacy unit: the bound is not applied": _all_rows,
        "privacy unit: the first rows of the table are kept": _first_rows,
    }
    mixed = "ledger: costs per person and per row are added up"
    return (
        *(unit_subject(name, "add-remove", c, is_broken=True) for name, c in wrong.items()),
        unit_subject(
            "privacy unit with groups: rows alone are bounded",
            "add-remove",
            counted_in_the_vault("add-remove"),
            is_broken=True,
            unit=IN_GROUPS,
        ),
        unit_subject(
            "features of persons: the table is as long as its rows",
            "add-remove",
            _all_rows,
            is_broken=True,
            unit=ONE_ROW,
        ),
        ledger_subject(mixed, granted(False), is_broken=True),
    )


def _all_rows(people: People, _: int, blocks: Sequence[Block]) -> Exact:
    """Noise for two rows a person, counts of all of them."""
    return count_rows(people, blocks)


def _first_rows(people: People, _: int, blocks: Sequence[Block]) -> Exact:
    """Two rows a person, and so many of the table: who comes first pushes others out."""
    seen = [owner for owner, _ in people]
    rows = [row for i, row in enumerate(people) if seen[:i].count(row[0]) < UNIT.rows]
    return count_rows(tuple(rows[: 3 * UNIT.rows]), blocks)


def _wrong_values() -> tuple[Subject[Numbers], ...]:
    return (
        value_subject("values: not clamped", "laplace-table", "add-remove", unclamped),
        value_subject("values: not clamped", "gaussian-table", "replace-one", unclamped),
        value_subject("values: sum beside count", "laplace-table", "add-remove", beside_a_count),
        value_subject(
            "second moments: square of half the range",
            "gaussian-table",
            "add-remove",
            square_of_half_the_range,
            VARIANCE,
        ),
    )


def _wrong_files() -> tuple[Subject[CsvFile], ...]:
    return (
        csv_subject(
            "CSV file: lines inside quotes are records",
            "add-remove",
            written_rows(),
            "lines",
            is_broken=True,
        ),
        csv_subject(
            "CSV file: malformed lines are dropped",
            "replace-one",
            replaced_lines(),
            "lines",
            _without_malformed,
            is_broken=True,
        ),
        csv_subject(
            "CSV file in UTF-16: cut at bytes, not at units",
            "add-remove",
            units_of_two_bytes(),
            "lines",
            is_broken=True,
            encoding="latin-1",
            header=HEADER,
        ),
        csv_subject(
            "JSON lines: lines that are no objects are dropped",
            "replace-one",
            json_lines(),
            None,
            _without_broken_json,
            is_broken=True,
            file_name=JSON_LINES,
        ),
        *(
            csv_subject(
                "spreadsheet: every row of the used range is a record",
                "add-remove",
                sheets("add-remove"),
                None,
                _every_row,
                is_broken=True,
                file_name=SHEET,
            )
            for _ in range(reads_sheets())
        ),
    )


def _every_row(file: CsvFile) -> CsvFile:
    """Rows without a value get one, down to the last: a row far below makes records of nobody."""
    with ZipFile(io.BytesIO(file)) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    sheet = parts[SHEET_PART]
    numbers = [int(n) for n in re.findall(r'<row r="(\d+)"', sheet)]
    cell = '<c r="B{0}" t="inlineStr"><is><t>x</t></is></c>'
    empty = (n for n in range(1, max(numbers)) if n not in numbers)
    rows = "".join(f'<row r="{n}">{cell.format(n)}</row>' for n in empty)
    return zipped(parts | {SHEET_PART: sheet.replace("</sheetData>", f"{rows}</sheetData>")})


def _without_broken_json(file: CsvFile) -> CsvFile:
    """Lines that do not look like objects are left out, and so a public number is changed."""
    lines = file.splitlines(keepends=True)
    return b"".join(line for line in lines if line.startswith(b"{") and line.endswith(b"}\n"))


def _without_malformed(file: CsvFile) -> CsvFile:
    """Lines of another number of values are left out, and with them a public number is changed."""
    lines = file.splitlines(keepends=True)
    return b"".join(line for line in lines if line.count(b",") == lines[0].count(b","))


def _wrong_sources() -> tuple[Subject[Filtered], ...]:
    """A filtered source taken for a stored table, whose number of records is public."""
    stored = source_forecast("gaussian", may_drop_records=False)
    right = source_forecast("gaussian", may_drop_records=True)

    def published(rows: Filtered) -> Exact:
        exact = count(filtered(rows), DOMAIN, right.strategy.blocks, "replace-one")
        return Exact(exact.values, sum(is_seen for _, is_seen in rows))

    def counted(rows: Filtered) -> Exact:
        return count(filtered(rows), DOMAIN, stored.strategy.blocks, "replace-one")

    return (
        source_subject(
            "filter: the number of records is published", right, published, is_broken=True
        ),
        source_subject("filter: noise of a stored table", stored, counted, is_broken=True),
    )


class _Coarse(Spending):
    """A purse whose noise is right in counts, and taken for steps of the grid."""

    def noise(
        self, amount: Fraction, moves: Moves, most_bits: int = FINEST_GRID_BITS
    ) -> BlockNoise:
        """So many steps as it should be counts."""
        law = super().noise(amount, moves, most_bits)
        return replace(law, units=-(-law.units >> law.grid_bits))

    def cost_of_noise(self, law: BlockNoise, moves: Moves) -> Fraction:
        """What the noise would cost if it were in counts."""
        return super().cost_of_noise(replace(law, grid_bits=0), moves)


def _wrong_rounds() -> tuple[Subject[Table], ...]:
    name = "mwem: noise in the wrong unit"
    return (mwem_subject(name, lambda: _Coarse("laplace", Fraction(2)), 2.5, is_broken=True),)


class _Repeated:
    """Words that begin again with every draw: what a source seeded in every call gives."""

    def __init__(self, source: WordSource) -> None:
        self._block = source.words(2**6)

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """The first words again."""
        return self._block[:count]


def _wrong_keys() -> tuple[Subject[Answers], ...]:
    """A threshold that a new key reaches too often, and keys that nobody has."""

    def not_above(people: Integers, law: KeyLaw, source: WordSource) -> tuple[Integers, Integers]:
        noisy = people + discrete_laplace(1 / KEY_LAW.epsilon, people.size, source)
        # "<=" where "<" is meant: numbers of one less are published.
        (passed,) = np.nonzero(~(noisy <= law.threshold - 1))
        return passed, noisy[passed]

    def without_threshold(
        people: Integers, law: KeyLaw, source: WordSource
    ) -> tuple[Integers, Integers]:
        del law
        noisy = people + discrete_laplace(1 / KEY_LAW.epsilon, people.size, source)
        (passed,) = np.nonzero(noisy > 0)
        return passed, noisy[passed]

    return (
        key_subject("keys: <= in place of <", KEY_LAW, publishing=not_above, is_broken=True),
        key_subject("keys: all above 0", KEY_LAW, publishing=without_threshold, is_broken=True),
    )


def _wrong_sessions() -> tuple[Subject[Table], ...]:
    plan = session_plan(Budget(epsilon=2), "replace-one")
    wrong = replace(plan, noise=replace(plan.noise, scale=plan.noise.scale / PERSON))
    # The record moves in one attribute only: noise that comes again cancels in the difference.
    again = session_subject(
        "session: the same words in every draw", plan, plan, 0, FAR, _Repeated, (0, 3)
    )
    return again, session_subject("session: noise in the wrong unit", plan, wrong, 0, FAR)
